"""Logical plans: what a query means, before anything is decided about how it runs.

Nodes are frozen, check themselves on construction and know their output `schema`. Column names inside a plan are
unique per relation; the display names of the result stand in `Output`. `explain LOGICAL` prints `show(plan)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace
from functools import cached_property
from typing import Any, Self, cast

from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Column, Expr, SortKey, check_columns
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT, BOOLEAN
from tsql.kernels.process import stopping
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.windows.call import WindowCall
from tsql.planner.logical.calls import map_calls, map_columns, map_keys
from tsql.planner.logical.emission import Emission
from tsql.planner.logical.progression import Progression


def columns_of(exprs: Iterable[Expr]) -> set[str]:
    """The columns that expressions name."""
    return {c for e in exprs for c in e.columns()}


@dataclass(frozen=True)
class Node:
    """Base of all logical nodes."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    @property
    def schema(self) -> Schema:
        raise NotImplementedError

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        """The same node over other inputs; itself if they are the same objects."""
        return self

    def describe(self) -> str:
        """One line without the inputs, for `explain`."""
        raise NotImplementedError

    def expressions(self) -> tuple[Expr, ...]:
        """Its own expressions."""
        found: list[Expr] = []

        def see(expr: Expr) -> Expr:
            found.append(expr)
            return expr

        self.map_expressions(see)
        return tuple(found)

    def map_expressions(self, change: Callable[[Expr], Expr]) -> Self:
        """The node with each of its own expressions changed; itself if none is."""
        return self

    def needs(self, wanted: set[str]) -> list[set[str]]:
        """The columns that it needs of each input to compute the wanted output columns. The default is all."""
        return [set(i.schema.names) for i in self.inputs]

    def named(self) -> set[str]:
        """The columns that its own expressions name."""
        return columns_of(self.expressions())

    def walk(self) -> Iterator[Node]:
        """This node and everything below it, users before inputs. A shared node comes once, at its first user."""
        seen: set[int] = set()
        stack: list[Node] = [self]
        while stack:
            node = stack.pop()
            if id(node) not in seen:
                seen.add(id(node))
                stopping.check()
                yield node
                stack.extend(reversed(node.inputs))


@dataclass(frozen=True)
class Unary(Node):
    """A node with one input."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return self if inputs[0] is self.input else replace(self, input=inputs[0])


class Binary(Node):
    """A node with the inputs `left` and `right`."""

    left: Node
    right: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return (
            self
            if inputs[0] is self.left and inputs[1] is self.right
            else replace(cast(Any, self), left=inputs[0], right=inputs[1])
        )


@dataclass(frozen=True)
class Scan(Node):
    """A table of the catalog or a file source; `columns` are those needed, `filter` a predicate the scan may use to
    skip. `alias` is what the query calls it, for hints."""

    table: str
    source: Any = field(compare=False)
    columns: tuple[str, ...]
    filter: Expr | None = None
    alias: str | None = field(default=None, compare=False)

    @cached_property
    def schema(self) -> Schema:
        return Schema(tuple(self.source.schema[name] for name in self.columns))

    def kept_columns(self, wanted: set[str]) -> tuple[str, ...]:
        """The columns that it reads: those wanted, and those that its filter names."""
        return tuple(c for c in self.columns if c in wanted or (self.filter is not None and c in self.filter.columns()))

    def describe(self) -> str:
        text = f"scan {self.table} ({', '.join(self.columns)})"
        return text + (f" where {self.filter}" if self.filter is not None else "")


@dataclass(frozen=True)
class Values(Node):
    """A literal relation: rows of constant expressions (Literals, Parameters or constant Calls) of the schema's
    types."""

    rows: tuple[tuple[Expr, ...], ...]
    fields: Schema

    @property
    def schema(self) -> Schema:
        return self.fields

    def map_expressions(self, change: Callable[[Expr], Expr]) -> Self:
        rows = tuple(tuple(change(e) for e in row) for row in self.rows)
        unchanged = all(a is b for new, old in zip(rows, self.rows, strict=True) for a, b in zip(new, old, strict=True))
        return self if unchanged else replace(self, rows=rows)

    def describe(self) -> str:
        return f"values {len(self.rows)} rows {self.fields}"


@dataclass(frozen=True)
class Filter(Unary):
    """Rows for which `predicate` is true."""

    predicate: Expr

    def __post_init__(self) -> None:
        if self.predicate.type != BOOLEAN:
            raise ValueError(f"a filter takes BOOLEAN, not {self.predicate.type}")
        check_columns(self.predicate, self.input.schema)

    @property
    def schema(self) -> Schema:
        return self.input.schema

    def map_expressions(self, change: Callable[[Expr], Expr]) -> Self:
        predicate = change(self.predicate)
        return self if predicate is self.predicate else replace(self, predicate=predicate)

    def needs(self, wanted: set[str]) -> list[set[str]]:
        return [wanted | self.named()]

    def describe(self) -> str:
        return f"filter {self.predicate}"


@dataclass(frozen=True)
class Project(Unary):
    """Computed columns: (name, expression) pairs, names unique."""

    columns: tuple[tuple[str, Expr], ...]

    def __post_init__(self) -> None:
        names = [name for name, _ in self.columns]
        if len(set(names)) != len(names):
            raise ValueError(f"duplicate names in a projection: {names}")
        for _, expr in self.columns:
            check_columns(expr, self.input.schema)

    @cached_property
    def schema(self) -> Schema:
        return Schema(
            tuple(Field(name, e.type, e.nullable if isinstance(e, Column) else True) for name, e in self.columns)
        )

    def map_expressions(self, change: Callable[[Expr], Expr]) -> Self:
        columns = map_columns(self.columns, change)
        return self if columns is self.columns else replace(self, columns=columns)

    def needs(self, wanted: set[str]) -> list[set[str]]:
        return [columns_of(e for n, e in self.columns if n in wanted)]

    def describe(self) -> str:
        return "project " + ", ".join(
            e.sql() if isinstance(e, Column) and e.name == n else f"{n}={e}" for n, e in self.columns
        )


@dataclass(frozen=True)
class Aggregate(Unary):
    """Groups by `keys` and computes `aggregates`, both (name, ..) pairs.

    `sets` lists the grouping sets as tuples of key indexes; None means the one set of all keys. With sets, the column
    `grouping_id` (BIGINT, always the last of the schema) tells which set a row belongs to: bit i (from the least) is 1
    where key i is NOT in the set. With no keys and no sets there is exactly one output row.
    """

    keys: tuple[tuple[str, Expr], ...]
    aggregates: tuple[tuple[str, AggregateCall], ...]
    sets: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        for _, expr in self.keys:
            check_columns(expr, self.input.schema)
        for _, call in self.aggregates:
            for expr in call.expressions():
                check_columns(expr, self.input.schema)

    @cached_property
    def schema(self) -> Schema:
        fields = [Field(name, e.type, True) for name, e in self.keys]
        fields += [Field(name, call.type) for name, call in self.aggregates]
        if self.sets is not None:
            fields.append(Field("grouping_id", BIGINT))
        return Schema(tuple(fields))

    def map_expressions(self, change: Callable[[Expr], Expr]) -> Self:
        keys, calls = map_columns(self.keys, change), map_calls(self.aggregates, change)
        unchanged = keys is self.keys and calls is self.aggregates
        return self if unchanged else replace(self, keys=keys, aggregates=calls)

    def kept_calls(self, wanted: set[str]) -> tuple[tuple[str, AggregateCall], ...]:
        """The aggregates that are used; one at least where there are no keys, since a relation has a column."""
        calls = tuple((n, c) for n, c in self.aggregates if n in wanted)
        return calls if calls or self.keys else self.aggregates[:1]

    def needs(self, wanted: set[str]) -> list[set[str]]:
        used = columns_of(e for _, c in self.kept_calls(wanted) for e in c.expressions())
        return [columns_of(e for _, e in self.keys) | used]

    def describe(self) -> str:
        keys = ", ".join(e.sql() if isinstance(e, Column) and e.name == n else f"{n}={e}" for n, e in self.keys)
        sets = (
            ""
            if self.sets is None
            else " sets=(" + ", ".join(f"({', '.join(self.keys[i][0] for i in s)})" for s in self.sets) + ")"
        )
        calls = " ".join(f"{n}={call}" for n, call in self.aggregates)
        return f"aggregate by=({keys}){sets} {calls}".rstrip()


@dataclass(frozen=True)
class Distinct(Unary):
    """Each distinct row once. With `on`, the first row (by input order) for each distinct value of these columns."""

    on: tuple[str, ...] | None = None

    @property
    def schema(self) -> Schema:
        return self.input.schema

    def needs(self, wanted: set[str]) -> list[set[str]]:
        return super().needs(wanted) if self.on is None else [wanted.union(self.on)]

    def describe(self) -> str:
        return "distinct" + (f" on ({', '.join(self.on)})" if self.on else "")


@dataclass(frozen=True)
class Sort(Unary):
    """Rows in order; stable."""

    keys: tuple[SortKey, ...]

    @property
    def schema(self) -> Schema:
        return self.input.schema

    def map_expressions(self, change: Callable[[Expr], Expr]) -> Self:
        keys = map_keys(self.keys, change)
        return self if keys is self.keys else replace(self, keys=keys)

    def needs(self, wanted: set[str]) -> list[set[str]]:
        return [wanted | self.named()]

    def describe(self) -> str:
        return "sort " + ", ".join(map(str, self.keys))


@dataclass(frozen=True)
class Window(Unary):
    """The rows of the input with more columns: each call, (name, call) pairs, computed over the rows of equal `keys`
    (PARTITION BY) in the order of `order`. Calls that share both are one node."""

    keys: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    calls: tuple[tuple[str, WindowCall], ...]

    def __post_init__(self) -> None:
        taken = set(self.input.schema.names) & {name for name, _ in self.calls}
        if taken:
            raise ValueError(f"a window function has the name of a column: {sorted(taken)}")
        for expr in self.expressions():
            check_columns(expr, self.input.schema)

    def map_expressions(self, change: Callable[[Expr], Expr]) -> Self:
        keys = tuple(map(change, self.keys))
        order = map_keys(self.order, change)
        calls = tuple((name, call.changed(change)) for name, call in self.calls)
        same = order is self.order and all(a is b for a, b in zip(keys, self.keys, strict=True))
        same = same and all(a[1] is b[1] for a, b in zip(calls, self.calls, strict=True))
        return self if same else replace(self, keys=keys, order=order, calls=calls)

    def needs(self, wanted: set[str]) -> list[set[str]]:
        calls = [c for n, c in self.calls if n in wanted]
        if not calls:
            return [wanted]
        used = columns_of((*self.keys, *(k.expr for k in self.order), *(e for c in calls for e in c.expressions())))
        return [(wanted - {n for n, _ in self.calls}) | used]

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, *(Field(name, call.type) for name, call in self.calls)))

    def describe(self) -> str:
        calls = " ".join(f"{n}={call}" for n, call in self.calls)
        return f"window by=({', '.join(map(str, self.keys))}) order=({', '.join(map(str, self.order))}) {calls}"


@dataclass(frozen=True)
class Limit(Unary):
    """At most `count` rows (None: all) after skipping `offset`. Both are constant expressions of BIGINT, or None; a
    count of DOUBLE is a percentage of the rows."""

    count: Expr | None
    offset: Expr | None = None

    @property
    def schema(self) -> Schema:
        return self.input.schema

    def map_expressions(self, change: Callable[[Expr], Expr]) -> Self:
        count, offset = (None if e is None else change(e) for e in (self.count, self.offset))
        return self if count is self.count and offset is self.offset else replace(self, count=count, offset=offset)

    def needs(self, wanted: set[str]) -> list[set[str]]:
        return [wanted | self.named()]

    def describe(self) -> str:
        percent = " percent" if self.count is not None and self.count.type.is_float else ""
        return f"limit {self.count}{percent}" + (f" offset {self.offset}" if self.offset is not None else "")


@dataclass(frozen=True)
class LimitBy(Unary):
    """For each distinct value of the columns `by` (NULL counts as a value), at most `count` rows (None: all) after
    skipping `offset`, in the order of `order` (empty: any rows). A LIMIT in a correlated subquery becomes this when it
    is unnested."""

    by: tuple[str, ...]
    count: Expr | None
    offset: Expr | None = None
    order: tuple[SortKey, ...] = ()

    def __post_init__(self) -> None:
        for name in self.by:
            if name not in self.input.schema:
                raise ValueError(f"limit by the column {name}, which is not in {self.input.schema}")
        for key in self.order:
            check_columns(key.expr, self.input.schema)

    @property
    def schema(self) -> Schema:
        return self.input.schema

    def map_expressions(self, change: Callable[[Expr], Expr]) -> Self:
        order = map_keys(self.order, change)
        count, offset = (None if e is None else change(e) for e in (self.count, self.offset))
        unchanged = order is self.order and count is self.count and offset is self.offset
        return self if unchanged else replace(self, order=order, count=count, offset=offset)

    def needs(self, wanted: set[str]) -> list[set[str]]:
        return [wanted.union(self.by) | self.named()]

    def describe(self) -> str:
        offset = f" offset {self.offset}" if self.offset is not None else ""
        order = " order " + ", ".join(map(str, self.order)) if self.order else ""
        return f"limit {self.count}{offset} by ({', '.join(self.by)}){order}"


@dataclass(frozen=True)
class SetOperation(Binary):
    """UNION ALL, INTERSECT [ALL], EXCEPT [ALL] of inputs with equal column types; the left side gives the names.
    UNION without ALL is Distinct over UNION ALL; INTERSECT and EXCEPT without ALL give distinct rows."""

    kind: str
    all: bool
    left: Node
    right: Node

    def __post_init__(self) -> None:
        assert self.kind in ("union", "intersect", "except")
        left, right = [f.type for f in self.left.schema], [f.type for f in self.right.schema]
        if left != right:
            raise ValueError(f"set operation over {left} and {right}")

    @cached_property
    def schema(self) -> Schema:
        return Schema(tuple(Field(f.name, f.type, True) for f in self.left.schema))

    def needs(self, wanted: set[str]) -> list[set[str]]:
        if self.kind != "union":
            return super().needs(wanted)
        places = [i for i, f in enumerate(self.left.schema) if f.name in wanted]
        return [{side.schema.fields[i].name for i in places} for side in self.inputs]

    def describe(self) -> str:
        return self.kind + (" all" if self.all else "")


JOIN_KINDS = ("inner", "left", "full", "semi", "anti", "mark", "single")


@dataclass(frozen=True)
class Join(Binary):
    """Pairs of a left and a right row for which `condition` is true (None: all pairs). The names of the two sides
    differ.

    inner: the pairs. left: also each left row without a partner, with NULLs for the right. full: also each right row
    without one. semi, anti: the left rows with, without a partner, each once. mark: every left row once with the
    BOOLEAN `mark`: the condition over all right rows joined by OR, in three values (false for no rows). single: as
    left, but a left row with two partners is an error. RIGHT JOIN is a left join with its sides exchanged."""

    kind: str
    left: Node
    right: Node
    condition: Expr | None = None
    mark: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in JOIN_KINDS or (self.mark is not None) != (self.kind == "mark"):
            raise ValueError(f"a {self.kind} join with the mark {self.mark}")
        both = set(self.left.schema.names) & set(self.right.schema.names)
        if both:
            raise ValueError(f"both sides of a join have columns {sorted(both)}")
        if self.condition is not None:
            if self.condition.type != BOOLEAN:
                raise ValueError(f"a join condition is BOOLEAN, not {self.condition.type}")
            check_columns(self.condition, Schema((*self.left.schema, *self.right.schema)))

    @cached_property
    def schema(self) -> Schema:
        return joined_schema(self.kind, self.left.schema, self.right.schema, self.mark)

    def map_expressions(self, change: Callable[[Expr], Expr]) -> Self:
        condition = None if self.condition is None else change(self.condition)
        return self if condition is self.condition else replace(self, condition=condition)

    def needs(self, wanted: set[str]) -> list[set[str]]:
        used = wanted | self.named()
        return [used & set(side.schema.names) for side in self.inputs]

    def describe(self) -> str:
        mark = f" {self.mark}=" if self.mark is not None else " on " if self.condition is not None else ""
        return f"{self.kind} join{mark}" + (
            "" if self.condition is None and self.mark is None else str(self.condition or "true")
        )


@dataclass(frozen=True)
class Apply(Join):
    """A join whose right side is evaluated for each left row: it may name columns of the left as `Outer`. This is how
    subqueries and LATERAL come out of the analyzer; `planner/unnest/unnest.py` turns all of them into joins."""

    def describe(self) -> str:
        return f"apply {super().describe()}"


def joined_schema(kind: str, left: Schema, right: Schema, mark: str | None) -> Schema:
    """The columns of a join."""
    first, second = left.fields, right.fields
    if kind in ("semi", "anti"):
        return Schema(first)
    if kind == "mark":
        return Schema((*first, Field(mark or "", BOOLEAN)))
    if kind == "full":
        first = _nullable(first)
    return Schema((*first, *(second if kind == "inner" else _nullable(second))))


def _nullable(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    return tuple(f if f.nullable else replace(f, nullable=True) for f in fields)


@dataclass(frozen=True)
class Output(Unary):
    """The root: the result columns in order, with the names that the user sees (these may repeat)."""

    columns: tuple[str, ...]
    names: tuple[str, ...]
    progressive: Progression | None = None
    """What PROGRESSIVE behind the query asks for."""
    emission: Emission | None = None
    """What EMIT behind the query asks for."""

    @property
    def schema(self) -> Schema:
        return Schema(tuple(self.input.schema[c] for c in self.columns))

    def needs(self, wanted: set[str]) -> list[set[str]]:
        return [set(self.columns)]

    def describe(self) -> str:
        shown = (c if c == n else f"{c} as {n}" for c, n in zip(self.columns, self.names, strict=True))
        return f"output ({', '.join(shown)})"


LONG_TEXT = 500
"""After this many lines, a shared node that was shown before is printed without its inputs. Nested shared tables would
otherwise be printed thousands of times."""


def show(plan: Node) -> str:
    """The plan as indented text, the root first."""
    lines: list[str] = []
    shown: set[int] = set()
    stack = [(plan, "")]
    while stack:
        node, indent = stack.pop()
        if len(lines) >= LONG_TEXT and id(node) in shown and node.inputs:
            lines.append(f"{indent}{node.describe()} (with inputs as above)")
            continue
        shown.add(id(node))
        stopping.check()
        lines.append(indent + node.describe())
        stack.extend((below, indent + "  ") for below in reversed(node.inputs))
    return "\n".join(lines)
