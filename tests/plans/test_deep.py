"""Plans with many steps in a row: up to one limit they are read, checked, printed, explained and run; beyond it they
are refused."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tsql.kernels.expr.errors import PlanError
from tsql.planner.physical.check import check
from tsql.planner.physical.movement import Gather
from tsql.planner.physical.step import MOST_DEEP, PhysicalPlan

CHAINS = {
    "filter": "filter {before} where=(a > -{number})",
    "project": "project {before} a=(a + 1)",
    "sort": "sort {before} by=(a asc nulls last)",
    "aggregate": "aggregate {before} by=(a)",
    "join": "hash_join {before} u kind=semi on=(a = c) build=right",
    "union": "union {before} none",
}


def chain(kind: str, steps: int) -> str:
    """A plan that is so many steps deep: a scan, a gather, and a chain."""
    lines = ["plan version 1", "target local shards=2", "t = scan t columns=(a)", "s2 = gather t"]
    lines += ["u0 = scan u columns=(c)", "u = gather u0"] if kind == "join" else []
    lines += ["none = filter s2 where=(false)"] if kind == "union" else []
    lines += [
        f"s{number} = {CHAINS[kind].format(before=f's{number - 1}', number=number)}" for number in range(3, steps + 1)
    ]
    return "\n".join([*lines, f"output s{steps} (a)", ""])


def session(**settings: Any) -> Any:
    db = tsql.connect(**{"threads": 2, **settings})
    db.register("t", pa.table({"a": range(10)}))
    db.register("u", pa.table({"c": range(100)}))
    return db


@pytest.mark.parametrize(
    ("kind", "steps", "settings"),
    [("filter", MOST_DEEP, {}), ("project", MOST_DEEP, {}),
     *((kind, 300, {}) for kind in ("sort", "aggregate", "join", "union")), ("filter", 200, {"backend": "interp"}),
     ("sort", 120, {"spill_after": 1})],
)  # fmt: skip
def test_deep(kind: str, steps: int, settings: dict[str, Any]) -> None:
    before = sys.getrecursionlimit()
    with session(**settings) as db:
        relation = tsql.load_plan_text(chain(kind, steps)).run(db)
        moved = steps - 2 if kind == "project" else 0
        assert sorted(relation.fetchall()) == [(a + moved,) for a in range(10)]
        assert tsql.load_plan_text(relation.plan()).run(db).plan() == relation.plan()
        assert f"s{steps}" in relation.explain("physical")
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize("steps", [MOST_DEEP + 1, MOST_DEEP + 2000])
def test_too_deep(steps: int) -> None:
    with (
        session() as db,
        pytest.raises(PlanError, match=f"the plan is more than {MOST_DEEP} steps deep here") as caught,
    ):
        tsql.load_plan_text(chain("filter", steps)).run(db)
    assert caught.value.text.splitlines()[caught.value.line_column[0] - 1].startswith(f"s{MOST_DEEP + 1} = filter")


def test_too_deep_in_python() -> None:
    with session() as db:
        dataset = db.sharded("t", ["a"]).gather()
        for _ in range(298):
            dataset = dataset.gather()
        assert dataset.run().fetchall() == [(a,) for a in range(10)]
        assert dataset.plan().count("gather") > 298
        step = dataset._step
        for _ in range(MOST_DEEP - 300):
            step = type(step)((step,))
        deep = dataset._with(step)
        with pytest.raises(PlanError, match=f"the plan is more than {MOST_DEEP} steps deep"):
            deep.gather()


def test_too_deep_by_itself() -> None:
    """The check is that of plans from queries too."""
    with session() as db:
        step = tsql.load_plan_text(chain("filter", MOST_DEEP)).bind(db).root
        with pytest.raises(PlanError, match=f"the plan is {MOST_DEEP + 1} steps deep, and it may be {MOST_DEEP}"):
            check(PhysicalPlan(Gather((step,), name="last"), ("a",), ("a",)))
