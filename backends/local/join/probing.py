"""Joins whose tables fit in memory. Rows of the probe side find their matches inside the pipeline they pass through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsql.backends.local.join.ready import ReadyJoin
from tsql.backends.local.join.tables import EntryData, JoinTable, JoinTables, chunks_of, dealt
from tsql.backends.local.run.dataset import ChunkData
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.spill import AnyChunk
from tsql.kernels.expr.nodes import Column, Literal
from tsql.kernels.expr.schema import Schema
from tsql.kernels.operators import project as kernel_project
from tsql.kernels.operators.collect import columns_of
from tsql.kernels.operators.join.hash_join import Drain, TableKind
from tsql.kernels.runtime.join_table import FREE, MATCHED
from tsql.planner.physical.operators.join import HashJoin

if TYPE_CHECKING:
    from tsql.backends.local.run.execution import Execution


class Joins:
    """Probes tables."""

    def __init__(self, x: Execution):
        self.x = x

    def joined(self, join: ReadyJoin) -> Flow:
        return self.probed(join, self.x.part(JoinTables).built(join))

    def probed(self, join: ReadyJoin, table: JoinTable) -> Flow:
        """The rows of the join. For most kinds they are produced when the next pipeline runs."""
        step, sink, probed = join.step, table.sink, join.probed
        probe = join.probe(
            TableKind(
                sink,
                table.dense,
                not join.is_shared,
                table.has_bitmap,
                join.bounds[1],
                None if join.reach is None else join.reach[1],
                step.walks,
                table.large,
            ),
            step.marks,
        )
        if not step.marks:
            return probed.then(probe, step.schema)
        groups = [list(chunks_of(c)) for c in table.contexts]
        if join.is_shared:
            groups = dealt([chunk for group in groups for chunk in group], probed.data.shards)
        if step.probe_kind == "touch":
            self.x.pipelines.run(step, "touch", probed.then(probe, probed.schema), Drain)
            return Flow(EntryData(sink, groups, MATCHED if step.kind == "semi" else FREE), step.schema)
        return self._with_unmatched(step, probed.then(probe, step.schema), EntryData(sink, groups, FREE), join.schema)

    def _with_unmatched(self, step: HashJoin, pairs: Flow, unmatched: EntryData, built: Schema) -> Flow:
        """The matched pairs, followed by the table's unmatched rows with NULLs for the other side."""
        columns = columns_of(step.schema)
        store = self.x.spill.store(step.name)
        lists = self.x.rows.collect(step, pairs, columns, "pairs", store=store)
        nulls = tuple(
            (f.name, Column(f.name, f.type, f.nullable) if f.name in built else Literal(None, f.type))
            for f in step.schema
        )
        rest = Flow(unmatched, step.schema, [kernel_project.Project(nulls)])
        others = self.x.rows.collect(step, rest, columns, "unmatched", store=store)
        shards = max(len(lists), len(others))
        merged: list[list[AnyChunk]] = [
            [*(lists[i] if i < len(lists) else []), *(others[i] if i < len(others) else [])] for i in range(shards)
        ]
        wanted = pairs.data.shards
        if len(merged) < wanted:
            merged = dealt([c for one in merged for c in one], wanted)
        return Flow(ChunkData(tuple(c.source() for c in columns), merged, self.x.spill.morsel_rows()), step.schema)
