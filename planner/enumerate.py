"""Logical plans to physical ones: chooses the steps and their phases by cost; `enforce` then adds the movement.

Alternatives for an aggregate: two phases merged on one shard (few groups), two phases placed by key (many groups), one
phase over placed rows (nearly as many groups as rows, or an aggregate whose state cannot be handed on). Hints (`hints.py`)
come before cost.
"""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr import Aggregate as AggregateCall
from tsql.kernels.expr import Call, Case, Column, Expr, Literal, SortKey, substitute
from tsql.kernels.selection import is_selectable, string_equality
from tsql.kernels.types import BIGINT, BOOLEAN
from tsql.planner import cost, logical, stats
from tsql.planner.hints import Constraints
from tsql.planner.movement import Gather, Redistribute, Rekey
from tsql.planner.operators.aggregate import Aggregate, can_split
from tsql.planner.operators.expand import Expand
from tsql.planner.operators.filter import Filter
from tsql.planner.operators.limit import Limit
from tsql.planner.operators.project import Project
from tsql.planner.operators.replicate import Replicate
from tsql.planner.operators.scan import Scan
from tsql.planner.operators.sort import Sort
from tsql.planner.operators.union import Union
from tsql.planner.operators.values import Values
from tsql.planner.operators.window import Window
from tsql.planner.properties import Properties, Requirement
from tsql.planner.step import Step


class Enumerator:
    """Turns the nodes of one query into steps; a node that is used twice becomes one step."""

    def __init__(self, shards: int, wanted: Constraints | None = None, scope: str = "local"):
        self.shards, self.wanted, self.scope = shards, wanted or Constraints(), scope
        self.done: dict[int, Step] = {}

    def step(self, node: logical.Node) -> Step:
        found = self.done.get(id(node))
        if found is None:
            found = self.done[id(node)] = self._step(node)
        return found

    def _step(self, node: logical.Node) -> Step:
        match node:
            case logical.Scan():
                return self._scan(node, [])
            case logical.Values():
                return Values((), rows=node.rows, fields=node.fields)
            case logical.Filter():
                return self._filter(node)
            case logical.Project():
                return Project((self.step(node.input),), columns=node.columns)
            case logical.Aggregate():
                return self._aggregate(node)
            case logical.Distinct():
                return self._distinct(node)
            case logical.Sort():
                return Sort((self.step(node.input),), keys=node.keys)
            case logical.Limit():
                return self._limit(node)
            case logical.Window():
                return self._window(node)
            case logical.SetOperation():
                return self._set_operation(node)
        raise TypeError(f"no step for {node.describe()}")

    def _filter(self, node: logical.Filter) -> Step:
        filters, below = [node], node.input
        while isinstance(below, logical.Filter):
            filters.append(below)
            below = below.input
        if isinstance(below, logical.Scan) and below.table in self.wanted.placements:
            return self._scan(below, filters)
        how = self._how(node) if isinstance(below, logical.Scan) else "branch"
        return Filter((self.step(node.input),), predicate=node.predicate, how=how)

    def _how(self, node: logical.Filter) -> str:
        """Whether a filter above a scan decides runs of rows at once: where few pass, and a cheap condition tells them apart."""
        few = string_equality(node.predicate) is not None or stats.selectivity(node.predicate, node.input) <= cost.SELECT_WORTH
        return "select" if few and is_selectable(node.predicate) else "branch"

    def _scan(self, node: logical.Scan, filters: list[logical.Filter]) -> Step:
        """A scan and the filters above it, the highest first. Rows that a hint places are filtered before they move, and a
        column that only the hint names is read for it and dropped again."""
        placement = self.wanted.placements.get(node.table)
        extra = tuple(c for c in placement.columns if c not in node.columns) if placement is not None else ()
        rows: Step = Scan((), table=node.table, source=node.source, columns=(*node.columns, *extra), where=node.filter)
        for condition in reversed(filters):
            rows = Filter((rows,), predicate=condition.predicate, how=self._how(condition))
        if placement is None:
            return rows
        self.wanted.apply(placement.hint, f"after {'the filters of ' if filters else ''}scan {node.table}")
        rows = Redistribute((Rekey((rows,), key=placement.columns),), scope=placement.scope or self.scope, shards=self.shards)
        return Project((rows,), columns=tuple((f.name, Column(f.name, f.type, f.nullable)) for f in node.schema)) if extra else rows

    def _limit(self, node: logical.Limit) -> Step:
        below = node.input
        projections: list[logical.Project] = []
        while isinstance(below, logical.Project):
            projections.append(below)
            below = below.input
        if not isinstance(below, logical.Sort) or node.count is None:
            return Limit((self.step(node.input),), count=node.count, offset=node.offset)
        wanted = _rows_wanted(node)
        source = self.step(below.input)
        if self.shards > 1:
            source = Sort((source,), keys=below.keys, limit=wanted, phase="partial")
        top: Step = Sort((source,), keys=below.keys, limit=wanted)
        for project in reversed(projections):
            top = Project((top,), columns=project.columns)
        return Limit((top,), count=node.count, offset=node.offset) if node.offset is not None else top

    def _window(self, node: logical.Window) -> Step:
        """Rows are placed by the columns of PARTITION BY; a key that is computed becomes a column for that, and is dropped again."""
        source = self.step(node.input)
        computed = tuple(dict.fromkeys(e for e in node.keys if not isinstance(e, Column)))
        if not computed or self.shards == 1:
            return Window((source,), by=node.keys, order=node.order, calls=node.calls)
        columns = tuple((f.name, Column(f.name, f.type, f.nullable)) for f in node.input.schema)
        names = {e: f"partition_key_{i}" for i, e in enumerate(computed)}
        source = Project((source,), columns=(*columns, *((n, e) for e, n in names.items())))
        by = tuple(Column(names[e], e.type) if e in names else e for e in node.keys)
        result = Window((source,), by=by, order=node.order, calls=node.calls)
        return Project((result,), columns=tuple((f.name, Column(f.name, f.type, f.nullable)) for f in node.schema))

    def _distinct(self, node: logical.Distinct) -> Step:
        """DISTINCT is an aggregate without calls; DISTINCT ON takes the first row of each group."""
        fields = node.schema
        on = node.on if node.on is not None else fields.names
        keys = tuple((n, Column(n, fields[n].type)) for n in on)
        rest = tuple((f.name, AggregateCall("first", (Column(f.name, f.type),), f.type)) for f in fields if f.name not in on)
        grouped = self._group(self.step(node.input), keys, rest, stats.rows(node.input), stats.groups([e for _, e in keys], node.input))
        return Project((grouped,), columns=tuple((f.name, Column(f.name, f.type)) for f in fields)) if rest else grouped

    def _aggregate(self, node: logical.Aggregate) -> Step:
        source = self.step(node.input)
        rows, groups = stats.rows(node.input), stats.groups([e for _, e in node.keys], node.input)
        if node.sets is None:
            return self._group(source, node.keys, node.aggregates, rows, groups)
        # Keys are computed before they are set to NULL; the inputs of aggregates keep the values that they had.
        fields = node.input.schema
        renamed = {f.name: f"{f.name}__input" for f in fields}
        columns = [(renamed[f.name], Column(f.name, f.type, f.nullable)) for f in fields] + list(node.keys)
        source = Project((source,), columns=tuple(columns))
        expanded = Expand((source,), keys=tuple(n for n, _ in node.keys), sets=node.sets)
        calls = tuple((n, _rename_call(c, renamed)) for n, c in node.aggregates)
        keys = (*((n, Column(n, e.type)) for n, e in node.keys), ("grouping_id", Column("grouping_id", BIGINT, False)), ("grouping_set", Column("grouping_set", BIGINT, False)))
        grouped = self._group(expanded, keys, calls, rows * len(node.sets), groups * len(node.sets))
        if () in node.sets:
            grouped = self._with_empty_sets(node, grouped, keys, calls)
        return Project((grouped,), columns=tuple((f.name, Column(f.name, f.type)) for f in node.schema))

    def _with_empty_sets(self, node: logical.Aggregate, grouped: Step, keys: tuple[tuple[str, Expr], ...], calls: tuple[tuple[str, AggregateCall], ...]) -> Step:
        """The empty grouping set gives a row even for no input: its groups are aggregated again without keys.

        Each empty set is computed by itself over the unexpanded input, and its rows from the expansion are dropped.
        """
        source = self.step(node.input)
        total = self._group(source, (), node.aggregates, stats.rows(node.input), 1.0)
        numbers = [i for i, s in enumerate(node.sets) if s == ()]
        everything = (1 << len(node.keys)) - 1
        parts: list[Step] = [Filter((grouped,), predicate=Call("<>", (Column("grouping_set", BIGINT), Literal(n, BIGINT)), BOOLEAN)) for n in numbers[:1]]
        for n in numbers[1:]:
            parts[0] = Filter((parts[0],), predicate=Call("<>", (Column("grouping_set", BIGINT), Literal(n, BIGINT)), BOOLEAN))
        for n in numbers:
            columns = [(name, Literal(None, e.type)) for name, e in keys[:-2]]
            columns += [("grouping_id", Literal(everything, BIGINT)), ("grouping_set", Literal(n, BIGINT))]
            columns += [(name, Column(name, c.type)) for name, c in calls]
            parts.append(Project((total,), columns=tuple(columns)))
        return Union(tuple(parts))

    def _group(self, source: Step, keys: tuple[tuple[str, Expr], ...], calls: tuple[tuple[str, AggregateCall], ...], rows: float, groups: float) -> Step:
        """What a hint asks for, or the cheapest plan for a grouping."""
        how = None
        whole = [f"{n}={c}" for n, c in calls if not can_split(c)]
        if self.wanted.aggregation is not None:
            how = self.wanted.aggregation.how
            self.wanted.apply(self.wanted.aggregation.hint, f"at aggregate by=({', '.join(n for n, _ in keys)}) {' '.join(f'{n}={c}' for n, c in calls)}".rstrip())
            if whole and how != "one_phase":
                raise self.wanted.aggregation.refuse(f"{whole[0]} has no state that a second phase could merge")
        elif self.shards == 1:
            return Aggregate((source,), by=keys, calls=calls, groups=int(groups))
        elif whole or self._is_placed(source, keys) or (keys and (groups > cost.CACHED_GROUPS or groups > max(rows * cost.PARTIAL_WORTH, cost.GATHER_GROUPS))):
            how = "one_phase"
        else:
            how = "two_phase_gather" if groups <= cost.GATHER_GROUPS else "two_phase"
        if how == "one_phase":
            return self._one_phase(source, keys, calls, groups)
        partial = Aggregate((source,), by=keys, calls=calls, phase="partial", groups=int(groups))
        merged: Step = Gather((partial,)) if how == "two_phase_gather" else partial
        return Aggregate((merged,), by=tuple((n, Column(n, e.type)) for n, e in keys), calls=calls, phase="final", groups=int(groups))

    def _is_placed(self, source: Step, keys: tuple[tuple[str, Expr], ...]) -> bool:
        """Whether the rows of each group are in one shard anyway: below is a sort or a limit, or a hint has placed them."""
        found: dict[int, Properties] = {}
        for step in source.walk():
            found[id(step)] = step.provides(tuple(found[id(i)] for i in step.inputs), self.shards)
        given = found[id(source)]
        return given.shards == 1 or (all(isinstance(e, Column) for _, e in keys) and Requirement("placed", tuple(e.name for _, e in keys)).met_by(given))

    def _one_phase(self, source: Step, keys: tuple[tuple[str, Expr], ...], calls: tuple[tuple[str, AggregateCall], ...], groups: float) -> Step:
        """Rows are placed by their keys, which must be columns for that; only what the aggregate needs is moved."""
        needed = tuple(dict.fromkeys(c for _, call in calls for e in call.expressions() for c in e.columns()))
        if not all(isinstance(e, Column) for _, e in keys):
            renamed = {c: f"{c}__input" for c in needed}
            columns = [(renamed[c], Column(c, source.schema[c].type, source.schema[c].nullable)) for c in needed] + list(keys)
            source = Project((source,), columns=tuple(columns))
            keys = tuple((n, Column(n, e.type)) for n, e in keys)
            calls = tuple((n, _rename_call(c, renamed)) for n, c in calls)
        placed = self._in_cache(source, tuple(e.name for _, e in keys), groups)
        return Aggregate((placed,), by=keys, calls=calls, groups=int(groups))

    def _in_cache(self, source: Step, key: tuple[str, ...], groups: float) -> Step:
        """With very many groups: more shards than cores, so that the table of each fits a core's cache."""
        if self.scope != "local" or groups <= cost.CACHED_GROUPS or not key:
            return source
        shards = self.shards
        while shards * cost.GROUPS_PER_SHARD < groups and shards < cost.MOST_SHARDS:
            shards *= 2
        return Redistribute((Rekey((source,), key=key),), scope="local", shards=shards)

    def _set_operation(self, node: logical.SetOperation) -> Step:
        left, right = self.step(node.left), self.step(node.right)
        if node.kind == "union":
            return Union((left, right))
        # Count each distinct row on both sides; what the counts allow is the answer.
        fields = node.schema
        sides = []
        for side, mark in ((left, 0), (right, 1)):
            columns = [(f.name, Column(g.name, g.type, g.nullable)) for f, g in zip(fields, side.schema, strict=True)]
            sides.append(Project((side,), columns=(*columns, ("side", Literal(mark, BIGINT)))))
        both = Union(tuple(sides))
        keys = tuple((f.name, Column(f.name, f.type)) for f in fields)
        calls = tuple((f"in_{name}", AggregateCall("count_star", (), BIGINT, filter=Call("=", (Column("side", BIGINT), Literal(mark, BIGINT)), BOOLEAN))) for name, mark in (("left", 0), ("right", 1)))
        rows = stats.rows(node)
        counted = self._group(both, keys, calls, rows, rows)
        in_left, in_right, zero = Column("in_left", BIGINT), Column("in_right", BIGINT), Literal(0, BIGINT)
        has_left = Call(">", (in_left, zero), BOOLEAN)
        result: Step
        if node.all:
            times: Expr = Call("-", (in_left, in_right), BIGINT) if node.kind == "except" else _least(in_left, in_right)
            result = Replicate((counted,), times=times)
        else:
            wanted = Call("=" if node.kind == "except" else ">", (in_right, zero), BOOLEAN)
            result = Filter((counted,), predicate=Call("and", (has_left, wanted), BOOLEAN))
        return Project((result,), columns=keys)


def _least(a: Expr, b: Expr) -> Expr:
    return Case(((Call("<", (a, b), BOOLEAN), a),), b)


def _rename_call(call: AggregateCall, renamed: dict[str, str]) -> AggregateCall:
    def move(e: Expr) -> Expr:
        columns = {c.name: Column(renamed[c.name], c.dtype, c.nullable) for c in e.walk() if isinstance(c, Column)}
        return substitute(e, columns)

    return replace(
        call,
        args=tuple(move(a) for a in call.args),
        filter=None if call.filter is None else move(call.filter),
        order=tuple(SortKey(move(k.expr), k.descending, k.nulls_first) for k in call.order),
    )


def _rows_wanted(node: logical.Limit) -> Expr:
    """LIMIT + OFFSET: as many rows as a top-k must keep."""
    if node.offset is None:
        return node.count
    if isinstance(node.count, Literal) and isinstance(node.offset, Literal):
        if node.count.value is None or node.offset.value is None:
            return node.count
        return Literal(min(node.count.value + node.offset.value, 2**63 - 1), BIGINT)
    return Call("+", (node.count, node.offset), BIGINT)
