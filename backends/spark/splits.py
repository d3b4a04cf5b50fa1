"""How the splits of a scan are dealt to tasks: in order, in runs of about equal size, as many as the bytes ask for."""

from __future__ import annotations

from collections.abc import Sequence

from tsql.backends.io import Split
from tsql.kernels.expr.schema import Schema
from tsql.planner.physical.estimate import width

TASK_BYTES = 256 << 20
"""The decoded columns that one task should read."""

UNKNOWN_ROWS = 1_000_000
"""Rows of a split that does not know them."""


def tasks_for(total_bytes: float, splits: int, cores: int) -> int:
    """The number of tasks for so many bytes: a multiple of the cores, so that none waits for a last straggler, and no
    more than there are splits."""
    rounds = max(1, -(-int(total_bytes) // (TASK_BYTES * cores)))
    return max(1, min(splits, rounds * cores))


def split_bytes(split: Split, schema: Schema) -> float:
    """The decoded bytes of a split. A column takes at least a byte per row: rows are counted too."""
    return (UNKNOWN_ROWS if split.rows is None else split.rows) * max(1.0, width(schema))


def dealt(splits: Sequence[Split], tasks: int) -> list[list[Split]]:
    """Runs of splits, in order, of about equal rows. No task is without a split if there are enough."""
    weights = [UNKNOWN_ROWS if s.rows is None else max(1, s.rows) for s in splits]
    total, done, found = sum(weights), 0, [[] for _ in range(tasks)]  # type: tuple[int, int, list[list[Split]]]
    for number, (split, weight) in enumerate(zip(splits, weights, strict=True)):
        middle = (2 * done + weight) * tasks // (2 * total)
        # Whoever comes last must still get one, and nobody starts after an empty task.
        least = max(0, tasks - (len(splits) - number))
        last = next((i for i in range(tasks - 1, -1, -1) if found[i]), -1)
        found[min(max(middle, least, last), last + 1)].append(split)
        done += weight
    return found
