"""What runs in the tasks of a micro-batch. Intake: rows as they come → rows in shards, without those that are late.
Live: rows of a shard → what its live query gives, in the shards of the next part, and the shard's next state.

    intake task ──rows, watermarks──▶ live task of shard 0 ──rows, promises──▶ .. ──▶ driver
                └──────────────────▶ live task of shard 1 ──────────────────▶ .. ─┘

Everything is a row of the wire. What tells of the run has no input: an error, a state, what was counted. It travels to
the driver through all parts on the way, so that what counts is what the attempt gave whose rows were read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from tsql.backends import Run, Settings
from tsql.backends.io.open import from_description
from tsql.backends.live.arrivals import Batches, stored_time
from tsql.backends.live.fragments import Engine, Rows, given, graft
from tsql.backends.live.operator import Pass
from tsql.backends.spark.failures import placed
from tsql.backends.spark.kept import LoadedPart, program_of, settle
from tsql.backends.spark.splits import split_of
from tsql.backends.spark.streaming.arriving import Arriving, schema_of
from tsql.backends.spark.streaming.marks import Check, StreamMarks, progress_of, progress_to_json, watermark_of
from tsql.backends.spark.streaming.part_query import Outlet, PartQuery, Sent
from tsql.backends.spark.streaming.place import Border
from tsql.backends.spark.streaming.spec import (
    AHEAD,
    LATE,
    MARKS,
    PROGRESS,
    IntakeSpec,
    LiveSpec,
    Program,
    StreamSpec,
    decoded,
)
from tsql.backends.spark.streaming.warm import put, taken
from tsql.backends.spark.wire import (
    Row,
    decode_batches,
    decode_chunks,
    decode_value,
    encode_batches,
    encode_chunks,
    encode_error,
)
from tsql.kernels.expr.errors import TsqlError
from tsql.planner.physical.progress import Progress, least
from tsql.planner.physical.step import Step, through

INTAKE_ROWS = 1 << 20
"""Rows that an intake task gathers before it passes them on."""

BATCH_SHIFT, TASK_SHIFT = 42, 30
"""Rows are numbered by batch, task and place: `first` and `last` compare rows of different batches."""


def run_partition(sent: Any, broadcasts: dict[str, Any], number: int, items: Any) -> Any:
    """The function of a task. sent: the work, the rows of each task, and nothing else, perhaps in a broadcast."""
    settle()
    text, rows_of, _ = sent if isinstance(sent, tuple) else sent.value
    spec, context = decoded(text), TaskContext.get()
    threads = 1 if context is None else context.cpus()
    mine: list[Row] = rows_of.get(number, [])
    if isinstance(spec, IntakeSpec):
        where = f"the intake of micro-batch {spec.batch} (task {number})"
        return placed(where, Intake(spec, number, threads).run(mine, items))
    where = f"part {spec.part} of micro-batch {spec.batch} (shard {number})"
    return placed(where, Live(spec, number, threads).run(_flat(items)))


def _flat(items: Iterable[Any]) -> Iterator[Row]:
    """Rows that came from other tasks one by one, or from the driver in lists."""
    for item in items:
        yield from item if isinstance(item, list) else (item,)


def new_run(program: Program, threads: int) -> Run:
    """The run of a task."""
    parameters = {name: decode_value(value) for name, value in program.parameters.items()}
    return Run(
        settings=Settings(**program.settings, threads=threads), parameters=parameters, wall_clock=program.wall_clock
    )


def told(**about: Any) -> Row:
    """A row that tells the driver something."""
    return 0, None, 0, json.dumps(about).encode()


def failed(error: TsqlError, targets: int) -> Iterator[Row]:
    """An error of the query, for all shards."""
    blob = encode_error(error)
    yield from ((target, None, 0, blob) for target in range(max(1, targets)))


class Intake:
    """One intake task."""

    def __init__(self, spec: IntakeSpec, number: int, threads: int):
        self.spec, self.number = spec, number
        self.program: LoadedPart = program_of(spec.program)
        self.run_handle = new_run(spec.program, threads)
        self.engine = Engine(1, self.run_handle)
        self.engine.next_position = (spec.batch << BATCH_SHIFT) + (number << TASK_SHIFT)
        self.outlets = [(name, *self._outlet(name, targets)) for name, targets in spec.parts]
        self.place = number << 32

    def _outlet(self, name: str, targets: int) -> tuple[Outlet, dict[str, Step]]:
        movement = self.program.steps[name]
        assert isinstance(movement, Border)
        (top,) = movement.inputs
        leaves = {step.name: step for step in top.walk() if not step.inputs}
        inputs: dict[int, Step] = {id(step): given(name, step.schema) for name, step in leaves.items()}
        return Outlet(self.engine, graft(top, inputs, 1), movement, targets, self.number), leaves

    def run(self, mine: list[Row], items: Iterable[Any]) -> Iterator[Row]:
        """The rows that leave."""
        try:
            if self.spec.tables:
                yield from self._of_tables(mine, items)
            else:
                yield from self._of_streams(items)
        except TsqlError as error:
            yield from failed(error, self.spec.users)

    def _of_streams(self, items: Iterable[pa.RecordBatch]) -> Iterator[Row]:
        spec = self.spec
        streams = [(one, Arriving(one), self._check(one)) for one in spec.streams]
        waiting: dict[str, list[pa.RecordBatch]] = {one.name: [] for one in spec.streams}
        rows = 0
        for batch in items:
            for stream, arriving, check in streams:
                for found, partition in arriving.of(batch):
                    kept = check.passed(found, partition)
                    waiting[stream.name].append(kept)
                    rows += kept.num_rows
                    if rows >= INTAKE_ROWS:
                        yield from self._passed_on(spec.streams, waiting)
                        rows = 0
        yield from self._passed_on(spec.streams, waiting)
        marks = json.dumps({stream.name: check.marks() for stream, _, check in streams}).encode()
        yield from ((target, MARKS, self.number, marks) for target in range(spec.users))
        for stream, arriving, check in streams:
            for blob in encode_batches(check.late):
                yield 0, f"{LATE}{spec.parts[0][0]}\0{stream.name}", self._next_place(), blob
            counts = {**check.told(), "marks": check.marks(), "left_out": sum(arriving.notices.left_out.values())}
            notes = list(arriving.notices.texts)
            yield told(stream=stream.name, task=self.number, parts=spec.parts[0][0], counts=counts, notes=notes)

    def _check(self, stream: StreamSpec) -> Check:
        before = StreamMarks.from_json(self.spec.marks[stream.name])
        return Check(watermark_of(stream.watermark, schema_of(stream.schema)), before)

    def _passed_on(self, streams: list[StreamSpec], waiting: dict[str, list[pa.RecordBatch]]) -> Iterator[Row]:
        for stream in streams:
            batches, waiting[stream.name] = [b for b in waiting[stream.name] if b.num_rows], []
            if batches:
                rows = pa.Table.from_batches(batches)
                for scan in stream.scans:
                    yield from self._given(scan, rows)

    def _given(self, scan: str, rows: pa.Table) -> Iterator[Row]:
        """What the parts make of rows of a scan."""
        for name, outlet, leaves in self.outlets:
            if scan in leaves:
                yield from self._sent(name, outlet.sent({scan: Batches(rows, leaves[scan], self.engine)}))

    def _sent(self, name: str, chunks: Iterator[Sent]) -> Iterator[Row]:
        for shard, chunk in chunks:
            for blob in encode_chunks([chunk]):
                yield shard, name, self._next_place(), blob

    def _next_place(self) -> int:
        self.place += 1
        return self.place

    def _of_tables(self, mine: list[Row], items: Iterable[Any]) -> Iterator[Row]:
        """The rows of tables: splits that the task reads, batches that came with it, or those of a DataFrame."""
        if self.spec.frame_of is not None:
            for batch in items:
                yield from self._given(self.spec.frame_of, pa.table(batch))
            return
        for _, scan, _, blob in chain(mine, _flat(items)):
            assert scan is not None
            description = self.spec.tables[scan].get("description")
            if description is None:
                batches = list(decode_batches(blob))
            else:
                source = from_description(description)
                names = self.program.steps[scan].schema.names
                splits = [split_of(one) for one in json.loads(bytes(blob))]
                batches = [batch for split in splits for batch in source.read(split, names)]
            if batches:
                table = pa.Table.from_batches([_plain(batch) for batch in batches])
                yield from self._given(scan, table)


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch without dictionaries, so that batches have one schema."""
    columns = [c.dictionary_decode() if isinstance(c, pa.DictionaryArray) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


class Live:
    """One task of a part that holds rows."""

    def __init__(self, spec: LiveSpec, shard: int, threads: int):
        self.spec, self.shard, self.threads = spec, shard, threads
        self.program: LoadedPart = program_of(spec.program)
        movement = self.program.steps[spec.part]
        assert isinstance(movement, Border)
        self.movement = movement
        self.entries = entries_of(movement.inputs[0])
        self.place = shard << 32

    def run(self, rows: Iterator[Row]) -> Iterator[Row]:
        """The rows that leave."""
        letters: dict[str, list[tuple[int, Any]]] = {}
        failure: Row | None = None
        for target, name, place, blob in rows:
            if name is None:
                if b'"error"' in bytes(blob[:16]):
                    failure = failure or (target, name, place, blob)
                else:
                    yield 0, None, place, blob
            elif name.startswith(LATE):
                yield 0, name, place, blob
            else:
                letters.setdefault(name, []).append((place, blob))
        if failure is not None:
            yield from ((target, None, 0, failure[3]) for target in range(self.spec.targets))
            return
        try:
            yield from self._advanced(letters)
        except TsqlError as error:
            yield from failed(error, self.spec.targets)

    def _query(self) -> PartQuery:
        return PartQuery(
            self.movement.inputs[0],
            self.entries,
            new_run(self.spec.program, self.threads),
            outlet=(self.movement, self.spec.targets),
            shard=self.shard,
        )

    def _advanced(self, letters: dict[str, list[tuple[int, Any]]]) -> Iterator[Row]:
        spec, begun = self.spec, time.perf_counter()
        state = spec.states.get(str(self.shard))
        job = spec.program.job
        warm, was_warm = taken(job, spec.part, self.shard, state, spec.folder, self._query)
        query = warm.query
        promises, further = self._promises(letters)
        yield from self._sent("", query.pass_on(self._rows(letters, ""), promises))
        yield from self._promised(PROGRESS, query.promise())
        new = warm.written.write(query, spec.folder, spec.sync)
        if spec.look is not None:
            before = query._save()
            yield from self._sent(AHEAD, query.pass_on(self._rows(letters, AHEAD), further))
            yield from self._promised(PROGRESS + AHEAD, query.promise())
            query._put_back(before)
        warm.token = new["token"]
        put(job, spec.part, self.shard, warm)
        yield told(
            state=new,
            part=spec.part,
            shard=self.shard,
            warm=was_warm,
            ms=(time.perf_counter() - begun) * 1000,
            held=held_of(query),
            notes=query.engine.run.notes,
        )

    def _rows(self, letters: dict[str, list[tuple[int, Any]]], kind: str) -> dict[str, Rows]:
        found = {}
        for entry in self.entries:
            blobs = sorted(letters.get(entry.name + kind, ()), key=lambda letter: letter[0])
            columns = len(entry.schema)
            found[entry.name] = [c for place, blob in blobs for c in decode_chunks(blob, columns, place)]
        return found

    def _sent(self, kind: str, chunks: list[Sent]) -> Iterator[Row]:
        if self.spec.one_copy and self.shard:
            return
        for target, chunk in chunks:
            for blob in encode_chunks([chunk]):
                self.place += 1
                yield target, self.spec.part + kind, self.place, blob

    def _promised(self, kind: str, progress: Progress) -> Iterator[Row]:
        blob = json.dumps(progress_to_json(progress)).encode()
        yield from ((target, self.spec.part + kind, self.shard, blob) for target in range(self.spec.targets))

    def _promises(self, letters: dict[str, list[tuple[int, Any]]]) -> tuple[dict[str, Progress], dict[str, Progress]]:
        """What is promised of each entry, and what is promised further where rows are shown that are not final."""
        spec = self.spec
        marks = [json.loads(bytes(blob)) for _, blob in letters.get(MARKS, ())]
        streams = {name: StreamMarks.from_json(one) for name, one in spec.marks.items()}
        after = {name: one.after(told.get(name, {}) for told in marks) for name, one in streams.items()}
        now: dict[str, Progress] = {}
        then: dict[str, Progress] = {}
        for entry in self.entries:
            if entry.name in spec.intakes:
                now[entry.name] = intake_progress(entry, spec.intakes[entry.name], after)
                then[entry.name] = intake_progress(entry, spec.intakes[entry.name], after, spec.look)
            else:
                now[entry.name] = self._sender(letters, entry.name, PROGRESS)
                then[entry.name] = now[entry.name]
                if spec.look is not None:
                    then[entry.name] = self._sender(letters, entry.name, PROGRESS + AHEAD)
        return now, then

    def _sender(self, letters: dict[str, list[tuple[int, Any]]], name: str, kind: str) -> Progress:
        return of_senders([blob for _, blob in letters.get(name + kind, ())], self.spec.senders[name])


def of_senders(blobs: list[Any], shards: int) -> Progress:
    """What all shards of a sender promise together."""
    if len(blobs) < shards:
        raise RuntimeError(f"{len(blobs)} of {shards} shards have told their progress")
    return least([progress_of(json.loads(bytes(blob))) for blob in blobs])


def entries_of(top: Step) -> list[Border]:
    """The movements whose rows a part takes."""
    found: dict[int, Border] = {}
    stack, seen = [top], set()
    while stack:
        step = stack.pop()
        if id(step) in seen:
            continue
        seen.add(id(step))
        if isinstance(step, Border):
            found[id(step)] = step
        else:
            stack.extend(reversed(step.inputs))
    return list(found.values())


def intake_progress(
    movement: Step, scans: dict[str, str], streams: dict[str, StreamMarks], look: str | None = None
) -> Progress:
    """What is promised of the rows of an intake part. scans: the stream and the time column of each scan, as
    "stream\\0column"; scans of tables, which have ended, are not in it."""

    def known(step: Step) -> Progress | None:
        if step.inputs:
            return None
        if step.name not in scans:
            return Progress(ended=True)
        stream, _, column = scans[step.name].partition("\0")
        marks = streams[stream]
        if marks.ended or look == "now":
            return Progress(ended=True)
        time_us = marks.promise if look is None else (None if marks.promise is None else marks.current)
        return _of_time(step, column, time_us)

    return through(movement.inputs[0], known)


def _of_time(step: Step, column: str, time_us: int | None) -> Progress:
    if time_us is None or not column or column not in step.schema:
        return Progress()
    return Progress({column: stored_time(time_us, step.schema[column].type)})


def held_of(query: Any) -> dict[str, list[Any]]:
    """What each step holds: rows, bytes, why, the bounds of what it promises, whether it has ended."""
    found = {}
    for node in query.nodes.values():
        if node.operator is not None and not isinstance(node.operator, Pass):
            chunks = [chunk for held in node.operator.tables().values() for chunk in held.rows]
            bytes = sum(array.nbytes for chunk in chunks for array in chunk.arrays)
            rows = sum(chunk.rows for chunk in chunks)
            found[node.name] = [rows, bytes, node.operator.why, node.progress.bounds, node.progress.ended]
    return found
