"""What runs in a Spark task: wire rows in, a part of the plan run by a local execution, wire rows out.

Executors import this module and get everything else as plain data (`StagePart`, in JSON): the plan's text, the names of
the steps at the part's boundaries, parameters and settings. A plan is parsed and compiled once per Python worker. A
query error is a result: it is sent as a row and raised on the driver, since a retry of the task would fail the same
way."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import asdict, field
from typing import Any

import pyarrow as pa

from tsql.backends import Run, Settings
from tsql.backends.io import Source, Split, tell_lost
from tsql.backends.io.normalize import normalize
from tsql.backends.io.open import from_description
from tsql.backends.local.run.dataset import ChunkData, Dataset
from tsql.backends.local.run.entry import BatchData, chunk_columns
from tsql.backends.local.run.execution import Execution
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk
from tsql.backends.local.run.kernels import Kernels
from tsql.backends.spark.wire import (
    Row,
    decode_batches,
    decode_chunks,
    decode_error,
    decode_value,
    encode_chunks,
    encode_error,
    expression_nodes,
    for_spark,
    wire_batch,
    wire_rows,
)
from tsql.kernels.expr.errors import SourceError, TsqlError
from tsql.kernels.expr.types import parse_type
from tsql.kernels.process import forks
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.movement import Multicast, Redistribute, Reshard
from tsql.planner.physical.planfile import parse_plan
from tsql.planner.physical.step import PhysicalPlan, Step

KEPT_PLANS = 64
KEPT_SOURCES = 16


@dataclass(frozen=True)
class Entry:
    """Where rows enter a part. kind: "chunks": blobs of collected rows; "table": blobs of a table in memory; "splits":
    lists of splits of the source that `description` describes. `facts` are (nullable, bounds) of each column."""

    name: str
    kind: str
    description: dict[str, Any] | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StagePart:
    """One part of a plan, as it goes to the tasks."""

    text: str
    top: str
    movement: str | None
    """The step that says where the rows of `top` go. None: they stay in their shard (of `targets`)."""

    targets: int
    entries: list[Entry]
    run: str
    """Identifies the run: files are opened anew for each."""

    positions: list[int | None]
    parameters: dict[str, Any]
    parameter_types: dict[str, str]
    settings: dict[str, Any]
    wall_clock: float
    one_copy: bool = False
    """The rows are the same on every shard: only those of shard 0 are sent."""

    output: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    """(columns, names) of the result, if rows are sent as columns and not as blobs."""

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def decode(text: str) -> StagePart:
        data = json.loads(text)
        entries = [Entry(**entry) for entry in data.pop("entries")]
        output = data.pop("output")
        return StagePart(
            entries=entries, output=None if output is None else (tuple(output[0]), tuple(output[1])), **data
        )


@dataclass
class LoadedPart:
    """A parsed plan with its steps by name and its compiled kernels."""

    plan: PhysicalPlan
    steps: dict[str, Step]
    kernels: Kernels = field(default_factory=Kernels)


_programs: OrderedDict[Any, LoadedPart] = OrderedDict()
_sources: OrderedDict[Any, Source] = OrderedDict()
_lock = forks.lock()


def _kept(cache: OrderedDict[Any, Any], key: Any, most: int, make: Callable[[], Any]) -> Any:
    with _lock:
        if key not in cache:
            cache[key] = make()
            while len(cache) > most:
                cache.popitem(last=False)
        cache.move_to_end(key)
        return cache[key]


def program_of(part: StagePart) -> LoadedPart:
    """The program of a part's plan; made once per worker."""
    key = (part.text, tuple(part.positions), tuple(part.parameter_types.items()))
    return _kept(_programs, key, KEPT_PLANS, lambda: _parse(part))


def _parse(part: StagePart) -> LoadedPart:
    plan = parse_plan(part.text, None, {name: parse_type(text) for name, text in part.parameter_types.items()})
    nodes = list(expression_nodes(plan.root))
    if len(nodes) == len(part.positions):
        # Positions refer to the query's text, not the plan's. Nobody else has seen these nodes yet.
        for node, position in zip(nodes, part.positions, strict=True):
            object.__setattr__(node, "position", position)
    return LoadedPart(plan, {step.name: step for step in plan.root.walk()})


def run_part(
    text: str, broadcasts: dict[str, Any], tallies: Any, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The function of a stage. Every shard of which the task has rows is run separately."""
    part = StagePart.decode(text)
    shards: dict[int, list[Row]] = {}
    failure: TsqlError | None = None
    for batch in batches:
        for row in wire_rows(batch):
            if row[1] is None:
                failure = failure or decode_error(row[3])
            shards.setdefault(row[0], []).append(row)
    for shard in sorted(shards):
        if failure is None:
            try:
                yield from _shard(part, shard, shards[shard], broadcasts, tallies)
                continue
            except TsqlError as error:
                failure = error
        if part.output is not None:
            raise failure
        yield from (wire_batch((target, None, 0, encode_error(failure))) for target in range(part.targets))


def run_frame(text: str, tallies: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function of a stage over a DataFrame that is read directly: each Spark partition is a shard."""
    from pyspark import TaskContext

    part = StagePart.decode(text)
    shard = TaskContext.get().partitionId()
    entry = part.entries[0]
    program = program_of(part)
    step = program.steps[entry.name]
    run = _run_of(part)

    def rows() -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in batches:
            yield shard, _normal(batch, step)

    data = BatchData(step.schema, entry.facts, rows, run)
    try:
        yield from _leave(part, shard, program, run, {id(step): Flow(data, step.schema)})
        _tell(part, shard, run, tallies)
    except TsqlError as error:
        if part.output is not None:
            raise
        yield from (wire_batch((target, None, 0, encode_error(error))) for target in range(part.targets))


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


def _shard(
    part: StagePart, shard: int, rows: list[Row], broadcasts: dict[str, Any], tallies: Any
) -> Iterator[pa.RecordBatch]:
    program, run = program_of(part), _run_of(part)
    inputs: dict[int, Dataset | Flow] = {}
    for entry in part.entries:
        step = program.steps[entry.name]
        if entry.name in broadcasts:
            mine = list(enumerate(broadcasts[entry.name].value))
        else:
            mine = sorted(
                ((place, blob) for _, name, place, blob in rows if name == entry.name), key=lambda one: one[0]
            )
        inputs[id(step)] = Flow(_dataset(part, entry, step, mine, run), step.schema)
    yield from _leave(part, shard, program, run, inputs)
    _tell(part, shard, run, tallies)


def _tell(part: StagePart, shard: int, run: Run, tallies: Any) -> None:
    """Send the task's counts to the driver."""
    if run.counts or run.notes:
        tallies.add({(f"{part.top} {part.movement}", shard): (run.counts, run.notes)})


def _run_of(part: StagePart) -> Run:
    parameters = {name: decode_value(value) for name, value in part.parameters.items()}
    return Run(settings=Settings(**part.settings), parameters=parameters, wall_clock=part.wall_clock)


def _dataset(part: StagePart, entry: Entry, step: Step, blobs: list[tuple[int, Any]], run: Run) -> Dataset:
    if entry.kind == "chunks":
        columns = chunk_columns(step.schema)
        chunks = [chunk for place, blob in blobs for chunk in decode_chunks(blob, len(columns), place)]
        return ChunkData(columns, [chunks], run.settings.batch_rows)
    if entry.kind == "table":
        return BatchData(
            step.schema,
            entry.facts,
            lambda: ((place, batch) for place, blob in blobs for batch in decode_batches(blob)),
            run,
        )
    source = _kept(
        _sources,
        (part.run, json.dumps(entry.description, sort_keys=True)),
        KEPT_SOURCES,
        lambda: from_description(entry.description),
    )
    names = step.schema.names
    for name in names:
        if name not in source.schema or source.schema[name].type != step.schema[name].type:
            raise SourceError(
                f"{', '.join(entry.description['paths'])}: column {name} is not what it was when the query "
                "was planned: the files have changed, or this machine has others"
            )
    splits = [Split(*one) for _, blob in blobs for one in json.loads(bytes(blob))]

    def read() -> Iterator[tuple[int, pa.RecordBatch]]:
        for split in splits:
            yield from ((split.order, batch) for batch in source.read(split, names))
        tell_lost(source, names, run)

    return BatchData(step.schema, entry.facts, read, run)


def _leave(
    part: StagePart, shard: int, program: LoadedPart, run: Run, inputs: dict[int, Dataset | Flow]
) -> Iterator[pa.RecordBatch]:
    """Run the part and send its rows on."""
    if part.one_copy and shard != 0:
        return
    execution = Execution(run, program.kernels, inputs=inputs, task=shard)
    try:
        yield from _rows(part, shard, program, execution)
    finally:
        execution.close(improves=False)


def _rows(part: StagePart, shard: int, program: LoadedPart, execution: Execution) -> Iterator[pa.RecordBatch]:
    """The rows of a part as they leave: batches of the result, or blobs for other shards."""
    top = program.steps[part.top]
    if part.output is not None:
        with program.plan.deep():
            yield from map(for_spark, execution.batches(PhysicalPlan(top, *part.output, shards=program.plan.shards)))
        execution.tell()
        return
    movement = None if part.movement is None else program.steps[part.movement]
    with program.plan.deep():
        lists = execution.chunks(
            movement if isinstance(movement, Redistribute | Multicast) else top, program.plan.shards
        )
    execution.tell()
    place = shard << 32
    for target, chunks in _targets(movement, lists, part.targets, shard):
        for blob in encode_chunks(chunks):
            yield wire_batch((target, part.movement or part.top, place, blob))
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
