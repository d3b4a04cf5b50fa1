"""What steps claim of their output, against the rows that the tasks of the Spark backend have: a sample of
`tests/planner/test_provides.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import tsql
from tests.planner import step_cases
from tests.planner.shards import Row, assert_claims, rows_of
from tests.planner.step_cases import BASES, JOINS, OTHERS, STEPS, TABLES, bound, expected_rows
from tests.spark.cluster import InProcess
from tsql.backends import Run
from tsql.backends.local.run.entry import chunk_columns
from tsql.backends.spark.cut import Cut
from tsql.backends.spark.jobs import Jobs
from tsql.backends.spark.stages import Stages
from tsql.backends.spark.wire import decode_chunks
from tsql.kernels.expr.errors import PlanError

EVERY = 11
"""One plan in so many runs; `--all-configurations` runs all."""


@pytest.fixture(scope="module")
def oracle() -> Iterator[Any]:
    with step_cases.oracle() as found:
        yield found


@pytest.fixture(scope="module")
def db() -> Iterator[Any]:
    with tsql.connect(spark=InProcess()) as found:
        for name, table in TABLES.items():
            found.register(name, table)
        yield found


def between_machines(steps: str) -> str:
    """The steps with all movement between tasks."""
    return re.sub(
        r"= (redistribute|broadcast|multicast|reshard|arrange) (.*)",
        lambda m: m.group() if "scope=" in m.group() else f"{m.group()} scope=global",
        steps,
    )


def shards_of(db: Any, cut: Cut) -> list[list[Row]]:
    """The rows of the last step, by the task that has them; of copies those of one."""
    run, step = Run(settings=db.settings), cut.plan.root
    jobs = Jobs(db.backend.transport, run)
    stages = Stages(db.backend.transport, cut, run, jobs)
    shards = cut.properties[id(step)].shards
    found: list[list[Any]] = [[] for _ in range(shards)]
    for shard, _, place, blob in sorted(jobs.collect(stages.stage(step, None, shards)), key=lambda row: row[2]):
        found[shard] += decode_chunks(blob, len(chunk_columns(step.schema)), place)
    return [rows_of(chunks, step.schema) for chunks in found]


def look(db: Any, oracle: Any, steps: str, base: str, sql: str | None) -> bool:
    """Whether a plan was accepted; its claims hold then."""
    plan = bound(db, between_machines(steps), "spark")
    try:
        cut = None if plan is None else Cut(plan)
    except PlanError:
        cut = None
    if cut is None:
        return False
    names, claims = plan.root.schema.names, cut.properties[id(plan.root)]
    shards = shards_of(db, cut)
    if claims.replicated:
        shards = [shards[0]] * claims.shards
    try:
        assert_claims(claims, shards, names, expected_rows(oracle, base, sql, names))
    except AssertionError as error:
        raise AssertionError(f"{error}\nclaimed: {claims}\n{steps}") from None
    return True


def test_steps(db: Any, oracle: Any, request: pytest.FixtureRequest) -> None:
    every = 1 if request.config.getoption("--all-configurations") else EVERY
    cases = [
        (f"{steps}\n{step}", base, sql)
        for step, sql in STEPS.values()
        for name, (steps, base) in BASES.items()
        if name != "ranges"
    ]
    assert sum(look(db, oracle, *case) for case in cases[::every]) > len(cases[::every]) // 8


def test_joins(db: Any, oracle: Any, request: pytest.FixtureRequest) -> None:
    every = 1 if request.config.getoption("--all-configurations") else EVERY * 7
    cases = [
        (f"{steps}\n{other}\n{step}", base, sql)
        for step, sql in JOINS.values()
        for name, (steps, base) in BASES.items()
        for where, other in OTHERS.items()
        if name != "ranges" and (name, where) != ("directed twice", "directed")
    ]
    assert sum(look(db, oracle, *case) for case in cases[::every]) > 2


def test_a_broadcast_reaches_every_task(db: Any) -> None:
    """Also one to a single shard: its rows are there once for each task, and are not to be counted as if they were
    there once."""
    steps = "t = scan t columns=(a)\nr = broadcast t scope=global shards=1\n"
    ends = "output y (a)\n"
    both = tsql.load_plan_text(
        f"plan version 1\ntarget spark shards=3\n{steps}s = scan t columns=(a)\nm = union r s\ny = gather m\n{ends}"
    )
    with pytest.raises(PlanError, match="union requires each row in one shard only of r"):
        both.run(db).fetchall()
    one = tsql.load_plan_text(
        f"plan version 1\ntarget spark shards=3\n{steps}f = filter r where=(a > 1)\ny = gather f\n{ends}"
    )
    assert sorted(one.run(db).fetchall()) == sorted(
        (a,) for a in TABLES["t"]["a"].to_pylist() if a is not None and a > 1
    )
