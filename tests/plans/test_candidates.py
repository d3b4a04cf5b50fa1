"""The plans that a query could have: each gives the answer, and the one that runs is the cheapest."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.planner.support import assert_same_rows, is_ordered, logical_plan, oracle, physical_plan, run_plan, session
from tests.plans.queries import QUERIES
from tsql.analyze.statements import analyze
from tsql.backends import Settings
from tsql.kernels.expr.errors import CatalogError, PlanError
from tsql.planner.candidates import Candidate, candidates, listing
from tsql.planner.cost.constants import DEFAULT
from tsql.planner.physical.estimate import Cost, seen, size
from tsql.planner.physical.estimator import Estimator
from tsql.planner.physical.planfile import parse_plan


@pytest.fixture(scope="module")
def db() -> Any:
    return session()


def found(db: Any, sql: str, **options: Any) -> list[Candidate]:
    (statement,) = analyze(sql, db.catalog)
    return candidates(statement.plan, Settings(), shards=3, hints=statement.hints, **options)


@pytest.mark.parametrize("name", QUERIES)
def test_every_candidate_gives_the_answer(name: str, db: Any) -> None:
    sql = QUERIES[name][0]
    expected = oracle().sql(sql).to_arrow_table()
    plans = found(db, sql)
    texts = [candidate.plan.text() for candidate in plans]
    assert len(set(texts)) == len(texts) and [c.chosen for c in plans].count(True) == 1
    assert [c.cost.elapsed_ns for c in plans] == sorted(c.cost.elapsed_ns for c in plans)
    assert all(
        c.cost.elapsed_ns >= 0
        and (c.cost.elapsed_ns <= c.cost.cpu_ns or c.cost.global_bytes > 0)
        and c.cost.memory_bytes >= 0
        for c in plans
    )
    for candidate in plans:
        assert_same_rows(run_plan(db, candidate.plan), expected, ordered=is_ordered(sql))


def test_what_runs_is_the_cheapest(db: Any) -> None:
    plans = found(db, QUERIES["group_few"][0])
    assert len(plans) == 3 and plans[0].chosen
    assert plans[0].plan == physical_plan(db, QUERIES["group_few"][0])
    dear = found(db, QUERIES["group_few"][0], costs=replace(DEFAULT, merge_ns=1e6, pipeline_us=0.001))
    assert dear[0].chosen and dear[0].plan != plans[0].plan


def test_choices_multiply(db: Any) -> None:
    assert len(found(db, QUERIES["group_nested"][0])) > 3


def test_hints_hold_for_all(db: Any) -> None:
    assert len(found(db, QUERIES["hint_one_phase"][0])) == 1


def test_an_estimate_without_a_planner(db: Any) -> None:
    """A plan that was read has no estimates of its own: they come from the tables."""
    for name in ("group_few", "filter", "top", "union_all", "group_having"):
        plan = physical_plan(db, QUERIES[name][0])
        read = parse_plan(plan.text(), db.catalog)
        ours, theirs = Estimator(3).total(plan.root), Estimator(3).total(read.root)
        assert theirs.elapsed_ns == pytest.approx(ours.elapsed_ns, rel=0.5), name


def test_rows(db: Any) -> None:
    def rows(sql: str) -> float:
        plan = physical_plan(db, sql)
        return Estimator(3).of(plan.root).rows

    assert rows("SELECT * FROM clicks") == 300
    assert rows("SELECT * FROM clicks ORDER BY ts LIMIT 5") == 5
    assert rows("SELECT count(*) AS n FROM clicks") == 1
    assert rows("SELECT ad_id FROM clicks UNION ALL SELECT price FROM clicks") == 600
    assert 0 < rows("SELECT ad_id FROM clicks WHERE price > 3") < 300
    assert logical_plan(db, "SELECT 1 AS x") is not None


def test_what_moves() -> None:
    db = tsql.connect()
    db.register("t", pa.table({"k": pa.array(range(1000), pa.int64())}))
    text = (
        "plan version 1\ntarget local shards=4\nt = scan t columns=(k)\nkeyed = rekey t key=(k)\nplaced = "
        "redistribute keyed scope={}\nall = gather placed\noutput all (k)\n"
    )
    near, far = (Estimator(4).total(parse_plan(text.format(scope), db.catalog).root) for scope in ("local", "global"))
    assert (near.local_bytes, near.global_bytes) == (8000, 0) and (far.local_bytes, far.global_bytes) == (0, 8000)
    assert far.elapsed_ns > near.elapsed_ns


def test_numbers_for_people() -> None:
    assert [size(n) for n in (0, 999, 1000, 12_345_678, 5e15)] == ["0 B", "999 B", "1 kB", "12.3 MB", "5000 TB"]
    assert str(Cost(1.5e6, 3e6, 1000, 0, 2000)) == "1.5 ms, cpu 3 ms, memory 2 kB, 1 kB moved locally"
    assert seen(10, 0) == 0 and seen(10, 1e9) == 10 and 60 < seen(100, 100) < 65


def test_listing(db: Any) -> None:
    plans = found(db, QUERIES["group_few"][0])
    text = listing(plans, 2)
    assert len(re.findall(r"^# candidate \d of 3: .*, cpu ", text, re.MULTILINE)) == 2
    first, second = re.split(r"\n\n(?=# candidate)", text)
    for part, candidate in zip((first, second), plans, strict=False):
        assert parse_plan(part, db.catalog) == candidate.plan, "each is a plan file"
    assert listing(plans).count("# candidate") == 3


def test_relations_have_candidates(db: Any) -> None:
    relation = db.sql(QUERIES["group_few"][0])
    assert relation.candidates(1).count("plan version 1") == 1 and ", chosen\n" in relation.candidates(1)
    with pytest.raises(CatalogError, match="at least 1"):
        relation.candidates(0)
    with pytest.raises(PlanError, match="a plan file is one plan"):
        tsql.load_plan_text(relation.plan()).run(db).candidates()
