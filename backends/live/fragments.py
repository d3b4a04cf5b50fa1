"""`Fragment`: a part of a plan that runs repeatedly over held rows, with inputs in place of the steps below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

import pyarrow as pa

from tsql.backends import Run
from tsql.backends.live.held_files import is_in_file
from tsql.backends.local.lower.lower import dependent
from tsql.backends.local.run.dataset import ChunkData, Part
from tsql.backends.local.run.entry import chunk_columns
from tsql.backends.local.run.execution import Execution
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk
from tsql.backends.local.run.kernels import Kernels
from tsql.backends.local.run.spill import AnyChunk
from tsql.kernels.emit.batch import RecordWriter
from tsql.kernels.emit.pipeline import ColumnarScan
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.enforce import enforce
from tsql.planner.physical.movement import Gather, Movement, Rekey
from tsql.planner.physical.operators.input import Input
from tsql.planner.physical.step import PhysicalPlan, Step

SPREAD_ROWS = 50_000
"""Fewer rows than this are not spread over several shards."""

FEW_ROWS = 200_000
"""Up to this many rows a fragment runs in one shard: to hand rows from thread to thread takes longer than two threads
gain."""

MANY_CHUNKS = 64
"""From this many chunks on, held rows are concatenated."""

LEAST_BYTES = 16 << 20
"""The least memory of a fragment, however much is held."""

Rows = list[Chunk]


class ArrivedRows:
    """Rows from a scan, before any kernel has processed them."""

    rows: int
    is_small = True
    """Whether they may be read in one shard where there are few of them."""

    @property
    def bytes(self) -> int:
        """What they take in memory, if they are there."""
        return 0

    def whole(self, step: Input, engine: Engine) -> Part | None:
        """The rows as one part, if they can be read as one."""
        return None

    def flow(self, step: Input, engine: Engine, execution: Execution, shards: int) -> Flow:
        """The rows as the input of a fragment in an execution, in at most so many shards."""
        raise NotImplementedError


Given = Rows | ArrivedRows


@dataclass
class PlainRows:
    """Batches whose columns need no conversion: their schema, the places of the columns that are needed (None: all),
    what writes their records, and their layout once rows were read."""

    schema: pa.Schema
    places: list[int] | None
    writer: RecordWriter | None
    source: ColumnarScan | None = None


@dataclass
class Engine:
    """Shared by all fragments of a live query. interpret: use the interpreter instead of LLVM."""

    shards: int
    run: Run
    interpret: bool = False
    held_bytes: int = 0
    """Bytes held by the operators of the query. Fragments get the rest of memory_limit."""
    layouts: dict[str, Any] = field(default_factory=dict)
    """The layouts of rows that have arrived, by scan and Arrow types."""
    plain: dict[str, PlainRows] = field(default_factory=dict)
    """What is known of batches whose columns need no conversion, by scan."""
    next_position: int = 0
    """Rows are numbered across all runs of fragments: `first` and `last` compare states of rows that arrived at
    different times."""

    def positions(self, rows: int) -> int:
        """The position of the first of `rows` rows that a fragment gets now."""
        first, self.next_position = self.next_position, self.next_position + rows
        return first

    def execute(
        self, kernels: Kernels, parameters: dict[str, Any], repeated: frozenset[int] = frozenset()
    ) -> Execution:
        """A new execution, for one run of a fragment or for all (`repeated`: the inputs that are others in each).
        Counts and cancellation are those of the query."""
        run = self.run
        settings = run.settings
        if settings.memory_limit is not None:
            settings = replace(settings, memory_limit=max(settings.memory_limit - self.held_bytes, LEAST_BYTES))
        mine = Run(
            settings=settings,
            parameters={**run.parameters, **parameters},
            wall_clock=run.wall_clock,
            counts=run.counts,
            profile=run.profile,
        )
        return Execution(mine.shares(run), kernels, self.interpret, inputs={}, repeated=repeated)

    def finish(self, execution: Execution) -> None:
        """Add the counts and timings of a fragment's run to the query, and free what it holds."""
        execution.tell()
        execution.close()
        mine, run = execution.run, self.run
        for name, rows in mine.rows_of.items():
            run.rows_of[name] = run.rows_of.get(name, 0) + rows
        for name, found in mine.steps.items():
            known = run.steps.setdefault(name, {"rows": 0, "ms": 0.0})
            for what, value in found.items():
                known[what] = known.get(what, 0) + value
        run.notes += [note for note in mine.notes if note not in run.notes]


def value_name(name: str) -> str:
    """The parameter name of a live query's value. No parameter of a query can have this name."""
    return f"live {name}"


def count(given: Given) -> int:
    """How many rows there are."""
    return given.rows if isinstance(given, ArrivedRows) else sum(chunk.rows for chunk in given)


def graft(top: Step, cuts: dict[int, Step], shards: int) -> Step:
    """The part of a plan above some steps, with others in their place (by id). Movement uses `shards` shards."""
    done: dict[int, Step] = dict(cuts)
    stack = [top]
    while stack:
        step = stack[-1]
        if id(step) in done:
            stack.pop()
            continue
        waiting = [i for i in step.inputs if id(i) not in done]
        if waiting:
            stack.extend(waiting)
            continue
        rebuilt = step.with_inputs(tuple(done[id(i)] for i in step.inputs))
        if isinstance(rebuilt, Movement) and rebuilt.shards is not None:
            rebuilt = replace(rebuilt, shards=shards)
        done[id(step)] = rebuilt
        stack.pop()
    return done[id(top)]


def given(name: str, schema: Schema) -> Input:
    """The leaf of a fragment: rows passed in under a name."""
    return Input((), fields=schema, name=name)


@dataclass
class Fragment:
    """A part of a plan, with `inputs` by name. `output`: the columns and names of a result that is returned as
    batches."""

    engine: Engine
    top: Step
    output: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    inputs: dict[str, Input] = field(default_factory=dict)
    kernels: Kernels = field(default_factory=Kernels)
    gives_of_nothing: bool = False
    """Whether there may be output rows if no input has any."""
    stays: bool = False
    """Whether one execution serves all runs: tables of what does not change are built once."""
    standing: Execution | None = None
    again: frozenset[int] = frozenset()
    """With `stays`: the steps that run each time, by id."""
    shards: int = 0
    """Into how many its rows are cut; 0: as many as the query says."""
    small: Fragment | None = None
    """The same without movement, for few rows: in one shard nothing is handed to another thread."""

    def __post_init__(self) -> None:
        self.shards = self.shards or self.engine.shards
        if self.shards > 1 and not self.stays:
            self.small = replace(self, top=_unmoved(self.top), kernels=Kernels(), shards=1, inputs={})
        # Held rows may be in any shard: movement is inserted where a step needs it.
        top = enforce(self.top, self.shards, "local")
        if self.output is None and isinstance(top, Gather) and not isinstance(self.top, Gather):
            (top,) = top.inputs  # rows that are passed on may be in any shard
        self.top = _named(top)
        self.inputs = {s.name: s for s in self.top.walk() if isinstance(s, Input)}

    def rows(self, given: Mapping[str, Given], /, **values: Any) -> Rows:
        """The rows of the last step, computed from the inputs. An input that is not given is empty. values: for the
        `value_name`s."""
        if not any(map(count, given.values())) and not self.gives_of_nothing:
            return []
        if self.stays:
            return self._rows_again(given)
        if self.small is not None and _are_few(given):
            return self.small.rows(given, **values)
        execution = self._execution(given, {value_name(name): value for name, value in values.items()})
        try:
            lists = execution.chunks(self.top, self.shards)
            return [in_memory(c) for one in lists for c in one if c.rows]
        finally:
            self.engine.finish(execution)

    def _rows_again(self, given: Mapping[str, Given]) -> Rows:
        """The rows of the last step, by the execution that stays."""
        x = self.open()
        for name, step in self.inputs.items():
            x.inputs[id(step)] = self._flow(step, given.get(name, []), x)
        for step_id in self.again:
            x.done.pop(step_id, None)
        before = set(x.states.open)
        lists = x.chunks(self.top, self.shards)
        found = [in_memory(c) for one in lists for c in one if c.rows]
        x.states.free_since(before)
        x.states.tell_and_go_on()
        return found

    def open(self) -> Execution:
        """The execution that stays."""
        if self.standing is None:
            leaves = frozenset(id(step) for step in self.inputs.values())
            self.again = frozenset(dependent(self.top, leaves))
            self.standing = self.engine.execute(self.kernels, {}, leaves)
        return self.standing

    def close(self) -> None:
        """Free what stays."""
        if self.standing is not None:
            standing, self.standing = self.standing, None
            self.engine.finish(standing)

    def batches(self, given: Mapping[str, Given]) -> Iterator[pa.RecordBatch]:
        """The rows of the last step as result batches."""
        if not any(map(count, given.values())) and not self.gives_of_nothing:
            return
        if self.small is not None and _are_few(given):
            yield from self.small.batches(given)
            return
        execution = self._execution(given, {})
        try:
            for batch in execution.batches(PhysicalPlan(self.top, *self.output, shards=self.shards)):
                if batch.num_rows:
                    yield batch
        finally:
            self.engine.finish(execution)

    def _execution(self, given: Mapping[str, Given], parameters: dict[str, Any]) -> Execution:
        execution = self.engine.execute(self.kernels, parameters)
        execution.inputs.update(
            {id(step): self._flow(step, given.get(name, []), execution) for name, step in self.inputs.items()}
        )
        return execution

    def _flow(self, step: Input, rows: Given, execution: Execution) -> Flow:
        if isinstance(rows, ArrivedRows):
            return rows.flow(step, self.engine, execution, self.shards)
        shards = self.shards if count(rows) > SPREAD_ROWS else 1
        data = ChunkData(chunk_columns(step.schema), _dealt(rows, shards), self.engine.run.settings.batch_rows)
        data.first = self.engine.positions(data.rows)
        return Flow(data, step.schema)


def _are_few(given: Mapping[str, Given]) -> bool:
    """Whether rows need not be spread over several shards."""
    return sum(map(count, given.values())) <= FEW_ROWS and all(
        one.is_small if isinstance(one, ArrivedRows) else True for one in given.values()
    )


def _unmoved(top: Step) -> Step:
    """The steps of a fragment without movement between shards."""
    done: dict[int, Step] = {}
    for step in top.walk():
        inputs = tuple(done[id(i)] for i in step.inputs)
        is_moving = isinstance(step, Movement | Rekey)
        done[id(step)] = inputs[0] if is_moving else step.with_inputs(inputs)
    return done[id(top)]


def _named(root: Step) -> Step:
    """Name the steps that have no name. The names differ from the plan's, so that timings are not mixed up."""
    done: dict[int, Step] = {}
    for number, step in enumerate(root.walk()):
        rebuilt = step.with_inputs(tuple(done[id(i)] for i in step.inputs))
        done[id(step)] = rebuilt if rebuilt.name else replace(rebuilt, name=f"live_{rebuilt.op}_{number}")
    return done[id(root)]


def in_memory(chunk: AnyChunk) -> Chunk:
    """A chunk that outlives its execution, which closes the files of spilled rows."""
    return chunk if isinstance(chunk, Chunk) else Chunk(chunk.order, chunk.rows, list(chunk.arrays))


def _dealt(rows: Rows, shards: int) -> list[Rows]:
    """The rows in `shards` lists of about equal length, in order."""
    if shards == 1:
        return [rows]
    share = -(-count(rows) // shards)
    lists: list[Rows] = [[] for _ in range(shards)]
    taken = 0
    for chunk in rows:
        at = 0
        while at < chunk.rows:
            shard = taken // share
            size = min(chunk.rows - at, (shard + 1) * share - taken)
            lists[shard].append(Chunk((taken,), size, [a.slice(at, size) for a in chunk.arrays]))
            at, taken = at + size, taken + size
    return lists


def joined(rows: Rows) -> Rows:
    """The same rows in few chunks. Those in files stay there."""
    small = [chunk for chunk in rows if not is_in_file(chunk)]
    if len(small) < MANY_CHUNKS:
        return rows
    columns = range(len(small[0].arrays))
    whole = Chunk((0,), count(small), [pa.concat_arrays([c.arrays[i] for c in small]) for i in columns])
    return [*(chunk for chunk in rows if is_in_file(chunk)), whole]


def to_table(rows: Rows, schema: Schema) -> pa.Table:
    """Held rows as an Arrow table, for a checkpoint. The columns are in the kernels' own types."""
    if not rows:
        return pa.table({f.name: pa.nulls(0) for f in schema}) if len(schema) else pa.table({"rows": pa.nulls(0)})
    if not len(schema):
        return pa.table({"rows": pa.nulls(count(rows))})
    batches = [pa.RecordBatch.from_arrays(c.arrays, list(schema.names)) for c in rows]
    return pa.Table.from_batches([b.cast(batches[0].schema) for b in batches])


def from_table(table: pa.Table, schema: Schema) -> Rows:
    """The rows of a checkpoint."""
    if not table.num_rows:
        return []
    columns = len(schema)
    return [
        Chunk((number,), b.num_rows, list(b.columns[:columns]))
        for number, b in enumerate(table.combine_chunks().to_batches())
    ]
