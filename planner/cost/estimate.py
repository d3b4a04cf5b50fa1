"""What a physical plan would cost: rows, bytes and nanoseconds of every step, from statistics and `cost.Costs`.

The enumerator asks it to choose between plans, and `tsql plan --candidates` prints it. Costs never change a result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tsql.kernels.emit.dense import KEYS_PER_GROUP, LARGEST_DENSE
from tsql.kernels.expr.nodes import Call, Cast, Column, Expr, Literal
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BOOLEAN, FIXED_BITS, Type
from tsql.planner.cost import constants as cost
from tsql.planner.cost import stats
from tsql.planner.cost.constants import Costs
from tsql.planner.logical import nodes as logical
from tsql.planner.physical.movement import Broadcast, Gather, Movement, Multicast, Rekey
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.expand import Expand
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.limit import Limit
from tsql.planner.physical.operators.match import Match
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.recursive import Recursive, Working
from tsql.planner.physical.operators.sample import Sample
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.operators.series import Series
from tsql.planner.physical.operators.snapshot import Snapshot
from tsql.planner.physical.operators.sort import Sort
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.operators.values import Values
from tsql.planner.physical.properties import Properties
from tsql.planner.physical.step import Step


@dataclass(frozen=True)
class Cost:
    """elapsed: what counts when plans are compared, with the shards of a step working side by side."""

    elapsed_ns: float = 0.0
    cpu_ns: float = 0.0
    local_bytes: float = 0.0
    global_bytes: float = 0.0
    memory_bytes: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.elapsed_ns + other.elapsed_ns,
            self.cpu_ns + other.cpu_ns,
            self.local_bytes + other.local_bytes,
            self.global_bytes + other.global_bytes,
            self.memory_bytes + other.memory_bytes,
        )

    def __str__(self) -> str:
        parts = [duration(self.elapsed_ns), f"cpu {duration(self.cpu_ns)}", f"memory {size(self.memory_bytes)}"]
        parts += [
            f"{size(moved)} moved {how}"
            for moved, how in ((self.local_bytes, "locally"), (self.global_bytes, "globally"))
            if moved
        ]
        return ", ".join(parts)


def size(bytes: float) -> str:
    """A number of bytes for people."""
    return _scaled(bytes, ("B", "kB", "MB", "GB", "TB"))


def duration(ns: float) -> str:
    """Nanoseconds for people."""
    return _scaled(ns, ("ns", "us", "ms", "s"))


def _scaled(value: float, units: tuple[str, ...]) -> str:
    for unit in units[:-1]:
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.0f} {units[-1]}" if value >= 100 else f"{value:.3g} {units[-1]}"


@dataclass(frozen=True)
class Estimate:
    """Of one step: the rows it yields over all shards, the properties of its output, and its own cost."""

    step: Step
    rows: float
    properties: Properties
    cost: Cost
    shadow: logical.Node
    """A logical node whose columns have the statistics that those of the step have."""


class Estimator:
    """Estimates steps of plans with so many shards; a step is estimated once."""

    def __init__(self, shards: int, costs: Costs = cost.DEFAULT):
        self.shards, self.costs = shards, costs
        self.known: dict[int, tuple[Step, Estimate]] = {}
        """By id, with the step: a candidate that is not taken would be freed, and another step could have its id."""

    def of(self, root: Step) -> Estimate:
        """The estimate of one step."""
        for step in root.walk():
            if id(step) not in self.known:
                self.known[id(step)] = (step, self._estimate(step, tuple(self.known[id(i)][1] for i in step.inputs)))
        return self.known[id(root)][1]

    def total(self, root: Step) -> Cost:
        """What a plan costs: each of its steps once."""
        self.of(root)
        return sum((self.known[id(step)][1].cost for step in root.walk()), Cost())

    def _estimate(self, step: Step, given: tuple[Estimate, ...]) -> Estimate:
        properties = step.provides(tuple(g.properties for g in given), self.shards)
        rows = self._rows(step, given)
        return Estimate(step, rows, properties, self._cost(step, given, rows, properties), _shadow(step, given))

    def _rows(self, step: Step, given: tuple[Estimate, ...]) -> float:
        match step:
            case Scan():
                known = step.source.statistics().rows if hasattr(step.source, "statistics") else None
                return cost.UNKNOWN_ROWS if known is None else float(known)
            case Values():
                return float(len(step.rows))
            case Filter():
                return given[0].rows * stats.selectivity(step.predicate, given[0].shadow)
            case Aggregate():
                groups = self._groups(step, given[0])
                shards = self._tables(step, given[0])
                return shards * seen(groups, given[0].rows / shards) if step.exports else groups
            case Expand():
                return given[0].rows * len(step.sets)
            case Multicast():
                return given[0].rows * len(step.to)
            case Limit() | Sort():
                count = _constant(step.count if isinstance(step, Limit) else step.limit)
                copies = given[0].properties.shards if isinstance(step, Sort) and step.phase == "partial" else 1
                return given[0].rows if count is None else min(given[0].rows, count * copies)
            case Union():
                return sum(g.rows for g in given)
            case Snapshot():
                return 2 * given[0].rows
            case Series():
                return (given[0].rows if given else 1.0) * stats.series_rows(step.start, step.stop, step.by)
            case Sample():
                return given[0].rows * step.percent / 100 if step.rows is None else min(given[0].rows, float(step.rows))
            case Match() if step.spec.is_one_row:
                return given[0].rows * cost.MATCHED
            case Recursive():
                return given[0].rows * cost.ROUNDS
            case Working():
                return cost.WORKING_ROWS
            case HashJoin():
                return max(g.rows for g in given) if step.rows is None else step.rows
        return given[0].rows if given else 1.0

    def expected_groups(self, step: Aggregate) -> float:
        """How many groups a step finds, over all shards."""
        (below,) = step.inputs
        return self._groups(step, self.of(below))

    def _groups(self, step: Aggregate, given: Estimate) -> float:
        """Over all shards, and never more than there are rows."""
        if step.groups is not None:
            return max(1.0, min(float(step.groups), given.rows))
        product = 1.0
        for _, key in step.by:
            known = stats.distinct(key, given.shadow)
            product *= max(1.0, given.rows * cost.GROUPS_OF_UNKNOWN_KEYS) if known is None else known
        return max(1.0, min(product, given.rows))

    def _cost(self, step: Step, given: tuple[Estimate, ...], rows: float, properties: Properties) -> Cost:
        costs = self.costs
        entering = sum(g.rows for g in given)
        match step:
            case Scan():
                return self._work(rows * width(step.schema) * costs.scan_byte_ns, properties.shards)
            case Aggregate():
                return self._aggregate(step, given[0])
            case Combine():
                levels = math.log2(max(entering / given[0].properties.shards, 2.0))
                return self._work(
                    entering * levels * costs.sort_ns + rows * costs.row_ns,
                    properties.shards,
                    entering * width(step.inputs[0].schema),
                    breaks=True,
                )
            case Snapshot():
                levels = math.log2(max(entering / given[0].properties.shards, 2.0))
                return self._work(
                    entering * levels * costs.sort_ns, properties.shards, entering * width(step.schema), breaks=True
                )
            case Sort():
                levels = math.log2(max(entering / given[0].properties.shards, 2.0)) if step.limit is None else 1.0
                return self._work(
                    entering * levels * costs.sort_ns,
                    properties.shards,
                    entering * width(step.schema) if step.limit is None else 0.0,
                    breaks=True,
                )
            case Gather():
                # States are merged where they lie, and rows are collected shard by shard; only machines have to send
                # them.
                return Cost()
            case HashJoin():
                built, probed = (given[0], given[1]) if step.build == "left" else (given[1], given[0])
                each = costs.group_ns if built.rows <= cost.CACHED_GROUPS else costs.miss_ns / 2
                work = built.rows * costs.merge_ns + probed.rows * each + rows * costs.row_ns
                return self._work(work, properties.shards, built.rows * width(built.step.schema), breaks=True)
            case Broadcast() if step.scope == "local":
                # The shards share one copy.
                return Cost()
            case Movement():
                return self._movement(step, given[0], properties)
            case Project():
                computed = sum(not isinstance(e, Column) for _, e in step.columns)
                return self._work(entering * computed * costs.row_ns, properties.shards)
            case Rekey() | Limit() | Union():
                return Cost()
        return self._work(max(entering, rows) * costs.row_ns, properties.shards)

    def _work(self, cpu_ns: float, shards: int, memory_bytes: float = 0.0, breaks: bool = False) -> Cost:
        """Work that the shards of a step share; a breaker starts another pipeline."""
        start = self.costs.pipeline_us * 1000 if breaks else 0.0
        return Cost(cpu_ns / max(1, min(shards, self.shards)) + start, cpu_ns + start, memory_bytes=memory_bytes)

    def _aggregate(self, step: Aggregate, given: Estimate) -> Cost:
        groups, shards = self._groups(step, given), self._tables(step, given)
        placed = given.properties.placed is not None and not step.exports
        here = groups / shards if placed or shards == 1 else seen(groups, given.rows / shards)
        fits = here <= cost.CACHED_GROUPS or self._is_dense(step, given, groups)
        if step.absorbs:
            each = self.costs.merge_ns if fits else self.costs.merge_ns + self.costs.miss_ns - self.costs.group_ns
        else:
            each = self.costs.group_ns if fits else self.costs.miss_ns
        return self._work(given.rows * each, shards, here * shards * width(step.schema))

    def _tables(self, step: Aggregate, given: Estimate) -> int:
        """How many tables of groups are made: one per shard, but partial groups of more shards than cores go to one per
        core."""
        shards = given.properties.shards
        return min(shards, self.shards) if step.exports else shards

    def _is_dense(self, step: Aggregate, given: Estimate, groups: float) -> bool:
        """Whether the groups will be in an array, by the bounds of the keys."""
        possible = 1.0
        for _, key in step.by:
            known = _bounds(key, given.shadow)
            if known is None:
                return False
            possible *= known[1] - known[0] + 1
        return possible <= min(LARGEST_DENSE, KEYS_PER_GROUP * groups)

    def _movement(self, step: Movement, given: Estimate, properties: Properties) -> Cost:
        copies = properties.shards if isinstance(step, Broadcast) else properties.copies or 1
        moved = given.rows * copies * width(step.schema)
        work = self._work(given.rows * copies * self.costs.move_ns, given.properties.shards, moved, breaks=True)
        if step.scope == "local":
            return work + Cost(local_bytes=moved)
        return work + Cost(
            moved * self.costs.global_byte_ns / max(1, min(given.properties.shards, self.shards)), global_bytes=moved
        )


def _bounds(expr: Expr, node: logical.Node) -> tuple[int, int] | None:
    """Between which integers an expression over the rows of a node is, as far as kernels will know it too."""
    if expr.type == BOOLEAN:
        return 0, 1
    match expr:
        case Literal(value=int() as value):
            return value, value
        case Column(name=name) if name in node.schema:
            known = stats.column_statistics(node, name)
            return (
                (known.minimum, known.maximum)
                if known is not None and isinstance(known.minimum, int) and isinstance(known.maximum, int)
                else None
            )
        case Call(name="time_pane", args=(time, Literal(value=int() as width), _)) if (
            width > 0 and (known := _bounds(time, node)) is not None
        ):
            return known[0] // width, known[1] // width
        case Call(name="%", args=(dividend, Literal(value=int() as divisor))) if divisor:
            low, high = _bounds(dividend, node) or (-abs(divisor), abs(divisor))
            return max(min(low, 0), 1 - abs(divisor)), min(max(high, 0), abs(divisor) - 1)
        case Call(name="+" | "-" | "*" as name, args=(first, second)) if (a := _bounds(first, node)) is not None and (
            b := _bounds(second, node)
        ) is not None:
            ends = [x + y if name == "+" else x - y if name == "-" else x * y for x in a for y in b]
            return min(ends), max(ends)
        case Cast(arg=arg) if expr.type.is_integer:
            return _bounds(arg, node)
    return None


def with_groups(root: Step, shards: int) -> Step:
    """The same plan, with the numbers of groups that are expected: the executor makes tables by them, and plan files do
    not hold them."""
    estimator = Estimator(shards)
    made: dict[int, Step] = {}
    for step in root.walk():
        changed = step.with_inputs(tuple(made[id(i)] for i in step.inputs))
        if isinstance(step, Aggregate) and step.by and step.groups is None:
            changed = replace(changed, groups=int(estimator.expected_groups(step)))
        made[id(step)] = changed
    return made[id(root)]


def seen(groups: float, rows: float) -> float:
    """How many of so many equally frequent groups are among so many rows."""
    return groups * -math.expm1(-rows / groups) if groups > 0 else 0.0


def width(schema: Schema) -> float:
    """The bytes of a row."""
    return sum(_bytes(f.type) for f in schema)


def _bytes(t: Type) -> float:
    return t.bits / 8 if t.is_decimal or t.name in FIXED_BITS else cost.VARCHAR_BYTES


def _constant(expr: Expr | None) -> float | None:
    """The number of rows that a LIMIT names, where it is known before the query runs."""
    while expr is not None and not isinstance(expr, Literal):
        inside = getattr(expr, "arg", None)
        expr = inside if isinstance(inside, Expr) else None
    return float(expr.value) if expr is not None and isinstance(expr.value, int) else None


def _shadow(step: Step, given: tuple[Estimate, ...]) -> logical.Node:
    match step:
        case Scan():
            return logical.Scan(step.table, step.source, step.columns)
        case Project():
            return logical.Project(given[0].shadow, step.columns) if _passes(step.columns, given[0]) else _unknown(step)
        case Aggregate() if not step.absorbs and _passes(step.by, given[0]):
            return logical.Aggregate(given[0].shadow, step.by, ())
        case HashJoin() if step.kind in ("inner", "left", "full", "single"):
            return logical.Join(step.kind, given[0].shadow, given[1].shadow)
        case Aggregate() | Expand() | Union() | Values() | Series() | Snapshot():
            return _unknown(step)
    # The columns of a match are its own: those of its input may have the names of others beside it.
    kept = len(given) == 1 and all(name in step.schema for name in given[0].shadow.schema.names)
    return given[0].shadow if kept else _unknown(step)


def _passes(columns: tuple[tuple[str, Expr], ...], given: Estimate) -> bool:
    return all(name in given.shadow.schema for _, expr in columns for name in expr.columns())


def _unknown(step: Step) -> logical.Node:
    return logical.Values((), step.schema)
