"""The plans of a snapshot over a sample of rows: an `input` in place of the rows that are collected.

    given     = input columns=(.., #group)                          estimates: the steps of the plan, over the sample
    placed    = redistribute ..
    groups    = aggregate placed by=(g) .. #group=min(#group)       a row of each group is its name
    estimated = project groups n=round(scale * n) ..
    ..                                                              the steps of the plan, over estimates

    given     = input columns=(.., #group, #replicate, #scale)      replicates: the rows of each, with its number
    groups    = aggregate given by=(#replicate, g) ..
    values    = project groups #value 1=..                          what the result shows of each group

    given     = input columns=(.., #group)                          rows: the keys of each, and what quantiles are of
    keys      = project given #group, #key 0=g, #argument m=price

Values, errors and groups meet outside: a row of the result and a group of a replicate name a row of the sample, whose
group is known."""

from __future__ import annotations

from dataclasses import field, replace

from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Case, Cast, Column, Expr, Parameter
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT, DOUBLE, Type
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.movement import Gather, Movement, Rekey
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.input import Input
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.step import PhysicalPlan, Step, named
from tsql.planner.progressive.above import columns_above, keeps_columns, lifted, steps_above, with_columns
from tsql.planner.progressive.driven_rows import DrivenRows
from tsql.planner.progressive.proofs import NULL
from tsql.planner.progressive.row_values import SCALE, RowValue, RowValues
from tsql.planner.progressive.sampled_calls import fraction
from tsql.planner.progressive.snapshot_plan import beside

GROUP, REPLICATE = "#group", "#replicate"
"""The row of the sample that a row is, and later one that stands for its group; the number of a replicate."""


@dataclass(frozen=True)
class GivenPlan:
    """A plan over an input."""

    plan: PhysicalPlan
    given: Input


@dataclass(frozen=True)
class RowPlans:
    """values: of the result, by their column, as far as something is known of them; `observed`: the columns that show a
    part. others: steps beside the aggregate that all snapshots read. named: whether rows of the result name their
    group. proofs: the hidden columns with the proven bounds of columns. quantiles: the fraction of each quantile."""

    estimates: GivenPlan
    rows: GivenPlan
    replicates: GivenPlan | None
    values: dict[int, RowValue]
    observed: tuple[int, ...]
    others: tuple[Step, ...]
    named: bool
    proofs: dict[int, tuple[str, str]] = field(default_factory=dict)
    quantiles: dict[str, float] = field(default_factory=dict)


def row_plans(plan: PhysicalPlan, found: DrivenRows, counts: bool) -> RowPlans:
    """The plans of the snapshots of a plan. `counts`: each row of the scan becomes one row of a group at most."""
    return _Builder(plan, found, counts).build()


class _Builder:
    def __init__(self, plan: PhysicalPlan, found: DrivenRows, counts: bool):
        self.plan, self.found = plan, found
        self.values = RowValues(found.groups, counts)

    def build(self) -> RowPlans:
        plan, final = self.plan, self.found.aggregate
        above = steps_above(plan.root, final)
        last = columns_above(above, final)[id(plan.root)]
        values: dict[int, RowValue] = {}
        for place, name in enumerate(plan.columns):
            value = None if last is None else self.values.value(place, last[name])
            if value is not None:
                values[place] = value
        observed = tuple(
            place
            for place in range(len(plan.columns))
            if last is None or (place in values and values[place].is_observed)
        )
        proofs = {p: (f"#least {p}", f"#most {p}") for p, value in values.items() if value.proof is not None}
        calls = {v.quantile: fraction(dict(final.calls)[v.quantile]) for v in values.values() if v.quantile is not None}
        quantiles = {name: share for name, share in calls.items() if share is not None}
        return RowPlans(
            self._estimates(above, values, proofs),
            self._rows(quantiles),
            self._replicates([value for value in values.values() if value.is_replicated]),
            values,
            observed,
            beside(plan.root, final),
            last is not None,
            proofs,
            quantiles,
        )

    def _estimates(
        self, above: list[Step], values: dict[int, RowValue], proofs: dict[int, tuple[str, str]]
    ) -> GivenPlan:
        final = self.found.aggregate
        below = self._sampled({GROUP: BIGINT}, moves=True)
        groups = replace(final, inputs=(below,), calls=(*final.calls, _group()))
        estimates = self.values.estimates(Parameter(SCALE, DOUBLE))
        columns: list[tuple[str, Expr]] = [(n, estimates.get(n, Column(n, t))) for n, t in _types(final.schema)]
        columns.append((GROUP, Column(GROUP, BIGINT)))
        for place, pair in proofs.items():
            proof = values[place].proof
            assert proof is not None
            columns += zip(pair, proof, strict=True)
        asked = [value for value in values.values() if value.kind is not None]
        columns += [(plain(v.place), self.values.estimated(v.expr, Parameter(SCALE, DOUBLE))) for v in asked]
        numbers = [*(name for names in proofs.values() for name in names), *(plain(v.place) for v in asked)]
        hidden = [(GROUP, BIGINT), *((name, DOUBLE) for name in numbers)]
        carried = _columns(hidden)
        done: dict[int, Step] = {id(final): Project((groups,), columns=tuple(columns), name="estimated")}
        carries = {id(final): True}
        for step in above:
            if step is not final:
                done[id(step)], carries[id(step)] = lifted(step, done, carries, lambda: carried)
        root = self.plan.root
        shown: list[tuple[str, Expr]] = [(c, Column(c, root.schema[c].type)) for c in self.plan.columns]
        more = carried if carries[id(root)] else []
        names = [name for name, _ in more]
        step = Project((done[id(root)],), columns=tuple(dict([*shown, *more]).items()))
        return self._plan(step, (*self.plan.columns, *names), (*self.plan.names, *names))

    def _rows(self, quantiles: dict[str, float]) -> GivenPlan:
        final = self.found.aggregate
        columns: list[tuple[str, Expr]] = [(GROUP, Column(GROUP, BIGINT, False))]
        columns += [(f"#key {place}", expr) for place, (_, expr) in enumerate(final.by)]
        for name in quantiles:
            call = dict(final.calls)[name]
            value: Expr = call.args[0] if call.args[0].type == DOUBLE else Cast(call.args[0], DOUBLE)
            columns.append((argument(name), value if call.filter is None else Case(((call.filter, value),), NULL)))
        return self._plan(Gather((Project((self._sampled({GROUP: BIGINT}),), columns=tuple(columns)),)))

    def _replicates(self, values: list[RowValue]) -> GivenPlan | None:
        if not values:
            return None
        final = self.found.aggregate
        used = {name for value in values for name in value.expr.columns()}
        calls = tuple((name, call) for name, call in final.calls if name in used)
        below = self._sampled({GROUP: BIGINT, REPLICATE: BIGINT, SCALE: DOUBLE}, calls)
        scale = AggregateCall("max", (Column(SCALE, DOUBLE, False),), DOUBLE)
        groups = replace(
            final,
            inputs=(below,),
            by=((REPLICATE, Column(REPLICATE, BIGINT, False)), *final.by),
            calls=(*calls, _group(), (SCALE, scale)),
            groups=None,
        )
        columns: list[tuple[str, Expr]] = [(REPLICATE, Column(REPLICATE, BIGINT)), (GROUP, Column(GROUP, BIGINT))]
        columns += [(replicated(v.place), self.values.estimated(v.expr, Column(SCALE, DOUBLE))) for v in values]
        return self._plan(Gather((Project((groups,), columns=tuple(columns)),)))

    def _sampled(
        self, hidden: dict[str, Type], calls: tuple[tuple[str, AggregateCall], ...] | None = None, moves: bool = False
    ) -> Step:
        """The input of the aggregate, over a sample of the rows with hidden columns. calls: if only these are asked
        for. moves: rows are moved as in the plan."""
        given = list(self.found.rows.schema)
        is_direct = not any(isinstance(one, Project | Filter) for one in self.found.between)
        if calls is not None and is_direct and not self.found.are_states:
            asked = [*(e for _, e in self.found.aggregate.by), *(e for _, c in calls for e in c.expressions())]
            needed = {name for e in asked for name in e.columns()}
            given = [field for field in given if field.name in needed]
        fields = (*given, *(Field(name, type, False) for name, type in hidden.items()))
        step: Step = Input((), fields=Schema(tuple(fields)), name="given")
        for one in self.found.between:
            if moves or not isinstance(one, Movement | Rekey | Gather):
                assert keeps_columns(one)
                step = with_columns(one, (step,), lambda: [(n, Column(n, t, False)) for n, t in hidden.items()])
        return step

    def _plan(self, root: Step, columns: tuple[str, ...] = (), names: tuple[str, ...] = ()) -> GivenPlan:
        root = named(root)
        all_names = tuple(root.schema.names)
        plan = replace(self.plan, root=root, columns=columns or all_names, names=names or all_names, query="", notes=())
        return GivenPlan(plan, next(step for step in root.walk() if isinstance(step, Input)))


def _group() -> tuple[str, AggregateCall]:
    return GROUP, AggregateCall("min", (Column(GROUP, BIGINT, False),), BIGINT)


def _types(schema: Schema) -> list[tuple[str, Type]]:
    return [(f.name, f.type) for f in schema]


def _columns(types: list[tuple[str, Type]]) -> list[tuple[str, Expr]]:
    return [(name, Column(name, type)) for name, type in types]


def argument(call: str) -> str:
    """The column with what a quantile is of."""
    return f"#argument {call}"


def plain(place: int) -> str:
    """The column with a value of which only the bounds are asked for."""
    return f"#plain {place}"


def replicated(place: int) -> str:
    """The column with the value of a column of the result."""
    return f"#value {place}"
