"""LIMIT over the rows of a cluster: how many rows the driver needs of each step that tasks compute."""

from __future__ import annotations

from collections.abc import Iterator

from tsql.backends import Run
from tsql.backends.local.run.constants import row_count
from tsql.planner.physical.movement import Gather
from tsql.planner.physical.operators.limit import Limit
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.step import Step

GROWTH = 4
"""Each wave of tasks is so many times as large as the one before."""

MOST_ROWS = (1 << 63) - 1
"""A limit in a task is a BIGINT. The sum of a count and an offset may be none."""


def growing(partitions: int, cores: int) -> Iterator[list[int]]:
    """The partitions in waves: first as many as there are cores, then more and more."""
    start, size = 0, cores
    while start < partitions:
        yield list(range(start, min(start + size, partitions)))
        start, size = start + size, size * GROWTH


def rows_asked(root: Step, entries: list[Step], run: Run) -> dict[int, int]:
    """The most rows that are needed of an entry, by its id, where all its users are limits."""
    users: dict[int, list[Step]] = {}
    for step in root.walk():
        for below in step.inputs:
            users.setdefault(id(below), []).append(step)
    found = {}
    for entry in entries:
        asked = [_asked(user, users, run) for user in users.get(id(entry), ())]
        known = [rows for rows in asked if rows is not None]
        if isinstance(entry, Gather) and asked and len(known) == len(asked):
            found[id(entry)] = max(known)
    return found


def _asked(step: Step, users: dict[int, list[Step]], run: Run) -> int | None:
    """The rows that a step needs of its input; None for all of them."""
    if isinstance(step, Limit) and not step.is_percentage:
        count = row_count(step.count, run.parameters)
        asked = None if count is None else count + (row_count(step.offset, run.parameters) or 0)
        return asked if asked is None or asked <= MOST_ROWS else None
    if isinstance(step, Project) and len(users.get(id(step), ())) == 1:
        return _asked(users[id(step)][0], users, run)
    return None
