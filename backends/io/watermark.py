"""How far the time of a stream has come, and what becomes of rows that come too late: the batches of a live source go
through `Lateness`.

Semantics, row by row in the order of arrival (the batches that rows come in make no difference):

- After a row, the watermark of its partition is the greatest value so far of the watermark expression; NULL says
  nothing. The watermark of the source is the least one of its partitions, and never goes back. A partition from which
  nothing has come for the idle timeout is left out of the least until it sends again; one that has sent nothing at all
  holds the others up until then. If all of them idle, nothing moves.
- A row is late if its time is before the bound: the watermark as it was before the row, minus the allowed lateness. The
  promise to those who read (the punctuation) is that bound, so that no row of a stream breaks it.
- Late rows are dropped (DROP), get the bound as their time (ADJUST), are handed over beside the others (INTO), or are
  an error (ERROR).
- A row without a time is never late. It is in no window either; `Counts` has the number of such rows.

State is a number per partition. Time is int64 microseconds, and a batch costs a running maximum over one column.
Bounded input is never late: files that are read as tables do not come here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np
import pyarrow as pa

from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.process.arrow_compute import pc
from tsql.kernels.process.quick_dataclass import dataclass

DROP, ADJUST, ERROR, INTO = POLICIES = ("DROP", "ADJUST", "ERROR", "INTO")
NEVER = -(2**63)
"""The watermark before any row."""

DAY_US = 86_400_000_000


@dataclass(frozen=True)
class Watermark:
    """WATERMARK FOR column AS expression, with its handling of late rows. `expression` is bound over the columns of the
    stream and returns a time; `text` is its source text; `into` is the table of ON LATE INTO."""

    column: str
    text: str
    expression: Expr = field(compare=False, repr=False)
    idle_timeout_us: int | None = None
    allowed_lateness_us: int = 0
    on_late: str = DROP
    into: str | None = None


@dataclass
class Counts:
    """Counts of rows by what happened to them."""

    rows: int = 0
    without_time: int = 0
    late: int = 0


@dataclass(frozen=True)
class CheckedBatch:
    """A batch after the check. `late` has the rows for the table of ON LATE INTO. `punctuation` promises that no later
    row is before it (None: no promise yet)."""

    batch: pa.RecordBatch
    late: pa.RecordBatch | None
    watermark: int | None
    punctuation: int | None


_UTC = pa.timestamp("us", "UTC")


class Lateness:
    """Tracks the watermark of a source over the batches of its partitions.

    marks: the values of the watermark expression for the rows of a batch. Call `consume` for each batch and `tick` from
    time to time. Both take the time of a monotonic clock in microseconds, so that a run can be repeated."""

    def __init__(
        self, watermark: Watermark, marks: Callable[[pa.RecordBatch], pa.Array], partitions: int = 1, clock_us: int = 0
    ):
        if partitions < 0:
            raise ValueError("a source has no negative number of partitions")
        self.watermark, self.marks = watermark, marks
        self.counts = Counts()
        self._current = NEVER
        self._marks = [NEVER] * partitions
        self._heard = [clock_us] * partitions

    @property
    def current(self) -> int | None:
        """The watermark of the source; None if there is none yet."""
        return None if self._current == NEVER else self._current

    @property
    def punctuation(self) -> int | None:
        """No later row that `consume` lets through is before this."""
        return None if self._current == NEVER else _minus(self._current, self.watermark.allowed_lateness_us)

    def join(self, clock_us: int = 0) -> int:
        """A further partition has been found: its number. It holds the others up until it sends or idles."""
        self._heard.append(clock_us)
        self._marks.append(NEVER)  # the last: another thread may ask `behind`
        return len(self._marks) - 1

    def behind(self, clock_us: int) -> int | None:
        """The partition whose watermark is the least of those that count; None if all idle."""
        counted = [number for number in range(len(self._marks)) if not self._idles(number, clock_us)]
        return min(counted, key=self._marks.__getitem__, default=None)

    def consume(self, batch: pa.RecordBatch, partition: int = 0, clock_us: int = 0) -> CheckedBatch:
        """Take the rows that have come from a partition, in their order."""
        self._heard[partition] = clock_us if batch.num_rows else self._heard[partition]
        column = batch.schema.get_field_index(self.watermark.column)
        found = self.marks(batch)
        if self._are_in_order(batch.column(column), found, partition, clock_us):
            self.counts.rows += batch.num_rows
            return CheckedBatch(batch, None, self.current, self.punctuation)
        times, present = micros(batch.column(column))
        marks, known = micros(found)
        marks[~known] = NEVER
        before = self._before(marks, partition, clock_us)
        bounds = _below(before[:-1], self.watermark.allowed_lateness_us)
        self._current = max(self._current, int(before[-1]))
        late = present & (times < bounds)
        self.counts.rows += len(times)
        self.counts.without_time += int(len(times) - present.sum())
        if not late.any():
            return CheckedBatch(batch, None, self.current, self.punctuation)
        self.counts.late += int(late.sum())
        kept, left = self._late(batch, column, times, bounds, late)
        return CheckedBatch(kept, left, self.current, self.punctuation)

    def tick(self, clock_us: int) -> int | None:
        """The punctuation at a clock time: idle partitions no longer hold the others up."""
        self._current = max(self._current, self._least(clock_us))
        return self.punctuation

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {
            "current": self._current,
            "marks": list(self._marks),
            "counts": [self.counts.rows, self.counts.without_time, self.counts.late],
        }

    def restore(self, state: dict[str, Any], clock_us: int = 0) -> None:
        """Continue from a checkpoint. Every partition counts as active now."""
        self._current, self._marks = state["current"], list(state["marks"])
        self.counts = Counts(*state["counts"])
        self._heard = [clock_us] * len(self._marks)

    def _are_in_order(self, column: pa.Array, found: pa.Array, partition: int, clock_us: int) -> bool:
        """Take the rows of a batch if it is plain that none of them is late: the watermark never falls from row to row,
        and no row is before it. Most batches of most streams are so, and this takes a tenth of the time."""
        times, marks = _plain(column), _plain(found)
        if times is None or marks is None or not len(times):
            return False
        own = self._marks[partition]
        first = max(min(own, self._least(clock_us, without=partition)), self._current)
        allowed = self.watermark.allowed_lateness_us
        if allowed or own > marks[0] or times.min() < first:
            return False
        if not (marks[1:] >= marks[:-1]).all() or not (times[1:] >= marks[:-1]).all():
            return False
        self._marks[partition] = int(marks[-1])
        self._current = max(self._current, min(int(marks[-1]), self._least(clock_us, without=partition)))
        return True

    def _before(self, marks: np.ndarray, partition: int, clock_us: int) -> np.ndarray:
        """The watermark of the source before each row of a partition's batch, and after the last one."""
        running = np.empty(len(marks) + 1, np.int64)
        running[0], running[1:] = self._marks[partition], marks
        np.maximum.accumulate(running, out=running)
        self._marks[partition] = int(running[-1])
        others = self._least(clock_us, without=partition)
        return np.maximum(np.minimum(running, others), self._current)

    def _least(self, clock_us: int, without: int | None = None) -> int:
        """The minimum watermark of the partitions that count. If there are none: a value without effect (with
        `without`), or no watermark."""
        counted = [
            mark for number, mark in enumerate(self._marks) if number != without and not self._idles(number, clock_us)
        ]
        return min(counted, default=NEVER if without is None else 2**63 - 1)

    def _idles(self, partition: int, clock_us: int) -> bool:
        timeout = self.watermark.idle_timeout_us
        return timeout is not None and clock_us - self._heard[partition] >= timeout

    def _late(
        self, batch: pa.RecordBatch, column: int, times: np.ndarray, bounds: np.ndarray, late: np.ndarray
    ) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        match self.watermark.on_late:
            case "ADJUST":
                moved = _from_micros(np.where(late, bounds, times), batch.column(column))
                return batch.set_column(column, batch.schema.field(column), moved), None
            case "ERROR":
                first = int(np.flatnonzero(late)[0])
                raise SourceError(
                    (
                        f'a row is late: its "{self.watermark.column}" is {_shown(times[first])}, and rows '
                        f"before {_shown(bounds[first])} are no longer expected"
                    ),
                    hint="ALLOWED LATENESS waits longer; ON LATE DROP, ADJUST or INTO a table go on",
                )
        kept = batch.filter(pa.array(~late))
        return kept, batch.filter(pa.array(late)) if self.watermark.on_late == INTO else None


def micros(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Times (TIMESTAMP, TIMESTAMPTZ or DATE) as microseconds since 1970, and which of them are not NULL."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    present = np.asarray(pc.is_valid(array))
    if pa.types.is_date(array.type):
        array = array.cast(pa.timestamp("us"))
    return np.array(array.cast(pa.int64()).fill_null(0), np.int64), present


def _plain(array: pa.Array) -> np.ndarray | None:
    """Times as they are stored, if they are microseconds and none of them is NULL."""
    if not isinstance(array, pa.Array) or array.null_count or array.type not in (pa.timestamp("us"), _UTC):
        return None
    return array.view(pa.int64()).to_numpy()


def _from_micros(times: np.ndarray, like: pa.Array) -> pa.Array:
    """Times in the type of a column, with its NULLs. For a DATE, the first day that is not before the time."""
    missing = np.asarray(pc.is_null(like)) if like.null_count else None
    if pa.types.is_date(like.type):
        return pa.array((-(-times // DAY_US)).astype(np.int32), pa.int32(), mask=missing).view(pa.date32())
    return pa.array(times, pa.int64(), mask=missing).view(like.type)


def _minus(time: int, length: int) -> int:
    return max(time - length, NEVER)


def _below(times: np.ndarray, length: int) -> np.ndarray:
    """The times minus a length. NEVER stays unchanged."""
    return np.where(times < NEVER + length, NEVER, times - length) if length else times


def _shown(time: int) -> str:
    text = np.datetime64(int(time), "us").item()
    return str(text) if not isinstance(text, int) else f"{text} us"
