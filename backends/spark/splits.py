"""How the splits of a scan are dealt to tasks: in order, in runs of about equal size, as many as the bytes ask for."""

from __future__ import annotations

from collections.abc import Sequence

from tsql.backends.io import Split
from tsql.kernels.expr.schema import Schema
from tsql.planner.physical.estimate import width

TASK_BYTES = 256 << 20
"""The decoded columns that one task should read."""

MOST_TASKS = 100_000
"""A stage has at most this many tasks; they read more where there is more. The driver starts some thousand tasks a
second, and keeps what each of them tells."""

UNKNOWN_ROWS = 1_000_000
"""Rows of a split that does not know them."""


def tasks_for(total_bytes: float, splits: int, cores: int) -> int:
    """The number of tasks for so many bytes: a multiple of the cores, so that none waits for a last straggler, and no
    more than there are splits."""
    rounds = max(1, -(-int(total_bytes) // (TASK_BYTES * cores)))
    most = max(1, MOST_TASKS // cores)
    return max(1, min(splits, min(rounds, most) * cores))


def decoded_bytes(splits: Sequence[Split], schema: Schema) -> float:
    """The decoded bytes of splits. A column takes at least a byte per row: rows are counted too."""
    return sum(UNKNOWN_ROWS if split.rows is None else split.rows for split in splits) * max(1.0, width(schema))


def dealt(splits: Sequence[Split], tasks: int) -> list[list[Split]]:
    """Runs of splits, in order, of about equal rows. No task is without a split if there are enough."""
    weights = [UNKNOWN_ROWS if s.rows is None else max(1, s.rows) for s in splits]
    total, done, last = sum(weights), 0, -1
    found: list[list[Split]] = [[] for _ in range(tasks)]
    for number, (split, weight) in enumerate(zip(splits, weights, strict=True)):
        middle = (2 * done + weight) * tasks // (2 * total)
        # Whoever comes last must still get one, and nobody starts after an empty task.
        least = max(0, tasks - (len(splits) - number))
        last = min(max(middle, least, last), last + 1)
        found[last].append(split)
        done += weight
    return found
