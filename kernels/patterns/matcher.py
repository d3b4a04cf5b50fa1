"""The search for a match from one start: runs the automaton of a pattern over the rows of a partition.

The search is depth first, the preferred path first; the rest is on a stack of (instruction, row) words.
`kernels/patterns/__init__.py` describes what is computed ahead, what is marked and what a search costs. State between
two searches: the bits of the partition's conditions, and the marks."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Val, Var
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.expr.nodes import Call, Expr, Literal
from tsql.kernels.expr.types import BOOLEAN
from tsql.kernels.functions.comparison import compare
from tsql.kernels.patterns.bits import RowBits
from tsql.kernels.patterns.history import LABEL, History, PatternRows, Stretching
from tsql.kernels.patterns.program import (
    ACCEPT,
    BIT,
    DEPENDENT,
    END,
    KIND,
    MARK,
    NEXT,
    OTHER,
    ROW,
    SPLIT,
    START,
    WORDS,
    PatternProgram,
)
from tsql.kernels.patterns.program import LABEL as LABEL_WORD
from tsql.kernels.patterns.reads import Read, is_row_wise
from tsql.kernels.patterns.spec import MatchSpec
from tsql.kernels.patterns.values import MatchValues, PreparedRead, Seen

CHECK_STEPS = 1 << 14
"""Every this many steps a search checks whether to stop."""


def split_condition(condition: Expr) -> tuple[Expr | None, Expr | None]:
    """The parts of a condition that depend on the row only, and those that depend on the match so far; each joined by
    AND, None if there are none."""
    parts = condition.args if isinstance(condition, Call) and condition.name == "and" else (condition,)
    parts = tuple(p for p in parts if not (isinstance(p, Literal) and p.value is True))
    ahead, later = [p for p in parts if is_row_wise(p)], [p for p in parts if not is_row_wise(p)]
    joined = [
        None if not some else some[0] if len(some) == 1 else Call("and", tuple(some), BOOLEAN)
        for some in (ahead, later)
    ]
    return joined[0], joined[1]


class Plan:
    """What is known of a match before emission: its automaton, and which conditions are computed when."""

    def __init__(self, spec: MatchSpec):
        self.program = PatternProgram(spec.pattern)
        names = self.program.labels
        self.ahead: list[PreparedRead] = []
        self.later: list[PreparedRead] = []
        bits: dict[int, int] = {}
        dependent: dict[int, int] = {}
        for name, condition in spec.define:
            ahead, later = split_condition(condition)
            if ahead is not None:
                self.ahead.append(PreparedRead(ahead))
                bits[names.index(name)] = len(self.ahead)
            if later is not None:
                dependent[names.index(name)] = len(self.later)
                self.later.append(PreparedRead(later))
        self.table = self.program.table(bits, dependent)
        self.marks = len(self.program.marks(frozenset(dependent)))

    def reads(self) -> list[Read]:
        """What the conditions ask of a match so far."""
        return [read for one in self.later for read in one.reads.values()]


class Matcher:
    """Finds matches in the rows of a partition `[low, high)`. After `search`: `found`, and the match is `[start, row)`,
    which may be empty. `limit`: the first row that is too late for WITHIN."""

    def __init__(
        self, k: PipelineKernel, plan: Plan, spec: MatchSpec, rows: PatternRows, low: Var, high: Var, number: Var
    ):
        self.plan, self.spec, self.rows = plan, spec, rows
        self.low, self.high, self.number = low, high, number
        self.table = k.static(plan.table)
        self.bits, self.stack = RowBits(k, 1 + len(plan.ahead)), Stretching(k)
        self.marks = RowBits(k, plan.marks) if plan.marks else None
        self.history = History(plan.reads(), plan.program.labels) if plan.later else None
        self.records = Stretching(k) if self.history is not None else None
        self.values = MatchValues(k, rows, [*plan.reads(), *(r for one in plan.ahead for r in one.reads.values())])
        if self.history is not None:
            self.history.begin(k, rows)
        zero = k.i64(0)
        self.code, self.row, self.height, self.limit, self.touched, self.steps = (k.var(zero) for _ in range(6))
        self.found, self.cut = k.var(k.false), k.var(k.false)

    def end(self, k: PipelineKernel) -> None:
        for memory in (self.bits, self.stack, self.marks, self.records):
            if memory is not None:
                memory.free(k)
        if self.history is not None:
            self.history.end(k)
        self.values.end(k)

    def partition(self, k: PipelineKernel) -> None:
        """Compute the conditions that depend on the row only, and clear all marks."""
        low, high = self.low.value, self.high.value
        self.rows.labels.room(k, (high - low) * 2)
        self.limit.set(low)
        with k.when(k.status.value == 0):
            if self.marks is not None:
                self.marks.room(k, high - low + 1)
                self.marks.clear(k, k.i64(0), high - low + 1)
            self.bits.room(k, high - low)
            if self.plan.ahead:
                self._conditions(k, low, high)

    def _conditions(self, k: PipelineKernel, low: Val, high: Val) -> None:
        with k.rows(high - low) as place:
            row = low + place
            seen = Seen(self.rows, row, row, low, high, k.i64(0))
            self.bits.store(k, place, [k.true, *(one.holds(k, self.values, seen) for one in self.plan.ahead)])
            k.reset_scratch()

    def search(self, k: PipelineKernel, start: Val) -> None:
        """Look for the preferred match that begins with a row."""
        self.code.set(k.i64(self.plan.program.entry))
        self.row.set(start)
        self.height.set(0)
        self.found.set(k.false)
        self.cut.set(k.false)
        self.touched.set(start)
        self.rows.start.set(start)
        if self.spec.within is not None:
            self._find_limit(k, start, self.spec.within)
        if self.history is not None and self.records is not None:
            self.records.room(k, k.i64(self.history.bytes))
            self.history.init(k, self.records.address)
        with k.forever() as loop:
            going = self._step(k, start)
            loop.stop_if(self.found.value)
            loop.stop_if(~going.value & (self.height.value == 0))
            with k.when(~going.value):
                self._go_back(k)
            self.steps.set(self.steps.value + 1)
            with k.when((self.steps.value & (CHECK_STEPS - 1)) == 0):
                k.check()
            loop.stop_if(k.status.value != 0)
        self.rows.stop.set(self.row.value)

    def _find_limit(self, k: PipelineKernel, start: Val, within: Expr) -> None:
        """Rows are in order, so the limit of a later start is not before that of an earlier one."""
        spec, rows = self.spec, self.rows
        sign = ">" if spec.order[0].descending else "<"
        least = rows.value(k, spec.within_key, start)
        end = rows.value(k, within, start)
        self.limit.set(k.max(self.limit.value, start))
        timed = k.true if least.valid is None else least.valid
        with k.when(timed & (k.true if end.valid is None else end.valid)):
            with k.forever() as loop:
                at = self.limit.value
                loop.stop_if(at >= self.high.value)
                key = rows.value(k, spec.within_key, at)
                near = compare(k, sign, key.with_valid(None), end.with_valid(None))
                loop.stop_if(~(near if key.valid is None else near & key.valid))
                self.limit.set(at + 1)
        with k.otherwise():
            self.limit.set(start)
        k.reset_scratch()

    def _word(self, k: PipelineKernel, instruction: Val, word: int) -> Val:
        return k.load("i32", instruction, word)

    def _step(self, k: PipelineKernel, start: Val) -> Var:
        """Run one instruction; returns whether the path continues."""
        row = self.row.value
        instruction = k.offset(self.table, self.code.value * (WORDS * 4))
        kind = self._word(k, instruction, KIND)
        going = k.var(k.true)
        if self.marks is not None:
            self._mark(k, self.marks, instruction, row, going)
        with k.when(going.value):
            with k.when(kind == ROW):
                self._take(k, instruction, start, row, going)
            with k.otherwise():
                with k.when(kind == SPLIT):
                    self.stack.room(k, (self.height.value + 1) * 8)
                    k.store(
                        self.stack.address, (self._word(k, instruction, OTHER).to("i64") << 32) | row, self.height.value
                    )
                    self.height.set(self.height.value + 1)
                    self.code.set(self._word(k, instruction, NEXT).to("i64"))
                with k.otherwise():
                    accepts = kind == ACCEPT
                    self.found.set(accepts)
                    going.set(
                        accepts
                        | ((kind == START) & (row == self.low.value))
                        | ((kind == END) & (row == self.high.value))
                    )
                    self.code.set(self._word(k, instruction, NEXT).to("i64"))
        return going

    def _mark(self, k: PipelineKernel, marks: RowBits, instruction: Val, row: Val, going: Var) -> None:
        """A marked place has failed before: stop. A new one is marked: it will fail too, or it ends the search."""
        mark = self._word(k, instruction, MARK).to("i64")
        with k.when(mark >= 0):
            place = row - self.low.value
            with k.when(marks.test(k, place, mark)):
                going.set(k.false)
            with k.otherwise():
                marks.set(k, place, mark)
                self.touched.set(k.max(self.touched.value, row))

    def _take(self, k: PipelineKernel, instruction: Val, start: Val, row: Val, going: Var) -> None:
        """Map a row to the variable of an instruction, if its condition holds."""
        limit = self.high.value if self.spec.within is None else self.limit.value
        going.set(row < limit)
        if self.spec.within is not None:
            with k.when((row >= limit) & (row < self.high.value)):
                self.cut.set(k.true)
        if self.plan.ahead:
            with k.when(going.value):
                going.set(self.bits.test(k, row - self.low.value, self._word(k, instruction, BIT).to("i64")))
        with k.when(going.value):
            label = self._word(k, instruction, LABEL_WORD).to("i64")
            k.store(self.rows.labels.address, label.to(LABEL), row - start)
            if self.history is not None and self.records is not None:
                self._test_later(k, self.history, self.records, instruction, start, row, label, going)
        with k.when(going.value):
            self.row.set(row + 1)
            self.code.set(self._word(k, instruction, NEXT).to("i64"))

    def _test_later(
        self,
        k: PipelineKernel,
        history: History,
        stretching: Stretching,
        instruction: Val,
        start: Val,
        row: Val,
        label: Val,
        going: Var,
    ) -> None:
        """Make the record that includes the row, and test the variable's condition that depends on it, if it has
        one."""
        depth = row - start
        stretching.room(k, (depth + 2) * history.bytes)
        self.rows.stop.set(row + 1)
        records = stretching.address
        before = k.offset(records, depth * history.bytes)
        after = k.offset(before, history.bytes)
        history.push(k, before, after, label, row)
        dependent = self._word(k, instruction, DEPENDENT)
        for number, condition in enumerate(self.plan.later):
            with k.when(dependent == number):
                seen = Seen(
                    self.rows,
                    start,
                    row,
                    self.low.value,
                    self.high.value,
                    self.number.value + 1,
                    history,
                    after,
                    records,
                )
                going.set(condition.holds(k, self.values, seen))
                k.reset_scratch()

    def _go_back(self, k: PipelineKernel) -> None:
        self.height.set(self.height.value - 1)
        left = k.load("i64", self.stack.address, self.height.value)
        self.code.set(left.ushr(32))
        self.row.set(left & 0xFFFFFFFF)

    def forget(self, k: PipelineKernel, start: Val, following: Val) -> None:
        """Clear the marks that do not hold for a search from `following`: those on the path of a match, which
        succeeded, and all of a search that WITHIN cut."""
        if self.marks is None:
            return
        low = self.low.value
        end = k.select(self.found.value, self.row.value + 1, following)
        if self.spec.within is not None:
            end = k.select(self.cut.value, k.max(end, self.touched.value + 1), end)
        self.marks.clear(k, following - low, end - low)
