"""DISTINCT aggregates of a group that does not fit in memory: rows are partitioned by value, and the states of the
partitions are merged.

In: a flow, and calls of which those with DISTINCT have the same arguments. Out: the groups.

Rows with equal keys and equal arguments are in one partition, so no value is in two partitions. The states of a group
over different partitions can then be merged like those of different shards. Each partition is aggregated with
phase=partial, which no plan may combine with DISTINCT, and the exported states with phase=final. This needs aggregates
whose states can be exported."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tsql.backends.local.run.dataset import ChunkData
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.spill import TABLE, AnyChunk
from tsql.backends.local.spill.partitions import Partitions, needed_columns
from tsql.kernels.aggregates.bodies import plain_body
from tsql.kernels.expr.nodes import Aggregate as Call
from tsql.kernels.operators.aggregate.groups import AggregateSink, Grouping, make_sink
from tsql.kernels.operators.collect import columns_of
from tsql.planner.physical.operators.aggregate import Aggregate

if TYPE_CHECKING:
    from tsql.backends.local.run.execution import Execution

Calls = tuple[tuple[str, Call], ...]


def has_one_list_of_values(calls: Calls) -> bool:
    """Whether all DISTINCT aggregates have the same arguments, so that rows can be partitioned by them."""
    return len({c.args for _, c in calls if c.distinct}) == 1 and all(plain_body(c).decomposable for _, c in calls)


class DistinctValues:
    """Runs DISTINCT aggregates partitioned by value."""

    def __init__(self, x: Execution):
        self.x = x

    def groups(self, step: Aggregate, flow: Flow, calls: Calls) -> Flow:
        """The one group of an aggregate without keys."""
        values = next(c.args for _, c in calls if c.distinct)
        columns = needed_columns(flow.schema, (), calls)
        number = self.x.part(Partitions).number(flow.data, columns, self.x.spill.share(TABLE, self.x.threads) or 0)
        parts = self.x.part(Partitions).of(step, "values", flow, values, columns, 1, number)
        jobs = [[c for of_shard in parts for c in of_shard[p]] for p in range(number)]
        del parts
        partial, final = self._phases(step)
        store = self.x.spill.store(f"{step.name} states")
        states: list[AnyChunk] = []
        output = columns_of(partial.schema)
        jobs.reverse()
        while jobs:
            wave = [jobs.pop() for _ in range(min(self.x.threads, len(jobs)))]
            rows = Flow(ChunkData(tuple(c.source() for c in columns), wave, self.x.spill.morsel_rows()), flow.schema)
            groups = self.x.part(Partitions).in_tables(partial, "", rows, lambda: self._sink(calls, "partial"))
            states += [c for one in self.x.rows.collect(partial, groups, output, "collected", store=store) for c in one]
            self.x.part(Partitions).forget_states(groups)
        merged = Flow(
            ChunkData(tuple(c.source() for c in output), [states], self.x.spill.morsel_rows()), partial.schema
        )
        return self.x.part(Partitions).in_tables(final, "", merged, lambda: self._sink(calls, "final"))

    def _sink(self, calls: Calls, phase: str) -> AggregateSink:
        return make_sink(Grouping((), calls, phase, None, self.x.run.settings.equal_hashes), False)

    def _phases(self, step: Aggregate) -> tuple[Aggregate, Aggregate]:
        """The step in two phases. It is kept with the kernels, which are found by step."""
        known = self.x.kernels.variants
        for phase in ("partial", "final"):
            if (id(step), phase) not in known:
                known[id(step), phase] = replace(step, phase=phase, name=f"{step.name} {phase}")
        return known[id(step), "partial"], known[id(step), "final"]
