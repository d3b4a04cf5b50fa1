"""window: the input rows with the results of window functions over each partition, in order.

The rows of a partition must be in one shard; without `by` there is one partition, and one shard.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from tsql.kernels.expr.nodes import Column, Expr, SortKey
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.windows.call import WindowCall
from tsql.planner.physical.properties import SINGLE, Properties, Requirement
from tsql.planner.physical.step import Step
from tsql.planner.physical.text import assignment

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext


@dataclass(frozen=True)
class Window(Step):
    """`by` is PARTITION BY, `order` ORDER BY; `calls` are (name, call) pairs, each with its frame."""

    by: tuple[Expr, ...] = ()
    order: tuple[SortKey, ...] = ()
    calls: tuple[tuple[str, WindowCall], ...] = ()

    op = "window"
    label = "windowed"

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.inputs[0].schema.fields, *(Field(name, call.type) for name, call in self.calls)))

    def changed(
        self, change: Callable[[Expr], Expr]
    ) -> tuple[tuple[Expr, ...], tuple[SortKey, ...], tuple[tuple[str, WindowCall], ...]]:
        """(by, order, calls) over changed expressions."""
        order = tuple(SortKey(change(k.expr), k.descending, k.nulls_first) for k in self.order)
        return tuple(map(change, self.by)), order, tuple((name, call.changed(change)) for name, call in self.calls)

    def requires(self) -> tuple[Requirement, ...]:
        names = tuple(e.name for e in self.by if isinstance(e, Column))
        return (Requirement("placed", names),) if names and len(names) == len(self.by) else (SINGLE,)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        # Partitions that do not fit memory together come in the order of their hashes.
        return replace(given[0], order=() if self.by else self.order)

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        return self.used(*wanted)

    @property
    def depends_on_order(self) -> bool:
        return any(call.name not in ("session_start", "session_end") for _, call in self.calls)

    def attributes(self) -> list[tuple[str, str]]:
        by, order = f"({', '.join(map(str, self.by))})", f"({', '.join(map(str, self.order))})"
        return [("by", by), ("order", order), *(assignment(n, c, ("by", "order")) for n, c in self.calls)]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        schema = inputs[0].schema
        by = tuple(context.expression(item, schema) for item in attributes.items("by"))
        order = tuple(context.sort_key(item, schema) for item in attributes.items("order"))
        calls = tuple((n, context.window(t, schema, order)) for n, t in attributes.assignments())
        return cls(inputs, by=by, order=order, calls=calls)
