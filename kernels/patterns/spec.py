"""`MatchSpec`: all of a MATCH_RECOGNIZE but its input. Logical nodes, plan steps and kernels hold the same one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from typing import Any

from tsql.kernels.expr.nodes import Cast, Column, Expr, SortKey
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BOOLEAN
from tsql.kernels.patterns.reads import Read, map_plain
from tsql.kernels.patterns.tree import Pattern
from tsql.kernels.process.quick_dataclass import dataclass

OUTPUTS = ("one", "all", "matched", "unmatched")
"""ONE ROW PER MATCH; ALL ROWS PER MATCH: with empty matches, without them, and with the rows of no match too."""
SKIPS = ("past last row", "to next row", "to first", "to last")


@dataclass(frozen=True)
class Skip:
    """AFTER MATCH SKIP: kind is one of SKIPS; the last two name `variables`, the members of a subset perhaps, which is
    `called` so."""

    kind: str = SKIPS[0]
    variables: tuple[str, ...] = ()
    called: str = field(default="", compare=False)
    position: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class MatchSpec:
    """Rows that agree on the columns `by` are a partition, in the order of `order`. define: (variable, BOOLEAN) pairs;
    a variable without one takes every row. measures: (name, read) pairs. within: of a row that starts a match, the
    value of the first ORDER BY expression at which the match must have ended."""

    by: tuple[Column, ...]
    order: tuple[SortKey, ...]
    pattern: Pattern
    define: tuple[tuple[str, Expr], ...] = ()
    measures: tuple[tuple[str, Read], ...] = ()
    output: str = OUTPUTS[0]
    skip: Skip = Skip()
    within: Expr | None = None

    def __post_init__(self) -> None:
        if self.output not in OUTPUTS or self.skip.kind not in SKIPS:
            raise ValueError(f"a match with output {self.output} that skips {self.skip.kind}")
        for variable, condition in self.define:
            if condition.type != BOOLEAN:
                raise ValueError(f"the condition of {variable} is BOOLEAN, not {condition.type}")
        if self.within is not None and not self.order:
            raise ValueError("a match within a time has no order")

    @property
    def is_one_row(self) -> bool:
        return self.output == "one"

    @property
    def within_key(self) -> Expr:
        """The first ORDER BY expression in the type of `within`."""
        key = self.order[0].expr
        assert self.within is not None, "asked where the match has a time"
        return key if key.type == self.within.type else Cast(key, self.within.type)

    def expressions(self) -> tuple[Expr, ...]:
        own = (
            *self.by,
            *(key.expr for key in self.order),
            *(e for _, e in self.define),
            *(e for _, e in self.measures),
        )
        return own if self.within is None else (*own, self.within)

    def plain_expressions(self) -> tuple[Expr, ...]:
        """The largest parts of all expressions that are values of one row."""
        found: dict[Expr, None] = {}

        def see(expr: Expr) -> Expr:
            found[expr] = None
            return expr

        for expr in self.expressions():
            map_plain(expr, see)
        return tuple(found)

    def changed(self, change: Callable[[Expr], Expr]) -> MatchSpec:
        """The same over changed expressions; itself if none changed."""
        before = self.expressions()
        after = tuple(map(change, before))
        if all(a is b for a, b in zip(before, after, strict=True)):
            return self
        rest: Iterator[Any] = iter(after)
        by = tuple(next(rest) for _ in self.by)
        order = tuple(SortKey(next(rest), key.descending, key.nulls_first) for key in self.order)
        define = tuple((name, next(rest)) for name, _ in self.define)
        measures = tuple((name, next(rest)) for name, _ in self.measures)
        return replace(
            self,
            by=by,
            order=order,
            define=define,
            measures=measures,
            within=None if self.within is None else next(rest),
        )

    def over(self, change: Callable[[Expr], Expr]) -> MatchSpec:
        """The same with each of `plain_expressions` changed."""
        return self.changed(lambda expr: map_plain(expr, change))

    def schema(self, given: Schema) -> Schema:
        """The columns of the result over an input: those of PARTITION BY, or all, and the measures."""
        kept = tuple(Field(c.name, c.type, c.nullable) for c in self.by) if self.is_one_row else given.fields
        return Schema((*kept, *(Field(name, read.type) for name, read in self.measures)))

    def used(self, needed: set[str]) -> set[str]:
        """The columns of the input that it takes to compute the needed columns of the result."""
        own = {c for e in self.kept(needed).expressions() for c in e.columns()}
        return own if self.is_one_row else own | (needed - {name for name, _ in self.measures})

    def kept(self, needed: set[str]) -> MatchSpec:
        """The same with the measures that are needed; with one at least where there is no other column."""
        measures = tuple((n, e) for n, e in self.measures if n in needed)
        if self.is_one_row and not self.by and not measures:
            measures = self.measures[:1]
        return self if len(measures) == len(self.measures) else replace(self, measures=measures)

    def sql(self) -> str:
        """The text for `explain`."""
        lists = [("by", self.by), ("order", self.order), ("define", tuple(f"{n}={e}" for n, e in self.define))]
        text = " ".join(f"{name}=({', '.join(map(str, items))})" for name, items in lists)
        text += f" pattern=({self.pattern}) output={self.output} skip={self.skip_text()!r}"
        text += "" if self.within is None else f" within=({self.within})"
        return text + f" measures=({', '.join(f'{n}={e}' for n, e in self.measures)})"

    def skip_text(self) -> str:
        return " ".join((self.skip.kind, *self.skip.variables))
