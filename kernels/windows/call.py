"""Calls of window functions as plans hold them: the function, its arguments, and the frame of rows that it sees.

PARTITION BY and ORDER BY belong to the plan node, which serves all calls that share them. Everything is frozen and
hashable, and prints as SQL that `planner/bind/windows.py` reads back to an equal object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace

from tsql.kernels.expr.nodes import Aggregate, Expr, Literal, SortKey
from tsql.kernels.expr.types import Type
from tsql.kernels.process.quick_dataclass import dataclass


@dataclass(frozen=True)
class Bound:
    """An end of a frame. kind: "unbounded" (in the direction of the end), "current", "preceding" or "following".

    offset: how far; a BIGINT that counts rows or groups, or for RANGE a number or an interval.
    limit: for RANGE with an offset, the value of the ORDER BY expression at which the frame ends.
    """

    kind: str
    offset: Expr | None = None
    limit: Expr | None = None

    def expressions(self) -> tuple[Expr, ...]:
        return tuple(e for e in (self.offset, self.limit) if e is not None)

    def changed(self, change: Callable[[Expr], Expr]) -> Bound:
        offset, limit = (None if e is None else change(e) for e in (self.offset, self.limit))
        return self if offset is self.offset and limit is self.limit else replace(self, offset=offset, limit=limit)

    @property
    def is_constant(self) -> bool:
        """Whether the distance is the same for all rows: then the end only moves forward."""
        return self.offset is None or not self.offset.columns()

    def sql(self, side: str) -> str:
        match self.kind:
            case "unbounded":
                return f"UNBOUNDED {side}"
            case "current":
                return "CURRENT ROW"
        distance = f"({self.offset})"
        if self.limit is None and isinstance(self.offset, Literal) and self.offset.value is not None:
            distance = str(self.offset.value)
        return f"{distance} {self.kind.upper()}"


@dataclass(frozen=True)
class Frame:
    """The rows of the partition that a call sees. mode: "rows", "range" or "groups". `key` is the ORDER BY expression
    in the type in which RANGE with an offset compares it."""

    mode: str = "range"
    start: Bound = Bound("unbounded")
    end: Bound = Bound("current")
    exclude: str = ""
    key: Expr | None = None

    def expressions(self) -> tuple[Expr, ...]:
        return (*self.start.expressions(), *self.end.expressions(), *(() if self.key is None else (self.key,)))

    def changed(self, change: Callable[[Expr], Expr]) -> Frame:
        start, end = self.start.changed(change), self.end.changed(change)
        key = None if self.key is None else change(self.key)
        return (
            self
            if start is self.start and end is self.end and key is self.key
            else replace(self, start=start, end=end, key=key)
        )

    @property
    def is_monotonic(self) -> bool:
        """Whether both ends only ever move forward from row to row."""
        return self.start.is_constant and self.end.is_constant

    @property
    def needs_peers(self) -> bool:
        return self.exclude in ("group", "ties") or (
            self.mode != "rows" and not (self.start.kind == self.end.kind == "unbounded")
        )

    def sql(self) -> str:
        text = f"{self.mode.upper()} BETWEEN {self.start.sql('PRECEDING')} AND {self.end.sql('FOLLOWING')}"
        return text + (f" EXCLUDE {self.exclude.upper()}" if self.exclude else "")


DEFAULT_FRAME = Frame()
WHOLE_PARTITION = Frame("rows", Bound("unbounded"), Bound("unbounded"))


@dataclass(frozen=True)
class WindowCall:
    """A call of a window function or of an aggregate over a frame. Functions that always see the whole partition
    (row_number, lag, ..) have the default frame."""

    name: str
    args: tuple[Expr, ...]
    dtype: Type
    frame: Frame = DEFAULT_FRAME
    distinct: bool = False
    filter: Expr | None = None
    order: tuple[SortKey, ...] = ()
    ignore_nulls: bool = False
    position: int | None = field(default=None, compare=False)

    @property
    def type(self) -> Type:
        return self.dtype

    def expressions(self) -> tuple[Expr, ...]:
        own = (*self.args, *(() if self.filter is None else (self.filter,)), *(k.expr for k in self.order))
        return (*own, *self.frame.expressions())

    def changed(self, change: Callable[[Expr], Expr]) -> WindowCall:
        """The call over changed expressions; itself if none changed."""
        args = tuple(map(change, self.args))
        condition = None if self.filter is None else change(self.filter)
        order = tuple(SortKey(change(k.expr), k.descending, k.nulls_first) for k in self.order)
        frame = self.frame.changed(change)
        same = frame is self.frame and condition is self.filter
        same = same and all(a is b for a, b in zip(args, self.args, strict=True))
        same = same and all(a.expr is b.expr for a, b in zip(order, self.order, strict=True))
        return self if same else replace(self, args=args, filter=condition, order=order, frame=frame)

    def aggregate(self) -> Aggregate:
        """The aggregate that is computed over the frame."""
        return Aggregate(self.name, self.args, self.dtype, self.distinct, self.filter, self.order, self.position)

    def sql(self) -> str:
        from tsql.kernels.expr.printer import window_sql

        return window_sql(self)

    def __str__(self) -> str:
        return self.sql()
