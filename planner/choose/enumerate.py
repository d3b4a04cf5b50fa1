"""Logical plans to physical ones: chooses the steps and their phases by cost; `enforce` then adds the movement.

Alternatives for an aggregate: two phases merged on one shard (few groups), two phases placed by key (many groups), one
phase over placed rows (nearly as many groups as rows, or an aggregate whose state cannot be handed on). Hints
(`planner/hints/constraints.py`) come before cost."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from tsql.kernels.emit.selection import is_selectable, string_equality
from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Call, Case, Column, Expr, Literal, SortKey, substitute
from tsql.kernels.expr.types import BIGINT, BOOLEAN
from tsql.kernels.process import stopping
from tsql.kernels.windows.call import WindowCall
from tsql.planner.choose.asof import asof_step
from tsql.planner.choose.joins import join_step
from tsql.planner.choose.panes import PANE, Paned, paned
from tsql.planner.choose.ranges import dealt_by_ranges
from tsql.planner.cost import constants as cost
from tsql.planner.cost import stats
from tsql.planner.cost.constants import Costs
from tsql.planner.cost.estimate import Estimator
from tsql.planner.hints.constraints import Constraints
from tsql.planner.logical import generating
from tsql.planner.logical import match as matching
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.asof import AsofJoin
from tsql.planner.logical.snapshot import SnapshotAggregate
from tsql.planner.physical.enforce import enforce
from tsql.planner.physical.movement import Gather, Redistribute, Rekey
from tsql.planner.physical.operators.aggregate import Aggregate, can_split
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.expand import Expand
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.limit import Limit
from tsql.planner.physical.operators.match import Match
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.recursive import Recursive, Working
from tsql.planner.physical.operators.replicate import Replicate
from tsql.planner.physical.operators.sample import Sample
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.operators.series import Series
from tsql.planner.physical.operators.snapshot import Snapshot
from tsql.planner.physical.operators.sort import Sort
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.operators.values import Values
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.properties import Properties, Requirement
from tsql.planner.physical.step import Step

GROUPINGS = ("two_phase_gather", "two_phase", "one_phase")


class Enumerator:
    """Turns the nodes of one query into steps; a node that is used twice becomes one step.

    `choices` are what to take where there is a choice, in the order in which choices come up; the rest is chosen by
    cost. `taken` remembers what was taken of what."""

    def __init__(
        self,
        shards: int,
        wanted: Constraints | None = None,
        scope: str = "local",
        costs: Costs = cost.DEFAULT,
        choices: tuple[str, ...] = (),
    ):
        self.shards, self.wanted, self.scope, self.choices = shards, wanted or Constraints(), scope, choices
        self.estimator = Estimator(shards, costs)
        self.taken: list[tuple[str, tuple[str, ...]]] = []
        self.done: dict[int, tuple[logical.Node, Step]] = {}
        """By id, with the node: one that is made for a single step would be freed, and another could have its id."""
        self.chains: dict[int, float] = {}
        """Of scans, by id: the part of the rows that all filters above one let through."""
        self.recursions: dict[int, str] = {}
        self.gathers = False
        self.shared: set[int] = set()
        """Steps with several users, by id."""
        self.several: set[int] = set()
        """Nodes with several users, by id."""

    def step(self, node: logical.Node) -> Step:
        found = self.done.get(id(node))
        if found is None:
            stopping.check()
            found = self.done[id(node)] = (node, self._step(node))
            if id(node) in self.several:
                self.shared.add(id(found[1]))
        return found[1]

    def plan(self, node: logical.Node) -> Step:
        """The steps of a whole plan."""
        users: dict[int, set[int]] = {}
        for user in node.walk():
            for child in user.inputs:
                users.setdefault(id(child), set()).add(id(user))
        self.several = {child for child, found in users.items() if len(found) > 1}
        return self.step(node)

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
            case logical.LimitBy():
                return self.step(_numbered(node))
            case logical.Window():
                return self._window(node)
            case SnapshotAggregate():
                return self._snapshot(node)
            case matching.Match():
                return Match((self.step(node.input),), spec=node.spec)
            case logical.SetOperation():
                return self._set_operation(node)
            case AsofJoin():
                return asof_step(node, self.step, self.shards, self.scope, self.wanted)
            case logical.Join():
                return join_step(node, self.step, self.shards, self.scope, self.wanted)
            case generating.Series():
                return self._series(node)
            case generating.Sample():
                return Sample(
                    (self.step(node.input),), method=node.method, rows=node.rows, percent=node.percent, seed=node.seed
                )
            case generating.Working():
                return Working((), table=self._working(node), fields=node.fields)
            case generating.Recursive():
                return self._recursive(node)
        raise TypeError(f"no step for {node.describe()}")

    def _filter(self, node: logical.Filter) -> Step:
        filters, below = [node], node.input
        while isinstance(below, logical.Filter):
            filters.append(below)
            below = below.input
        if isinstance(below, logical.Scan) and self.wanted.placement(below) is not None:
            return self._scan(below, filters)
        how = self._how(node) if isinstance(below, logical.Scan) else "branch"
        return Filter((self.step(node.input),), predicate=node.predicate, how=how)

    def _how(self, node: logical.Filter) -> str:
        """Whether a filter above a scan decides runs of rows at once: where few pass it, or the filters below it with
        it, and a cheap condition tells them apart."""
        parts, below = [node.predicate], node.input
        while isinstance(below, logical.Filter):
            parts.append(below.predicate)
            below = below.input
        whole = self.chains.get(id(below), 1.0)
        worth = cost.SELECT_WORTH if stats.rows(below) > cost.FEW_SCANNED else cost.SELECT_WORTH_OF_FEW
        few = string_equality(node.predicate) is not None or min(whole, stats.joint_selectivity(parts, below)) <= worth
        self.chains[id(below)] = min(whole, stats.joint_selectivity(parts, below))
        return "select" if few and is_selectable(node.predicate) else "branch"

    def _scan(self, node: logical.Scan, filters: list[logical.Filter]) -> Step:
        """A scan and the filters above it, the highest first. Rows that a hint places are filtered before they move,
        and a column that only the hint names is read for it and dropped again."""
        placement = self.wanted.placement(node)
        extra = tuple(c for c in placement.columns if c not in node.columns) if placement is not None else ()
        rows: Step = Scan((), table=node.table, source=node.source, columns=(*node.columns, *extra), where=node.filter)
        for condition in reversed(filters):
            rows = Filter((rows,), predicate=condition.predicate, how=self._how(condition))
        if placement is None:
            return Gather((rows,)) if self.gathers else rows
        self.wanted.apply(placement.hint, f"after {'the filters of ' if filters else ''}scan {node.table}")
        rows = Redistribute(
            (Rekey((rows,), key=placement.columns),), scope=placement.scope or self.scope, shards=self.shards
        )
        return (
            Project((rows,), columns=tuple((f.name, Column(f.name, f.type, f.nullable)) for f in node.schema))
            if extra
            else rows
        )

    def _series(self, node: generating.Series) -> Step:
        """Over the one row of a FROM without tables it is a table of its own."""
        about = {
            "column": node.column,
            "start": node.start,
            "stop": node.stop,
            "by": node.step,
            "inclusive": node.inclusive,
        }
        alone = isinstance(node.input, logical.Values) and node.input.rows == ((),)
        return Series((), **about, spread=self.scope == "local") if alone else Series((self.step(node.input),), **about)

    def _working(self, node: generating.Working | generating.Recursive) -> str:
        """The name of a recursion in the plan: its own, with a number where another has it."""
        if node.number not in self.recursions:
            taken = set(self.recursions.values())
            names = (node.name if n == 1 else f"{node.name}_{n}" for n in count(1))
            self.recursions[node.number] = next(name for name in names if name not in taken)
        return self.recursions[node.number]

    def _recursive(self, node: generating.Recursive) -> Step:
        """Between machines the rounds run on one: what they read is brought there."""
        table, outside = self._working(node), self.gathers
        self.gathers = self.scope == "global"
        inputs = self.step(node.initial), self.step(node.step)
        self.gathers = outside
        return Recursive(inputs, table=table, distinct=node.distinct)

    def _limit(self, node: logical.Limit) -> Step:
        below = node.input
        projections: list[logical.Project] = []
        while isinstance(below, logical.Project):
            projections.append(below)
            below = below.input
        if not isinstance(below, logical.Sort) or node.count is None or node.count.type.is_float:
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
        """Rows are placed by the columns of PARTITION BY; a key that is computed becomes a column for that, and is
        dropped again."""
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

    def _snapshot(self, node: SnapshotAggregate) -> Step:
        """Many rows are placed in more shards than there are cores: each is sorted by itself, and what fits the cache
        and memory that was used before is sorted much faster."""
        source = self.step(node.input)
        shards = min(
            cost.MOST_SORTED_SHARDS, self.shards * round(stats.rows(node.input) / self.shards / cost.SORTED_ROWS)
        )
        if node.keys and self.scope == "local" and shards > self.shards:
            source = Redistribute((Rekey((source,), key=node.keys),), scope=self.scope, shards=shards)
        about = {
            "by": node.keys,
            "lifetime": (node.start, node.end),
            "span": node.span,
            "aggregates": node.aggregates,
            "ends": node.ends,
        }
        return Snapshot((source,), **about)

    def _distinct(self, node: logical.Distinct) -> Step:
        """DISTINCT is an aggregate without calls; DISTINCT ON takes the first row of each group."""
        fields = node.schema
        on = node.on if node.on is not None else fields.names
        keys = tuple((n, Column(n, fields[n].type)) for n in on)
        rest = tuple(
            (f.name, AggregateCall("first", (Column(f.name, f.type),), f.type)) for f in fields if f.name not in on
        )
        grouped = self._group(self.step(node.input), keys, rest, stats.groups([e for _, e in keys], node.input))
        return Project((grouped,), columns=tuple((f.name, Column(f.name, f.type)) for f in fields)) if rest else grouped

    def _aggregate(self, node: logical.Aggregate) -> Step:
        windows = paned(node)
        if windows is not None:
            return self._paned(windows)
        source = self.step(node.input)
        groups = stats.groups([e for _, e in node.keys], node.input)
        if node.sets is None:
            return self._group(source, node.keys, node.aggregates, groups)
        # Keys are computed before they are set to NULL; the inputs of aggregates keep the values that they had.
        fields = node.input.schema
        renamed = {f.name: f"{f.name}__input" for f in fields}
        columns = [(renamed[f.name], Column(f.name, f.type, f.nullable)) for f in fields] + list(node.keys)
        source = Project((source,), columns=tuple(columns))
        expanded = Expand((source,), keys=tuple(n for n, _ in node.keys), sets=node.sets)
        calls = tuple((n, _rename_call(c, renamed)) for n, c in node.aggregates)
        keys = (
            *((n, Column(n, e.type)) for n, e in node.keys),
            ("grouping_id", Column("grouping_id", BIGINT, False)),
            ("grouping_set", Column("grouping_set", BIGINT, False)),
        )
        grouped = self._group(expanded, keys, calls, groups * len(node.sets))
        if () in node.sets:
            grouped = self._with_empty_sets(node, grouped, keys, calls)
        return Project((grouped,), columns=tuple((f.name, Column(f.name, f.type)) for f in node.schema))

    def _paned(self, windows: Paned) -> Step:
        """Windows from panes. The states of panes move to the shards of their keys; or the rows do, where there are
        nearly as many panes, and are a pane each where there are hardly fewer."""
        source = self.step(windows.rows)
        # The pane comes first: rows come mostly in the order of time, and groups in an array are near each other then.
        keys, by = ((PANE, windows.pane), *windows.keys), tuple(n for n, _ in windows.keys)
        calls = (*windows.calls, *windows.extra)
        groups = stats.groups([e for _, e in keys], windows.rows)
        if windows.windows.over == "rows" or groups > cost.PANES_WORTH * max(1.0, stats.rows(windows.rows)):
            columns, calls, over = windows.from_rows()
            rows = Project((source,), columns=columns)
            # Where ties are decided by the order of the input, rows in many shards would be in very small chunks.
            placed = rows if over.kind == "rows" else self._walked(rows, by, groups, stats.rows(windows.rows))
            return self._shown(Combine((placed,), by=by, calls=calls, windows=over), windows)

        def combined(rows: Step, keys: tuple[tuple[str, Expr], ...]) -> Step:
            partial = Aggregate((rows,), by=keys, calls=calls, phase="partial", groups=int(groups))
            return Combine((partial,), by=by, calls=windows.calls, windows=windows.windows)

        options = {"panes_move": combined(source, keys)}
        if self.shards > 1 and windows.keys:
            needed = dict.fromkeys(
                c for e in (windows.pane, *(e for _, call in calls for e in call.expressions())) for c in e.columns()
            )
            named = {n for n, _ in windows.keys}
            if not named & set(needed):
                moved = Project(
                    (source,),
                    columns=(
                        *((c, Column(c, source.schema[c].type, source.schema[c].nullable)) for c in needed),
                        *windows.keys,
                    ),
                )
                placed = Redistribute((Rekey((moved,), key=by),), scope=self.scope, shards=self.shards)
                options["rows_move"] = combined(
                    placed, ((PANE, windows.pane), *((n, Column(n, e.type)) for n, e in windows.keys))
                )
        found = self._cheapest(options) if len(options) > 1 else options["panes_move"]
        return self._shown(found, windows)

    def _shown(self, found: Step, windows: Paned) -> Step:
        as_they_are = [(n, n) for n in found.schema.names] == [
            (n, e.name if isinstance(e, Column) else None) for n, e in windows.shown
        ]
        return found if as_they_are else Project((found,), columns=windows.shown)

    def _with_empty_sets(
        self,
        node: logical.Aggregate,
        grouped: Step,
        keys: tuple[tuple[str, Expr], ...],
        calls: tuple[tuple[str, AggregateCall], ...],
    ) -> Step:
        """The empty grouping set gives a row even for no input: its groups are aggregated again without keys.

        Each empty set is computed by itself over the unexpanded input, and its rows from the expansion are dropped.
        """
        source = self.step(node.input)
        total = self._group(source, (), node.aggregates, 1.0)
        numbers = [i for i, s in enumerate(node.sets) if s == ()]
        everything = (1 << len(node.keys)) - 1
        parts: list[Step] = [
            Filter((grouped,), predicate=Call("<>", (Column("grouping_set", BIGINT), Literal(n, BIGINT)), BOOLEAN))
            for n in numbers[:1]
        ]
        for n in numbers[1:]:
            parts[0] = Filter(
                (parts[0],), predicate=Call("<>", (Column("grouping_set", BIGINT), Literal(n, BIGINT)), BOOLEAN)
            )
        for n in numbers:
            columns = [(name, Literal(None, e.type)) for name, e in keys[:-2]]
            columns += [("grouping_id", Literal(everything, BIGINT)), ("grouping_set", Literal(n, BIGINT))]
            columns += [(name, Column(name, c.type)) for name, c in calls]
            parts.append(Project((total,), columns=tuple(columns)))
        return Union(tuple(parts))

    def _group(
        self,
        source: Step,
        keys: tuple[tuple[str, Expr], ...],
        calls: tuple[tuple[str, AggregateCall], ...],
        groups: float,
    ) -> Step:
        """What a hint asks for, or the cheapest plan for a grouping."""
        how = None
        whole = [f"{n}={c}" for n, c in calls if not can_split(c)]
        if self.wanted.aggregation is not None:
            how = self.wanted.aggregation.how
            self.wanted.apply(
                self.wanted.aggregation.hint,
                f"at aggregate by=({', '.join(n for n, _ in keys)}) {' '.join(f'{n}={c}' for n, c in calls)}".rstrip(),
            )
            if whole and how != "one_phase":
                raise self.wanted.aggregation.refuse(f"{whole[0]} has no state that a second phase could merge")
            return self._grouped(how, source, keys, calls, groups)
        plain = Aggregate((source,), by=keys, calls=calls, groups=int(groups))
        if self.shards > 1 and self._is_placed(source, keys):
            return plain
        ranged = self._by_ranges(plain)
        options: dict[str, Step] = {} if ranged is None else {"ranges": ranged}
        if self.shards == 1:
            options["one_shard"] = plain
        elif whole:
            options["one_phase"] = self._one_phase(source, keys, calls, groups)
        else:
            options |= {
                how: self._grouped(how, source, keys, calls, groups) for how in (GROUPINGS if keys else GROUPINGS[:1])
            }
        return self._cheapest(options) if len(options) > 1 else next(iter(options.values()))

    def _by_ranges(self, grouped: Aggregate) -> Step | None:
        """A grouping by the column that a table in memory is sorted by, of rows that are dealt out by ranges of it."""
        names = [e.name for _, e in grouped.by if isinstance(e, Column)]
        if self.scope != "local" or not names or len(names) < len(grouped.by):
            return None
        shards = self._shards_in_cache(float(grouped.groups or 0))
        found = (
            None
            if shards == 1
            else next(
                (
                    f
                    for f in (dealt_by_ranges(grouped.inputs[0], n, shards, self.shared) for n in names)
                    if f is not None
                ),
                None,
            )
        )
        return None if found is None else replace(grouped, inputs=(found,))

    def _cheapest(self, options: dict[str, Step]) -> Step:
        """The option that was asked for in `choices`, or else the one with the least cost; the first of equal ones."""
        if len(self.taken) < len(self.choices):
            asked = self.choices[len(self.taken)]
        else:
            costs = {
                name: self.estimator.total(enforce(step, self.shards, self.scope)).elapsed_ns
                for name, step in options.items()
            }
            asked = min(costs, key=lambda name: costs[name])
        self.taken.append((asked, tuple(options)))
        return options[asked]

    def _grouped(
        self,
        how: str,
        source: Step,
        keys: tuple[tuple[str, Expr], ...],
        calls: tuple[tuple[str, AggregateCall], ...],
        groups: float,
    ) -> Step:
        if how == "one_phase":
            return self._one_phase(source, keys, calls, groups)
        partial = Aggregate((source,), by=keys, calls=calls, phase="partial", groups=int(groups))
        merged: Step = Gather((partial,)) if how == "two_phase_gather" else partial
        return Aggregate(
            (merged,), by=tuple((n, Column(n, e.type)) for n, e in keys), calls=calls, phase="final", groups=int(groups)
        )

    def _is_placed(self, source: Step, keys: tuple[tuple[str, Expr], ...]) -> bool:
        """Whether the rows of each group are in one shard anyway: below is a sort or a limit, or a hint has placed
        them."""
        found: dict[int, Properties] = {}
        for step in source.walk():
            found[id(step)] = step.provides(tuple(found[id(i)] for i in step.inputs), self.shards)
        given = found[id(source)]
        return given.shards == 1 or (
            all(isinstance(e, Column) for _, e in keys)
            and Requirement("placed", tuple(e.name for _, e in keys)).met_by(given)
        )

    def _one_phase(
        self,
        source: Step,
        keys: tuple[tuple[str, Expr], ...],
        calls: tuple[tuple[str, AggregateCall], ...],
        groups: float,
    ) -> Step:
        """Rows are placed by their keys, which must be columns for that; only what the aggregate needs is moved."""
        needed = tuple(dict.fromkeys(c for _, call in calls for e in call.expressions() for c in e.columns()))
        if not all(isinstance(e, Column) for _, e in keys):
            renamed = {c: f"{c}__input" for c in needed}
            columns = [
                (renamed[c], Column(c, source.schema[c].type, source.schema[c].nullable)) for c in needed
            ] + list(keys)
            source = Project((source,), columns=tuple(columns))
            keys = tuple((n, Column(n, e.type)) for n, e in keys)
            calls = tuple((n, _rename_call(c, renamed)) for n, c in calls)
        # An aggregate without phases keeps its values: a table has room for the rows of its shard, not only for their
        # groups. A shard should have several groups.
        kept = (
            groups
            if all(can_split(c) for _, c in calls)
            else max(groups, min(self.estimator.of(source).rows, groups * cost.GROUPS_PER_SHARD / 4))
        )
        placed = self._in_cache(source, tuple(e.name for _, e in keys), kept)
        return Aggregate((placed,), by=keys, calls=calls, groups=int(groups))

    def _in_cache(self, source: Step, key: tuple[str, ...], groups: float) -> Step:
        """With very many groups: more shards than cores, so that the table of each fits a core's cache."""
        if self.scope != "local" or groups <= cost.CACHED_GROUPS or not key:
            return source
        return Redistribute((Rekey((source,), key=key),), scope="local", shards=self._shards_in_cache(groups))

    def _walked(self, source: Step, key: tuple[str, ...], groups: float, rows: float) -> Step:
        """With very many groups: rows in more shards than cores, each of which is sorted and walked at once."""
        if self.scope != "local" or groups <= cost.CACHED_GROUPS or not key:
            return source
        shards = self.shards
        while shards * cost.WALKED_ROWS < rows and shards < cost.MOST_SORTED_SHARDS:
            shards *= 2
        return Redistribute((Rekey((source,), key=key),), scope="local", shards=shards)

    def _shards_in_cache(self, groups: float) -> int:
        """So many shards that the table of each fits a core's cache."""
        shards = self.shards
        while groups > cost.CACHED_GROUPS and shards * cost.GROUPS_PER_SHARD < groups and shards < cost.MOST_SHARDS:
            shards *= 2
        return shards

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
        calls = tuple(
            (
                f"in_{name}",
                AggregateCall(
                    "count_star", (), BIGINT, filter=Call("=", (Column("side", BIGINT), Literal(mark, BIGINT)), BOOLEAN)
                ),
            )
            for name, mark in (("left", 0), ("right", 1))
        )
        counted = self._group(both, keys, calls, stats.rows(node))
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


def _numbered(node: logical.LimitBy) -> logical.Node:
    """A limit for each key, as a filter on the number of the row among those of its key."""
    schema = node.input.schema
    name = "row_of_key"
    while name in schema:
        name += "_"
    keys = tuple(Column(n, schema[n].type, schema[n].nullable) for n in node.by)
    numbered: logical.Node = logical.Window(
        node.input, keys, node.order, ((name, WindowCall("row_number", (), BIGINT)),)
    )
    number = Column(name, BIGINT)
    skipped = node.offset if node.offset is not None else Literal(0, BIGINT)
    if node.offset is not None:
        numbered = logical.Filter(numbered, Call(">", (number, skipped), BOOLEAN))
    if node.count is not None:
        # The number among those that are left, since a count and an offset together may be too large for BIGINT.
        place: Expr = number if node.offset is None else Call("-", (number, skipped), BIGINT)
        numbered = logical.Filter(numbered, Call("<=", (place, node.count), BOOLEAN))
    return logical.Project(numbered, tuple((f.name, Column(f.name, f.type, f.nullable)) for f in schema))
