"""How splits are dealt to tasks."""

from __future__ import annotations

import random

import pytest

from tsql.backends.io import Split
from tsql.backends.spark.splits import MOST_TASKS, TASK_BYTES, UNKNOWN_ROWS, dealt, tasks_for


def slowly_dealt(splits: list[Split], tasks: int) -> list[list[Split]]:
    """The slow twin of `dealt`: it looks for the last task that has a split each time."""
    weights = [UNKNOWN_ROWS if s.rows is None else max(1, s.rows) for s in splits]
    total, done = sum(weights), 0
    found: list[list[Split]] = [[] for _ in range(tasks)]
    for number, (split, weight) in enumerate(zip(splits, weights, strict=True)):
        middle = (2 * done + weight) * tasks // (2 * total)
        least = max(0, tasks - (len(splits) - number))
        last = next((i for i in range(tasks - 1, -1, -1) if found[i]), -1)
        found[min(max(middle, least, last), last + 1)].append(split)
        done += weight
    return found


@pytest.mark.parametrize("seed", range(20))
def test_dealt(seed: int) -> None:
    choose = random.Random(seed)
    count = choose.randint(1, 60)
    sizes = [choose.choice([None, 0, 1, choose.randint(1, 100), 10_000_000]) for _ in range(count)]
    splits = [Split(number, "file", rows) for number, rows in enumerate(sizes)]
    tasks = choose.randint(1, count)
    found = dealt(splits, tasks)
    assert found == slowly_dealt(splits, tasks)
    assert [split for mine in found for split in mine] == splits and all(found)


def test_the_number_of_tasks_has_a_limit() -> None:
    cores, splits = 400, 10_000_000
    assert tasks_for(10 * cores * TASK_BYTES, splits, cores) == 10 * cores
    assert tasks_for(1e18, splits, cores) == MOST_TASKS // cores * cores
    assert tasks_for(1e18, splits, 3 * MOST_TASKS) == 3 * MOST_TASKS, "each core has one"
    assert tasks_for(1e18, 7, cores) == 7
