"""A week of events in a few seconds: what a job holds, writes and opens on day 7 is what it did on day 2."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tsql
from tests.live.jobs.test_emit import SCHEMA
from tests.live.scripted import Piece, scripted
from tests.patience import wait_until
from tsql.backends.live.sources.reader import Arrival, Offset
from tsql.kernels.expr.schema import Schema

DAY_US = 86_400_000_000
DAYS = 7
PIECES = 48
"""Pieces of a day."""
QUERIES = {
    "tumble": (
        "SELECT k, window_start, count(*) AS n, sum(v) AS s FROM TUMBLE(events, ts, INTERVAL '10 minutes') "
        "GROUP BY k, window_start"
    ),
    "session": (
        "SELECT k, window_start, count(*) AS n FROM SESSION(events PARTITION BY k, ts, gap => INTERVAL '5 minutes') "
        "GROUP BY k, window_start, window_end"
    ),
    "join": (
        "SELECT e.id, o.v FROM events e JOIN others o "
        "ON e.k = o.k AND o.ts BETWEEN e.ts - INTERVAL '5 minutes' AND e.ts"
    ),
    "over": (
        "SELECT id, sum(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '20 minutes' PRECEDING AND CURRENT "
        "ROW) AS s FROM events"
    ),
}


class Days:
    """A reader that makes its rows, up to the day that is allowed."""

    replays = True

    def __init__(self, schema: Schema, seed: int, rows: int, allowed: list[int]):
        self.schema, self.seed, self.rows, self.allowed = schema, seed, rows, allowed
        self.place = 0
        self._closed = threading.Event()

    def open(self, offsets: Mapping[str, Offset]) -> None:
        self.place = offsets.get("p", 0)

    def poll(self, rows: int, seconds: float) -> list[Arrival] | None:
        if self.place >= self.allowed[0] * PIECES:
            self._closed.wait(min(seconds, 0.005))
            return []
        self.place += 1
        return [Arrival("p", self._piece(self.place - 1), self.place)]

    def _piece(self, place: int) -> pa.RecordBatch:
        made = np.random.default_rng([self.seed, place])
        step = DAY_US // PIECES
        times = np.sort(place * step + made.integers(-60_000_000, step, self.rows))
        columns = {
            "id": pa.array(place * self.rows + np.arange(self.rows)),
            "k": pa.array(made.integers(0, self.rows // 20, self.rows)),
            "v": pa.array(made.integers(0, 1000, self.rows)),
            "ts": pa.array(times).cast(pa.timestamp("us")),
        }
        return pa.record_batch([columns[name] for name in self.schema.names], schema=self.schema.to_arrow())

    def behind(self) -> int | None:
        return None

    def acknowledge(self, offsets: Mapping[str, Offset]) -> None:
        """The rows can be made again."""

    def close(self) -> None:
        self._closed.set()


@dataclass(frozen=True)
class Look:
    held_rows: int
    threads: int
    descriptors: int
    checkpoint_files: int
    checkpoint_bytes: int
    resident_kb: int


def look(job: tsql.Job, folder: Path) -> Look:
    gc.collect()
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    (resident,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    threads = [one for one in threading.enumerate() if one.name.startswith(("tsql-job-w", "tsql-stream-"))]
    return Look(
        job.progress().held_rows,
        len(threads),
        len(os.listdir("/proc/self/fd")),
        len(sizes),
        sum(sizes),
        int(resident.split()[1]),
    )


def has_read(job: tsql.Job, rows: int) -> bool:
    return all(stream.rows == rows for stream in job.progress().streams)


@pytest.mark.parametrize(
    "rows", [1_000, pytest.param(20_000, marks=pytest.mark.all_configurations)], ids=["short", "long"]
)
@pytest.mark.parametrize("name", QUERIES)
def test_a_week(name: str, rows: int, tmp_path: Path) -> None:
    allowed = [0]
    with tsql.connect(threads=2) as session:
        for seed, stream in enumerate(("events", "others")):
            scripted(session, stream, {"p": [Piece(SCHEMA.empty_table())]}, SCHEMA, "ts", ends=False,
                     watermark="ts - INTERVAL '2 minutes'")  # fmt: skip
            entry: Any = session.catalog.entry(stream)
            entry.data.open_reader = lambda schema, seed=seed: Days(schema, seed, rows, allowed)
        left = [0]

        def count(batch: pa.RecordBatch) -> None:
            left[0] += batch.num_rows

        job = session.sql(QUERIES[name]).start(count, checkpoint=tmp_path, interval=0.05, name="w")
        looks = []
        for day in range(1, DAYS + 1):
            allowed[0] = day
            assert wait_until(lambda: job.is_over or has_read(job, allowed[0] * PIECES * rows))
            looks.append(look(job, tmp_path))
        job.stop()
        assert left[0] > 0
    second, last = looks[1], looks[-1]
    said = "\n".join(map(str, looks))
    # What is there depends on the moment, but never on how many days have been.
    assert last.held_rows <= second.held_rows + PIECES * rows // 4, said
    assert last.checkpoint_bytes <= second.checkpoint_bytes + PIECES * rows * 32, said
    assert last.checkpoint_files <= second.checkpoint_files + 12, said
    assert last.threads == second.threads, said
    assert last.descriptors <= second.descriptors + 3, said
    assert last.resident_kb <= second.resident_kb + 64_000, said
