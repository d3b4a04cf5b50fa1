"""hash_join: pairs of rows with equal keys. One side is built into a table, and the rows of the other are looked up in
it.

Without keys it is a nested loop over the table. Either the built side is in every shard (`broadcast`), or both sides
are placed by the same keys (`redistribute` both). On one machine a broadcast between cores is one shared table."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Self

from tsql.kernels.expr.nodes import Call, Column, Expr
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.cost import constants as cost
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.nodes import JOIN_KINDS, joined_schema
from tsql.planner.logical.predicates import JoinKey
from tsql.planner.physical.estimate import Cost, Estimate, Machine, width
from tsql.planner.physical.join_ranges import Bound, bound, bounds, is_overlap, is_range
from tsql.planner.physical.properties import ANY, LOCAL_COPIES, ONCE, REPLICATED, Properties, Requirement
from tsql.planner.physical.step import Step
from tsql.planner.physical.text import identifier

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext


@dataclass(frozen=True)
class HashJoin(Step):
    """kind: as in a logical join. condition: what pairs must satisfy besides their keys. build: the side in the table.
    range: comparisons of one number of the built side with expressions of the other; the table is sorted by it within
    each key, and a row finds its partners by binary search. overlap: a lower bound of a second number of the built
    side; the table knows the greatest of these numbers in each of its blocks, and a row skips those that lie below.
    With both, intervals find those that they overlap. early=yes: rows without a partner are detected where they are
    scanned, which pays off where there are many of them."""

    kind: str = "inner"
    keys: tuple[JoinKey, ...] = ()
    condition: Expr | None = None
    build: str = "right"
    mark: str | None = None
    early: bool = False
    range: tuple[Call, ...] = ()
    overlap: Call | None = None
    walks: bool = False
    """Rows are expected in the order of the range: each search starts where the last one ended (see merge_join)."""
    position: int | None = field(default=None, compare=False)
    rows: float | None = field(default=None, compare=False)
    """The estimated number of rows, over all shards; only costs depend on it."""

    op = "hash_join"
    label = "joined"
    arity = (2, 2)

    @cached_property
    def schema(self) -> Schema:
        return joined_schema(self.kind, self.inputs[0].schema, self.inputs[1].schema, self.mark)

    @property
    def marks(self) -> bool:
        """Whether table entries are marked when they find a partner, and visited again after the last row."""
        return self.kind == "full" or (self.build == "left" and self.kind in ("left", "semi", "anti"))

    @property
    def last_first(self) -> bool:
        """Whether a sorted table has rows of equal numbers in the reverse order of the input."""
        return False

    @property
    def needs_places(self) -> bool:
        """Whether rows of equal numbers in a sorted table are ordered by their position in the input."""
        return False

    @property
    def is_open(self) -> bool:
        """Whether a NULL key in any row may make an answer NULL, so that placing rows by keys is not enough."""
        return self.kind == "mark" and not all(key.never_null for key in self.keys)

    @property
    def keeps_nulls(self) -> bool:
        """Whether that needs the rows of the table with a NULL key, and not only their number."""
        return self.is_open and (len(self.keys) > 1 or self.condition is not None)

    @property
    def probe_kind(self) -> str:
        """What happens to a row that is looked up (see kernels/operators/join/hash_join.py)."""
        if self.build == "right":
            return "left" if self.kind == "full" else self.kind
        return {"inner": "inner", "left": "inner", "full": "left"}.get(self.kind, "touch")

    def sides(self, built: int) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        """The keys of the built side and of the other."""
        left, right = tuple(k.left for k in self.keys), tuple(k.right for k in self.keys)
        return (left, right) if built == 0 else (right, left)

    def bounds(self, built: int) -> tuple[Expr, tuple[Bound, ...]]:
        """The number that the table is sorted by, and its bounds."""
        found = bounds(self.range, self.inputs[built].schema)
        assert found is not None, "a range that bounds no number of the built side"
        return found

    def reach(self, built: int) -> tuple[Expr, Bound] | None:
        """The second number of the table and its lower bound."""
        return None if self.overlap is None else bound(self.overlap, self.inputs[built].schema)

    @cached_property
    def times(self) -> tuple[Call, ...]:
        """The comparisons that entries are found by, besides the keys."""
        return (*self.range, *(() if self.overlap is None else (self.overlap,)))

    def needed(self, built: int) -> set[str]:
        """The columns of the built side that are used after the key lookup."""
        used = set(self.condition.columns()) if self.condition is not None else set()
        used |= {c for part in self.times for c in part.columns()}
        return used | {f.name for f in self.schema if f.name in self.inputs[built].schema}

    def requires_of(self, given: tuple[Properties, ...]) -> tuple[Requirement, ...]:
        if self._meet(given):
            return (ANY, ANY)
        if any(p.copies is not None for p in given):
            return self._directed(given)
        everywhere = LOCAL_COPIES if self.marks else REPLICATED
        return (everywhere, ONCE) if self.build == "left" else (ONCE, everywhere)

    def _directed(self, given: tuple[Properties, ...]) -> tuple[Requirement, ...]:
        """The requirement where a side was multicast: the plan decides in which shards pairs meet. A row whose output
        depends on all its partners must be in one shard."""
        left, right = given
        both = Requirement("directed", shards=right.shards), Requirement("directed", shards=left.shards)
        if not (both[0].met_by(left) and both[1].met_by(right)):
            return both
        return (ANY if self.kind == "inner" else ONCE, ONCE if self.kind == "full" else ANY)

    def _meet(self, given: tuple[Properties, ...]) -> bool:
        """Whether rows with equal keys are in the same shard."""
        left, right = given
        if left.shards == right.shards == 1:
            return True
        apart = (
            left.shards != right.shards or left.replicated or right.replicated or not left.placed or not right.placed
        )
        if self.is_open or apart or left.by_ranges or right.by_ranges:
            return False
        pairs = {
            k.left.name: k.right.name for k in self.keys if isinstance(k.left, Column) and isinstance(k.right, Column)
        }
        return tuple(pairs.get(c) for c in left.placed or ()) == right.placed

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        left, right = given
        probed = right if self.build == "left" else left
        names = self.schema.names
        if left.copies is not None and right.copies is not None:
            return Properties(probed.shards, copies=1)
        placed = left.placed if self._meet(given) else None if self.marks else probed.placed
        if placed is not None and (not all(c in names for c in placed) or self.kind == "full"):
            placed = None
        pairs = [
            frozenset((k.left.name, k.right.name))
            for k in self.keys
            if isinstance(k.left, Column) and isinstance(k.right, Column)
        ]
        equal = [*left.equal, *right.equal, *(pairs if self.kind == "inner" else [])]
        return Properties(
            probed.shards,
            placed,
            by_ranges=placed is not None and probed.by_ranges,
            equal=tuple(g for g in equal if all(n in names for n in g)),
        )

    def carries(self, column: str) -> list[tuple[Step, str]]:
        # A side without a partner is padded with NULLs.
        padded = {"left": (1,), "single": (1,), "full": (0, 1)}.get(self.kind, ())
        return [(i, column) for place, i in enumerate(self.inputs) if column in i.schema and place not in padded]

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        names = {c for e in self.expressions() for c in e.columns()}.union(wanted)
        return tuple(frozenset(names.intersection(i.schema.names)) for i in self.inputs)

    @property
    def streamed(self) -> int:
        """The side that is not built."""
        return 1 if self.build == "left" else 0

    def follows(self, column: str) -> tuple[int, str] | None:
        probed = self.streamed
        if self.marks or self.kind == "full" or column not in self.inputs[probed].schema:
            return None
        return probed, column

    def equated(self, column: str) -> tuple[int, str] | None:
        """The column of the probed side that an inner join equates with one of the built side."""
        probed = self.streamed
        for key in self.keys if self.kind == "inner" and not self.marks else ():
            sides = (key.left, key.right)
            other, mine = sides[1 - probed], sides[probed]
            if isinstance(other, Column) and isinstance(mine, Column) and other.name == column:
                return probed, mine.name
        return None

    def expected_rows(self, given: tuple[Estimate, ...], machine: Machine) -> float:
        return max(g.rows for g in given) if self.rows is None else self.rows

    def expected_cost(self, given: tuple[Estimate, ...], rows: float, properties: Properties, machine: Machine) -> Cost:
        at = 0 if self.build == "left" else 1
        built, probed, costs = given[at], given[1 - at], machine.costs
        each = costs.group_ns if built.rows <= cost.CACHED_GROUPS else costs.miss_ns / 2
        building, work = built.rows * costs.merge_ns, probed.rows * each + rows * costs.row_ns
        memory = built.rows * width(self.inputs[at].schema)
        if machine.is_cluster and built.properties.replicated:
            # Machines share no table: each builds its own.
            return machine.work(work, properties.shards, memory, breaks=True) + Cost(building, building)
        return machine.work(building + work, properties.shards, memory, breaks=True)

    def shadow(self, given: tuple[Estimate, ...]) -> logical.Node:
        if self.kind not in ("inner", "left", "full", "single"):
            return self.unknown
        return logical.Join(self.kind, given[0].shadow, given[1].shadow)

    def spares(self, left: float, rows: float) -> bool:
        return self.early

    def attributes(self) -> list[tuple[str, str]]:
        text = [("kind", self.kind)]
        if self.keys:
            text.append(("on", f"({', '.join(k.sql() for k in self.keys)})"))
        if self.range:
            text.append(("range", f"({', '.join(map(str, self.range))})"))
        if self.overlap is not None:
            text.append(("overlap", f"({self.overlap})"))
        if self.condition is not None:
            text.append(("where", f"({self.condition})"))
        text.append(("build", self.build))
        text += [("early", "yes")] if self.early else []
        return text + ([("mark", identifier(self.mark))] if self.mark is not None else [])

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        kind = attributes.choice("kind", JOIN_KINDS, "inner")
        build = attributes.choice("build", ("right",) if kind in ("mark", "single") else ("right", "left"), "right")
        left, right, both = read_sides(inputs, context)
        keys = (
            tuple(read_key(context, item, both, left, right) for item in attributes.items("on"))
            if attributes.optional("on")
            else ()
        )
        built = inputs[0 if build == "left" else 1].schema
        ranges, overlap = _read_times(attributes, context, kind, both, built)
        condition, early = attributes.condition("where", both), attributes.flag("early")
        if ranges and early:
            raise attributes.error("early", "a join with a range has no early")
        mark = attributes.optional("mark")
        if (mark is None) == (kind == "mark"):
            raise attributes.error("mark", "mark=.. names the column of a join with kind=mark, and of no other")
        return cls(
            inputs,
            kind=kind,
            keys=keys,
            condition=condition,
            build=build,
            mark=None if mark is None else context.name(mark),
            early=early,
            range=ranges,
            overlap=overlap,
        )


def _read_times(
    attributes: Attributes, context: LineContext, kind: str, both: Schema, built: Schema
) -> tuple[tuple[Call, ...], Call | None]:
    """`range=` and `overlap=` of a line."""
    ranges = (
        tuple(context.expression(item, both) for item in attributes.items("range"))
        if attributes.optional("range")
        else ()
    )
    if ranges and (kind == "mark" or not is_range(ranges, built)):
        raise attributes.error(
            "range",
            (
                "range compares one number of the built side with expressions of the other, in a join that "
                "is no mark join"
            ),
        )
    overlap = context.expression(attributes.text("overlap"), both) if attributes.optional("overlap") else None
    if overlap is not None and not is_overlap(overlap, ranges, built):
        raise attributes.error(
            "overlap",
            "overlap compares a number of the built side with a lower bound of the other side, and stands beside a "
            "range of another number",
        )
    return tuple(e for e in ranges if isinstance(e, Call)), overlap if isinstance(overlap, Call) else None


def read_sides(inputs: tuple[Step, ...], context: LineContext) -> tuple[Schema, Schema, Schema]:
    """The columns of the left and of the right input, and of both."""
    left, right = (i.schema for i in inputs)
    twice = set(left.names) & set(right.names)
    if twice:
        raise context.error(f"both inputs have a column {min(twice)}", hint="rename it by a project")
    return left, right, Schema((*left, *right))


def read_key(context: LineContext, text: str, both: Schema, left: Schema, right: Schema) -> JoinKey:
    match context.expression(text, both):
        case Call("=" | "is_not_distinct_from" as name, (a, b)):
            key = JoinKey(a, b, name != "=")
            if all(c in left for c in a.columns()) and all(c in right for c in b.columns()):
                return key
    raise context.error(f"{text}: a key is an equality of an expression of the left input and one of the right")
