"""`Values`: the values of a result as expressions over its groups, with their bounds.

A bound is the statistical one (the estimate and some standard errors), where the sample says enough, cut to what is
proven by the units that were not read. Where there is only the proof, it is the bound."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement

from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Call, Case, Cast, Column, Expr, Literal, rewrite, substitute
from tsql.kernels.expr.types import BOOLEAN, DOUBLE, Type
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.progressive.driven import Groups
from tsql.planner.progressive.measures import (
    AVERAGES,
    ONE,
    Extreme,
    Measure,
    Measured,
    binary,
    extreme,
    measured,
    number,
)
from tsql.planner.progressive.proofs import NULL, Ends, average, call, compare, interval
from tsql.planner.progressive.slopes import in_doubles, slopes
from tsql.planner.progressive.terms import LEAST, LEAST_COUNTED, PER_UNIT, SCALE, SEEN, SPREAD, WIDTH, Terms

BOUND_FUNCTIONS = ("lower_bound", "upper_bound", "relative_error", "is_certain")

UNKNOWN = 1e300
"""The error of a pane that has none yet. A sum with it is at least as large."""

OBSERVED = "of the rows read so far"
"""What is said of a value of which only the part that was read is known."""


@dataclass(frozen=True)
class Value:
    """A value of the result as an expression over the groups. slopes: by each measure, where the sample gives it an
    error. proof: its proven bounds. kind: the function that asks for its bounds, if there is one."""

    expr: Expr
    slopes: dict[str, Expr] | None
    proof: Ends | None
    kind: str | None

    @property
    def has_bounds(self) -> bool:
        return self.slopes is not None or self.proof is not None


class Values:
    """Of these groups. `in_panes`: their totals and errors are sums over panes, in columns of their own."""

    def __init__(self, groups: Groups, terms: Terms, in_panes: bool = False):
        self.final, self.terms, self.in_panes = groups, terms, in_panes
        self.measured: dict[str, Measured] = {}
        self.extremes: dict[str, Extreme] = {}
        first: dict[object, Measure] = {}
        for name, one in groups.calls:
            found = measured(name, one)
            if found is not None:
                self.measured[name] = _shared(found, first)
            end = extreme(name, one)
            if end is not None:
                self.extremes[name] = end
        self.measures = tuple(dict.fromkeys(m for one in self.measured.values() for m in one.measures))
        self.places = {measure.name: place for place, measure in enumerate(self.measures)}
        self.keys = {name for name, _ in groups.by}
        self.pairs: dict[tuple[int, int], None] = {}
        """The measures whose products the errors need that were asked for."""

    @property
    def known(self) -> tuple[Measure, ...]:
        """All measures of whose rest something may be known."""
        return (*self.measures, *(one.measure for one in self.extremes.values()))

    # What values are

    def value(self, expr: Expr) -> Value | None:
        """What is known of a value; None for a key, and for what is no number."""
        kind = None
        if isinstance(expr, Call) and expr.name in BOUND_FUNCTIONS:
            kind, expr = expr.name, expr.args[0]
        names = set(expr.columns()) - self.keys
        if not expr.type.is_numeric or not names:
            return None if kind is None else Value(expr, None, None, kind)
        found = Value(expr, self._slopes(expr, names), interval(expr, self._ends()), kind)
        return found if found.has_bounds or kind is not None else None

    def observed(self, expr: Expr) -> bool:
        """Whether a value is one of the rows read so far, which says little about the rest."""
        names = set(expr.columns()) - self.keys
        return bool(names) and not names <= self.measured.keys()

    def _slopes(self, expr: Expr, names: set[str]) -> dict[str, Expr] | None:
        if not names <= self.measured.keys():
            return None
        rises = slopes(substitute(expr, {name: self.measured[name].value for name in names}))
        if rises is None or in_doubles(expr) is None:
            return None
        return {name: slope for name, slope in rises.items() if name in self.places}

    # Totals

    def sampled(self, name: str) -> Expr:
        """The total of a measure over the units of the random sample."""
        return binary("-", Column(name, DOUBLE), Column(f"{name} base", DOUBLE))

    def expanded(self, name: str) -> Expr:
        """The estimated total of a measure over all units."""
        if self.in_panes:
            return Column(pane_total(name), DOUBLE)
        return binary("+", Column(f"{name} base", DOUBLE), binary("*", self.terms.of(SCALE), self.sampled(name)))

    def estimate(self, name: str, one: AggregateCall) -> Expr:
        """The estimate of an aggregate: what grows with the input is scaled up, within what is proven; and of the rest
        the units that are counted in full have no more weight than the others."""
        plain = Column(name, one.type)
        known = self.measured.get(name)
        if known is None:
            return plain
        counted = known.measures[-1].name
        whole = substitute(known.value, {m.name: self.expanded(m.name) for m in known.measures})
        if known.scales:
            if counted in self.terms.proven:
                low, high = self._total(counted)
                whole = call("least", call("greatest", whole, low), high)
            if one.type.is_integer:
                whole = Call("round", (whole,), DOUBLE)
        null = Call("is_null", (plain,), BOOLEAN)
        whens: list[tuple[Expr, Expr]] = [(null, Literal(None, one.type))]
        if not known.scales:
            whens.append((compare("=", Column(f"{counted} base", DOUBLE), number(0.0)), plain))
        return Case(tuple(whens), whole if one.type == DOUBLE else Cast(whole, one.type))

    def _total(self, measure: str) -> Ends:
        """The proven bounds of the total of a measure."""
        so_far = Column(measure, DOUBLE)
        low, high = self.terms.rest(measure)
        return binary("+", so_far, low), binary("+", so_far, high)

    def _ends(self) -> dict[str, Ends]:
        """The proven bounds of aggregates and keys, where there are some."""
        proven, found = self.terms.proven, {}
        for name, known in self.measured.items():
            names = [m.name for m in known.measures]
            if not proven.issuperset(names):
                continue
            if known.scales:
                found[name] = self._total(names[0])
            elif self._call(name).name in AVERAGES:
                total, count = names
                now = Column(total, DOUBLE), Column(count, DOUBLE)
                found[name] = average(self._total(total), self._total(count), self.terms.ends(total), now)
        for name, end in self.extremes.items():
            if end.measure.name in proven:
                now_ = Cast(Column(value_name(name), self._call(name).type), DOUBLE)
                low, high = self.terms.ends(end.measure.name)
                found[name] = (call("least", now_, low), now_) if end.is_least else (now_, call("greatest", now_, high))
        for name, e in self.final.by:
            if e.type.is_numeric:
                key: Expr = Cast(Column(value_name(name), e.type), DOUBLE)
                found[name] = key, key
        return found

    def _call(self, name: str) -> AggregateCall:
        return dict(self.final.calls)[name]

    # Bounds

    def estimated(self, expr: Expr) -> Expr:
        """An expression over the groups, over their estimates."""
        return substitute(expr, {f.name: Column(value_name(f.name), f.type) for f in self.final.schema})

    def as_double(self, expr: Expr) -> Expr:
        return Cast(self.estimated(expr), DOUBLE)

    def plain(self, value: Value) -> Expr:
        """A value as a double."""
        return self.as_double(value.expr)

    def whole_bounds(self, value: Value) -> Ends:
        """The bounds of a value as they are computed from the groups, without columns for their parts."""
        parts = dict(self.parts(value, 0))
        low, high = (substitute(end, parts) for end in self.bounds(value, 0))
        return low, high

    def error(self, value: Value) -> Expr:
        """The standard error of a value; NULL where it has none yet."""
        assert value.slopes is not None
        totals = {measure.name: self.expanded(measure.name) for measure in self.measures}
        keys = {n: Column(value_name(n), e.type) for n, e in self.final.by}
        rises = {name: rewrite(slope, lambda e: _replaced(e, totals, keys)) for name, slope in value.slopes.items()}
        names = [m.name for m in self.measures if m.name in rises]
        return self._error_of_panes(names, rises) if self.in_panes else self._error_of(names, rises)

    def error_of_measure(self, name: str) -> Expr:
        """The standard error of a total."""
        return self._error_of([name], {name: number(1.0)})

    def _error_of_panes(self, names: list[str], rises: dict[str, Expr]) -> Expr:
        """A bound of it: errors of panes add up at most, and so do those of measures."""
        errors = [Column(pane_error(name), DOUBLE) for name in names]
        whole: Expr = number(0.0)
        for name, error in zip(names, errors, strict=True):
            whole = binary("+", whole, binary("*", Call("abs", (rises[name],), DOUBLE), error))
        unknown = tuple((compare(">=", error, number(UNKNOWN)), NULL) for error in errors)
        return Case(unknown, whole) if unknown else whole

    def _error_of(self, names: list[str], rises: dict[str, Expr]) -> Expr:
        variance: Expr | None = None
        for a, b in combinations_with_replacement(names, 2):
            self.pairs[self.places[a], self.places[b]] = None
            products = Column(product_name((self.places[a], self.places[b])), DOUBLE)
            means = binary("*", self.terms.of(PER_UNIT), binary("*", self.sampled(a), self.sampled(b)))
            term = binary("*", binary("*", rises[a], rises[b]), binary("-", products, means))
            term = term if a == b else binary("*", number(2.0), term)
            variance = term if variance is None else binary("+", variance, term)
        if variance is None:
            return number(0.0)
        spread = self.terms.of(SPREAD)
        found = binary("*", spread, variance)
        # Units that do not differ at all say nothing of those that were not read, unless there are none.
        alike = Call("and", (compare("<=", found, number(0.0)), compare(">", spread, number(0.0))), BOOLEAN)
        counts = all(measure.each == ONE for measure in self.measures if measure.name in names)
        few = compare("<", Column(SEEN, DOUBLE), self.terms.of(LEAST_COUNTED if counts else LEAST))
        root = Call("sqrt", (Call("greatest", (found, number(0.0)), DOUBLE),), DOUBLE)
        return Case(((few, NULL), (alike, NULL)), root)

    def parts(self, value: Value, place: int) -> list[tuple[str, Expr]]:
        """The columns that the bounds of a value are computed from, each once: the value as a double, the error that
        the sample gives it, and what is proven."""
        found = [(f"#plain {place}", self.plain(value))]
        if value.slopes is not None:
            error = self.error(value)
            wide = error if self.in_panes else binary("*", self.terms.of(WIDTH), error)
            found.append((f"#error {place}", wide))
        if value.proof is not None:
            found += [(f"#proven low {place}", value.proof[0]), (f"#proven high {place}", value.proof[1])]
        return found

    def bounds(self, value: Value, place: int) -> Ends:
        """The lower and the upper bound of a value, over its parts."""
        plain = Column(f"#plain {place}", DOUBLE)
        low: Expr = NULL
        high: Expr = NULL
        if value.slopes is not None:
            error = Column(f"#error {place}", DOUBLE)
            low, high = binary("-", plain, error), binary("+", plain, error)
        if value.proof is None:
            return low, high
        least, most = Column(f"#proven low {place}", DOUBLE), Column(f"#proven high {place}", DOUBLE)
        null = Call("is_null", (plain,), BOOLEAN)
        low = call("least", call("greatest", low, least), most)
        high = call("greatest", call("least", high, most), least)
        return Case(((null, NULL),), low), Case(((null, NULL),), high)

    def answer(self, value: Value, place: int, type: Type) -> Expr:
        """What lower_bound and its like give, over the parts of the value."""
        low, high = self.bounds(value, place)
        plain = Column(f"#plain {place}", DOUBLE)
        if value.kind == "is_certain":
            return Call("coalesce", (compare("=", low, high), Literal(False, BOOLEAN)), BOOLEAN)
        if value.kind == "relative_error":
            half = binary("/", binary("-", high, low), number(2.0))
            return Case(((compare("=", low, high), number(0.0)),), binary("/", half, Call("abs", (plain,), DOUBLE)))
        found = low if value.kind == "lower_bound" else high
        return found if type == DOUBLE else Cast(found, type)


def _shared(found: Measured, first: dict[object, Measure]) -> Measured:
    """The aggregate over measures that each stand for all with the same content."""
    measures = tuple(first.setdefault(measure.content, measure) for measure in found.measures)
    names: dict[str, Expr] = {
        old.name: Column(new.name, DOUBLE, False) for old, new in zip(found.measures, measures, strict=True)
    }
    return replace(found, measures=measures, value=substitute(found.value, names))


def value_name(name: str) -> str:
    return f"#value {name}"


def pane_total(measure: str) -> str:
    return f"#pane total {measure}"


def pane_error(measure: str) -> str:
    return f"#pane error {measure}"


def product_name(pair: tuple[int, int]) -> str:
    return f"#product {pair[0]} {pair[1]}"


def _replaced(e: Expr, totals: dict[str, Expr], keys: dict[str, Column]) -> Expr:
    if isinstance(e, Column):
        return totals.get(e.name) or keys.get(e.name) or e
    return e
