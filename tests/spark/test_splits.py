"""How splits are dealt to tasks."""

from __future__ import annotations

import heapq
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.spark.cluster import InProcess
from tsql.backends.io import Split
from tsql.backends.spark.backend import SparkBackend
from tsql.backends.spark.splits import (
    LAUNCH_US,
    MOST_TASKS,
    TASK_BYTE_NS,
    TASK_BYTES,
    UNKNOWN_ROWS,
    dealt,
    tasks_for,
)
from tsql.planner.choose.shard_sizes import shards_for
from tsql.planner.cost.constants import LARGE_SHARD_BYTES, MANY_SHARDS, SHARD_BYTES
from tsql.planner.physical.properties import MAX_SHARDS


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
    cores, splits = 100, 10_000_000
    assert tasks_for(10 * cores * TASK_BYTES, splits, cores) == 10 * cores
    assert tasks_for(1e18, splits, cores) == MOST_TASKS // cores * cores
    assert tasks_for(1e18, splits, 3 * MOST_TASKS) == 3 * MOST_TASKS, "each core has one"
    assert tasks_for(1e18, 7, cores) == 7


def elapsed(bytes: float, tasks: int, cores: int) -> float:
    """The seconds of a stage: the driver starts its tasks one by one, each of which runs for a while on a core."""
    launch, each, busy = LAUNCH_US * 1e-6, bytes / tasks * TASK_BYTE_NS * 1e-9, [0.0] * cores
    driver = 0.0
    for _ in range(tasks):
        driver = max(driver, busy[0]) + launch
        heapq.heapreplace(busy, driver + each)
    return max(busy)


@pytest.mark.parametrize("cores", [16, 400, 4000])
@pytest.mark.parametrize("bytes", [1e6, 1e9, 1e11, 1e12, 1e13])
def test_no_other_number_of_tasks_is_much_faster(bytes: float, cores: int) -> None:
    """Neither with a task for each core, nor with fewer or more of them. A task takes some bytes at most, so that it
    can be repeated, and no core waits for a long one."""
    chosen = tasks_for(bytes, 10_000_000, cores)
    assert bytes / chosen <= TASK_BYTES * 1.01 or elapsed(bytes, chosen, cores) > LAUNCH_US * 1e-6 * chosen
    found = elapsed(bytes, chosen, cores)
    for other in (1, 4, 16, 64, cores // 4, cores, 3 * cores):
        assert found <= 1.35 * elapsed(bytes, other, cores) + 0.1, (chosen, other)


@pytest.mark.parametrize("cores", [1, 7, 64, 400, 4000, 20_000])
def test_shards_follow_the_bytes(cores: int) -> None:
    assert shards_for(0, cores) == min(cores, MANY_SHARDS)
    for bytes in (1e6, 1e9, 1e11, 1e12, 1e13, 1e14, 1e16):
        shards = shards_for(bytes, cores)
        assert 1 <= shards <= MAX_SHARDS and (shards < cores or shards % cores == 0)
        if shards <= MANY_SHARDS - cores:
            assert bytes / shards <= SHARD_BYTES
        elif shards <= MAX_SHARDS - cores:
            assert bytes / shards <= LARGE_SHARD_BYTES
        if shards > max(cores, MANY_SHARDS + cores):
            assert bytes / (shards - cores) > LARGE_SHARD_BYTES


def test_more_cores_than_a_plan_has_shards(tmp_path: Path) -> None:
    pq.write_table(pa.table({"g": [n % 3 for n in range(99)], "x": range(99)}), tmp_path / "a.parquet")
    with tsql.Session(SparkBackend(InProcess(MAX_SHARDS + 5))) as db:
        relation = db.sql(f"SELECT g, median(x) FROM '{tmp_path}' GROUP BY g ORDER BY g")
        assert f"target spark shards={MAX_SHARDS}" in relation.plan()
        assert relation.fetchall() == [(0, 48.0), (1, 49.0), (2, 50.0)]


@pytest.mark.parametrize("most", [None, 10, 1 << 20])
@pytest.mark.parametrize("shards", [3, 13])
def test_splits_beside_placed_rows(tmp_path: Path, most: int | None, shards: int) -> None:
    """A stage that reads a movement and files: the splits of all tasks are in its function only as long as they are
    small."""
    numbers = range(4000)
    table = pa.table({"g": [n % 17 for n in numbers], "x": [float(n) for n in numbers]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100)

    class Watched(InProcess):
        most_given_bytes = most
        seen: list[int] = []  # noqa: RUF012

        def computed(self, rows: Any, work: Any) -> Any:
            self.seen.append(sum(len(row[3]) for mine in work.given.values() for row in mine))
            return super().computed(rows, work)

    query = (
        f"SELECT g, sum(m), count(*) FROM (SELECT g, median(x) AS m FROM '{tmp_path}' GROUP BY g UNION ALL "
        f"SELECT g, x FROM '{tmp_path}' WHERE x < 3000) GROUP BY g ORDER BY g"
    )
    with tsql.Session(SparkBackend(Watched(3))) as db, tsql.Session("local") as local:
        db.execute(f"SET shards = {shards}")
        assert db.sql(query).fetchall() == local.sql(query).fetchall()
    assert bool(max(Watched.seen)) == (most != 10)
