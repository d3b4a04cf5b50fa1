"""Pipelines: a source, operators and a sink fused into one function `(ctx, morsels, count)`.

In: the layouts of the source's columns. Out: a `Program` (KIR, parameter slots, failure sites). A worker calls the
function once with all morsels, which it takes from a shared counter, or once per batch of a file. The function
allocates only through its sink; memory in the sink's final state belongs to the host. On failure the status word in the
context names the site. The function returns within a few thousand rows after a failure, a cancellation or an exceeded
memory limit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import field
from functools import partial, reduce
from itertools import takewhile
from operator import and_
from typing import Any

from tsql.kernels.codegen.kir import Module
from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit import program_store
from tsql.kernels.emit.batch import COLUMN_BYTES, HEADER_BYTES, SourceColumn
from tsql.kernels.emit.context import CHECK_ROWS, COUNTER, ROWS_DONE, STATUS, PipelineKernel, Program
from tsql.kernels.emit.rows import CachedRow, ColumnPointers, DerivedRow, MorselRow, SelectedRow, load_pointers
from tsql.kernels.expr.nodes import Column
from tsql.kernels.process.quick_dataclass import dataclass

Push = Callable[[PipelineKernel, CachedRow], None]


class Operator:
    """A step inside a pipeline: sees a row and pushes zero or more rows. If it `selects`, it has a `condition`."""

    selects = False
    reads: frozenset[str] = frozenset()
    """The columns used by its condition."""

    vectorises = True
    """Whether its condition is arithmetic over columns, without a table lookup."""

    fetches = 0
    """The number of prefetch stages for the memory it reads per row. A stage may read what the previous one fetched."""

    fetch_rows = 16
    """Each stage runs this many rows ahead of the next, and the last stage this many ahead of `consume`. A core waits
    for about twenty lines of memory at a time, and drops or delays further fetches. So it would be slower to run all
    stages for a batch of rows one after the other."""

    multiplies = False
    """Whether more rows may leave than come in."""

    counts = False
    """Whether it only counts rows: then it may stand between operators whose conditions are decided together."""

    tallies = False
    """Whether its condition counts the rejected rows, for the user."""

    by_shard = False
    """Whether the rows of each shard need a task of their own."""

    @property
    def renames(self) -> dict[str, Column] | None:
        """For an operator that only renames columns: the columns below by their new names."""
        return None

    @property
    def signature(self) -> object:
        """What its code depends on besides its step."""
        return None

    def condition(self, k: PipelineKernel, row: CachedRow) -> Val:
        """i1: holds for every row that the operator passes on. It is cheap, and has no effects except those of
        `tallies`."""
        raise NotImplementedError

    def fetch(self, k: PipelineKernel, row: CachedRow, stage: int) -> None:
        """Prefetch what the next stage (or `consume`, after the last) reads for a row. Has no other effect."""
        raise NotImplementedError

    def consume(self, k: PipelineKernel, row: CachedRow, push: Push) -> None:
        raise NotImplementedError

    def outline(self, k: PipelineKernel, row: CachedRow, push: Push) -> None:
        """Push a row as `consume` would, into a kernel that never runs, for sinks that inspect what is known of its
        values."""
        self.consume(k, row, push)

    def describe(self) -> str:
        raise NotImplementedError


class Sink:
    """The end of a pipeline. `begin` and `end` are emitted around the morsel loop, `begin_morsel` and `end_morsel`
    around the rows of a morsel, `consume` for each row. The state is a record at the address in the context's SINK
    word."""

    state_bytes = 0
    needs_probe = False
    transient: tuple[str, ...] = ()
    """Attributes that mean something only during emission, besides values of the kernel."""

    def probe(self, k: PipelineKernel, row: CachedRow) -> None:
        """With `needs_probe`: inspect a row before anything is emitted, to learn what is known of its values."""

    def begin(self, k: PipelineKernel) -> None:
        """Load what the rows need."""

    def begin_morsel(self, k: PipelineKernel, number: Val, rows: Val) -> None:
        """Called before the rows of a morsel."""

    def consume(self, k: PipelineKernel, row: CachedRow) -> None:
        raise NotImplementedError

    def end_morsel(self, k: PipelineKernel, number: Val) -> None:
        """Called after the rows of a morsel."""

    def should_stop(self, k: PipelineKernel) -> Val | None:
        """i1: no further morsel is needed (a limit is reached); None if that never happens."""
        return None

    def end(self, k: PipelineKernel) -> None:
        """Store what the state must hold."""

    def describe(self) -> str:
        raise NotImplementedError


@routine("gather_passed", ("ptr", "i64", "ptr"), "i64")
def gather_passed(k: Kernel, passes: Val, rows: Val, chosen: Val) -> None:
    """Write the numbers (16 bits each) of the bytes that are 1; returns how many. Eight zeros must follow the last
    byte, and there must be room for one number after the last. Bytes are read in groups of eight; unless none of them
    passes, every number is written, and kept only if its row passes. Which rows pass is unpredictable, so a branch per
    row would cost more."""
    count = k.var(k.i64(0))
    with k.range((rows + 7).ushr(3)) as at:
        with k.when(k.load("i64", passes, at) != 0):
            with k.range(k.i64(8)) as i:
                row = at * 8 + i
                k.store(chosen, row.to("i16"), count.value)
                count.set(count.value + k.load("i8", passes, row).uto("i64"))
    k.ret(count.value)


class Pointers(dict[str, tuple[SourceColumn, ColumnPointers]]):
    """The columns of a morsel by name. Notes which of them the kernel reads."""

    def __init__(self, columns: dict[str, tuple[SourceColumn, ColumnPointers]], used: set[str]):
        super().__init__(columns)
        self.used = used

    def __getitem__(self, name: str) -> tuple[SourceColumn, ColumnPointers]:
        self.used.add(name)
        return super().__getitem__(name)


class OutlinePointers(Pointers):
    """As `Pointers`, but each is loaded on first use: a sink looks at few columns of a wide table."""

    def __init__(self, k: PipelineKernel, record: Val, columns: tuple[SourceColumn, ...], used: set[str]):
        super().__init__({}, used)
        self.kernel, self.record = k, record
        self.places = {c.name: (i, c) for i, c in enumerate(columns)}

    def __missing__(self, name: str) -> tuple[SourceColumn, ColumnPointers]:
        index, column = self.places[name]
        self[name] = found = column, load_pointers(self.kernel, self.record, index)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self.places


@dataclass(frozen=True)
class Ahead:
    """An operator at the head of a pipeline that sees rows of the scan in advance, with the renamings below it."""

    operator: Operator
    renames: tuple[dict[str, Column], ...] = ()

    def row(self, row: CachedRow) -> CachedRow:
        """A row of the scan under the names that the operator uses."""
        for renamed in self.renames:
            row = DerivedRow(row, renamed)
        return row


class ColumnarScan:
    """The source of most pipelines: rows of columnar morsels. `stable`: their memory outlives the states of the query.
    `used`: the columns that the kernel reads, known after emission."""

    transient = ("used",)

    def __init__(self, columns: tuple[SourceColumn, ...], stable: bool = False):
        self.columns, self.stable, self.used = columns, stable, set[str]()

    def _pointers(self, k: PipelineKernel, record: Val) -> Pointers:
        return Pointers({c.name: (c, load_pointers(k, record, i)) for i, c in enumerate(self.columns)}, self.used)

    def produce(self, k: PipelineKernel, record: Val, rows: Val, each: Callable[[CachedRow], None]) -> None:
        pointers = self._pointers(k, record)
        position = k.load("i64", record, 1)
        with k.rows(rows) as i:
            each(MorselRow(pointers, i, position + i, self.stable))

    def outline(self, k: PipelineKernel, record: Val, rows: Val, each: Callable[[CachedRow], None]) -> None:
        """As `produce`, into a kernel that never runs: one row, and pointers only of the columns that are used."""
        each(MorselRow(OutlinePointers(k, record, self.columns, self.used), rows, rows, self.stable))

    def select(
        self,
        k: PipelineKernel,
        record: Val,
        rows: Val,
        first: list[Ahead],
        fetching: list[Ahead],
        each: Callable[[CachedRow], None],
    ) -> None:
        """The rows that satisfy the conditions of the first operators, which are computed for `CHECK_ROWS` rows at a
        time."""
        pointers = self._pointers(k, record)
        position = k.load("i64", record, 1)
        chosen = k.buffer(2 * CHECK_ROWS + 2)
        start = k.var(k.i64(0))
        with k.forever() as loop:
            begin = start.value
            loop.stop_if(begin >= rows)
            end = k.min(begin + CHECK_ROWS, rows)
            taken = self._choose(
                k,
                first,
                chosen,
                end - begin,
                lambda i: MorselRow(pointers, begin + i, position + begin + i, self.stable),
            )
            number = partial(_number, k, chosen if first else None)
            stages = [(a, stage) for a in fetching for stage in range(a.operator.fetches)]
            distance = [sum(a.operator.fetch_rows for a, _ in stages[place:]) for place in range(len(stages))]
            index = k.var(k.i64(-max(distance, default=0)))
            with k.forever() as inner:
                at = index.value
                inner.stop_if(at >= taken)
                for rows_ahead, (ahead, stage) in zip(distance, stages):
                    with k.when((at + rows_ahead).ult(taken)):
                        i = begin + number(at + rows_ahead)
                        ahead.operator.fetch(k, ahead.row(MorselRow(pointers, i, position + i, self.stable)), stage)
                with k.when(at >= 0) if stages else nullcontext():
                    i = begin + number(at)
                    each(SelectedRow(pointers, i, position + i, self.stable, passed=tuple(a.operator for a in first)))
                index.set(at + 1)
                if k.uses_scratch:
                    k.check()
                    inner.stop_if(k.status.value != 0)
            start.set(end)
            k.check()
            loop.stop_if(k.is_done())

    def _choose(
        self, k: PipelineKernel, first: list[Ahead], chosen: Val, rows: Val, row: Callable[[Val], CachedRow]
    ) -> Val:
        """Write the numbers of the rows that pass, 16 bits each; returns how many. Vectorisable conditions come first,
        together. Conditions that read memory are computed for the remaining rows, without a branch."""
        together = [a for a in first if a.operator.vectorises]
        apart = [a for a in first if not a.operator.vectorises]
        taken = rows
        if together:
            passes = k.buffer(CHECK_ROWS + 8)
            with k.range(rows) as i:
                k.store(
                    passes,
                    reduce(and_, (a.operator.condition(k, a.row(here)) for here in (row(i),) for a in together)),
                    i,
                )
            k.store(passes + rows, k.i64(0))
            taken = gather_passed(k, passes, rows, chosen)
        for number, ahead in enumerate(apart):
            count = k.var(k.i64(0))
            with k.range(taken) as at:
                i = at if number == 0 and not together else k.load("i16", chosen, at).uto("i64")
                hit = ahead.operator.condition(k, ahead.row(row(i)))
                k.store(chosen, i.to("i16"), count.value)
                count.set(count.value + hit.uto("i64"))
            taken = count.value
        return taken

    def describe(self) -> str:
        return f"scan ({', '.join(f'{c.name} {c.layout.kind} {c.layout.machine}' for c in self.columns)})"


def _number(k: PipelineKernel, chosen: Val | None, at: Val) -> Val:
    """The number of a chosen row. Without a list all rows are chosen."""
    return at if chosen is None else k.load("i16", chosen, at).uto("i64")


@dataclass
class Pipeline:
    """What runs as one kernel."""

    source: Any
    operators: list[Operator]
    sink: Sink
    name: str = "pipeline"
    program: Program | None = field(default=None, repr=False)

    def emit(self) -> Program:
        """The kernel of this pipeline: emitted once, or found in the store of an earlier process."""
        if self.program is None:
            self._probe()
            about = program_store.described(self)
            self.program = None if about is None else program_store.find(about, lambda: self._emitted().module)
            if self.program is not None and isinstance(self.source, ColumnarScan):
                self.source.used.update(self.program.reads)
            if self.program is None:
                self.program = self._emitted()
                if about is not None:
                    program_store.keep(about, self, self.program)
        return self.program

    def _emitted(self) -> Program:
        k = PipelineKernel(Module())
        self._emit(k)
        k.ret()
        k.finish().freeze()
        reads = tuple(sorted(self.source.used)) if isinstance(self.source, ColumnarScan) else ()
        return Program(k.module, k.slots, k.sites, reads)

    def _probe(self) -> None:
        """A dry run into a discarded kernel: the sink sees the row as it will arrive and lays out its state."""
        if not self.sink.needs_probe:
            return
        k = PipelineKernel(Module())
        outline = getattr(self.source, "outline", self.source.produce)
        outline(k, k.morsels, k.count, lambda row: self._outline(k, row, 0))
        k.forget()
        k.function.body.clear()

    def _outline(self, k: PipelineKernel, row: CachedRow, at: int) -> None:
        """Show the sink what the operators from number `at` on make of a row. (A recursive function inside `_probe`
        would be a reference cycle: it would keep the pipeline and all of its code alive until the next garbage
        collection.)"""
        if at == len(self.operators):
            self.sink.probe(k, row)
        else:
            self.operators[at].outline(k, row, lambda k, row: self._outline(k, row, at + 1))

    def _emit(self, k: PipelineKernel) -> None:
        self.sink.begin(k)
        counter = k.load("ptr", k.offset(k.ctx, COUNTER))
        done = k.load("ptr", k.offset(k.ctx, ROWS_DONE))
        record_bytes = HEADER_BYTES + COLUMN_BYTES * len(self.source.columns)
        with k.forever() as loop:
            stop = self.sink.should_stop(k)
            if stop is not None:
                loop.stop_if(stop)
            number = k.atomic_add(counter, 1)
            loop.stop_if(number >= k.count)
            record = k.offset(k.morsels, number * record_bytes)
            rows = k.load("i64", record)
            self.sink.begin_morsel(k, number, rows)
            self._produce(k, record, rows)
            self.sink.end_morsel(k, number)
            k.atomic_add(done, rows)
            k.check()
            loop.stop_if(k.status.value != 0)
        self.sink.end(k)
        k.store(k.offset(k.ctx, STATUS), k.status.value)

    def _produce(self, k: PipelineKernel, record: Val, rows: Val) -> None:
        first, fetching = self._first(), self._fetching()
        if not first and not fetching:
            self.source.produce(k, record, rows, lambda row: self._row(k, row))
            return
        self.source.select(k, record, rows, first, fetching, lambda row: self._row(k, row))

    def _first(self) -> list[Ahead]:
        """The operators at the head that are decided for many rows at once. A probe among them adds columns; an
        operator that uses one of these has to wait for it. An operator that counts rejected rows must see all rows, or
        wait for those before it."""
        first = [a for a in self._ahead(lambda o: o.selects) if a.operator.selects]
        return list(takewhile(lambda a: not a.operator.tallies or (a is first[0] and not a.renames), first))

    def _fetching(self) -> list[Ahead]:
        """The operators at the head that prefetch memory: until then rows are still those of the scan."""
        return [a for a in self._ahead(lambda o: o.selects or o.fetches) if a.operator.fetches]

    def _ahead(self, looks: Callable[[Operator], Any]) -> list[Ahead]:
        """The operators at the head that use only columns of the scan, possibly renamed."""
        if not isinstance(self.source, ColumnarScan):
            return []
        known, found = {c.name for c in self.source.columns}, []
        renames: tuple[dict[str, Column], ...] = ()
        for operator in self.operators:
            if operator.renames is not None:
                known = {name for name, expr in operator.renames.items() if expr.name in known}
                renames = (*renames, operator.renames)
            elif looks(operator) and operator.reads <= known:
                found.append(Ahead(operator, renames))
            elif not operator.counts:
                break
        return found

    def _row(self, k: PipelineKernel, row: CachedRow) -> None:
        self._push(k, row, 0, self.sink.consume)
        k.reset_scratch()

    def _push(self, k: PipelineKernel, row: CachedRow, at: int, end: Push) -> None:
        if at == len(self.operators):
            end(k, row)
        else:
            self.operators[at].consume(k, row, lambda k, row: self._push(k, row, at + 1, end))

    def describe(self) -> str:
        """The pipeline for `explain PIPELINES`."""
        steps = [self.source.describe(), *(o.describe() for o in self.operators), self.sink.describe()]
        return f"{self.name}:\n" + "\n".join(f"  {s}" for s in steps)
