"""The estimate of one step: rows, cost and statistics of its output. Steps compute it from the estimates of their
inputs (`Step.estimate`); `estimator.py` walks a plan. Estimates never change a result."""

from __future__ import annotations

import math

from tsql.kernels.expr.nodes import Call, Cast, Column, Expr, Literal
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BOOLEAN, FIXED_BITS, Type
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.cost import constants as cost
from tsql.planner.cost import stats
from tsql.planner.cost.columns import column_statistics, distinct
from tsql.planner.cost.constants import Costs
from tsql.planner.logical import nodes as logical
from tsql.planner.physical.properties import Properties


@dataclass(frozen=True)
class Cost:
    """elapsed: the time by which plans are compared; the shards of a step work in parallel."""

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
    """The rows of a step over all shards, the properties of its output, its own cost."""

    rows: float
    properties: Properties
    cost: Cost
    shadow: logical.Node
    """A logical node whose columns have the same statistics as the step's."""

    def selectivity(self, predicate: Expr) -> float:
        """The part of the rows for which a predicate is true."""
        return stats.selectivity(predicate, self.shadow)

    def distinct(self, expr: Expr) -> float | None:
        """How many values an expression has, if anything is known."""
        return distinct(expr, self.shadow)

    def bounds(self, expr: Expr) -> tuple[int, int] | None:
        """The integer bounds of an expression, as far as kernels will know them too."""
        return _bounds(expr, self.shadow)

    def knows(self, columns: tuple[tuple[str, Expr], ...]) -> bool:
        """Whether there are statistics of all inputs of computed columns."""
        return all(name in self.shadow.schema for _, expr in columns for name in expr.columns())


@dataclass(frozen=True)
class Machine:
    """The target of a plan: the number of shards that work in parallel, and the costs of work."""

    shards: int
    costs: Costs = cost.DEFAULT
    is_cluster: bool = False
    """Whether the shards are on several machines."""

    @property
    def broadcast_bytes(self) -> float:
        """What a machine may hold of a join's side."""
        known = self.costs.broadcast_bytes
        return cost.BROADCAST_BYTES if known is None else known

    def work(self, cpu_ns: float, shards: int, memory_bytes: float = 0.0, breaks: bool = False) -> Cost:
        """Work that the shards of a step share. A pipeline breaker starts another pipeline."""
        start = self.costs.pipeline_us * 1000 if breaks else 0.0
        return Cost(cpu_ns / max(1, min(shards, self.shards)) + start, cpu_ns + start, memory_bytes=memory_bytes)


def levels(given: Estimate) -> float:
    """How often the rows of a shard are compared to be sorted."""
    return math.log2(max(given.rows / given.properties.shards, 2.0))


def _bounds(expr: Expr, node: logical.Node) -> tuple[int, int] | None:
    """The integer bounds of an expression over the rows of a node, as far as kernels will know them too."""
    if expr.type == BOOLEAN:
        return 0, 1
    match expr:
        case Literal(value=int() as value):
            return value, value
        case Column(name=name) if name in node.schema:
            about = column_statistics(node, name)
            return (
                (about.minimum, about.maximum)
                if about is not None and isinstance(about.minimum, int) and isinstance(about.maximum, int)
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


def seen(groups: float, rows: float) -> float:
    """The expected number of distinct groups among `rows` rows, if all `groups` groups are equally frequent."""
    return groups * -math.expm1(-rows / groups) if groups > 0 else 0.0


def width(schema: Schema) -> float:
    """The bytes of a row."""
    return sum(_bytes(f.type) for f in schema)


def _bytes(t: Type) -> float:
    return t.bits / 8 if t.is_decimal or t.name in FIXED_BITS else cost.VARCHAR_BYTES


def row_count(expr: Expr | None) -> float | None:
    """The number of rows that a LIMIT names, where it is known before the query runs."""
    while expr is not None and not isinstance(expr, Literal):
        inside = getattr(expr, "arg", None)
        expr = inside if isinstance(inside, Expr) else None
    return float(expr.value) if expr is not None and isinstance(expr.value, int) else None
