"""match: the matches of a row pattern within each partition, in order. Gives one row per match, or all rows of the
matches.

The rows of a partition must be in one shard; without `by` there is one partition, and one shard. `kernels/patterns`
defines the attributes."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from tsql.kernels.expr.nodes import Column, Expr, Literal
from tsql.kernels.expr.printer import string_sql
from tsql.kernels.expr.schema import Schema
from tsql.kernels.patterns.program import PatternProgram
from tsql.kernels.patterns.reads import Read
from tsql.kernels.patterns.spec import OUTPUTS, SKIPS, MatchSpec, Skip
from tsql.kernels.patterns.tree import Pattern, Variable, read_pattern
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.process.recursion import deep_recursion
from tsql.planner.cost import constants as cost
from tsql.planner.physical.estimate import Estimate, Machine
from tsql.planner.physical.properties import SINGLE, Properties, Requirement, by_keys
from tsql.planner.physical.step import Step
from tsql.planner.physical.text import assignment, assignments, identifiers

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext


@dataclass(frozen=True)
class Match(Step):
    """`spec` has everything but the input."""

    spec: MatchSpec

    op = "match"
    label = "matched"

    @cached_property
    def schema(self) -> Schema:
        return self.spec.schema(self.inputs[0].schema)

    def requires(self) -> tuple[Requirement, ...]:
        return (Requirement("placed", tuple(c.name for c in self.spec.by)),) if self.spec.by else (SINGLE,)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        if not self.spec.is_one_row:
            return replace(given[0], order=())
        return by_keys(given[0], {c.name: c.name for c in self.spec.by})

    def carries(self, column: str) -> list[tuple[Step, str]]:
        return [] if self.spec.is_one_row and column not in {c.name for c in self.spec.by} else super().carries(column)

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(self.spec.used(set(wanted)).intersection(self.inputs[0].schema.names)),)

    @property
    def depends_on_order(self) -> bool:
        return True

    def expected_rows(self, given: tuple[Estimate, ...], machine: Machine) -> float:
        return given[0].rows * (cost.MATCHED if self.spec.is_one_row else 1.0)

    def attributes(self) -> list[tuple[str, str]]:
        spec = self.spec
        found = [("by", identifiers(tuple(c.name for c in spec.by))), ("order", f"({', '.join(map(str, spec.order))})")]
        found += [("pattern", string_sql(spec.pattern.text())), ("output", spec.output)]
        if spec.skip != Skip():
            names = " ".join(Variable(name).text() for name in spec.skip.variables)
            found.append(("skip", string_sql(f"{spec.skip.kind} {names}".strip())))
        if spec.within is not None:
            found.append(("within", f"({spec.within})"))
        return [*found, ("define", _pairs(spec.define)), ("measures", assignments(spec.measures))]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        schema = inputs[0].schema
        keys = tuple(context.expression(item, schema) for item in attributes.items("by"))
        by = tuple(e for e in keys if isinstance(e, Column))
        if by != keys:
            raise context.error("by=(..) of a match takes columns")
        order = tuple(context.sort_key(item, schema) for item in attributes.items("order"))
        within = attributes.optional("within")
        pattern = _pattern(attributes.text("pattern"), context)
        names = pattern.variables()
        output = attributes.choice("output", OUTPUTS)
        define = context.assignments(attributes.items("define"))
        for name, _ in define:
            if name not in names:
                raise context.error(f"define names {name}, which is no variable of the pattern")
        measures = context.assignments(attributes.items("measures"))
        try:
            spec = MatchSpec(
                by=by,
                order=order,
                pattern=pattern,
                define=tuple((n, context.condition(t, schema, names, n)) for n, t in define),
                measures=tuple((n, _measure(t, schema, names, context)) for n, t in measures),
                output=output,
                skip=_skip(attributes.optional("skip"), names, context),
                within=None if within is None else context.expression(within, schema),
            )
        except ValueError as error:
            raise context.error(str(error)) from None
        for name, _ in measures:
            if name in schema:
                raise attributes.error("measures", f"{name} is a column of {inputs[0].name} already")
        return cls(inputs, spec=spec)


def _pairs(define: tuple[tuple[str, Expr], ...]) -> str:
    return f"({', '.join('='.join(assignment(name, condition)) for name, condition in define)})"


def _unquoted(text: str, context: LineContext) -> str:
    value = context.constant(text) if text.endswith("'") else None
    if not isinstance(value, Literal) or not isinstance(value.value, str):
        raise context.error(f"{text} is no text in quotes")
    return value.value


def _pattern(text: str, context: LineContext) -> Pattern:
    try:
        with deep_recursion():
            pattern = read_pattern(_unquoted(text, context))
            PatternProgram(pattern)
    except ValueError as error:
        raise context.error(str(error)) from None
    return pattern


def _skip(text: str | None, names: tuple[str, ...], context: LineContext) -> Skip:
    if text is None:
        return Skip()
    said = _unquoted(text, context)
    kind = next((kind for kind in SKIPS if said == kind or said.startswith(kind + " ")), None)
    try:
        variables = () if kind is None or said == kind else read_pattern(said.removeprefix(kind)).variables()
    except ValueError as error:
        raise context.error(str(error)) from None
    if kind is None or bool(variables) != (kind in SKIPS[2:]) or not set(variables) <= set(names):
        raise context.error(f"skip={text}: it is one of {', '.join(SKIPS)}, the last two with variables of the pattern")
    return Skip(kind, variables)


def _measure(text: str, schema: Schema, names: tuple[str, ...], context: LineContext) -> Read:
    expr = context.condition(text, schema, names, None)
    if not isinstance(expr, Read):
        raise context.error(f"a measure is one read of a match, such as last(x), not {text}")
    return expr
