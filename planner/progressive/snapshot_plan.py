"""The plan of a snapshot: the part of a plan above its driven aggregate, over groups that are not complete yet.

    given     = input columns=(keys, states of aggregates, totals of measures ..)
    gathered  = gather given
    total     = aggregate gathered phase=final ..                 the groups of all workers
    estimated = project total n=round(scale * n) ..               what grows with the input is scaled up
    ..                                                            the steps of the plan, over estimates
    parts     = project .. #error 0=.. #proven low 0=..           what the bounds of each value are computed from
    bounded   = project parts #low 0=.., #high 0=..               with the bounds of each value

Measures travel beside the groups, as sums of doubles. What is only known while the query runs are `Terms`."""

from __future__ import annotations

from dataclasses import field, replace

from tsql.kernels.aggregates.bodies import state_names
from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Column, Expr
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT, DOUBLE, Type
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.movement import Gather, Movement, Rekey
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.input import Input
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.step import PhysicalPlan, Step, named
from tsql.planner.progressive.above import Traced, columns_above, depends, lifted, steps_above
from tsql.planner.progressive.driven import Driven
from tsql.planner.progressive.measures import Measure
from tsql.planner.progressive.panes import estimated_windows, pane_columns
from tsql.planner.progressive.ranking import MARKS, Choices, Ranking, chosen, without_limits
from tsql.planner.progressive.terms import SEEN, Terms
from tsql.planner.progressive.values import OBSERVED, Value, Values, product_name, value_name


@dataclass(frozen=True)
class SnapshotPlan:
    """given: the step whose rows are the groups. others: steps beside the driven aggregate that all snapshots read.
    measures: of each group, by their place in its row of totals; pairs: of measures whose products are summed up; sums:
    the names of all that is summed up beside the groups.
    bounds: the columns of the lower and upper bound of each column of the result that has bounds, by its place; notes:
    what is said of columns that have none. terms: what a run fills in. chosen: hidden columns that say how the row was
    chosen; ranking: of LIMIT, whose rows a run cuts."""

    plan: PhysicalPlan
    given: Input
    others: tuple[Step, ...]
    measures: tuple[Measure, ...]
    pairs: tuple[tuple[int, int], ...]
    terms: Terms
    bounds: dict[int, tuple[str, str]] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    chosen: tuple[str, ...] = ()
    ranking: Ranking | None = None
    sums: tuple[str, ...] = ()


def snapshot_plan(plan: PhysicalPlan, found: Driven, terms: Terms, keeps_all: bool = False) -> SnapshotPlan:
    """The plan of the snapshots of a plan. `keeps_all`: there are few groups, so LIMIT is left to the run, which then
    knows which rows are certain."""
    return _Builder(plan, found, terms, keeps_all).build()


class _Builder:
    def __init__(self, plan: PhysicalPlan, found: Driven, terms: Terms, keeps_all: bool):
        self.plan, self.found, self.terms, self.keeps_all = plan, found, terms, keeps_all
        self.in_panes = isinstance(found.final, Combine)
        self.values = Values(found.groups, terms, self.in_panes)
        self.measures = self.values.measures
        self.pairs: tuple[tuple[int, int], ...] = ()
        self.finished: list[tuple[str, Expr]] = []
        """The hidden columns of groups whose bounds are computed."""

    def build(self) -> SnapshotPlan:
        final = self.found.final
        above = steps_above(self.plan.root, final)
        traced = columns_above(above, final)
        values = self._values(traced)
        places = {name: place for place, name in enumerate(self.plan.columns)}
        parts = [part for name, value in values.items() for part in self.values.parts(value, places[name])]
        choice = chosen(above, final, traced)
        # Both plans of a query need the same sums of groups.
        marks = [] if choice is None else Choices(self.values, choice).columns()
        if choice is not None and choice.ranking is not None and not self.keeps_all:
            choice, marks = None, []
        ranking = choice.ranking if choice is not None and len(marks) > 1 else None
        places_of = self.values.places.values()
        self.pairs = tuple((i, i) for i in places_of) if self.in_panes else tuple(self.values.pairs)
        given = self._given()
        others = beside(self.plan.root, final)
        groups = self._estimated(given)
        if self.keeps_all:
            groups = self._finished(groups, values, [*parts, *marks])
        done: dict[int, Step] = {id(final): groups}
        carries = {id(final): True}
        for step in above:
            if step is final:
                continue
            kept = step if ranking is None else without_limits(step)
            if kept is None:
                done[id(step)], carries[id(step)] = done[id(step.inputs[0])], True
            else:
                done[id(step)], carries[id(step)] = lifted(kept, done, carries, self._carried)
        root, bounds = self._bounded(done[id(self.plan.root)], values, [*parts, *marks])
        hidden = (*_flat(bounds), *(name for name, _ in marks))
        bounded = replace(self.plan, root=named(root), columns=(*self.plan.columns, *hidden),
                          names=(*self.plan.names, *hidden), query="", notes=())  # fmt: skip
        given = next(step for step in bounded.root.walk() if isinstance(step, Input))
        notes, names = self._notes(traced, bounds), tuple(name for name, _ in marks)
        return SnapshotPlan(
            bounded,
            given,
            others,
            self.measures,
            self.pairs,
            self.terms,
            bounds,
            notes,
            names,
            ranking,
            tuple(self._hidden()),
        )

    def _values(self, traced: dict[int, Traced]) -> dict[str, Value]:
        """The values of the result of which something is known, by their column."""
        last = traced[id(self.plan.root)] or {}
        found = {name: self.values.value(expr) for name, expr in last.items() if name in self.plan.columns}
        return {name: value for name, value in found.items() if value is not None}

    def _notes(self, traced: dict[int, Traced], bounds: dict[int, tuple[str, str]]) -> dict[int, str]:
        last = traced[id(self.plan.root)]
        return {
            place: OBSERVED
            for place, name in enumerate(self.plan.columns)
            if (last is None and place not in bounds)
            or (last is not None and name in last and self.values.observed(last[name]))
        }

    def _hidden(self) -> list[str]:
        """The names of the sums that travel beside the groups: of each measure the total and what was counted in full,
        of each pair the sum of products, and the batches of a group."""
        if not self.measures:
            return []
        names = [name for measure in self.measures for name in (measure.name, f"{measure.name} base")]
        return [*names, *(product_name(pair) for pair in self.pairs), SEEN]

    def _term_columns(self) -> list[str]:
        return self.terms.columns([measure.name for measure in self.measures]) if self.measures else []

    def _given(self) -> Input:
        hidden = [
            Field(name, type, False)
            for one in self._hidden()
            for name, type in zip(state_names(one, 2), (DOUBLE, BIGINT), strict=True)
        ]
        terms = [Field(name, DOUBLE, False) for one in self._term_columns() for name in state_names(one, 1)]
        return Input((), fields=Schema((*self.found.states, *hidden, *terms)), name="given")

    def _estimated(self, given: Input) -> Step:
        """The merged groups, scaled up. Aggregates under their hidden names too: the bounds are computed from them. The
        terms of a group are the same in all its states."""
        final = self.found.final
        sums = [(name, AggregateCall("sum", (Column(f"{name}__in", DOUBLE),), DOUBLE)) for name in self._hidden()]
        terms = [(n, AggregateCall("max", (Column(f"{n}__in", DOUBLE),), DOUBLE)) for n in self._term_columns()]
        if isinstance(final, Combine):
            return estimated_windows(Gather((given,)), final, self.found.partial, [*sums, *terms], self.terms)
        total = replace(final, inputs=(Gather((given,)),), calls=(*final.calls, *sums, *terms))
        keys = list(final.schema)[: len(final.by)]
        columns: list[tuple[str, Expr]] = [(f.name, Column(f.name, f.type)) for f in keys]
        columns += [(name, self.values.estimate(name, call)) for name, call in final.calls]
        hidden = [(name, Column(name, DOUBLE)) for name in (*self._hidden(), *self._term_columns())]
        shown = [(value_name(name), expr) for name, expr in columns]
        return Project((total,), columns=(*columns, *hidden, *shown), name="estimated")

    def _carried(self) -> list[tuple[str, Expr]]:
        return [(name, Column(name, type)) for name, type in self._hidden_columns()]

    def _hidden_columns(self) -> list[tuple[str, Type]]:
        if self.keeps_all:
            return [(name, expr.type) for name, expr in self.finished]
        values = [(value_name(f.name), f.type) for f in self.found.final.schema]
        if self.in_panes:
            return [*pane_columns(self.values), *values]
        return [*((name, DOUBLE) for name in (*self._hidden(), *self._term_columns())), *values]

    def _finished(self, groups: Step, values: dict[str, Value], parts: list[tuple[str, Expr]]) -> Step:
        """The groups with the bounds of all values. Where there are few groups, it is cheaper to compute the bounds of
        those that are not shown than to carry what bounds are computed from through the steps above."""
        final = self.found.final
        plain = {f.name: Column(f.name, f.type, f.nullable) for f in final.schema}
        places = {name: place for place, name in enumerate(self.plan.columns)}
        below = Project((groups,), columns=(*plain.items(), *parts), name="parts") if parts else groups
        self.finished = list(self._ends(values, places).items())
        self.finished += [(name, Column(name, expr.type)) for name, expr in parts if name in MARKS]
        return Project((below,), columns=(*plain.items(), *self.finished), name="finished")

    def _ends(self, values: dict[str, Value], places: dict[str, int]) -> dict[str, Expr]:
        """The bounds of values, and what is asked of them, over their parts."""
        found: dict[str, Expr] = {}
        for name, value in values.items():
            place = places[name]
            if value.kind is not None:
                found[answer_name(place)] = self.values.answer(value, place, self.plan.root.schema[name].type)
            else:
                found[low_name(place)], found[high_name(place)] = self.values.bounds(value, place)
        return found

    def _bounded(
        self, root: Step, values: dict[str, Value], parts: list[tuple[str, Expr]]
    ) -> tuple[Step, dict[int, tuple[str, str]]]:
        """The result with its bounds, and with the marks of its rows, which are the last of the parts."""
        places = {name: place for place, name in enumerate(self.plan.columns)}
        shown: dict[str, Expr] = {name: Column(name, self.plan.root.schema[name].type) for name in places}
        ends = self._ends(values, places)
        below = root
        if self.keeps_all:
            ends = {name: Column(name, expr.type) for name, expr in ends.items()}
        elif parts:
            below = Project((root,), columns=(*shown.items(), *parts), name="parts")
        columns = dict(shown)
        bounds: dict[int, tuple[str, str]] = {}
        for name, value in values.items():
            place = places[name]
            if value.kind is not None:
                columns[name] = ends[answer_name(place)]
            else:
                bounds[place] = low, high = low_name(place), high_name(place)
                columns[low], columns[high] = ends[low], ends[high]
        columns |= {name: Column(name, expr.type) for name, expr in parts if name in MARKS}
        return Project((below,), columns=tuple(columns.items())), dict(sorted(bounds.items()))


def low_name(place: int) -> str:
    return f"#low {place}"


def high_name(place: int) -> str:
    return f"#high {place}"


def answer_name(place: int) -> str:
    return f"#answer {place}"


def beside(root: Step, final: Step) -> tuple[Step, ...]:
    """The steps beside the driven aggregate whose rows the steps above it read."""
    above = (step for step in steps_above(root, final) if step is not final)
    found = [_rows_of(i) for step in above for i in step.inputs if not depends(i, final)]
    return tuple({id(step): step for step in found}.values())


def _rows_of(step: Step) -> Step:
    """The step whose rows another one only moves."""
    while isinstance(step, Movement | Gather | Rekey):
        step = step.inputs[0]
    return step


def _flat(bounds: dict[int, tuple[str, str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for pair in bounds.values() for name in pair))
