"""Properties of a dataset between two steps, and the requirements of steps on their inputs. `enforce` and `check`
compare the two."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tsql.kernels.expr.nodes import SortKey
from tsql.kernels.process.quick_dataclass import dataclass

MAX_SHARDS = 16_384
"""A task that sends rows keeps a chunk of each column open for each shard, of some kilobytes."""


@dataclass(frozen=True)
class Properties:
    """The properties of a dataset: its number of shards, its placement, its key, whether it is replicated, and its
    order.

    placed: rows that agree on these columns are in the same shard; None if unknown. key: the columns that the last
    `rekey` set and `redistribute` will place by. replicated: every shard has all rows; the scope of the broadcast
    ("local": in memory that the shards share), else "". order: the order of the rows in each shard, or of all rows if
    there is one shard. by_ranges: rows are placed by ranges of values that only their own table knows, not by a hash.
    equal: columns that have the same value in every row. copies: rows are in the shards that a `multicast` named, each
    in at most this many; None if there was none. in_sequence: the shards follow each other in `order`."""

    shards: int
    placed: tuple[str, ...] | None = None
    key: tuple[str, ...] | None = None
    replicated: str = ""
    order: tuple[SortKey, ...] = ()
    by_ranges: bool = False
    equal: tuple[frozenset[str], ...] = ()
    copies: int | None = None
    in_sequence: bool = False

    def known_as(self, column: str, names: Collection[str]) -> str | None:
        """The first of the names that holds the values of a column: the column itself, or one that equals it."""
        if column in names:
            return column
        same = frozenset[str]().union(*(group for group in self.equal if column in group))
        return next((n for n in names if n in same), None)

    def follow(self, columns: tuple[str, ...] | None, names: Mapping[str, str]) -> tuple[str, ...] | None:
        """The names of columns, or of columns that equal them, after a step that keeps `names`; None if one is gone."""
        if columns is None:
            return None
        found = tuple(names[known] for c in columns if (known := self.known_as(c, names)) is not None)
        return found if len(found) == len(columns) else None

    @property
    def is_once(self) -> bool:
        """Whether each row is in one shard only."""
        return self.shards == 1 or not (self.replicated or (self.copies or 1) > 1)

    def __str__(self) -> str:
        parts = [f"{self.shards} shard{'s' if self.shards != 1 else ''}"]
        if self.placed is not None and self.shards > 1:
            parts.append(f"placed by {'ranges of ' if self.by_ranges else ''}({', '.join(self.placed)})")
        if self.replicated:
            parts.append("replicated")
        if self.copies is not None:
            parts.append(f"multicast, up to {self.copies} {'copies' if self.copies != 1 else 'copy'}")
        if self.order:
            sequence = ", shard after shard" if self.in_sequence and self.shards > 1 else ""
            parts.append(f"ordered by {', '.join(map(str, self.order))}{sequence}")
        return ", ".join(parts)


def by_keys(given: Properties, names: Mapping[str, str]) -> Properties:
    """The properties of one row per group: only the keys remain, under their new names."""
    return replace(given, placed=given.follow(given.placed, names), key=None, order=(), equal=())


@dataclass(frozen=True)
class Requirement:
    """What a step needs of an input. kind: "any"; "single": one shard; "placed": rows that agree on `columns` in one
    shard; "once": each row in one shard only; "keyed": that, and a key has been set by `rekey`; "replicated": all rows
    in every shard; "copies": that, in memory which the shards share; "even": each row in one shard, or in all;
    "directed": each row in the shards that a `multicast` named, of so many `shards`."""

    kind: str = "any"
    columns: tuple[str, ...] = ()
    shards: int | None = None

    def met_by(self, given: Properties) -> bool:
        if self.kind == "any":
            return True
        if self.kind in ("replicated", "copies"):
            return bool(given.replicated) and (self.kind == "replicated" or given.replicated == "local")
        if self.kind == "even":
            return bool(given.replicated) or given.is_once
        if self.kind == "directed":
            return given.copies is not None and given.shards == self.shards
        if self.kind == "keyed":
            return given.key is not None and given.is_once
        if given.shards == 1 or self.kind == "once":
            return given.is_once
        if not given.is_once or self.kind == "single":
            return False
        placed = given.placed or ()
        return bool(placed) and all(given.known_as(c, self.columns) is not None for c in placed)

    def __str__(self) -> str:
        match self.kind:
            case "single":
                return "one shard"
            case "placed":
                return f"rows of one ({', '.join(self.columns)}) in one shard"
            case "once":
                return "each row in one shard only"
            case "replicated":
                return "all rows in every shard"
            case "copies":
                return "all rows in every shard, in memory that the shards share"
            case "keyed":
                return "each row in one shard only, with a key"
            case "even":
                return "each row in one shard, or in all"
            case "directed":
                return f"rows in {self.shards} shards as a multicast names them, like those of the other side"
        return "anything"

    def fix(self, given: Properties) -> str:
        """The steps that would meet the requirement, as one would write them."""
        if self.kind in ("replicated", "copies"):
            return "broadcast scope=local" if self.kind == "copies" else "broadcast"
        if self.kind == "directed":
            return f"multicast to=(..) shards={self.shards}"
        if (given.copies or 1) > 1:
            return "an inner hash_join with the rows of another multicast"
        if self.kind in ("single", "once") or (given.replicated and given.shards > 1):
            return "gather"
        return (
            f"rekey key=({', '.join(self.columns)}), then redistribute" if self.kind == "placed" else "rekey key=(..)"
        )


ANY = Requirement()
SINGLE = Requirement("single")
ONCE = Requirement("once")
KEYED = Requirement("keyed")
REPLICATED = Requirement("replicated")
LOCAL_COPIES = Requirement("copies")
EVEN = Requirement("even")
