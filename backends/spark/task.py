"""What runs in a Spark task: wire rows in, a part of the plan run by a local execution, wire rows out.

Executors import this module and get everything else as plain data (`StagePart`, in JSON): the plan's text, the names of
the steps at the part's boundaries, parameters and settings. A plan is parsed and compiled once per Python worker
(`kept.py`). A query error is a result: it is sent as a row and raised on the driver, since a retry of the task would
fail the same way."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import chain
from typing import Any

import pyarrow as pa

from tsql.backends import Run, Settings
from tsql.backends.io.folders import write_part
from tsql.backends.io.normalize import normalize
from tsql.backends.io.parquet.table import with_files
from tsql.backends.local.run.arranging import sampled
from tsql.backends.local.run.dataset import ChunkData, Dataset
from tsql.backends.local.run.entry import BatchData, chunk_columns
from tsql.backends.local.run.execution import Execution
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk, machine_limit
from tsql.backends.local.run.split_data import SplitData
from tsql.backends.spark import tally
from tsql.backends.spark.arranged import encode_boundaries
from tsql.backends.spark.datasets import chosen
from tsql.backends.spark.kept import LoadedPart, program_of, settle, shared_rows, source_of
from tsql.backends.spark.mailbox import Letter, Mailbox
from tsql.backends.spark.part import Entry, StagePart, whole
from tsql.backends.spark.progressive.task import sampled_groups
from tsql.backends.spark.progressive.units import UNITS
from tsql.backends.spark.splits import split_of
from tsql.backends.spark.wire import (
    Row,
    about,
    decode_batches,
    decode_chunks,
    decode_error,
    decode_value,
    encode_batches,
    encode_chunks,
    encode_error,
    for_spark,
)
from tsql.kernels.expr.errors import SourceError, TsqlError
from tsql.planner.physical.movement import Arrange, Broadcast, Multicast, Redistribute, Reshard
from tsql.planner.physical.operators.input import Input
from tsql.planner.physical.step import PhysicalPlan, Step

RESULT_BYTES = 1 << 20
"""Rows for the driver leave in blobs of about this size."""

WAITING_SHARE = 0.25
"""The part of a task's memory that its input may take. More of it waits in a file, and the steps of the part spill."""


class Task:
    """One task of a stage: the part that it runs, its number, and what it was given."""

    def __init__(self, text: str, number: int, given: list[Row], shared: dict[str, Any], cpus: int = 1):
        settle()
        self.part = StagePart.decode(text)
        self.number, self.given, self.shared = number, given, shared
        self.program: LoadedPart = program_of(self.part)
        self.threads = max(1, cpus)
        self.units: dict[str, Any] | None = None
        """What the driver tells of the units of a sample."""
        self.reads: dict[str, tally.Told] = {}
        """What was counted while the rows of broadcasts were computed, in this task or before it in this worker."""

    @property
    def where(self) -> str:
        """The place of the task, for people."""
        return f"{self.part.title[:-1]}, shard {self.number})"

    def run(self, rows: Iterator[Row]) -> Iterator[Row]:
        """The rows that leave, made of the rows of the wire that enter."""
        part = self.part
        box = Mailbox(self._most_waiting(), part.settings["temp_directory"] or tempfile.gettempdir())
        failure: TsqlError | None = None
        kept = next((entry for entry in part.entries if entry.kind == "kept"), None)
        for shard, name, place, blob in chain(self.given, rows):
            if name is not None and kept is not None:
                # The rows of a dataset have the names of the plan that made them.
                box.put(self.number, kept.name, place, blob)
                continue
            if name is not None:
                box.put(shard, name, place, blob)
                continue
            told = about(blob)
            if "tally" in told:
                if kept is None or (kept.description or {})["tells"]:
                    yield 0, None, 0, blob
            else:
                failure = failure or decode_error(blob)
        box.close()
        if failure is None:
            try:
                yield from self._shards(box)
                return
            except TsqlError as error:
                failure = error
        yield from self._failed(failure)

    def run_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
        """The same for a part over a DataFrame: a partition of Spark is a shard."""
        (entry,) = self.part.entries
        step = self.program.steps[entry.name]

        def rows() -> Iterator[tuple[int, pa.RecordBatch]]:
            for batch in batches:
                yield self.number, _normal(batch, step)

        def data(run: Run, execution: Execution) -> dict[int, Dataset | Flow]:
            return {id(step): Flow(BatchData(step.schema, entry.facts, rows, run), step.schema)}

        try:
            yield from self._leave(self.number, data)
        except TsqlError as error:
            yield from self._failed(error)

    def _failed(self, error: TsqlError) -> Iterator[Row]:
        if self._is_frame:
            # Nobody would look for the error in the rows of a DataFrame.
            raise error
        blob = encode_error(error)
        yield from ((target, None, 0, blob) for target in range(max(1, self.part.targets)))

    def _most_waiting(self) -> int:
        return int(WAITING_SHARE * self._memory())

    def _memory(self) -> int:
        """The bytes that this task may use."""
        share = machine_limit() // max(1, self.part.settings["tasks_per_machine"])
        limit = self.part.settings["memory_limit"]
        return share if limit is None else min(share, limit)

    def _shards(self, box: Mailbox) -> Iterator[Row]:
        """Runs each shard of the task: its own number, or those that have rows."""
        shards = set(box.shards()) | (set() if self.part.several else {self.number})
        for shard in sorted(shards):
            if self.part.one_copy and shard != 0:
                continue

            for _, blob in box.of(shard, UNITS):
                self.units = json.loads(bytes(blob))

            def data(run: Run, execution: Execution, shard: int = shard) -> dict[int, Dataset | Flow]:
                found: dict[int, Dataset | Flow] = {}
                for entry in self.part.entries:
                    step = self.program.steps[entry.name]
                    found[id(step)] = Flow(self._dataset(entry, step, shard, box, run, execution), step.schema)
                return found

            yield from self._leave(shard, data, box)

    def _run(self, entering_bytes: int) -> Run:
        part = self.part
        settings = {k: v for k, v in part.settings.items() if k != "tasks_per_machine"}
        if settings["memory_limit"] is None and entering_bytes > self._most_waiting():
            # So much input may become more than memory holds: the steps of the part spill.
            settings["memory_limit"] = self._memory()
        parameters = {name: decode_value(value) for name, value in part.parameters.items()}
        run = Run(
            settings=Settings(**settings, threads=self.threads), parameters=parameters, wall_clock=part.wall_clock
        )
        run.profile = part.profile
        return run

    def _dataset(self, entry: Entry, step: Step, shard: int, box: Mailbox, run: Run, execution: Execution) -> Dataset:
        if entry.kind == "read":
            return self._read(entry, step, run)
        if entry.name in self.shared:
            letters = list(enumerate(_value(self.shared[entry.name])))
        else:
            letters = box.of(shard, entry.name)
        return self._opened(entry, step, letters, run, execution)

    def _opened(self, entry: Entry, step: Step, letters: list[Letter], run: Run, execution: Execution) -> Dataset:
        if entry.kind == "chunks":
            return _chunk_data(step, letters, run)
        if entry.kind == "table":
            return BatchData(
                step.schema,
                entry.facts,
                lambda: ((place, batch) for place, blob in letters for batch in decode_batches(blob)),
                run,
            )
        assert entry.description is not None
        if entry.kind == "kept":
            names = entry.description["columns"]
            return BatchData(
                step.schema,
                entry.facts,
                lambda: (
                    (self.number, batch) for _, blob in letters for batch in chosen(blob, names, step.schema.names)
                ),
                run,
            )
        splits = [split_of(one) for one in entry.splits or ()]
        splits += [split_of(one) for _, blob in letters for one in json.loads(bytes(blob))]
        description = with_files(entry.description, splits) if entry.some else entry.description
        source = source_of(self.part.run, description, entry.files)
        _check_columns(entry, step, source)
        return SplitData(
            source,
            step.schema.names,
            splits,
            entry.facts,
            1 if entry.is_one else self.threads,
            run.settings.batch_rows,
            execution.shared,
            entry.late,
            step.where if isinstance(step, Input) else None,
        )

    def _read(self, entry: Entry, step: Step, run: Run) -> Dataset:
        """Rows that one worker of the executor computes for all tasks of the run."""

        def compute() -> tuple[list[Chunk], tally.Told]:
            mine = Run(settings=run.settings, parameters=run.parameters, wall_clock=run.wall_clock, profile=run.profile)
            execution = Execution(mine, self.program.kernels_for(("read", entry.name), run.settings), inputs={}, task=0)
            try:
                for below in entry.below:
                    source = self.program.steps[below.name]
                    data = self._opened(below, source, _blobs_of(below, self.shared), mine, execution)
                    execution.inputs[id(source)] = Flow(data, source.schema)
                with self.program.plan.deep():
                    lists = execution.chunks(step.inputs[0], 1)
                execution.tell()
                # Spilled rows are gone when the execution is closed.
                chunks = [
                    chunk if isinstance(chunk, Chunk) else Chunk(chunk.order, chunk.rows, list(chunk.arrays))
                    for one in lists
                    for chunk in one
                ]
            finally:
                execution.close(improves=False)
            # Each worker takes its time for them; what it counts is the same everywhere.
            run.steps |= mine.steps
            run.choices |= mine.choices
            return chunks, tally.counted(mine, step.inputs[0], [below.name for below in entry.below])

        columns = chunk_columns(step.schema)
        rows = shared_rows(self.part, entry.name, len(columns), compute)
        self.reads[entry.name] = rows.told
        return ChunkData(columns, [rows.chunks], run.settings.batch_rows)

    def _leave(
        self,
        shard: int,
        data: Callable[[Run, Execution], dict[int, Dataset | Flow]],
        box: Mailbox | None = None,
    ) -> Iterator[Row]:
        """Run the part for a shard, and send its rows on. box: all that the task has received."""
        begun = time.perf_counter()
        # Other shards of the task hold memory too; the tally of each has its own bytes.
        run = self._run(0 if box is None or self.units is not None else box.bytes)
        part = self.part
        end = (
            part.top,
            part.movement,
            part.output is None,
            part.most,
            part.sample,
            json.dumps([part.ranges, part.heavy, part.sampled]),
        )
        execution = Execution(run, self.program.kernels_for(end, run.settings), inputs={}, task=shard)
        left = 0
        try:
            execution.inputs.update(data(run, execution))
            for row in self._rows(shard, execution):
                left += len(row[3])
                yield row
        finally:
            execution.close(improves=False)
        mine = tally.counted(run, self.program.steps[part.top], [entry.name for entry in part.entries])
        ms = (time.perf_counter() - begun) * 1000
        entered = 0 if box is None else box.bytes_of[shard]
        # All waves of a sample are one stage.
        number = shard if self.units is None else self.units["first"]
        told = tally.of(part, number, run, mine, self.reads, ms, entered, left)
        if told is not None and not self._is_frame:
            yield 0, None, 0, told

    @property
    def _is_frame(self) -> bool:
        """Whether rows leave as columns of a DataFrame, which has no room for anything else."""
        return self.part.targets == 0

    def _rows(self, shard: int, execution: Execution) -> Iterator[Row]:
        """The rows of a part as they leave: batches of the result, or blobs for other shards."""
        part, plan = self.part, self.program.plan
        top = self.program.steps[part.top]
        if self.units is not None:
            yield from sampled_groups(part, self.program, self.units, execution)
            return
        if part.most is not None:
            top = self.program.gathered(top, part.most)
        if part.output is not None:
            if part.most is None:
                top = self.program.gathered(top)
            with plan.deep():
                yield from self._result(shard, execution, PhysicalPlan(top, *part.output, shards=plan.shards))
            execution.tell()
            return
        movement = None if part.movement is None else self.program.steps[part.movement]
        if part.sample is not None:
            yield from self._sample(shard, execution, top, part.sample)
            return
        if isinstance(movement, Redistribute) and part.heavy:
            yield from self._unevenly(shard, execution, movement)
            return
        if isinstance(movement, Arrange):
            movement = self.program.directed(movement, part.ranges or [], part.targets)
        with plan.deep():
            lists = execution.chunks(
                movement if isinstance(movement, Redistribute | Multicast) else top, max(plan.shards, self.threads)
            )
        execution.tell()
        yield from _sent(part, movement, lists, shard)

    def _sample(self, shard: int, execution: Execution, top: Step, rows: int) -> Iterator[Row]:
        """The keys of some rows."""
        names = self.part.keys or []
        types = [top.schema[name].type for name in names]
        with self.program.plan.deep():
            lists = execution.chunks(self.program.keys_of(top, names), self.program.plan.shards)
        found = sampled((chunk for one in lists for chunk in one), range(len(types)), types, rows)
        yield 0, self.part.movement, shard, json.dumps({"sample": encode_boundaries(found)}).encode()

    def _unevenly(self, shard: int, execution: Execution, movement: Redistribute) -> Iterator[Row]:
        """Rows in the shards of their keys, except for those of heavy keys."""
        part, plan = self.part, self.program.plan
        light, heavy = self.program.light_and_heavy(movement, part.keys or [], part.heavy or [])
        (below,) = movement.inputs
        with plan.deep():
            rows = execution.collected(below, plan.shards)
            # Both steps read these rows: what they were computed from is used up.
            execution.done.pop(id(below), None)
            execution.inputs[id(below)] = rows
            lists = execution.chunks(light, plan.shards)
            others = [chunk for one in execution.chunks(heavy, plan.shards) for chunk in one]
        execution.tell()
        place = shard << 32
        for row in _sent(part, movement, lists, shard):
            place = row[2] + 1
            yield row
        for number, blob in enumerate(encode_chunks(others)):
            targets = [(shard + number) % part.targets] if movement.heavy == "split" else range(part.targets)
            yield from ((target, part.movement, place, blob) for target in targets)
            place += 1

    def _result(self, shard: int, execution: Execution, plan: PhysicalPlan) -> Iterator[Row]:
        place = shard << 32
        if self.part.sink is not None:
            for file in write_part(self.part.sink, shard, execution.batches(plan)):
                yield 0, self.part.top, place, json.dumps(asdict(file)).encode()
            return
        if self._is_frame:
            for batch in execution.batches(plan):
                yield shard, None, place, for_spark(batch)
            return
        for blob in encode_batches(execution.batches(plan), RESULT_BYTES):
            yield 0, self.part.top, place, blob
            place += 1


def _sent(part: StagePart, movement: Step | None, lists: list[list[Chunk]], shard: int) -> Iterator[Row]:
    """The collected rows as rows of the wire."""
    name, place = part.movement or part.top, shard << 32
    if isinstance(movement, Broadcast) and part.targets > 1:
        for blob in encode_chunks([chunk for one in lists for chunk in one]):
            yield from ((target, name, place, blob) for target in range(part.targets))
            place += 1
        return
    for target, chunks in _targets(movement, lists, max(1, part.targets), shard):
        for blob in encode_chunks(chunks):
            yield target, name, place, blob
            place += 1


def _targets(
    movement: Step | None, lists: list[list[Chunk]], targets: int, shard: int
) -> Iterator[tuple[int, list[Chunk]]]:
    """(shard, chunks) pairs."""
    if isinstance(movement, Redistribute | Multicast):
        yield from enumerate(lists)
        return
    everything = [chunk for one in lists for chunk in one]
    if not isinstance(movement, Reshard):
        yield shard % targets, everything
        return
    # Whole batches in turn. Each task starts at another shard, so that single batches do not all go to the first.
    for target in range(targets):
        yield target, everything[(target - shard) % targets :: targets]


def _value(shared: Any) -> list[Any]:
    """Blobs that came with the task, or in a broadcast of Spark."""
    return shared if isinstance(shared, list) else shared.value


def _blobs_of(entry: Entry, shared: dict[str, Any]) -> list[Letter]:
    key = whole(entry.name)
    return list(enumerate(_value(shared[key]))) if key in shared else []


def _chunk_data(step: Step, letters: list[Letter], run: Run) -> ChunkData:
    columns = chunk_columns(step.schema)
    chunks = [chunk for place, blob in letters for chunk in decode_chunks(blob, len(columns), place)]
    return ChunkData(columns, [chunks], run.settings.batch_rows)


def _check_columns(entry: Entry, step: Step, source: Any) -> None:
    """Files that other machines see under the same names may be others."""
    for name in step.schema.names:
        if name not in source.schema or source.schema[name].type != step.schema[name].type:
            assert entry.description is not None
            raise SourceError(
                f"{', '.join(entry.description['paths'])}: column {name} is not what it was when the query "
                "was planned: the files have changed, or this machine has others"
            )


def _normal(batch: pa.RecordBatch, step: Step) -> pa.RecordBatch:
    """A batch of Spark's in the engine's types."""
    if not len(step.schema):
        return batch
    try:
        columns = [
            normalize(column, f.type)[0] if len(column) else pa.nulls(0, f.type.to_arrow())
            for column, f in zip(batch.columns, step.schema, strict=True)
        ]
    except pa.ArrowInvalid as error:
        raise SourceError(f"{step.name}: {error}") from error
    return pa.RecordBatch.from_arrays(columns, list(step.schema.names))
