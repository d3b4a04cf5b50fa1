"""Steps describe themselves: expressions, columns that they need, and their place in the registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.planner.support import physical_plan, session
from tests.plans.queries import QUERIES
from tsql.kernels.expr.nodes import Column, rewrite
from tsql.planner.choose.join_methods import METHODS
from tsql.planner.hints.join_hints import METHOD_NAMES
from tsql.planner.physical import operators
from tsql.planner.physical.operators import all_steps
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.step import Step


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    with session() as db:
        return [s for sql, shards in QUERIES.values() for s in physical_plan(db, sql, shards=shards).root.walk()]


def takes_states(step: Step) -> bool:
    """Whether expressions are over the rows that an earlier step has seen."""
    return (isinstance(step, Aggregate) and step.absorbs) or (
        isinstance(step, Combine) and step.windows.over == "states"
    )


def test_expressions(steps: list[Step]) -> None:
    """A step names columns of its inputs, and is the same step if nothing is changed in its expressions."""
    changed = 0
    for step in steps:
        known = {name for i in step.inputs for name in i.schema.names}.union(step.schema.names)
        if not takes_states(step):
            assert {c for e in step.expressions() for c in e.columns()} <= known, step
        assert step.map_expressions(lambda e: e) is step
        copied = step.map_expressions(lambda e: rewrite(e, _copied))
        assert copied == step
        changed += copied is not step
    assert changed > 50


def _copied(expr: Any) -> Any:
    return Column(expr.name, expr.dtype, expr.nullable) if isinstance(expr, Column) else expr


def test_needed_columns_are_enough(steps: list[Step]) -> None:
    """Over inputs with no other columns than it needs, a step gives the columns that are wanted of it."""
    narrowed = 0
    for step in steps:
        for wanted in (frozenset(step.schema.names), frozenset(step.schema.names[:1])):
            needs = step.needs(wanted)
            assert len(needs) == len(step.inputs)
            below = []
            for names, source in zip(needs, step.inputs, strict=True):
                assert names <= set(source.schema.names), step
                kept = [f for f in source.schema if f.name in names]
                narrowed += len(kept) < len(source.schema)
                below.append(Project((source,), columns=tuple((f.name, _column(f)) for f in kept)))
            schema = step.with_inputs(tuple(below)).schema
            assert [f for f in schema if f.name in wanted] == [f for f in step.schema if f.name in wanted], step
    assert narrowed > 50


def _column(field: Any) -> Column:
    return Column(field.name, field.type, field.nullable)


def test_every_file_is_an_operator() -> None:
    found = all_steps()
    files = {path.stem for path in Path(operators.__file__).parent.glob("*.py")} - {"__init__"}
    assert {kind.__module__.rpartition(".")[2] for kind in found.values()} == files | {"movement"}
    assert all(kind.op == op for op, kind in found.items())


def test_each_way_to_join_is_done() -> None:
    assert set(METHODS) == set(METHOD_NAMES)
