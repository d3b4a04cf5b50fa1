"""Steps that take rows as they come: scans with the filters above them, constants, projections, series, samples."""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.emit.selection import is_selectable, string_equality
from tsql.kernels.expr.nodes import Column
from tsql.planner.choose.choice import Choice
from tsql.planner.cost import constants as cost
from tsql.planner.cost import stats
from tsql.planner.logical import generating
from tsql.planner.logical import nodes as logical
from tsql.planner.physical.movement import Gather, Redistribute, Rekey
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.sample import Sample
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.operators.series import Series
from tsql.planner.physical.operators.values import Values
from tsql.planner.physical.step import Step


def scan_step(choice: Choice, node: logical.Scan) -> Step:
    return _scan(choice, node, [])


def values_step(choice: Choice, node: logical.Values) -> Step:
    return Values((), rows=node.rows, fields=node.fields)


def filter_step(choice: Choice, node: logical.Filter) -> Step:
    filters, below = [node], node.input
    while isinstance(below, logical.Filter):
        filters.append(below)
        below = below.input
    if isinstance(below, logical.Scan) and choice.wanted.placement(below) is not None:
        return _scan(choice, below, filters)
    how = _how(choice, node) if isinstance(below, logical.Scan) else "branch"
    return Filter((choice.step(node.input),), predicate=node.predicate, how=how)


def _how(choice: Choice, node: logical.Filter) -> str:
    """Whether a filter above a scan selects runs of rows at once. It does where few rows pass it, alone or together
    with the filters below, and a cheap condition decides."""
    parts, below = [node.predicate], node.input
    while isinstance(below, logical.Filter):
        parts.append(below.predicate)
        below = below.input
    whole = choice.chains.get(id(below), 1.0)
    worth = cost.SELECT_WORTH if stats.rows(below) > cost.FEW_SCANNED else cost.SELECT_WORTH_OF_FEW
    few = string_equality(node.predicate) is not None or min(whole, stats.joint_selectivity(parts, below)) <= worth
    choice.chains[id(below)] = min(whole, stats.joint_selectivity(parts, below))
    return "select" if few and is_selectable(node.predicate) else "branch"


def _scan(choice: Choice, node: logical.Scan, filters: list[logical.Filter]) -> Step:
    """A scan and the filters above it, the highest first. Rows that a hint places are filtered before they move. A
    column that only the hint names is read for it and dropped again."""
    placement = choice.wanted.placement(node)
    extra = tuple(c for c in placement.columns if c not in node.columns) if placement is not None else ()
    scan = Scan((), table=node.table, source=node.source, columns=(*node.columns, *extra), where=node.filter)
    rows: Step = replace(scan, shards=1) if choice.whole else scan
    for condition in reversed(filters):
        rows = Filter((rows,), predicate=condition.predicate, how=_how(choice, condition))
    if placement is None:
        return Gather((rows,)) if choice.gathers else rows
    choice.wanted.apply(placement.hint, f"after {'the filters of ' if filters else ''}scan {node.table}")
    rows = Redistribute(
        (Rekey((rows,), key=placement.columns),), scope=placement.scope or choice.scope, shards=choice.shards
    )
    return (
        Project((rows,), columns=tuple((f.name, Column(f.name, f.type, f.nullable)) for f in node.schema))
        if extra
        else rows
    )


def series_step(choice: Choice, node: generating.Series) -> Step:
    """A series without an input table is a separate table."""
    alone = isinstance(node.input, logical.Values) and node.input.rows == ((),)
    return Series(
        () if alone else (choice.step(node.input),),
        column=node.column,
        start=node.start,
        stop=node.stop,
        by=node.step,
        inclusive=node.inclusive,
        spread=not alone or choice.scope == "local",
    )


def sample_step(choice: Choice, node: generating.Sample) -> Step:
    return Sample((choice.step(node.input),), method=node.method, rows=node.rows, percent=node.percent, seed=node.seed)


def project_step(choice: Choice, node: logical.Project) -> Step:
    return Project((choice.step(node.input),), columns=node.columns)
