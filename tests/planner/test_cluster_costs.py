"""Plans for a cluster follow its costs, and the memory of its executors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.spark.cluster import InProcess
from tsql.analyze.statements import analyze
from tsql.backends import Settings
from tsql.backends.spark.backend import LEAST_BROADCAST_BYTES, MOST_BROADCAST_BYTES, SparkBackend
from tsql.planner import make_plan
from tsql.planner.cost.constants import DEFAULT, Costs
from tsql.planner.physical.estimator import Estimator
from tsql.planner.physical.movement import Broadcast, Movement
from tsql.planner.physical.step import PhysicalPlan, Step

JOIN = "SELECT count(*) AS n FROM a JOIN b ON a.k = b.k"


@pytest.fixture
def db() -> Iterator[Any]:
    with tsql.connect() as db:
        for name, rows in (("a", 400_000), ("b", 200_000)):
            db.register(name, pa.table({"k": range(rows), "v": range(rows)}))
        yield db


def planned(db: Any, sql: str, costs: Costs, shards: int = 8) -> PhysicalPlan:
    (statement,) = analyze(sql, db.catalog)
    return make_plan(statement.plan, Settings(), "", "spark", shards, statement.hints, costs)


def moves(plan: PhysicalPlan) -> list[str]:
    return [
        step.how or step.op if isinstance(step, Broadcast) else step.op
        for step in plan.root.walk()
        if isinstance(step, Movement)
    ]


def test_a_join_follows_the_costs_of_the_cluster(db: Any) -> None:
    cheap = replace(DEFAULT, stage_us=0.001, job_us=0.001, global_byte_ns=0.001, move_ns=0.001, pipeline_us=0.001)
    assert moves(planned(db, JOIN, replace(cheap, broadcast_byte_ns=1e4))) == ["redistribute", "redistribute"]
    dear = replace(DEFAULT, stage_us=1e6, global_byte_ns=1e4, broadcast_byte_ns=0.001)
    assert moves(planned(db, JOIN, dear)) == ["send"]


def test_a_side_beyond_the_memory_of_an_executor_is_placed(db: Any) -> None:
    dear = replace(DEFAULT, stage_us=1e6, global_byte_ns=1e4, broadcast_byte_ns=0.001)
    assert moves(planned(db, JOIN, replace(dear, broadcast_bytes=1000))) == ["redistribute", "redistribute"]


def elapsed_ns(root: Step, costs: Costs, shards: int) -> float:
    return Estimator(shards, costs, is_cluster=True).total(root).elapsed_ns


def test_tasks_cost_as_often_as_a_core_starts_one(db: Any) -> None:
    plan = planned(db, JOIN, replace(DEFAULT, broadcast_bytes=0))
    (step, *_) = (one for one in plan.root.walk() if isinstance(one, Movement))
    base = replace(DEFAULT, task_us=1.0)
    more = replace(DEFAULT, task_us=1001.0)
    for shards, further in ((1, 0), (8, 0), (9, 1), (16, 1), (80, 9)):
        wide = replace(step, shards=shards)
        found = elapsed_ns(wide, more, 8) - elapsed_ns(wide, base, 8)
        assert found == pytest.approx(further * 1e6)


def test_a_broadcast_is_sent_once_however_many_machines_there_are(db: Any) -> None:
    plan = planned(db, JOIN, replace(DEFAULT, broadcast_bytes=0))
    (step, *_) = (one for one in plan.root.walk() if isinstance(one, Movement))
    costs = {}
    for how in ("send", "collect"):
        for shards in (8, 8000):
            sent = Broadcast((step.inputs[0],), scope="global", shards=shards, how=how)
            costs[how, shards] = Estimator(8, DEFAULT, is_cluster=True).of(sent).cost.elapsed_ns
        assert costs[how, 8] == costs[how, 8000]
    job = (DEFAULT.stage_us + DEFAULT.job_us) * 1000
    assert costs["collect", 8] - costs["send", 8] == pytest.approx(job)


class Sized(InProcess):
    """A cluster whose executors have so much memory."""

    def __init__(self, executor_bytes: int | None, cores: int = 4):
        super().__init__(cores)
        self.memory = executor_bytes

    @property
    def executor_bytes(self) -> int | None:
        return self.memory


@pytest.mark.parametrize(
    ("executor_bytes", "found"),
    [(None, None), (1 << 20, LEAST_BROADCAST_BYTES), (4 << 30, 256 << 20), (1 << 40, MOST_BROADCAST_BYTES)],
)
def test_the_limit_of_a_broadcast_follows_memory(executor_bytes: int | None, found: int | None) -> None:
    backend = SparkBackend(Sized(executor_bytes))
    assert backend.broadcast_bytes == found
    with tsql.Session(backend) as db:
        assert db._queries.broadcast_bytes == found


def test_a_local_backend_has_no_such_limit() -> None:
    with tsql.connect() as db:
        assert db._queries.broadcast_bytes is None


def test_planning_with_given_shards_starts_no_cluster() -> None:
    with tsql.Session("spark", Settings(shards=4)) as db:
        assert db._queries.broadcast_bytes is None
