"""Groups in arrays, split by key in place: redistributing them moves nothing.

In: the states of a dense aggregation (one array of all possible groups per worker), and a key to redistribute by. Out:
a dataset in which each shard has some slices of the codes of one key column, in all of the arrays. Equal keys have
equal codes, so they are in one shard. The arrays belong to the `GroupData`, which is released with this. Cost: only the
empty places, which are scanned again.

The shards differ from those that hashing gives. So this is only used where no other step relies on hash shards: no step
up to the next movement has a second input that was placed by hash (`relies_on_hashes`)."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tsql.backends.local.run.dataset import Dataset, GroupData, Part
from tsql.backends.local.run.flow import Flow
from tsql.kernels.emit.batch import Morsels
from tsql.kernels.operators.aggregate.groups import DenseAggregate, GroupScan, cardinality

SLICES, MOST_RUNS = 8, 4096
"""Slices of the codes per shard, and the most runs of groups: with more runs, a shard has fewer slices."""


class SlicedGroups(Dataset):
    """The groups of all workers. Each shard has the groups with some of the codes of the key column at index
    `column`."""

    ready = True

    def __init__(self, data: GroupData, column: int, shards: int):
        self.data, self.column, self.shards = data, column, shards
        self.rows = data.rows

    def empty_source(self) -> GroupScan:
        return self.data.empty_source()

    def feed(self, shard: int) -> Iterator[Part]:
        sink, morsels = self.data.sink, Morsels(1)
        for context, start in zip(self.data.states, self.data.starts, strict=False):
            for first, count in self._runs(shard):
                address = context.state_address + first * sink.entry_bytes
                morsels.add(count, start + first, [(address, first, 0, 0)])
        yield Part(self.empty_source(), morsels, (shard,))

    def _runs(self, shard: int) -> Iterator[tuple[int, int]]:
        """(number of the first group, count) of each run of groups in a shard."""
        return self._runs_of(shard, self.data.sink.cards, self.column)

    def keys(self, shard: int, other: int) -> Iterator[tuple[int, int]]:
        """(number of the first key, count) of each run of keys in a shard. A key is made of all columns except
        `other`."""
        cards = self.data.sink.cards
        return self._runs_of(shard, cards[:other] + cards[other + 1 :], self.column - (self.column > other))

    def _runs_of(self, shard: int, cards: list[int], column: int) -> Iterator[tuple[int, int]]:
        """The runs of code combinations in which the code of `column` is in one of the shard's slices. A shard has
        several slices: bounds are rounded, so the codes at one end may all be unused."""
        codes, below, above = cards[column], prod(cards[column + 1 :]), prod(cards[:column])
        slices = self.shards * max(1, min(SLICES, MOST_RUNS // (above * self.shards), codes // self.shards))
        for first in range(above):
            for number in range(shard, slices, self.shards):
                low, high = codes * number // slices, codes * (number + 1) // slices
                yield (first * codes + low) * below, (high - low) * below

    def release(self) -> None:
        self.data.release()


def sliced(flow: Flow, key: tuple[str, ...], shards: int) -> SlicedGroups | None:
    """The groups of a flow split into `shards` shards by a key, or None if their layout does not allow it."""
    data = flow.data
    if (
        not isinstance(data, GroupData)
        or data.merged
        or not isinstance(data.sink, DenseAggregate)
        or not all(o.counts for o in flow.operators)
    ):
        return None
    columns = [i for i, (name, _) in enumerate(data.sink.grouping.keys) if name in key]
    if not columns:
        return None
    values = [cardinality(field) for field in data.sink.grouping.fields]
    column = max(columns, key=values.__getitem__)
    return SlicedGroups(data, column, shards) if values[column] >= shards else None
