"""YSB as a whole job: rows from a Python function, through `db.stream` and `start()`, with and without checkpoints, and
the time until a result leaves when rows come at a steady pace."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import tsql
from bench import ads
from bench.ads import YSB

COLUMNS = {
    "event_time": "TIMESTAMP",
    "user_id": "BIGINT",
    "page_id": "BIGINT",
    "ad_id": "BIGINT",
    "ad_type": "VARCHAR",
    "event_type": "VARCHAR",
    "amount": "BIGINT",
}
PACED = (
    "SELECT window_start, ad_id % 100 AS ad, count(*) AS n FROM TUMBLE(paced, event_time, INTERVAL '100 milliseconds') "
    "GROUP BY ALL EMIT FINAL WITHIN INTERVAL '10 milliseconds'"
)
WINDOW_US = 100_000


@dataclass(frozen=True)
class Ran:
    """A job that has ended. seconds: of its run; epochs: how many were written."""

    rows: int
    seconds: float
    cpu_seconds: float
    epochs: int
    views: int


class Cycle:
    """A table that repeats, each time later: as many rows as a run needs, without their memory."""

    def __init__(self, table: pa.Table, batch_rows: int, cycles: int):
        self.batches, self.cycles = table.combine_chunks().to_batches(max_chunksize=batch_rows), cycles
        times = table["event_time"].cast(pa.int64())
        self.span = -(-(pc.max(times).as_py() + 1 - pc.min(times).as_py()) // 10_000_000) * 10_000_000
        self.rows = table.num_rows * cycles

    def __call__(self, offset: int) -> Iterator[pa.RecordBatch]:
        """The batches behind an offset, which counts them."""
        for number in range(offset, len(self.batches) * self.cycles):
            cycle, place = divmod(number, len(self.batches))
            batch = self.batches[place]
            yield later(batch, cycle * self.span)


def later(batch: pa.RecordBatch, length_us: int) -> pa.RecordBatch:
    """Ad events with other times."""
    times = pc.add(batch["event_time"].view(pa.int64()), length_us).view(pa.timestamp("us"))
    return pa.RecordBatch.from_arrays([times, *batch.columns[1:]], names=batch.schema.names)


def run(source: Cycle, campaigns: pa.Table, checkpoint: bool, interval: float = 1.0) -> Ran:
    """One job over all rows of a source."""
    views = 0

    def take(batch: pa.RecordBatch) -> None:
        nonlocal views
        views += pc.sum(batch["views"]).as_py() or 0

    with tempfile.TemporaryDirectory() as folder, tsql.connect(threads=2) as session:
        session.register("campaigns", campaigns)
        session.stream("ads", source, time="event_time", columns=COLUMNS)
        begun, used = time.perf_counter(), time.process_time()
        place = Path(folder) / "state" if checkpoint else None
        job = session.sql(YSB + " EMIT FINAL").start(sink=take, checkpoint=place, interval=interval)
        job.wait(600)
        seconds = time.perf_counter() - begun
        return Ran(source.rows, seconds, time.process_time() - used, job.progress().epoch, views)


def expected_views(source: Cycle) -> int:
    """What the views of all windows must add up to: each ad has a campaign."""
    views = sum(pc.sum(pc.equal(batch["event_type"], "view")).as_py() for batch in source.batches)
    return views * source.cycles


class Paced:
    """Events at a steady rate for some seconds, in batches of a millisecond. Keeps when each has come."""

    def __init__(self, per_second: int, seconds: float):
        self.rows = max(per_second // 1_000, 1)
        self.tick = 1_000_000 // per_second if per_second <= 1_000_000 else 1
        self.count = int(seconds * 1_000)
        self.came: list[float] = []
        random = np.random.default_rng(3)
        self.ads = pa.array(random.integers(0, 10_000, self.rows))
        self.offsets = np.arange(self.rows) * 1_000 // self.rows

    def __call__(self, offset: int) -> Iterator[pa.RecordBatch]:
        begun = time.perf_counter() - offset / 1_000
        for number in range(offset, self.count):
            due = begun + (number + 1) / 1_000
            while (left := due - time.perf_counter()) > 0:
                time.sleep(left)
            times = pa.array(ads.START_US + number * 1_000 + self.offsets).view(pa.timestamp("us"))
            self.came.append(time.perf_counter())
            yield pa.RecordBatch.from_arrays([times, self.ads], names=["event_time", "ad_id"])

    def last_of(self, window_start: int) -> float:
        """When the last batch of a window came."""
        return self.came[min((window_start - ads.START_US + WINDOW_US) // 1_000, self.count) - 1]


@dataclass(frozen=True)
class Latency:
    """Milliseconds from the last contributing row to the result, and what was missing from the results."""

    median_ms: float
    p99_ms: float
    windows: int
    per_second: float
    why: str | None


def latency(per_second: int, seconds: float) -> Latency:
    """Run a job over a paced stream."""
    source, out, rows = Paced(per_second, seconds), {}, 0

    def take(batch: pa.RecordBatch) -> None:
        nonlocal rows
        now = time.perf_counter()
        rows += pc.sum(batch["n"]).as_py() or 0
        for start in pc.unique(batch["window_start"]).cast(pa.int64()).to_pylist():
            out[start] = now

    with tsql.connect(threads=2) as session:
        session.stream("paced", source, time="event_time", columns={"event_time": "TIMESTAMP", "ad_id": "BIGINT"})
        session.sql(PACED).start(sink=take, interval=0.001).wait(60 + 4 * seconds)
    # Kernels are made while the first windows pass, and the last one ends with the stream.
    settled = [start for start in sorted(out)[3:-1]] or list(out)
    waits = sorted((out[start] - source.last_of(start)) * 1_000 for start in settled)
    sent = source.rows * source.count
    why = None if rows == sent else f"{rows:,} rows were counted, and {sent:,} came"
    rate = sent / (source.came[-1] - source.came[0]) if len(source.came) > 1 else 0.0
    return Latency(statistics.median(waits), waits[min(len(waits) * 99 // 100, len(waits) - 1)], len(waits), rate, why)
