"""The source of a pipeline behind a match: walks the sorted rows of a shard, finds matches, and gives one row per match
or per matched row.

Semantics: kernels/patterns/__init__.py. Required: the rows of a shard in one morsel, sorted by (by, order). State: that
of the search (`matcher.py`), and the records of the current match. Cost: a pass over the rows for the conditions, the
search, and the rows of each match."""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.codegen.lang import Val, Var
from tsql.kernels.emit.batch import SourceColumn
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum, both
from tsql.kernels.emit.rows import POSITION, CachedRow, load_pointers
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.patterns.history import History, PatternRows, Stretching, is_mapped
from tsql.kernels.patterns.matcher import Matcher, Plan
from tsql.kernels.patterns.reads import MatchFold, Navigate, Read
from tsql.kernels.patterns.spec import MatchSpec
from tsql.kernels.patterns.values import MatchValues, Seen, settled

CHECK_STARTS = 1 << 10
"""Every this many starts the walk checks whether to stop."""


class Told:
    """The records of a match for the measures: those that see all of it (`whole`), or those that see it row by row."""

    def __init__(self, k: PipelineKernel, rows: PatternRows, reads: list[Read]):
        self.rows = rows
        self.history = History(reads, rows.names)
        self.history.begin(k, rows)
        self.linked = Stretching(k) if self.history.is_linked else None
        if self.linked is None:
            self.single = k.buffer(max(8, self.history.bytes))

    def record(self, k: PipelineKernel, depth: Val) -> Val:
        """The record after this many rows."""
        return self.single if self.linked is None else k.offset(self.linked.address, depth * self.history.bytes)

    def begin_match(self, k: PipelineKernel, rows: Val) -> None:
        if self.linked is not None:
            self.linked.room(k, (rows + 1) * self.history.bytes)
        self.history.init(k, self.record(k, k.i64(0)))

    def push(self, k: PipelineKernel, depth: Val) -> None:
        """Take in the row at a depth of the match."""
        before = self.record(k, depth)
        after = before if self.linked is None else k.offset(before, self.history.bytes)
        row = self.rows.start.value + depth
        self.history.push(k, before, after, self.rows.label(k, row), row)

    def seen(self, k: PipelineKernel, current: Val, low: Val, high: Val, number: Val) -> Seen:
        start = self.rows.start.value
        record = self.record(k, current + 1 - start)
        return Seen(
            self.rows,
            start,
            current,
            low,
            high,
            number,
            self.history,
            record,
            None if self.linked is None else self.linked.address,
        )

    def end(self, k: PipelineKernel) -> None:
        self.history.end(k)
        if self.linked is not None:
            self.linked.free(k)


class MatchRow(CachedRow):
    """A row of the result: columns of a row of the input, and the measures."""

    def __init__(self, row: CachedRow, position: Val, measures: dict[str, Callable[[PipelineKernel], Datum]]):
        super().__init__()
        self.row, self.position, self.measures = row, position, measures

    def make(self, k: PipelineKernel, name: str) -> Datum:
        if name == POSITION:
            return Datum(BIGINT, (self.position,))
        return self.measures[name](k) if name in self.measures else self.row.column(k, name)


class MatchScan:
    """The rows of all matches, partition by partition."""

    stable = False

    def __init__(self, columns: tuple[SourceColumn, ...], spec: MatchSpec):
        self.columns, self.spec = columns, spec
        self.plan = Plan(spec)
        self.measures = {name: settled(read) for name, read in spec.measures}

    def is_final(self, read: Read) -> bool:
        """Whether a read sees all of a match."""
        return self.spec.is_one_row or (isinstance(read, Navigate | MatchFold) and read.final)

    def produce(self, k: PipelineKernel, record: Val, rows: Val, each: Callable[[CachedRow], None]) -> None:
        pointers = {c.name: (c, load_pointers(k, record, i)) for i, c in enumerate(self.columns)}
        numbered = PatternRows(k, pointers, rows, self.plan.program.labels)
        walk = _Walk(self, k, numbered, k.load("i64", record, 1))
        with k.when(k.status.value == 0):
            walk.run(k, each)
        walk.end(k)

    def describe(self) -> str:
        program = self.plan.program
        ahead, later = len(self.plan.ahead), len(self.plan.later)
        about = (
            f"{len(program.code)} states, {self.plan.marks} marks, conditions: {ahead} ahead, {later} by the "
            "match so far"
        )
        return f"match {self.spec.sql()} ({about})"


class _Walk:
    """The emission of one walk over the rows of a shard."""

    def __init__(self, scan: MatchScan, k: PipelineKernel, rows: PatternRows, position: Val):
        self.scan, self.spec, self.rows, self.position = scan, scan.spec, rows, position
        zero = k.i64(0)
        self.low, self.high, self.at, self.number, self.covered, self.made, self.starts = (
            k.var(zero) for _ in range(7)
        )
        self.matcher = Matcher(k, scan.plan, self.spec, rows, self.low, self.high, self.number)
        reads = list(scan.measures.values())
        self.values = MatchValues(k, rows, reads)
        self.final = Told(k, rows, [r for r in reads if scan.is_final(r)])
        self.running = Told(k, rows, [r for r in reads if not scan.is_final(r)])

    def end(self, k: PipelineKernel) -> None:
        for part in (self.matcher, self.values, self.final, self.running):
            part.end(k)
        self.rows.labels.free(k)

    def run(self, k: PipelineKernel, each: Callable[[CachedRow], None]) -> None:
        with k.forever() as loop:
            start = self.at.value
            loop.stop_if(start >= self.rows.count)
            with k.when(start == self.high.value):
                self._enter(k, start)
            loop.stop_if(k.status.value != 0)
            self.matcher.search(k, start)
            loop.stop_if(k.status.value != 0)
            self._tell(k, start, each)
            self._go_on(k, start)
            self.starts.set(self.starts.value + 1)
            with k.when((self.starts.value & (CHECK_STARTS - 1)) == 0):
                k.check()
            loop.stop_if(k.status.value != 0)

    def _enter(self, k: PipelineKernel, start: Val) -> None:
        """Begin a partition."""
        end = k.var(start + 1 if self.spec.by else self.rows.count)
        with k.forever() as loop:
            row = end.value
            loop.stop_if(row >= self.rows.count)
            loop.stop_if(~self.rows.same(k, self.spec.by, start, row))
            end.set(row + 1)
        self.low.set(start)
        self.high.set(end.value)
        self.number.set(0)
        self.covered.set(start)
        self.matcher.partition(k)

    def _tell(self, k: PipelineKernel, start: Val, each: Callable[[CachedRow], None]) -> None:
        """Give the rows of the match, if one was found."""
        found = self.matcher.found.value
        rows = k.select(found, self.matcher.row.value - start, k.i64(0))
        self.number.set(self.number.value + found.uto("i64"))
        # A row outside any match is treated as an empty match: all measures are NULL.
        with k.when(k.true if self.spec.output == "unmatched" else found):
            self.final.begin_match(k, rows)
            self.running.begin_match(k, rows)
            if self.final.history.slots:
                with k.range(rows) as depth:
                    self.final.push(k, depth)
        last = start + rows - 1
        if self.spec.is_one_row:
            with k.when(found):
                self._make(k, start, last, last, None, each)
            return
        with k.range(self._rows(k, found, rows, start)) as depth:
            if self.running.history.slots:
                with k.when(rows > 0):
                    self.running.push(k, depth)
            current = k.select(rows > 0, start + depth, last)
            self._make(k, start + depth, current, last, found if self.spec.output == "unmatched" else None, each)

    def _rows(self, k: PipelineKernel, found: Val, rows: Val, start: Val) -> Val:
        """The number of rows to give if all rows of a match are shown."""
        if self.spec.output == "matched":
            return k.select(found, rows, k.i64(0))
        alone = k.i64(0)
        if self.spec.output == "unmatched":
            alone = (start >= self.covered.value).uto("i64")
        return k.select(found, k.max(rows, k.i64(1)), alone)

    def _make(
        self,
        k: PipelineKernel,
        row: Val,
        current: Val,
        last: Val,
        matched: Val | None,
        each: Callable[[CachedRow], None],
    ) -> None:
        """Pass on a row of the result; `matched`: whether it belongs to a match."""
        place = (self.low.value, self.high.value, self.number.value)
        final, running = self.final.seen(k, last, *place), self.running.seen(k, current, *place)

        def measure(read: Read) -> Callable[[PipelineKernel], Datum]:
            seen = final if self.scan.is_final(read) else running

            def value(k: PipelineKernel) -> Datum:
                d = self.values.of(k, read, seen)
                return d if matched is None else d.with_valid(both(d.valid, matched))

            return value

        made = self.made.value
        self.made.set(made + 1)
        each(
            MatchRow(
                self.rows.at(row),
                self.position + made,
                {name: measure(read) for name, read in self.scan.measures.items()},
            )
        )

    def _go_on(self, k: PipelineKernel, start: Val) -> None:
        """Advance the start; after a match, by AFTER MATCH SKIP."""
        found, stop = self.matcher.found.value, self.matcher.row.value
        following = k.var(start + 1)
        if self.spec.skip.kind != "to next row":
            with k.when(found & (stop > start)):
                following.set(stop if self.spec.skip.kind == "past last row" else self._named(k, start, stop))
        self.covered.set(k.select(found, k.max(self.covered.value, k.max(stop, start + 1)), self.covered.value))
        self.matcher.forget(k, start, following.value)
        self.at.set(following.value)

    def _named(self, k: PipelineKernel, start: Val, stop: Val) -> Val:
        """The first or the last row of a match that is mapped to the variables of SKIP TO."""
        skip = self.spec.skip
        name = skip.called or " or ".join(skip.variables)
        step = 1 if skip.kind == "to first" else -1
        at: Var = k.var(start if step > 0 else stop - 1)
        with k.forever() as loop:
            row = at.value
            loop.stop_if((row < start) | (row >= stop))
            loop.stop_if(is_mapped(k, self.rows.names, skip.variables, self.rows.label(k, row)))
            at.set(row + step)
        row = at.value
        missing = (row < start) | (row >= stop)
        with k.guarded(None, skip.position):
            k.fail(missing, f"AFTER MATCH SKIP TO {name}: no row of the match is mapped to it")
            k.fail(
                ~missing & (row == start),
                f"AFTER MATCH SKIP TO {name}: the search would go on at the first row of the match, for ever",
            )
        return k.select(missing, stop, k.max(row, start + 1))
