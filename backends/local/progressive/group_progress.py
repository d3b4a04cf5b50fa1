"""A progressive run: the driven aggregate takes the units of its scan in random order, and between them the rest of the
plan runs over a view of its groups. At the end the run goes on as any other, from the groups that are complete now.

In: a plan with a step `progressive`, and its kernels. Out: snapshots; the last one is the exact result, unless the
query asks to stop before. Memory: the groups belong to the run's `States`, as always; a view reads them and frees
nothing; a snapshot owns its batches. Errors end the run, and it frees what it holds. Cost: a fold per batch of units
(its size follows the number of groups), and per snapshot the merge of all groups and what stands above them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import field, replace
from operator import is_
from typing import Any

import numpy as np
import pyarrow as pa

from tsql.backends.local.lower.graph import Node
from tsql.backends.local.progressive.branch import Branch
from tsql.backends.local.progressive.cut import cut, status_of
from tsql.backends.local.progressive.design import Design, JoinedDesign
from tsql.backends.local.progressive.due import due
from tsql.backends.local.progressive.key_zones import key_zone
from tsql.backends.local.progressive.known import Known
from tsql.backends.local.progressive.pace import LEFT_OUT, Pace
from tsql.backends.local.progressive.pipeline import DrivenPipeline
from tsql.backends.local.progressive.progress import Progress, error_of
from tsql.backends.local.progressive.units import MOST_ROWS, Units
from tsql.backends.local.run.dataset import ChunkData
from tsql.backends.local.run.execution import Execution
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk
from tsql.backends.local.run.kernels import Kernels
from tsql.backends.snapshots import Snapshot
from tsql.kernels.blocks.table import BlockTable
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import Type
from tsql.kernels.operators.collect import columns_of
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.input import Input
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.step import PhysicalPlan, Step, named
from tsql.planner.progressive import driven
from tsql.planner.progressive.origins import origins
from tsql.planner.progressive.ranking import SURE
from tsql.planner.progressive.snapshot_plan import SnapshotPlan, snapshot_plan
from tsql.planner.progressive.terms import Terms
from tsql.planner.progressive.values import Values

MOST_RANKED = 10_000
"""Of at most so many groups, all are kept to say which rows of ORDER BY .. LIMIT are certain."""


WINDOWS_OF_A_PANE = 8
"""A guess: a pane is in so many windows."""


@dataclass
class Shown:
    """The plan of snapshots with its kernels."""

    plan: SnapshotPlan
    kernels: Kernels


@dataclass
class Kept:
    """What is kept with the kernels of a plan for its next progressive run: the plans of its snapshots, and the design
    of the sample of a table in memory."""

    shown: dict[object, Shown] = field(default_factory=dict)
    tables: list[BlockTable] = field(default_factory=list)
    design: Design | None = None
    parts: dict[object, Any] = field(default_factory=dict)
    """The plans of parts of a join (`key_progress.py`)."""


def _node(x: Execution, step: Step) -> Node:
    assert x.graph is not None, "the plan is lowered first"
    return x.graph.node(step)


class GroupProgress(Progress):
    """Groups that are not complete yet."""

    found: driven.Driven

    def __init__(self, plan: PhysicalPlan, found: driven.Driven, x: Execution):
        super().__init__(plan, found, x)
        if x.kernels.progressive is None:
            x.kernels.progressive = Kept()
        self.kept: Kept = x.kernels.progressive

    def snapshots(self) -> Iterator[Snapshot]:
        """The snapshots until the end, or until the query may stop."""
        begun, spec, x = time.perf_counter(), self.found.spec, self.x
        x._lower(self.plan.root, self.plan.shards)
        branches = [Branch(x, one, _node(x, one.partial)) for one in self.found.branches]
        if not all(branch.is_driven for branch in branches):
            self.run.note("the rows of the scan are collected before they are grouped: the final result only")
            for branch in branches:
                branch.run_at_once()
            batches, rows = list(x.batches(self.plan)), self.run.total_rows
            yield Snapshot(batches, rows or 0, rows, True, True, self.exact(batches, {}))
            return
        pipeline = DrivenPipeline(x, self.found, branches)
        if pipeline.units.count < 2 and pipeline.units.all_rows > MOST_ROWS:
            self.run.note("the input of the progress is read in one piece: the final result only")
        design = self._design(pipeline)
        self.shown = self._plan_of(design, False)
        pipeline.begin(design, self.shown.plan)
        self.others = {id(step): self._collected(step) for step in self.shown.plan.others}
        units, pace = pipeline.units, Pace()
        for last, is_shown in due(spec, units, begun):
            before = time.perf_counter()
            pipeline.read(last - pipeline.places)
            if pipeline.places >= units.length:
                break
            now = time.perf_counter()
            pace.read(now - before)
            is_late = spec.within_us is not None and (now - begun) * 1e6 >= spec.within_us
            groups = pipeline.groups * (WINDOWS_OF_A_PANE if isinstance(self.found.final, Combine) else 1)
            if not is_late and is_shown is None:
                continue
            if not is_late and not pace.allows(groups, pipeline.places / units.length):
                if spec.within_us is None:
                    break
                continue
            shown = self._snapshot(pipeline)
            pace.showed(time.perf_counter() - now, groups)
            if is_late:
                shown = replace(shown, is_last=True)
            if spec.until_error is not None and error_of(shown) <= spec.until_error:
                shown = replace(shown, is_last=True)
            if is_shown or shown.is_last:
                yield shown
            if shown.is_last:
                return
        if pace.left_out:
            self.run.note(LEFT_OUT)
        pipeline.read_rest()
        pipeline.finish()
        batches = list(x.batches(self.plan))
        rows = units.all_rows
        yield Snapshot(batches, rows, rows, True, True, self.exact(batches, self.shown.plan.bounds))

    def _design(self, pipeline: Any) -> Design:
        """What the zones of the units tell of the sample. Tables in memory never change, so they are asked once."""
        kept, scans = self.kept, [branch.scan for branch, _ in pipeline.parts]
        tables = [scan.source for scan in scans if isinstance(scan, Scan) and isinstance(scan.source, BlockTable)]
        if kept.design is not None and len(kept.tables) == len(tables) and all(map(is_, kept.tables, tables)):
            return kept.design
        designs = [self._design_of(branch, units) for branch, units in pipeline.parts]
        design = designs[0] if len(designs) == 1 else JoinedDesign(designs)
        if len(tables) == len(scans):
            kept.tables, kept.design = tables, design
        return design

    def _design_of(self, branch: driven.Branch, units: Units) -> Design:
        found, in_panes = origins(branch), isinstance(self.found.final, Combine)
        measures = () if in_panes else Values(self.found.groups, Terms(False, frozenset())).known
        keys = [key_zone(found.of(expr), units.zone, self._evaluate) for _, expr in branch.partial.by]
        return Design(units.rows, units.zone, found, measures, keys, units.knows_rows)

    def _plan_of(self, design: Design, keeps_all: bool) -> Shown:
        """The plan of the snapshots, which depends on what is known of the sample, and on whether LIMIT is left out."""
        by_group, proven = design.populations is not None, frozenset(design.reaches)
        key = by_group, proven, keeps_all
        if key not in self.kept.shown:
            plan = snapshot_plan(self.plan, self.found, Terms(by_group, proven), keeps_all)
            self.kept.shown[key] = Shown(plan, Kernels())
        return self.kept.shown[key]

    def _evaluate(self, expr: Expr, name: str, type: Type, values: np.ndarray) -> pa.Array:
        """The values of an expression over a column that is given in stored form."""
        arrow = type.to_arrow()
        if pa.types.is_decimal(arrow):
            array = pa.array(values)
        else:
            array = pa.array(values.astype(f"{'u' if type.is_unsigned else 'i'}{arrow.bit_width // 8}")).view(arrow)
        given = Input((), fields=Schema((Field(name, type, False),)), name="given")
        root = named(Project((given,), columns=(("key", expr),)))
        plan = replace(self.plan, root=root, columns=("key",), names=("key",), query="", notes=(), shards=1)
        (source,) = (step for step in root.walk() if isinstance(step, Input))
        rows = Flow(ChunkData(tuple(c.source() for c in columns_of(source.schema)),
                              [[Chunk((0,), len(values), [array])]]), source.schema)  # fmt: skip
        (batch,) = self.run_plan(plan, Kernels(), {id(source): rows}, {})
        return batch.column(0)

    def _collected(self, step: Any) -> Flow:
        """The rows of a step beside the driven aggregate, which all snapshots read, and the run at its end."""
        found = self.x.rows.collected(step, self.x.flow(_node(self.x, step)))
        self.x.done[id(step)] = found
        return found

    def _snapshot(self, pipeline: DrivenPipeline) -> Snapshot:
        known, units = pipeline.known(), pipeline.units
        return self._show(known, pipeline.view(known), units.rows_of(0, pipeline.places), units.all_rows)

    def _show(self, known: Known, lists: list[list[Chunk]], read: int, all_rows: int) -> Snapshot:
        """The result of partial groups, where so many of all rows were read."""
        chosen = self.shown
        if sum(chunk.rows for chunks in lists for chunk in chunks) <= MOST_RANKED:
            chosen = self._plan_of(known.design, True)
        plan = chosen.plan
        rows = Flow(ChunkData(tuple(c.source() for c in columns_of(plan.given.schema)), lists), plan.given.schema)
        batches = self.run_plan(plan.plan, chosen.kernels, {id(plan.given): rows, **self.others}, known.parameters())
        status = None
        if plan.chosen and batches:
            table = pa.Table.from_batches(batches).rename_columns(
                [*map(str, range(len(self.plan.columns))), *plan.plan.columns[len(self.plan.columns) :]]
            )
            sure = np.asarray(table[SURE])
            if plan.ranking is not None:
                table, sure = cut(table, plan.ranking)
            status, batches = status_of(sure), table.combine_chunks().to_batches() or batches[:1]
        schema, width = self.plan.schema, len(self.plan.columns)
        shown = [pa.RecordBatch.from_arrays(batch.columns[:width], schema=schema) for batch in batches]
        names = list(plan.plan.columns)
        bounds = {
            place: tuple(
                pa.chunked_array([batch.column(names.index(name)) for batch in batches], pa.float64()) for name in pair
            )
            for place, pair in plan.bounds.items()
        }
        return Snapshot(shown, read, all_rows, False, False, bounds, plan.notes, status)
