"""Builds the stages of a run on the driver: what the tasks of each part are given, and how rows move in between.

A stage is one part of the plan over all its shards. Rows enter it in five ways (`Entry`): as splits of files that the
task reads, as rows that the driver sends with the task, as rows that a movement has placed, as the partitions of a
DataFrame, or as rows that each worker computes for itself. Movement inside of a plan is movement inside of one Spark
job. Only a broadcast with how=collect is a job of its own, and such jobs run side by side.

With `lazy`, nothing runs while stages are built: a DataFrame of `to_spark` computes its plan at each action. Rows of a
broadcast are then sent to every shard by the tasks that compute them, and what follows `gather` runs in one task."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tsql.backends import Run
from tsql.backends.io import Split, tell_lost
from tsql.backends.io.open import portable
from tsql.backends.local.run.arranging import SAMPLED_ROWS, Boundary, boundaries
from tsql.backends.local.run.dataset import ChunkData, Dataset, SourceData
from tsql.backends.local.run.entry import chunk_columns, facts_of
from tsql.backends.local.run.execution import Execution
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk
from tsql.backends.spark.arranged import chosen, decode_sample, encode_boundaries
from tsql.backends.spark.cut import Cut, crosses
from tsql.backends.spark.datasets import ClusterDataset
from tsql.backends.spark.frame import FrameSource
from tsql.backends.spark.heavy import heavy_keys, split_side
from tsql.backends.spark.jobs import Jobs
from tsql.backends.spark.limits import growing
from tsql.backends.spark.part import Entry, StagePart, whole
from tsql.backends.spark.splits import dealt, split_bytes, tasks_for
from tsql.backends.spark.transport.transport import Given, Rows, TaskWork, Transport
from tsql.backends.spark.wire import (
    Row,
    decode_chunks,
    encode_batches,
    encode_chunks,
    encode_value,
    expression_nodes,
)
from tsql.kernels.blocks.table import BlockTable
from tsql.kernels.expr.nodes import Column, Parameter
from tsql.planner.physical.movement import Arrange, Broadcast, Gather, Movement, Redistribute
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.operators.values import Values
from tsql.planner.physical.step import Step

ADAPTED = 4
"""From so many shards per core on, the number of tasks follows what was written. It takes a job more."""

SENT_BYTES = 1 << 20
"""Blobs of a broadcast up to this size go with the task; larger ones are a broadcast of Spark."""


class Stages:
    """The stages of one run of one plan."""

    def __init__(self, transport: Transport, cut: Cut, run: Run, jobs: Jobs, lazy: bool = False):
        self.transport, self.cut, self.run, self.jobs, self.lazy = transport, cut, run, jobs, lazy
        travelling = cut.travelling()
        nodes = list(expression_nodes(travelling.root))
        kinds = {node.name: str(node.type) for node in nodes if isinstance(node, Parameter)}
        settings = run.settings
        self.common: dict[str, Any] = {
            "text": travelling.text(),
            "run": uuid.uuid4().hex,
            "positions": [node.position for node in nodes],
            "parameters": {name: encode_value(run.parameters[name]) for name in kinds},
            "parameter_types": kinds,
            "settings": {
                "shards": 1,
                "memory_limit": settings.memory_limit,
                "batch_rows": settings.batch_rows,
                "equal_hashes": settings.equal_hashes,
                "temp_directory": settings.temp_directory,
                "spill_after": settings.spill_after,
                "tasks_per_machine": max(1, transport.cores // transport.executors),
            },
            "wall_clock": run.wall_clock,
            "profile": run.profile,
        }
        self.count = 0
        self.moved: dict[int, Rows] = {}
        self.made: list[Rows] = []
        self.blobs: dict[int, list[Any]] = {}
        self.kept: list[Any] = []
        self.heavy: dict[int, list[Boundary]] = {}

    def close(self) -> None:
        """Release what the cluster keeps for this run."""
        for one in self.kept:
            one.destroy()
        self.transport.free(self.made)

    def gathered(self, step: Step, most: int | None = None) -> Rows:
        """The rows of a step for the driver."""
        top = step.inputs[0] if isinstance(step, Gather) else step
        return self._stage(top, step if isinstance(step, Gather) else None, 1, most=most)

    def result(self, most: int | None = None) -> Rows:
        """The result of a plan whose last step is a gather, as its own columns."""
        plan = self.cut.plan
        return self._stage(self._last(), None, 1, output=(plan.columns, plan.names), most=most)

    def written(self, sink: dict[str, Any]) -> Rows:
        """What the tasks of the last stage have written (`folders.Written`). What follows `gather` is one task."""
        plan = self.cut.plan
        return self._stage(self._last(), None, 1, output=(plan.columns, plan.names), sink=sink)

    def frame(self) -> tuple[Rows, TaskWork]:
        """What the last stage of a DataFrame reads, and its work."""
        plan = self.cut.plan
        return self._entering(self._last(), None, 0, output=(plan.columns, plan.names))

    def _last(self) -> Step:
        top = self.cut.plan.root
        while isinstance(top, Gather) and self.cut.in_tasks[id(top.inputs[0])]:
            top = top.inputs[0]
        return top

    def collect_broadcasts(self, top: Step) -> None:
        """Run the jobs of all broadcasts that the driver must collect, each beside its siblings."""
        waiting = [step for step in top.walk() if self._is_collected(step) and id(step) not in self.blobs]
        while waiting:
            ready = [
                step
                for step in waiting
                if not any(other is not step and any(s is other for s in step.inputs[0].walk()) for other in waiting)
            ]
            in_tasks = [step for step in ready if self.cut.in_tasks[id(step.inputs[0])]]
            stages = [self._stage(step.inputs[0], step, 1) for step in in_tasks]
            found = self.jobs.collect_all(stages)
            for step in in_tasks:
                rows = sorted(found.get(step.name, []), key=lambda row: row[2])
                self.blobs[id(step)] = [row[3] for row in rows]
            for step in ready:
                if not self.cut.in_tasks[id(step.inputs[0])]:
                    self.blobs[id(step)] = self._driven(step.inputs[0])
            waiting = [step for step in waiting if id(step) not in self.blobs]

    def _is_collected(self, step: Step) -> bool:
        return isinstance(step, Broadcast) and step.scope == "global" and step.how not in ("read", "send")

    def _stage(
        self,
        top: Step,
        movement: Step | None,
        targets: int,
        output: tuple[tuple[str, ...], tuple[str, ...]] | None = None,
        **details: Any,
    ) -> Rows:
        """The rows of `top`, sent where `movement` says. `details` are fields of the part."""
        found = self.transport.computed(*self._entering(top, movement, targets, output, **details))
        self.made.append(found)
        return found

    def _entering(
        self,
        top: Step,
        movement: Step | None,
        targets: int,
        output: tuple[tuple[str, ...], tuple[str, ...]] | None = None,
        **details: Any,
    ) -> tuple[Rows, TaskWork]:
        """The rows that enter the stage of `top`, and the work of its tasks."""
        steps = self.cut.entries(top, not self.cut.in_tasks[id(top)])
        entries, rows, given, shared, several = self._inputs(steps)
        self.count += 1
        part = StagePart(
            stage=self.count,
            top=top.name,
            movement=None if movement is None else movement.name,
            targets=targets,
            entries=entries,
            output=output,
            one_copy=bool(self.cut.properties[id(top)].replicated),
            several=several,
            **details,
            **self.common,
        )
        return rows, TaskWork(part.encode(), given, shared)

    def _inputs(self, steps: list[Step]) -> tuple[list[Entry], Rows, Given, dict[str, Any], bool]:
        """Entries of a part, the rows that are in partitions already, those of the driver, those for all tasks, and
        whether a task has several shards."""
        if self.lazy and len(steps) == 1 and isinstance(steps[0], Arrange):
            return [Entry(steps[0].name, "frame")], self._arranged_frame(steps[0]), {}, {}, False
        if len(steps) == 1 and _is_there(steps[0]) and self.cut.shards(steps[0]) > 1:
            entry, rows = self._there(steps[0])
            return [entry], rows, {}, {}, False
        scans = [step for step in steps if isinstance(step, Scan) and not _is_there(step)]
        sources = {id(scan): self._scanned(scan) for scan in scans}
        placed = [step for step in steps if self._is_placed(step)]
        tasks = self._tasks(placed, scans, sources)
        given: Given = {}
        shared: dict[str, Any] = {}
        entries: list[Entry] = []
        moved: list[Rows] = []
        for step in steps:
            if id(step) in sources:
                entry, splits = sources[id(step)]
                entries.append(entry)
                for shard, row in self._scan_rows(step, splits, tasks):
                    given.setdefault(shard, []).append(row)
            elif isinstance(step, Broadcast) and crosses(step):
                entries.append(self._broadcast(step, tasks, moved, shared))
            elif self._is_placed(step):
                entries.append(Entry(step.name, "chunks"))
                moved.append(self._moved(step))
            else:
                entries.append(Entry(step.name, "chunks"))
                blobs = self._driven(step)
                given.setdefault(0, []).extend((0, step.name, n, blob) for n, blob in enumerate(blobs))
        if moved:
            fewer = None if given else self._fewer(moved, tasks)
            return entries, self.transport.placed(moved, tasks, fewer), given, shared, fewer is not None
        return entries, self.transport.given([given.get(task, []) for task in range(tasks)]), {}, shared, False

    def _fewer(self, moved: list[Rows], shards: int) -> int | None:
        """The number of tasks for many shards, by what was written to them; None for a task per shard."""
        if self.lazy or shards < ADAPTED * self.transport.cores:
            return None
        bytes = self.jobs.written(moved, shards)
        if bytes is None:
            return None
        tasks = tasks_for(bytes, shards, self.transport.cores)
        return tasks if tasks < shards else None

    def _there(self, scan: Any) -> tuple[Entry, Rows]:
        """Rows that are in the cluster already: of a DataFrame, or of a dataset."""
        if isinstance(scan.source, ClusterDataset):
            return scan.source.entry(scan.name), self.transport.again(scan.source.rows())
        return Entry(scan.name, "frame"), self.transport.frame(scan.source.select(scan.columns))

    def _is_placed(self, step: Step) -> bool:
        """Whether the rows of an entry come out of other tasks."""
        if isinstance(step, Broadcast) and crosses(step):
            return False
        if isinstance(step, Scan):
            return _is_there(step)
        return self.cut.in_tasks[id(step)] or self.lazy or self._depends_on_tasks(step)

    def _depends_on_tasks(self, step: Step) -> bool:
        return any(self.cut.in_tasks[id(below)] for below in step.walk())

    def _tasks(self, placed: list[Step], scans: list[Scan], sources: dict[int, Any]) -> int:
        """The number of tasks of a stage. Rows that were placed decide, otherwise the bytes of the scans."""
        if placed:
            return max(self.cut.shards(step) for step in placed)
        wide = [scan for scan in scans if self.cut.properties[id(scan)].shards > 1]
        if not wide:
            return 1
        splits = [split for scan in wide for split in sources[id(scan)][1] or ()]
        if any(sources[id(scan)][1] is None for scan in wide) or not splits:
            return self.cut.plan.shards
        total = sum(split_bytes(split, scan.schema) for scan in wide for split in sources[id(scan)][1])
        return tasks_for(total, len(splits), self.cut.plan.shards)

    def _scanned(self, scan: Scan) -> tuple[Entry, list[Split] | None]:
        """The entry of a scan, and its splits if tasks read them; None if the driver sends its rows."""
        source = scan.source
        if isinstance(source, BlockTable):
            return Entry(scan.name, "table", facts=_block_facts(scan)), None
        data = SourceData(source, scan.columns, scan.where, 1, 0, self.run)
        description = portable(source)
        known = [split.rows for split in data.splits]
        if data.splits and all(rows is not None for rows in known):
            self.run.total_rows = (self.run.total_rows or 0) + sum(known)
        if description is None:
            return Entry(scan.name, "table", facts=facts_of(data)), None
        paths = getattr(source, "paths", ())
        files = hashlib.blake2b("\0".join(map(str, paths)).encode(), digest_size=12).hexdigest()
        entry = Entry(scan.name, "splits", description, facts_of(data), scan.late, files)
        return entry, list(data.splits)

    def _scan_rows(self, scan: Scan, splits: list[Split] | None, tasks: int) -> Iterator[tuple[int, Row]]:
        """(task, row) pairs: the splits that each task reads, or rows of a table in memory."""
        if splits is not None:
            for task, mine in enumerate(dealt(splits, min(tasks, len(splits))) if splits else ()):
                yield task, (task, scan.name, 0, json.dumps([_plain(split) for split in mine]).encode())
            return
        for number, (task, blob) in enumerate(_dealt(self._table_batches(scan), tasks)):
            yield task, (task, scan.name, number, blob)

    def _table_batches(self, scan: Scan) -> list[pa.RecordBatch]:
        """The rows of a table in the driver's memory."""
        source = scan.source
        if isinstance(source, BlockTable):
            if scan.columns:
                return list(source.batches(scan.columns))
            return [pa.RecordBatch.from_arrays([pa.nulls(source.rows)], ["rows"])]
        splits = source.splits(scan.columns, scan.where)
        found = [_with_rows(batch) for split in splits for batch in source.read(split, scan.columns)]
        tell_lost(source, scan.columns, self.run)
        return found

    def _broadcast(self, step: Broadcast, tasks: int, moved: list[Rows], shared: dict[str, Any]) -> Entry:
        """The entry of a broadcast."""
        if step.how in ("read", "send"):
            return self._read(step, shared)
        if self.lazy and not isinstance(step.inputs[0], Values):
            moved.append(self._sent_by_tasks(step, tasks))
            return Entry(step.name, "chunks")
        if id(step) not in self.blobs:
            self.collect_broadcasts(step)
        shared[step.name] = self._shared(self.blobs[id(step)])
        return Entry(step.name, "chunks")

    def _sent_by_tasks(self, step: Broadcast, tasks: int) -> Rows:
        """The rows of a broadcast in every shard, by movement inside of the job."""
        below = step.inputs[0]
        if self.cut.in_tasks[id(below)]:
            return self._stage(below, step, tasks)
        return self._stage(below, step, tasks)

    def _read(self, step: Broadcast, shared: dict[str, Any]) -> Entry:
        """Rows that each worker computes for itself from whole sources."""
        below = []
        for leaf in step.inputs[0].walk():
            if not isinstance(leaf, Scan):
                continue
            entry, splits = self._scanned(leaf)
            if splits is None:
                shared[whole(leaf.name)] = self._shared(list(encode_batches(self._table_batches(leaf))))
                below.append(entry)
            else:
                below.append(Entry(**{**entry.__dict__, "splits": [_plain(split) for split in splits]}))
        return Entry(step.name, "read", below=below)

    def _shared(self, blobs: list[Any]) -> Any:
        if sum(len(blob) for blob in blobs) <= SENT_BYTES:
            return [bytes(blob) for blob in blobs]
        found = self.transport.share([bytes(blob) for blob in blobs])
        self.kept.append(found)
        return found

    def _moved(self, step: Step) -> Rows:
        """The rows that a movement between tasks, or a step with one shard, sends to its users. Computed once for all
        of them."""
        if id(step) not in self.moved:
            if isinstance(step, Scan):
                self.moved[id(step)] = self._framed(step)
            elif isinstance(step, Arrange):
                self.moved[id(step)] = self._arranged(step)
            elif isinstance(step, Movement):
                heavy = self._heavy(step) if isinstance(step, Redistribute) and step.heavy is not None else {}
                self.moved[id(step)] = self._stage(step.inputs[0], step, step.shards or self.cut.plan.shards, **heavy)
            elif self.cut.in_tasks[id(step)] or (isinstance(step, Gather) and self.cut.in_tasks[id(step.inputs[0])]):
                self.moved[id(step)] = self.gathered(step)
            else:
                self.moved[id(step)] = self._stage(step, None, 1)
        return self.moved[id(step)]

    def _arranged(self, step: Arrange) -> Rows:
        """Rows in shards by ranges of their keys. Without a sample there is one range."""
        shards = step.shards or self.cut.plan.shards
        ranges: list[list[Any]] = []
        if not self.lazy:
            keys = self._sampled(step, [key.expr.name for key in step.keys if isinstance(key.expr, Column)])
            ranges = encode_boundaries(boundaries(keys, step.keys, shards))
        return self._stage(step.inputs[0], step, shards, ranges=ranges)

    def _heavy(self, step: Redistribute) -> dict[str, Any]:
        """The key columns of a side of a join, and the keys that are heavy on the side that is split."""
        split = split_side(self.cut.plan.root, step)
        if id(split) not in self.heavy:
            keys = [] if self.lazy else self._sampled(split, self._key(split))
            self.heavy[id(split)] = heavy_keys(keys, split.shards or self.cut.plan.shards)
        return {"keys": self._key(step), "heavy": encode_boundaries(self.heavy[id(split)])}

    def _key(self, step: Redistribute) -> list[str]:
        return list(self.cut.properties[id(step.inputs[0])].key or ())

    def _sampled(self, step: Step, names: list[str]) -> list[Boundary]:
        """Keys of some of the rows that a step moves."""
        sample = self._stage(step.inputs[0], step, 1, sample=SAMPLED_ROWS, keys=names)
        which = chosen(self.transport.partitions(sample), self.transport.cores)
        return decode_sample([row[3] for row in self.jobs.collect(sample, which)])

    def _arranged_frame(self, step: Arrange) -> Rows:
        """The rows of a lazy ORDER BY, placed by Spark."""
        (below,) = step.inputs
        names = tuple(below.schema.names)
        rows, work = self._entering(below, None, 0, output=(names, names))
        plan = replace(self.cut.plan, root=below, columns=names, names=names)
        return self.transport.arranged(rows, work, plan, step.keys, step.shards or plan.shards)

    def _framed(self, scan: Scan) -> Rows:
        """Rows of a DataFrame or a dataset that meet other inputs: they become blobs of this plan first."""
        entry, rows = self._there(scan)
        self.count += 1
        part = StagePart(
            stage=self.count,
            top=scan.name,
            movement=None,
            targets=self.cut.shards(scan),
            entries=[entry],
            **self.common,
        )
        found = self.transport.computed(rows, TaskWork(part.encode(), {}, {}))
        self.made.append(found)
        return found

    def _driven(self, step: Step) -> list[Any]:
        """The rows of a step that runs on the driver, as blobs."""
        if id(step) not in self.blobs:
            self.blobs[id(step)] = self.on_driver(step)
        return self.blobs[id(step)]

    def on_driver(self, step: Step) -> list[Any]:
        """The rows of a step that runs on the driver, as blobs: rows of tasks that it needs are collected first."""
        entries = self.cut.entries(step, on_driver=True)
        execution = Execution(self.run, None, inputs=self.collected(entries))
        try:
            with self.cut.plan.deep():
                lists = execution.chunks(step, 1)
            execution.tell()
            # Spilled rows are gone when the execution is closed.
            return list(encode_chunks(chunk for one in lists for chunk in one))
        finally:
            execution.close(improves=False)

    def collected(self, entries: list[Step], most: dict[int, int] | None = None) -> dict[int, Dataset | Flow]:
        """The rows of steps in tasks, in the driver's memory."""
        for step in entries:
            self.collect_broadcasts(step)
        asked = most or {}
        whole = [step for step in entries if id(step) not in asked]
        rows = self.jobs.collect_all([self.gathered(step) for step in whole])
        found = {id(step): self._chunks(step, rows.get(step.name, [])) for step in whole}
        for step in entries:
            if id(step) in asked:
                found[id(step)] = self._first_chunks(step, asked[id(step)])
        batch_rows = self.run.settings.batch_rows
        return {
            id(step): Flow(ChunkData(chunk_columns(step.schema), [found[id(step)]], batch_rows), step.schema)
            for step in entries
        }

    def _first_chunks(self, step: Step, most: int) -> list[Chunk]:
        """The first rows of a step, and perhaps some more: tasks run in growing waves until there are enough."""
        rows = self.gathered(step, most)
        found: list[Chunk] = []
        for wave in self.jobs.waves(rows, growing(self.transport.partitions(rows), self.transport.cores), ahead=False):
            found += self._chunks(step, wave)
            if sum(chunk.rows for chunk in found) >= most:
                break
        return found

    def _chunks(self, step: Step, rows: list[Row]) -> list[Chunk]:
        columns = len(step.schema)
        ordered = sorted(rows, key=lambda row: row[2])
        return [chunk for _, _, place, blob in ordered for chunk in decode_chunks(blob, columns, place)]


def _is_there(step: Step) -> bool:
    return isinstance(step, Scan) and isinstance(step.source, FrameSource | ClusterDataset)


def _plain(split: Split) -> list[Any]:
    return [split.order, split.path, split.rows, split.detail]


def _with_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch that keeps its row count on the wire, where a batch without columns would lose it."""
    return batch if batch.num_columns else pa.RecordBatch.from_arrays([pa.nulls(batch.num_rows)], ["rows"])


def _dealt(batches: list[pa.RecordBatch], shards: int) -> Iterator[tuple[int, bytes]]:
    """(shard, blob) pairs: the rows in order, in equal parts."""
    total = sum(batch.num_rows for batch in batches)
    for shard in range(shards):
        low, high = shard * total // shards, (shard + 1) * total // shards
        mine, position = [], 0
        for batch in batches:
            start, stop = max(low - position, 0), min(high - position, batch.num_rows)
            if start < stop:
                mine.append(batch.slice(start, stop - start))
            position += batch.num_rows
        yield from ((shard, blob.to_pybytes()) for blob in encode_batches(mine))


def _block_facts(step: Scan) -> dict[str, Any]:
    facts = {}
    for column in step.source.source_columns(step.columns):
        bounded = column.range is not None and (
            column.type.is_integer or column.type.is_decimal or column.type.is_temporal
        )
        facts[column.name] = [column.layout.nullable, list(column.range) if bounded else None]
    return facts
