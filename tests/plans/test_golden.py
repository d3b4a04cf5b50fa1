"""Golden plans: for each query its plan file (`golden/<name>.plan`, without and with properties) and its shape.

Each plan must print what it was parsed from, parse to equal objects, and give DuckDB's rows as planned and as read
back. `pytest --regen` rewrites the files; review reads the diff."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.planner.support import assert_same_rows, golden, is_ordered, oracle, physical_plan, run_plan, session
from tests.plans.queries import QUERIES
from tsql.backends import Run
from tsql.backends.explain import explain
from tsql.planner.physical.check import check
from tsql.planner.physical.planfile import parse_plan
from tsql.planner.physical.step import PhysicalPlan

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def db() -> Any:
    return session()


@pytest.fixture(scope="module")
def duck() -> Any:
    return oracle()


def shape(plan: PhysicalPlan) -> str:
    """The steps alone, with their inputs: what a change of costs or rules moves."""
    lines = []
    for step in plan.root.walk():
        phase = getattr(step, "phase", "complete")
        words = [step.op, *(i.name for i in step.inputs), *([] if phase == "complete" else [phase])]
        lines.append(f"{step.name}: {' '.join(words)}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", QUERIES)
def test_plan(name: str, db: Any, regen: bool) -> None:
    sql, shards = QUERIES[name]
    plan = physical_plan(db, sql, shards=shards)
    shown = explain(plan, "physical", db.backend, Run(settings=db.settings))
    golden(GOLDEN / f"{name}.plan", f"# {sql}\n{shown}", regen)
    golden(GOLDEN / f"{name}.shape", shape(plan), regen)


@pytest.mark.parametrize("name", QUERIES)
def test_round_trip(name: str, db: Any) -> None:
    sql, shards = QUERIES[name]
    plan = physical_plan(db, sql, shards=shards)
    text = plan.text()
    read = parse_plan(text, db.catalog)
    assert read == plan
    assert [s.name for s in read.root.walk()] == [s.name for s in plan.root.walk()]
    assert read.text() == text
    shown = (GOLDEN / f"{name}.plan").read_text(encoding="utf-8")
    body = parse_plan(shown, db.catalog)
    assert body == plan, "comments take no part"


@pytest.mark.parametrize("name", QUERIES)
def test_rows(name: str, db: Any, duck: Any) -> None:
    sql, shards = QUERIES[name]
    plan = physical_plan(db, sql, shards=shards)
    expected = duck.sql(sql).to_arrow_table()
    ordered = is_ordered(sql)
    assert_same_rows(run_plan(db, plan), expected, ordered=ordered)
    read = parse_plan(plan.text(), db.catalog)
    check(read)
    assert_same_rows(run_plan(db, read), expected, ordered=ordered)


def test_no_stray_goldens() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(QUERIES)
