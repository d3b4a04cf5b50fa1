"""How the splits of a scan are dealt to tasks: in order, in runs of about equal size, as many as the bytes ask for; and
the form in which they travel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tsql.backends.io import Split
from tsql.kernels.expr.schema import Schema
from tsql.planner.physical.estimate import width

TASK_BYTES = 256 << 20
"""The decoded columns that one task should read."""

MOST_TASKS = 20_000
"""A stage has at most this many tasks; they read more where there is more. The driver keeps what each of them tells,
and a shuffle has a block for each of them and each shard."""

LAUNCH_US = 840.0
"""The driver's work to start a task and to hear of its end. It does so for one task after the other."""

TASK_BYTE_NS = 5.0
"""What a task does with a byte: read, decode, filter, join or group."""

FEW_TASKS = 64
"""So many tasks are started in a moment, whatever they do."""

OPEN_BYTES = 4 << 20
"""Opening a file takes as long as so many bytes, as in Spark: a request to a store."""

UNKNOWN_ROWS = 1_000_000
"""Rows of a split that does not know them."""


def tasks_for(total_bytes: float, splits: int, cores: int) -> int:
    """The number of tasks for so many bytes, no more than there are splits. It is a multiple of the cores, so that none
    waits for a last straggler, or fewer, where the driver would start tasks longer than they run."""
    launches = total_bytes * TASK_BYTE_NS * 1e-3 / LAUNCH_US
    # The driver starts n tasks while each does an n-th of the work: the sum is least where both take the same time.
    worth = max(FEW_TASKS, math.ceil(math.sqrt(launches)))
    if worth < cores:
        return max(1, min(splits, worth))
    rounds = -(-int(total_bytes) // (TASK_BYTES * cores))
    # Tasks so long that the driver starts them twice as fast as they end.
    kept_busy = max(FEW_TASKS // cores, int(launches / (2 * cores * cores)))
    return max(1, min(splits, max(1, min(rounds, MOST_TASKS // cores, kept_busy)) * cores))


def decoded_bytes(splits: Sequence[Split], schema: Schema) -> float:
    """The decoded bytes of splits. A column takes at least a byte per row: rows are counted too. A file that nobody has
    opened yet counts for more."""
    unopened = sum(split.rows is None and split.expected is not None for split in splits)
    return sum(map(_rows, splits)) * max(1.0, width(schema)) + unopened * OPEN_BYTES


def _rows(split: Split) -> int:
    known = split.expected if split.rows is None else split.rows
    return UNKNOWN_ROWS if known is None else known


def plain(split: Split) -> list[Any]:
    """A split as plain data."""
    return [split.order, split.path, split.rows, split.detail, split.expected, split.constants]


def split_of(data: list[Any]) -> Split:
    """The split of plain data."""
    order, path, rows, detail, expected, constants = data
    return Split(order, path, rows, detail, 0, expected, constants)


def dealt(splits: Sequence[Split], tasks: int) -> list[list[Split]]:
    """Runs of splits, in order, of about equal rows. No task is without a split if there are enough."""
    weights = [max(1, _rows(split)) for split in splits]
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
