"""Aggregations that may be larger than memory: in hash tables if they fit, otherwise partition by partition.

In: the flow of an aggregate step, its keys and calls. Out: a flow of groups, in the shards of their rows.

The workers' tables get a share of memory. If one takes more (`Full`), all are freed and the input is read again, this
time into partitions: rows (or exported states) go to one of a few dozen lists by the hash of their keys, using other
bits than those that chose their shard. Then a few partitions at a time, one per thread, are aggregated as if each were
the whole input. Their groups are collected, and the tables are freed. A partition whose table is still too large is
split again by other bits. This works for every phase and every aggregate, including those whose states cannot be
exported (a median, DISTINCT).

A single group whose state is too large cannot be split, so the query is refused. The exception is DISTINCT aggregates
without keys, whose rows are partitioned by value (`values.py`).

Cost: the columns that the aggregate uses are written and read once per level of splitting, and so are the groups if
there are many."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tsql.backends.local.lower.graph import Lowering, Pipe
from tsql.backends.local.run.dataset import ChunkData
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.spill import TABLE, AnyChunk, Store, bytes_of
from tsql.backends.local.spill.partitions import Partitions, needed_columns
from tsql.backends.local.spill.values import DistinctValues, has_one_list_of_values
from tsql.kernels.expr.nodes import Aggregate as Call
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.operators.aggregate.groups import AggregateSink
from tsql.kernels.operators.collect import OutputColumn, columns_of
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.backends.local.run.execution import Execution

FULL = "a table outgrows its share of memory_limit"


def group_pipes(step: Aggregate, about: Lowering) -> tuple[Pipe, ...]:
    """The pipelines of an aggregation whose tables exceed memory."""
    if not about.spills:
        return ()
    if step.by:
        return (
            Pipe("partition * of *", "partition rows by the hash of their keys", when=FULL),
            Pipe("groups", f"aggregate {step.name}", None, "a partition", when=FULL),
            Pipe("collected groups", "collect", None, "groups of a partition", when=FULL),
        )
    if not has_one_list_of_values(step.calls):
        return ()
    return (
        Pipe("values * of *", "partition rows by the hash of their DISTINCT values", when=FULL),
        Pipe("partial", f"aggregate {step.name} phase=partial", None, "a partition", when=FULL),
        Pipe("partial collected", "collect", None, "states of a partition", when=FULL),
        Pipe("final", f"aggregate {step.name} phase=final", None, "states of all partitions", when=FULL),
    )


class SpillingGroups:
    """Runs aggregations."""

    def __init__(self, x: Execution):
        self.x = x

    def groups(
        self,
        step: Aggregate,
        flow: Flow,
        by: tuple[tuple[str, Expr], ...],
        calls: tuple[tuple[str, Call], ...],
        make: Callable[..., AggregateSink],
        expected: int,
    ) -> Flow:
        """The groups of a flow."""
        share = self.x.spill.share(TABLE, flow.data.shards)
        if share is None or not (by or (has_one_list_of_values(calls) and step.phase == "complete")):
            return self.x.part(Partitions).in_tables(step, "", flow, make, expected)
        with self.x.states.attempt() as attempt:
            return self.x.part(Partitions).in_tables(
                step, "", flow, make, 0 if expected * 16 > share else expected, share
            )
        assert attempt.failed
        return (
            self._by_partitions(step, flow, by, calls, partial(make, False))
            if by
            else self.x.part(DistinctValues).groups(step, flow, calls)
        )

    def _by_partitions(
        self,
        step: Aggregate,
        flow: Flow,
        by: tuple[tuple[str, Expr], ...],
        calls: tuple[tuple[str, Call], ...],
        make: Callable[..., AggregateSink],
    ) -> Flow:
        shards = flow.data.shards
        columns = needed_columns(flow.schema, by, calls, step.absorbs)
        key = tuple(e for _, e in by)
        store = self.x.spill.store(f"{step.name} groups")
        lists: list[list[AnyChunk]] = [[] for _ in range(shards)]
        output = columns_of(step.schema)
        written = tuple(c.source() for c in columns)

        def split(flow: Flow, places: list[int], level: int) -> None:
            """Aggregate the flow by partitions. Its shards belong to the shards `places` of the step."""
            work(placed(flow, places, level), level)

        def placed(flow: Flow, places: list[int], level: int) -> list[tuple[int, list[AnyChunk]]]:
            number = self.x.part(Partitions).number(flow.data, columns, self.x.spill.share(TABLE, self.x.threads) or 0)
            parts = self.x.part(Partitions).of(step, "partition", flow, key, columns, level, number)
            return [
                (place, chunks) for place, of_shard in zip(places, parts, strict=True) for chunks in of_shard if chunks
            ]

        def work(jobs: list[tuple[int, list[AnyChunk]]], level: int) -> None:
            whole = sum(bytes_of(c) for _, c in jobs)
            jobs.reverse()
            while jobs:
                wave = [jobs.pop() for _ in range(min(self.x.threads, len(jobs)))]
                aggregate(wave, level, whole)

        def aggregate(wave: list[tuple[int, list[AnyChunk]]], level: int, whole: int) -> None:
            sources = flow.data.columns if level == 0 else written
            rows = Flow(
                ChunkData(sources, [c for _, c in wave], self.x.spill.morsel_rows()),
                flow.schema,
                flow.operators if level == 0 else [],
            )
            places = [place for place, _ in wave]
            largest = max(bytes_of(c) for _, c in wave)
            splits = self.x.part(Partitions).can_split(level, whole, largest)
            with self.x.states.attempt(last=not splits and len(wave) == 1) as attempt:
                groups = self.x.part(Partitions).in_tables(
                    step, "groups", rows, make, full_at=self.x.spill.share(TABLE, len(wave)) if splits else None
                )
            if not attempt.failed:
                self._into(step, groups, output, store, lists, places)
            elif splits:
                split(rows, places, level + 1)
            else:
                for one in wave:
                    aggregate([one], level, whole)

        if isinstance(flow.data, ChunkData) and shards > self.x.threads and not any(o.by_shard for o in flow.operators):
            # Many shards are already partitions.
            work([(place, chunks) for place, chunks in enumerate(flow.data.chunks) if chunks], 0)
        else:
            split(flow, list(range(shards)), 1)
        return Flow(ChunkData(tuple(c.source() for c in output), lists, self.x.spill.morsel_rows()), step.schema)

    def _into(
        self,
        step: Step,
        groups: Flow,
        output: tuple[OutputColumn, ...],
        store: Store,
        lists: list[list[AnyChunk]],
        places: list[int],
    ) -> None:
        """Collect groups and free their tables."""
        collected = self.x.rows.collect(step, groups, output, "collected groups", store=store)
        for place, chunks in zip(places, collected, strict=True):
            lists[place] += chunks
        self.x.part(Partitions).forget_states(groups)
