"""What conditions and measures of MATCH_RECOGNIZE ask of a match, as expressions: `Navigate`, `MatchFold`,
`Classifier`, `MatchNumber`.

They stand where columns do, and only inside of a `MatchSpec`. A plain column there is that of the current row. Each
prints as a call that `planner/bind/match.py` reads back: the variables of a read are strings behind its argument, as in
`last(price, 0, 'A')`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace

from tsql.kernels.expr.nodes import Aggregate, Expr, SortKey, Typed
from tsql.kernels.expr.types import BIGINT, VARCHAR, Type
from tsql.kernels.process.quick_dataclass import dataclass


@dataclass(frozen=True)
class Read(Typed):
    """Base of reads. Names of variables are those of the pattern; none means all rows of the match."""

    def text(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True)
class Classifier(Read):
    """CLASSIFIER(): the variable to which a row is mapped; inside the argument of a read, the row that the read refers
    to."""

    position: int | None = field(default=None, compare=False)

    @property
    def type(self) -> Type:
        return VARCHAR

    def text(self) -> str:
        return "classifier()"


@dataclass(frozen=True)
class MatchNumber(Read):
    """MATCH_NUMBER(): the number of the match in its partition, from 1."""

    position: int | None = field(default=None, compare=False)

    @property
    def type(self) -> Type:
        return BIGINT

    def text(self) -> str:
        return "match_number()"


@dataclass(frozen=True)
class Navigate(Read):
    """The value of an expression in another row: of the rows of the match so far (`final`: of all of it) that are
    mapped to `variables`, the one that is `offset` behind the first, or before the last (`from_last`); then `shift`
    rows on in the partition, or back."""

    arg: Expr
    variables: tuple[str, ...] = ()
    from_last: bool = True
    offset: int = 0
    shift: int = 0
    final: bool = False
    position: int | None = field(default=None, compare=False)

    @property
    def type(self) -> Type:
        return self.arg.type

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.arg,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return self if children[0] is self.arg else replace(self, arg=children[0])

    @property
    def is_local(self) -> bool:
        """Whether it reads a row at a fixed distance from the current one, whatever the match."""
        here = self.from_last and self.offset == 0 and not self.variables and not self.final
        return here and not any(isinstance(e, Classifier) for e in self.arg.walk())

    def text(self) -> str:
        plain = self.from_last and self.offset == 0 and not self.variables and not self.final
        offset = f", {self.offset}" if self.offset or self.variables else ""
        end = "last" if self.from_last else "first"
        inner = f"{'final_' if self.final else ''}{end}({self.arg}{offset}{_names(self.variables)})"
        if self.shift == 0:
            return inner
        distance = "" if abs(self.shift) == 1 else f", {abs(self.shift)}"
        return f"{'prev' if self.shift < 0 else 'next'}({self.arg if plain else inner}{distance})"


@dataclass(frozen=True)
class MatchFold(Read):
    """An aggregate over the rows of the match so far (`final`: of all of it) that are mapped to `variables`."""

    name: str
    args: tuple[Expr, ...]
    dtype: Type
    variables: tuple[str, ...] = ()
    final: bool = False
    distinct: bool = False
    filter: Expr | None = None
    order: tuple[SortKey, ...] = ()
    position: int | None = field(default=None, compare=False)

    @staticmethod
    def of(call: Aggregate, variables: tuple[str, ...], final: bool) -> MatchFold:
        return MatchFold(
            call.name, call.args, call.dtype, variables, final, call.distinct, call.filter, call.order, call.position
        )

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.aggregate().expressions()

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        if all(a is b for a, b in zip(self.children, children, strict=True)):
            return self
        rest = iter(children)
        args = tuple(next(rest) for _ in self.args)
        condition = None if self.filter is None else next(rest)
        return replace(
            self, args=args, filter=condition, order=tuple(replace(key, expr=next(rest)) for key in self.order)
        )

    def aggregate(self) -> Aggregate:
        return Aggregate(self.name, self.args, self.dtype, self.distinct, self.filter, self.order, self.position)

    @property
    def counts_rows(self) -> bool:
        """Whether it is count(*) of all rows."""
        return self.name == "count" and not self.args and self.filter is None and not self.variables

    def text(self) -> str:
        return f"{'final' if self.final else 'running'}({self.aggregate()}{_names(self.variables)})"


def _names(variables: tuple[str, ...]) -> str:
    from tsql.kernels.expr.printer import string_sql

    return "".join(f", {string_sql(name)}" for name in variables)


def is_row_wise(expr: Expr) -> bool:
    """Whether an expression only reads rows at fixed distances from the current one."""
    return all(not isinstance(e, Read) or (isinstance(e, Navigate) and e.is_local) for e in expr.walk())


def replace_reads(expr: Expr, change: Callable[[Read], Expr]) -> Expr:
    """The expression with its outermost reads replaced."""
    if isinstance(expr, Read):
        return change(expr)
    return expr.with_children(tuple(replace_reads(c, change) for c in expr.children)) if expr.children else expr


def map_plain(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with its largest parts without a read changed, also inside of reads."""
    if not any(isinstance(e, Read) for e in expr.walk()):
        return change(expr)
    return expr.with_children(tuple(map_plain(c, change) for c in expr.children)) if expr.children else expr
