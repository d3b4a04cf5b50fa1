"""The source of a pipeline behind panes: walks the sorted panes of a shard once and gives one row per window and key.

Semantics: `Windows` says which windows exist; a window without rows does not. Required: the panes of a shard in one
morsel, sorted by (key, pane) or by (key, first). State: two stacks per aggregate (kernels/windows/stacks.py). Their
elements are the exported states of panes; or rows, each a pane of its own, which is cheaper if a pane has hardly more
than one. Aggregates that depend on the order of rows (`is_placed`) use positions in the input; states contain them, and
rows have them in the column `PLACE`. Cost: each pane is merged a constant number of times, and each window costs one
merge, however many panes it has. A live run would hold the panes that no punctuation has passed, and walk them up to
it; the panes from the start of the first open window on remain."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tsql.kernels.aggregates.base import AggregateArgument, AggregateState
from tsql.kernels.aggregates.bodies import make_body, plain_body, state_names
from tsql.kernels.codegen.lang import Val, Var
from tsql.kernels.emit.batch import SourceColumn
from tsql.kernels.emit.context import CHECK_ROWS, PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.emit.rows import POSITION, CachedRow, load_pointers
from tsql.kernels.expr.nodes import Aggregate, Column, Literal
from tsql.kernels.expr.types import BIGINT, TIMESTAMP
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.runtime.calendar import floor_div
from tsql.kernels.windows.base import Place, SortedRows, as_type
from tsql.kernels.windows.call import WindowCall
from tsql.kernels.windows.folds import At, BodyFold, FoldChoice, FrameFold, PickFold, choice_of
from tsql.kernels.windows.running import registers
from tsql.kernels.windows.sliding import SlidingRun
from tsql.kernels.windows.stacks import FrameStacks

T = TypeVar("T")

KINDS: dict[str, tuple[str, ...]] = {
    "hop": ("pane", "slide", "size", "width", "offset"),
    "cumulate": ("pane", "size", "width", "offset"),
    "session": ("first", "last", "gap"),
    "rows": ("first", "slide", "size", "id"),
}
"""The settings that each kind of window needs."""
MOST = 2**62
"""The maximum length of windows, in microseconds or rows: two of them can be added without overflow."""


@dataclass(frozen=True)
class Windows:
    """Which windows exist. slide and size count panes; width, offset and gap are microseconds. pane, first and last are
    input columns; start, end and id are output columns. over: "states" or "rows"."""

    kind: str
    slide: int | None = None
    size: int | None = None
    width: int | None = None
    offset: int | None = None
    gap: int | None = None
    pane: str | None = None
    first: str | None = None
    last: str | None = None
    start: str | None = "window_start"
    end: str | None = "window_end"
    id: str | None = None
    over: str = "states"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind={self.kind}: it is one of {', '.join(KINDS)}")
        if self.over not in ("states", "rows") or (self.kind == "rows" and self.over != "rows"):
            raise ValueError(
                f"over={self.over}: it is states or rows"
                + (", and rows for windows of so many rows" if self.kind == "rows" else "")
            )
        for name in ("pane", "first", "last", "slide", "size", "width", "offset", "gap", "id"):
            given = getattr(self, name) is not None
            if given != (name in KINDS[self.kind]):
                raise ValueError(f"kind={self.kind} {'has no' if given else 'needs'} {name}")
        for name in ("slide", "size", "width", "gap"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above zero")
        for name in ("slide", "size", "width", "offset", "gap"):
            if abs(getattr(self, name) or 0) > MOST:
                raise ValueError(f"{name} must not be above {MOST}")
        if self.start is None or self.end is None:
            raise ValueError("a window has a start and an end")

    @property
    def overlap(self) -> bool:
        """Whether a window may begin before the previous one has ended, and end later."""
        return self.kind in ("hop", "rows") and given(self.slide) < given(self.size)

    @property
    def follows_input(self) -> bool:
        """Whether the rows of a window are in input order. Those of sessions and count windows come sorted by time."""
        return self.kind in ("hop", "cumulate")

    @property
    def most_per_pane(self) -> int:
        """The maximum number of windows per existing pane."""
        match self.kind:
            case "hop":
                return -(-given(self.size) // given(self.slide))
            case "cumulate":
                return given(self.size)
        return 1

    @property
    def order(self) -> Column:
        """What the panes of a key are sorted by."""
        return (
            Column(self.pane, BIGINT, False) if self.pane is not None else Column(given(self.first), TIMESTAMP, False)
        )


def given(setting: T | None) -> T:
    """A setting that windows of this kind have, as `Windows` has checked."""
    assert setting is not None
    return setting


class StateFold(FrameFold):
    """Folds the exported states that rows hold."""

    def __init__(self, name: str, call: Aggregate):
        self.aggregate = call
        self.body = make_body(
            call,
            tuple(AggregateArgument(a.type, constant=a if isinstance(a, Literal) else None) for a in call.args),
            None,
        )
        self.fields, self.removable = self.body.fields, self.body.removable
        types = self.body.exported()
        self.columns = tuple(Column(n, t) for n, t in zip(state_names(name, len(types)), types, strict=True))

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        self.rows = rows

    def init(self, k: PipelineKernel, state: AggregateState) -> None:
        self.body.init(k, state)

    def add(self, k: PipelineKernel, state: AggregateState, row: Val) -> None:
        with k.guarded(None, self.aggregate.position):
            self.body.absorb(k, state, self._exported(k, row))

    def remove(self, k: PipelineKernel, state: AggregateState, row: Val) -> None:
        self.body.difference(k, state, self._exported(k, row))

    def _exported(self, k: PipelineKernel, row: Val) -> tuple[Datum, ...]:
        return tuple(self.rows.value(k, c, row) for c in self.columns)

    def merge(self, k: PipelineKernel, state: AggregateState, other: AggregateState) -> None:
        with k.guarded(None, self.aggregate.position):
            self.body.absorb(k, state, self.body.export(k, other))

    def finish(self, k: PipelineKernel, state: AggregateState, place: At) -> Datum:
        with k.guarded(None, self.aggregate.position):
            return as_type(self.body.finish(k, state), self.aggregate.type)


def fold_of(name: str, call: Aggregate) -> FrameFold | None:
    """How the states of a call are folded; None if they cannot be."""
    body = plain_body(call)
    if not body.release() and not any(t.is_string for t in body.exported()):
        return StateFold(name, call)
    if call.name in ("min", "max") and len(body.exported()) == 1:
        # A string is not copied: the state is the number of the pane that contains it.
        held = WindowCall(call.name, (Column(name, body.exported()[0]),), call.type)
        choice: FoldChoice | None = choice_of(held)
        return None if choice is None else PickFold(held, choice)
    return None


PLACE = Column("#place_in_input", BIGINT, False)
"""The position of a row in the input: rows are sorted by pane for the walk."""


class PlacedFold(BodyFold):
    """The state of an aggregate that depends on the order of the input."""

    def _args(self, k: PipelineKernel, row: Val) -> tuple[tuple[Datum, ...], Val | None]:
        found = super()._args(k, row)
        self.body.position = self.rows.value(k, PLACE, row).value
        return found


def is_placed(call: Aggregate) -> bool:
    """Whether the result depends on where rows are in the input."""
    return plain_body(call).wants_position


def needs_places(calls: tuple[tuple[str, Aggregate], ...], windows: Windows) -> bool:
    """Whether rows that are walked must have the column `PLACE`."""
    return windows.over == "rows" and windows.follows_input and any(is_placed(call) for _, call in calls)


def _row_fold(call: Aggregate, windows: Windows) -> FrameFold:
    """How the rows of a call are folded."""
    over = WindowCall(call.name, call.args, call.type, filter=call.filter, order=call.order, position=call.position)
    if windows.follows_input and is_placed(call):
        return PlacedFold(over)
    choice = choice_of(over)
    return BodyFold(over) if choice is None else PickFold(over, choice)


class CombinedRow(CachedRow):
    """A window: the key of its panes, its bounds, its results."""

    def __init__(self, row: CachedRow, results: dict[str, Datum]):
        super().__init__()
        self.row, self.results = row, results

    def make(self, k: PipelineKernel, name: str) -> Datum:
        return self.results[name] if name in self.results else self.row.column(k, name)


class CombineScan:
    """Windows in the order of (key, start)."""

    stable = False

    def __init__(
        self,
        columns: tuple[SourceColumn, ...],
        by: tuple[Column, ...],
        calls: tuple[tuple[str, Aggregate], ...],
        windows: Windows,
    ):
        self.columns, self.by, self.calls, self.windows = columns, by, calls, windows

    def produce(self, k: PipelineKernel, record: Val, rows: Val, each: Callable[[CachedRow], None]) -> None:
        pointers = {c.name: (c, load_pointers(k, record, i)) for i, c in enumerate(self.columns)}
        walk = self.walk(k, SortedRows(pointers, rows))
        with k.when(k.status.value == 0):
            walk.all(k, k.var(k.load("i64", record, 1)), each)
        walk.end(k)

    def walk(self, k: PipelineKernel, panes: SortedRows) -> Walk:
        return _WALKS[self.windows.kind](k, self, panes)

    def describe(self) -> str:
        calls = " ".join(f"{n}={c}" for n, c in self.calls)
        return f"combine {self.windows.kind} by=({', '.join(c.name for c in self.by)}) {calls}"


class Walk:
    """The position of the walk over panes. The current window has the panes `[low, high)`; its unit (a key, or less)
    ends at `unit_end`."""

    def __init__(self, k: PipelineKernel, scan: CombineScan, panes: SortedRows):
        self.windows, self.by, self.panes = scan.windows, scan.by, panes
        self.low, self.high, self.unit_end = (k.var(k.i64(0)) for _ in range(3))
        self.folds = {name: self._fold(name, call) for name, call in scan.calls}
        for fold in self.folds.values():
            fold.begin(k, panes)
        self.runs = {
            name: (SlidingRun if self.windows.overlap and fold.removable else FrameStacks)(k, fold)
            for name, fold in self.folds.items()
        }
        self.states = {name: registers(k, fold.fields) for name, fold in self.folds.items()}
        self.place = Place(k, panes)

    def _fold(self, name: str, call: Aggregate) -> FrameFold:
        fold = _row_fold(call, self.windows) if self.windows.over == "rows" else fold_of(name, call)
        assert fold is not None, f"the states of {call} cannot be folded"
        return fold

    def all(self, k: PipelineKernel, position: Var, each: Callable[[CachedRow], None]) -> None:
        """Give all windows of the panes; `position` numbers them."""
        windows = self.windows

        def give(start: Val, end: Val) -> None:
            results = {
                **self.results(k),
                **self.more(),
                given(windows.start): Datum(TIMESTAMP, (start,)),
                given(windows.end): Datum(TIMESTAMP, (end,)),
                POSITION: Datum(BIGINT, (position.value,)),
            }
            each(CombinedRow(self.panes.at(self.low.value), results))
            position.set(position.value + 1)
            # Rows that build strings may take long.
            with k.when(k.true if k.uses_scratch else (position.value & (CHECK_ROWS - 1)) == 0):
                k.check()

        self.low.set(k.i64(0))
        self.unit_end.set(k.i64(0))
        with k.forever() as loop:
            loop.stop_if(self.low.value >= self.panes.count)
            with k.when(self.low.value >= self.unit_end.value):
                self.enter(k)
            self.turn(k, give)
            loop.stop_if(k.status.value != 0)

    def end(self, k: PipelineKernel) -> None:
        for name, run in self.runs.items():
            run.free(k)
            self.folds[name].end(k)

    def results(self, k: PipelineKernel) -> dict[str, Datum]:
        """The results over the panes of the current window."""
        found = {}
        self.place.row = self.low.value
        for name, run in self.runs.items():
            run.move(k, self.low.value, self.high.value)
            run.give(k, self.low.value, self.states[name], True)
            found[name] = self.folds[name].finish(k, self.states[name], self.place)
        return found

    def more(self) -> dict[str, Datum]:
        """Other columns of the current window."""
        return {}

    def number(self, k: PipelineKernel, column: str | None, row: Val) -> Val:
        kind = BIGINT if column == self.windows.pane else TIMESTAMP
        return self.panes.value(k, Column(given(column), kind, False), row).value.to("i64")

    def restart(self, k: PipelineKernel) -> None:
        self.high.set(self.low.value)
        for run in self.runs.values():
            run.restart(k, self.low.value)

    def grow_unit(self, k: PipelineKernel, belongs: Callable[[Val], Val] | None = None) -> None:
        """Extend the unit up to the first pane of another key, or the first that does not belong to it."""
        if belongs is None and not self.by:
            self.unit_end.set(self.panes.count)
            return
        self.unit_end.set(self.low.value + 1)
        with k.forever() as loop:
            row = self.unit_end.value
            loop.stop_if(row >= self.panes.count)
            if self.by:
                loop.stop_if(~self.panes.same(k, self.by, self.low.value, row))
            if belongs is not None:
                loop.stop_if(~belongs(row))
            self.unit_end.set(row + 1)

    def enter(self, k: PipelineKernel) -> None:
        """A unit begins at `low`."""
        raise NotImplementedError

    def turn(self, k: PipelineKernel, give: Callable[[Val, Val], None]) -> None:
        """Give the next window, or none, and advance."""
        raise NotImplementedError


class HopWalk(Walk):
    """The unit is a key; `at` is the first pane of the current window."""

    def __init__(self, k: PipelineKernel, scan: CombineScan, panes: SortedRows):
        super().__init__(k, scan, panes)
        self.at = k.var(k.i64(0))

    def _jump(self, k: PipelineKernel, row: Val) -> None:
        """Go to the first window that reaches a pane."""
        slide, size = given(self.windows.slide), given(self.windows.size)
        self.at.set(floor_div(k, self.number(k, self.windows.pane, row) + (slide - size), slide) * slide)

    def enter(self, k: PipelineKernel) -> None:
        self.grow_unit(k)
        self.restart(k)
        self._jump(k, self.low.value)

    def turn(self, k: PipelineKernel, give: Callable[[Val, Val], None]) -> None:
        windows = self.windows
        with k.forever() as loop:
            loop.stop_if(self.high.value >= self.unit_end.value)
            loop.stop_if(self.number(k, windows.pane, self.high.value) >= self.at.value + windows.size)
            self.high.set(self.high.value + 1)
        with k.forever() as loop:
            loop.stop_if(self.low.value >= self.high.value)
            loop.stop_if(self.number(k, windows.pane, self.low.value) >= self.at.value)
            self.low.set(self.low.value + 1)
        with k.when(self.low.value < self.high.value):
            start = self.at.value * windows.width + windows.offset
            give(start, start + given(windows.size) * given(windows.width))
            self.at.set(self.at.value + windows.slide)
        with k.otherwise(), k.when(self.high.value < self.unit_end.value):
            self._jump(k, self.high.value)


class CumulateWalk(Walk):
    """The unit is a key and a multiple of the size; `at` is the pane behind the current window."""

    def __init__(self, k: PipelineKernel, scan: CombineScan, panes: SortedRows):
        super().__init__(k, scan, panes)
        self.at, self.base = k.var(k.i64(0)), k.var(k.i64(0))

    def enter(self, k: PipelineKernel) -> None:
        size, first = given(self.windows.size), self.number(k, self.windows.pane, self.low.value)
        self.base.set(floor_div(k, first, size) * size)
        self.grow_unit(k, lambda row: self.number(k, self.windows.pane, row) < self.base.value + size)
        self.restart(k)
        self.at.set(first + 1)

    def turn(self, k: PipelineKernel, give: Callable[[Val, Val], None]) -> None:
        windows = self.windows
        with k.forever() as loop:
            loop.stop_if(self.high.value >= self.unit_end.value)
            loop.stop_if(self.number(k, windows.pane, self.high.value) >= self.at.value)
            self.high.set(self.high.value + 1)
        give(self.base.value * windows.width + windows.offset, self.at.value * windows.width + windows.offset)
        self.at.set(self.at.value + 1)
        with k.when(self.at.value > self.base.value + windows.size):
            self.low.set(self.unit_end.value)


class SessionWalk(Walk):
    """The unit is a session."""

    def __init__(self, k: PipelineKernel, scan: CombineScan, panes: SortedRows):
        super().__init__(k, scan, panes)
        self.last = k.var(k.i64(0))

    def enter(self, k: PipelineKernel) -> None:
        windows = self.windows
        self.last.set(self.number(k, windows.last, self.low.value))

        def belongs(row: Val) -> Val:
            near = self.number(k, windows.first, row) <= self.last.value + windows.gap
            self.last.set(k.select(near, k.max(self.last.value, self.number(k, windows.last, row)), self.last.value))
            return near

        self.grow_unit(k, belongs)
        self.restart(k)
        self.high.set(self.unit_end.value)

    def turn(self, k: PipelineKernel, give: Callable[[Val, Val], None]) -> None:
        give(self.number(k, self.windows.first, self.low.value), self.last.value + self.windows.gap)
        self.low.set(self.unit_end.value)


class RowsWalk(Walk):
    """The unit is a key; `at` is the number of the current window, which begins `at * slide` rows behind `base`."""

    def __init__(self, k: PipelineKernel, scan: CombineScan, panes: SortedRows):
        super().__init__(k, scan, panes)
        self.at, self.base = k.var(k.i64(0)), k.var(k.i64(0))

    def enter(self, k: PipelineKernel) -> None:
        self.grow_unit(k)
        self.restart(k)
        self.at.set(k.i64(0))
        self.base.set(self.low.value)

    def more(self) -> dict[str, Datum]:
        return {given(self.windows.id): Datum(BIGINT, (self.at.value,))}

    def turn(self, k: PipelineKernel, give: Callable[[Val, Val], None]) -> None:
        windows = self.windows
        self.low.set(self.base.value + self.at.value * windows.slide)
        self.high.set(self.low.value + windows.size)
        with k.when(self.high.value <= self.unit_end.value):
            give(self.number(k, windows.first, self.low.value), self.number(k, windows.first, self.high.value - 1) + 1)
            self.at.set(self.at.value + 1)
        with k.otherwise():
            self.low.set(self.unit_end.value)


_WALKS: dict[str, type[Walk]] = {"hop": HopWalk, "cumulate": CumulateWalk, "session": SessionWalk, "rows": RowsWalk}
