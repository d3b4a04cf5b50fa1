"""`SplitReader`: files and tables as a stream that ends. Parts whose times are known come in the order of their least
time, and the least time that is left is a promise; so results leave while the rest is read.

`ReplayReader` gives the rows themselves in the order of their times, as fast as they happened, or a multiple of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from tsql.backends.io import Source, Split
from tsql.backends.io.normalize import normalize
from tsql.backends.io.watermark import DAY_US, micros
from tsql.backends.live.sources.reader import Arrival, Offset
from tsql.kernels.expr.schema import Schema

PARTITION = "rows"
BATCH_ROWS = 65_536
NEVER = -(2**63) + 1
"""A promise of a part whose times are not known."""


class SplitReader:
    """Reads the parts of a source. time: the column of the rows' times. The offset is the number of parts that have
    been read, and of batches of the next one."""

    replays = True

    def __init__(self, source: Source, schema: Schema, time: str | None):
        self.schema = schema
        self._source, self._time = source, time
        self._left = 0
        self._batches: Iterator[Arrival] = iter(())

    def open(self, offsets: Mapping[str, Offset]) -> None:
        done, skipped = offsets.get(PARTITION, (0, 0))
        splits = self._ordered()
        self._left = sum(split.rows or 0 for _, split in splits[done:])
        self._batches = self._read(splits, done, skipped)

    def poll(self, rows: int, seconds: float) -> Sequence[Arrival] | None:
        found: list[Arrival] = []
        taken = 0
        while taken < rows:
            arrival = next(self._batches, None)
            if arrival is None:
                return found or None
            found.append(arrival)
            taken += arrival.rows.num_rows
            self._left = max(self._left - arrival.rows.num_rows, 0)
        return found

    def behind(self) -> int | None:
        return self._left

    def acknowledge(self, offsets: Mapping[str, Offset]) -> None:
        """Files keep their rows."""

    def close(self) -> None:
        """Parts are closed as they are read."""

    def _ordered(self) -> list[tuple[int | None, Split]]:
        """The parts with their least times, those without a known one first."""
        bounds = getattr(self._source, "split_bounds", None)
        unit = 1
        if self._time is not None and self._source.schema[self._time].type.name == "DATE":
            unit = DAY_US
        found: list[tuple[int | None, Split]] = []
        for split in self._source.splits(self.schema.names, None):
            known = None if bounds is None or self._time is None else bounds(split, self._time)
            found.append((None if known is None else known[0] * unit, split))
        return sorted(found, key=lambda one: (one[0] is not None, one[0] or 0, one[1].order))

    def _read(self, splits: list[tuple[int | None, Split]], done: int, skipped: int) -> Iterator[Arrival]:
        for number, (least, split) in enumerate(splits[done:], done):
            if skipped == 0 and least is not None:
                yield Arrival(PARTITION, self._nothing(), [number, 0], least)
            for place, batch in enumerate(self._source.read(split, self.schema.names), 1):
                if place > skipped:
                    yield Arrival(PARTITION, self._normal(batch), [number, place])
            skipped = 0
            yield Arrival(PARTITION, self._nothing(), [number + 1, 0])

    def _nothing(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], schema=self.schema.to_arrow())

    def _normal(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return plain(batch, self.schema)


def plain(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """A batch of a source in the types of its schema: sources may give dictionaries, and decimals as integers."""
    target = schema.to_arrow()
    if batch.schema.equals(target):
        return batch
    arrays = []
    for column, field, kind in zip(batch.columns, schema, target, strict=True):
        column = column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
        if column.type != kind.type and pa.types.is_integer(column.type) and pa.types.is_decimal(kind.type):
            column = _unscaled(column, kind.type)
        arrays.append(column if column.type == kind.type else normalize(column, field.type)[0].cast(kind.type))
    return pa.RecordBatch.from_arrays(arrays, schema=target) if arrays else batch


def _unscaled(column: pa.Array, kind: pa.Decimal128Type) -> pa.Array:
    """Unscaled integers as decimals."""
    return column.cast(pa.decimal128(38, 0)).view(pa.decimal128(38, kind.scale)).cast(kind)


class ReplayReader(SplitReader):
    """The rows of a source in the order of their times. speed: how many times as fast as they happened; 0: as fast as
    they can be read. until: rows at this time or later are left out (microseconds). Rows wait in memory until the times
    of the parts that are left have passed theirs; rows without a time come last."""

    def __init__(
        self,
        source: Source,
        schema: Schema,
        time: str,
        speed: float,
        until: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__(source, schema, time)
        self._speed, self._until, self._clock = speed, until, clock
        self._start: tuple[float, int] | None = None
        self._stopped = threading.Event()
        self._next: Arrival | None = None

    def open(self, offsets: Mapping[str, Offset]) -> None:
        self._batches = self._in_order(int(offsets.get(PARTITION, 0)))

    def poll(self, rows: int, seconds: float) -> Sequence[Arrival] | None:
        found: list[Arrival] = []
        taken, deadline = 0, self._clock() + seconds
        while taken < rows:
            if self._next is None:
                self._next = next(self._batches, None)
            if self._next is None:
                return found or None
            wait = self._wait(self._next.promise)
            if wait > 0:
                if found or self._stopped.wait(max(0.0, min(wait, deadline - self._clock()))) or wait > seconds:
                    return found
                continue
            found.append(self._next)
            taken += self._next.rows.num_rows
            self._next = None
        return found

    def behind(self) -> int | None:
        return None

    def close(self) -> None:
        self._stopped.set()

    def _wait(self, due: int | None) -> float:
        """Seconds until rows of this time are due."""
        if self._speed <= 0 or due is None:
            return 0.0
        if self._start is None:
            self._start = (self._clock(), due)
        begun, first = self._start
        return begun + (due - first) / 1e6 / self._speed - self._clock()

    def _in_order(self, skipped: int) -> Iterator[Arrival]:
        """Sorted batches; the offset is the number of rows before."""
        rows = 0
        for batch, least in self._sorted_batches():
            first, rows = rows, rows + batch.num_rows
            if rows > skipped:
                yield Arrival(PARTITION, batch.slice(max(skipped - first, 0)), rows, least)

    def _sorted_batches(self) -> Iterator[tuple[pa.RecordBatch, int | None]]:
        """Batches in the order of time, with the least time of each."""
        assert self._time is not None
        splits, waiting = self._ordered(), []
        for number, (_, split) in enumerate(splits):
            waiting += [self._normal(batch) for batch in self._source.read(split, self.schema.names)]
            following = splits[number + 1][0] if number + 1 < len(splits) else None
            if number + 1 < len(splits) and following is None:
                continue
            table = pa.Table.from_batches(waiting, self.schema.to_arrow()).sort_by(self._time)
            times, present = micros(table.column(self._time))
            if self._until is not None:
                kept = ~present | (times < self._until)
                table, times, present = table.filter(pa.array(kept)), times[kept], present[kept]
            ready = len(times) if number + 1 == len(splits) else int((present & (times < (following or 0))).sum())
            yield from self._cut(table.slice(0, ready), times[:ready], present[:ready])
            waiting = table.slice(ready).to_batches()

    def _cut(
        self, table: pa.Table, times: np.ndarray, present: np.ndarray
    ) -> Iterator[tuple[pa.RecordBatch, int | None]]:
        """Batches that are small enough to be in time: at most a hundredth of a second of the replay each."""
        known = times[present]
        start = 0
        while start < table.num_rows:
            end = min(start + BATCH_ROWS, table.num_rows)
            if self._speed > 0 and start < len(known):
                last = int(known[start]) + max(1, int(10_000 * self._speed))
                end = max(start + 1, min(end, int(np.searchsorted(known, last))))
            (batch,) = table.slice(start, end - start).combine_chunks().to_batches()
            yield batch, int(known[start]) if start < len(known) else None
            start = end
