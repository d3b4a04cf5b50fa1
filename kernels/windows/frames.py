"""Frames: for each row, which rows of its partition a call sees.

ROWS and GROUPS count; RANGE with an offset compares values. With constant offsets both ends only move forward, so the
ends of a RANGE are found by walking on from the last ones. With offsets that depend on the row, binary search is
used."""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.nodes import SortKey
from tsql.kernels.functions.comparison import compare
from tsql.kernels.windows.base import Memory, Place, SortedRows
from tsql.kernels.windows.call import Bound, Frame

Piece = tuple[Val, Val]


class Frames:
    """The frame of a call, while a kernel is emitted."""

    def __init__(self, frame: Frame, order: tuple[SortKey, ...], position: int | None):
        self.frame, self.order, self.position = frame, order, position
        self.ranged = frame.key is not None
        self.grouped = frame.mode == "groups" and (frame.start.offset is not None or frame.end.offset is not None)

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        if self.grouped:
            self.starts = Memory(k, (rows.count + 1) * 8)
            self.groups = k.var(k.i64(0))
        if self.ranged:
            self.first, self.last = k.var(k.i64(0)), k.var(k.i64(0))
            self.walked = {which: k.var(k.i64(0)) for which in ("start", "end")}

    def end(self, k: PipelineKernel) -> None:
        if self.grouped:
            self.starts.free(k)

    def partition(self, k: PipelineKernel, place: Place) -> None:
        if self.grouped:
            self._number_groups(k, place)
        if self.ranged:
            self._skip_nulls(k, place)
            for which, walked in self.walked.items():
                walked.set(self.first.value)
                if place.inside:
                    self._jump(k, place, which)

    def _number_groups(self, k: PipelineKernel, place: Place) -> None:
        """Record the first row of each group of peers, then the partition's end."""
        keys = tuple(key.expr for key in self.order)
        count = k.var(k.i64(0))
        start, end = place.start, place.end
        with k.range(end, start) as j:
            fresh = k.var(j == start)
            with k.when(j > start):
                fresh.set(~place.rows.same(k, keys, j, j - 1))
            with k.when(fresh.value):
                k.store(self.starts.address, j, count.value)
                count.set(count.value + 1)
        k.store(self.starts.address, end, count.value)
        self.groups.set(count.value)

    def _skip_nulls(self, k: PipelineKernel, place: Place) -> None:
        """Find the rows of the partition whose key is not NULL."""
        self.first.set(place.start)
        self.last.set(place.end)
        at = self.first if self.order[0].nulls_first else self.last
        step = 0 if self.order[0].nulls_first else -1
        with k.forever() as loop:
            loop.stop_if(self.first.value >= self.last.value)
            key = self._key(k, place, at.value + step)
            loop.stop_if(k.true if key.valid is None else key.valid)
            at.set(at.value + (1 if step == 0 else -1))

    def _jump(self, k: PipelineKernel, place: Place, which: str) -> None:
        """If a walk begins inside of a partition, search for an end of its first row's frame."""
        bound = self.frame.start if which == "start" else self.frame.end
        if bound.limit is None or not bound.is_constant:
            return
        key, limit = self._key(k, place, place.row), place.rows.value(k, bound.limit, place.row)
        known = place.row > place.start
        for d in (key, limit):
            known = known if d.valid is None else known & d.valid
        with k.when(known):
            self.walked[which].set(self._search(k, self._before(k, place, limit.with_valid(None), which)))

    def _before(self, k: PipelineKernel, place: Place, limit: Datum, which: str) -> Callable[[Val], Val]:
        """Whether a row lies before an end of the frame, which is at `limit`."""
        earlier, later = ("<", ">") if not self.order[0].descending else (">", "<")

        def before(number: Val) -> Val:
            there = self._key(k, place, number).with_valid(None)
            return ~compare(k, later, there, limit) if which == "end" else compare(k, earlier, there, limit)

        return before

    def _key(self, k: PipelineKernel, place: Place, number: Val) -> Datum:
        assert self.frame.key is not None, "RANGE with an offset has a key"
        return place.rows.value(k, self.frame.key, number)

    def bounds(self, k: PipelineKernel, place: Place) -> Piece:
        """The frame of the current row, ignoring EXCLUDE; never less than empty."""
        start = self._bound(k, place, self.frame.start, "start")
        end = self._bound(k, place, self.frame.end, "end")
        return start, k.max(start, end)

    def _bound(self, k: PipelineKernel, place: Place, bound: Bound, which: str) -> Val:
        is_end = which == "end"
        if bound.kind == "unbounded":
            return place.end if is_end else place.start
        if bound.kind == "current":
            if self.frame.mode == "rows":
                return place.row + 1 if is_end else place.row
            return place.peers_end if is_end else place.peers
        if self.ranged:
            return self._range_bound(k, place, bound, which)
        assert bound.offset is not None, "PRECEDING and FOLLOWING have an offset"
        d = place.rows.value(k, bound.offset, place.row).wide()
        offset = k.max(d.value, k.i64(0))
        if self.frame.mode == "rows":
            what = f"Window ROWS {bound.kind.upper()} expression cannot be"
            self._refuse(k, d, f"{what} negative", f"{what} NULL")
            return self._row_bound(k, place, bound, offset, is_end)
        self._refuse(k, d, f"Invalid GROUPS {bound.kind.upper()} value")
        found = self._group_bound(k, place, bound, offset, is_end)
        # A distance of NULL means the peers of the row, as for RANGE.
        return found if d.valid is None else k.select(d.valid, found, place.peers_end if is_end else place.peers)

    def _refuse(self, k: PipelineKernel, d: Datum, negative: str, unknown: str | None = None) -> None:
        """Fail for a distance that is negative, or NULL."""
        if d.valid is not None and unknown is not None:
            with k.guarded(None, self.position):
                k.fail(~d.valid, unknown)
        with k.guarded(d.valid, self.position):
            k.fail(d.value < 0, negative)

    def _row_bound(self, k: PipelineKernel, place: Place, bound: Bound, offset: Val, is_end: bool) -> Val:
        row = place.row
        if bound.kind == "preceding":
            return k.select(offset > row - place.start, place.start, row - offset + int(is_end))
        return k.select(offset > place.end - 1 - row, place.end, row + offset + int(is_end))

    def _group_bound(self, k: PipelineKernel, place: Place, bound: Bound, offset: Val, is_end: bool) -> Val:
        group, groups = place.group, self.groups.value
        if bound.kind == "preceding":
            outside = offset > group
            number = k.select(outside, k.i64(0), group - offset + int(is_end))
        else:
            outside = offset > groups - 1 - group
            number = k.select(outside, groups, group + offset + int(is_end))
        return k.load("i64", self.starts.address, number)

    def _range_bound(self, k: PipelineKernel, place: Place, bound: Bound, which: str) -> Val:
        """Where keys reach the limit. A NULL key or limit means the peers of the row."""
        is_end = which == "end"
        assert bound.limit is not None, "RANGE with an offset has limits"
        key, limit = self._key(k, place, place.row), place.rows.value(k, bound.limit, place.row)
        known = k.true
        for d in (key, limit):
            known = known if d.valid is None else known & d.valid
        result = k.var(place.peers_end if is_end else place.peers)
        with k.when(known):
            key, limit = key.with_valid(None), limit.with_valid(None)
            earlier, later = ("<", ">") if not self.order[0].descending else (">", "<")
            with k.guarded(None, self.position):
                wrong = compare(k, later if bound.kind == "preceding" else earlier, limit, key)
                k.fail(wrong, f"Invalid RANGE {bound.kind.upper()} value")
            before = self._before(k, place, limit, which)
            if bound.is_constant:
                self._walk(k, which, before)
                result.set(self.walked[which].value)
            else:
                result.set(self._search(k, before))
        return result.value

    def _walk(self, k: PipelineKernel, which: str, before: Callable[[Val], Val]) -> None:
        at = self.walked[which]
        with k.forever() as loop:
            number = at.value
            loop.stop_if(number >= self.last.value)
            loop.stop_if(~before(number))
            at.set(number + 1)

    def _search(self, k: PipelineKernel, before: Callable[[Val], Val]) -> Val:
        low, high = k.var(self.first.value), k.var(self.last.value)
        with k.forever() as loop:
            loop.stop_if(low.value >= high.value)
            middle = low.value + (high.value - low.value).ushr(1)
            behind = before(middle)
            low.set(k.select(behind, middle + 1, low.value))
            high.set(k.select(behind, high.value, middle))
        return low.value

    def pieces(self, k: PipelineKernel, place: Place, current: bool = True) -> list[Piece]:
        """The frame as runs of rows, in order, without the rows that EXCLUDE removes. `current`: include the run of the
        row itself that EXCLUDE TIES keeps."""
        start, end = self.bounds(k, place)
        row = place.row
        match self.frame.exclude:
            case "current row":
                return [self._cut(k, start, end, start, row), self._cut(k, start, end, row + 1, end)]
            case "group":
                return [self._cut(k, start, end, start, place.peers), self._cut(k, start, end, place.peers_end, end)]
            case "ties":
                before, behind = (
                    self._cut(k, start, end, start, place.peers),
                    self._cut(k, start, end, place.peers_end, end),
                )
                return [before, self._cut(k, start, end, row, row + 1), behind] if current else [before, behind]
        return [(start, end)]

    def _cut(self, k: PipelineKernel, start: Val, end: Val, low: Val, high: Val) -> Piece:
        low = k.min(k.max(low, start), end)
        return low, k.max(k.min(high, end), low)
