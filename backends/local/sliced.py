"""Groups in arrays, cut by key where they lie: a redistribution of them moves nothing.

In: the states of a dense aggregation, one array of all possible groups per worker, and a key to redistribute by. Out: a dataset
whose shard is a range of the codes of one column of the key, in all of the arrays; equal keys have equal codes, so they are in one shard.
The arrays belong to the `GroupData`, which is released with this. Cost: nothing but the places that no group has taken, which are
looked at again.

The shards are not the ones that hashing gives. So it is done only where nobody else relies on those: no step up to the next
movement has a second input that was placed by hash (`relies_on_hashes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tsql.backends.local.dataset import Dataset, GroupData, Part
from tsql.backends.local.runner import Flow
from tsql.kernels.batch import Morsels
from tsql.kernels.operators.aggregate import DenseAggregate, GroupScan
from tsql.planner.movement import Gather, Movement
from tsql.planner.step import Step


class SlicedGroups(Dataset):
    """The groups of all workers; each shard has those with some of the codes of the key column with index `column`."""

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
        """(number of the first group, how many) of the runs of groups that are a shard's: one for each combination of the columns before."""
        sink: DenseAggregate = self.data.sink
        codes, below = sink.cards[self.column], 1
        for c in sink.cards[self.column + 1 :]:
            below *= c
        low, high = codes * shard // self.shards, codes * (shard + 1) // self.shards
        for first in range(0, sink.groups, codes * below):
            yield first + low * below, (high - low) * below

    def release(self) -> None:
        self.data.release()


def sliced(flow: Flow, shards: int) -> SlicedGroups | None:
    """The groups of a flow cut into so many shards by its key, or None where they do not lie so that they can be."""
    data = flow.data
    if not isinstance(data, GroupData) or data.merged or not isinstance(data.sink, DenseAggregate) or not all(o.counts for o in flow.operators):
        return None
    columns = [i for i, (name, _) in enumerate(data.sink.grouping.keys) if name in flow.key]
    if not columns:
        return None
    column = max(columns, key=lambda i: data.sink.cards[i])
    return SlicedGroups(data, column, shards) if data.sink.cards[column] >= shards else None


def relies_on_hashes(step: Step, users: Mapping[int, list[Step]], outside: bool) -> bool:
    """Whether a step that uses the rows of `step`, up to the next movement, may need them where their hashes say. `outside`:
    whether those do who use the rows of the last step."""
    mine = users.get(id(step), [])
    if not mine:
        return outside
    return any(len(u.inputs) > 1 or relies_on_hashes(u, users, outside) for u in mine if not isinstance(u, Movement | Gather))
