"""What a union holds when one of its streams is late: ours passes rows on as they come, and an ordering union holds
those of the early stream until the late one has passed them (seed 004, figure 1)."""

from __future__ import annotations

import heapq
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bench import ads
from bench.live_cases.feeding import Feeding
from tsql.tpch.measure import difference

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64())])
OURS = (
    "SELECT window_start, k, count(*) AS n FROM TUMBLE((SELECT ts, k FROM early UNION ALL SELECT ts, k FROM late), ts, "
    "INTERVAL '10 seconds') GROUP BY ALL"
)
ORDERED = "SELECT window_start, k, count(*) AS n FROM TUMBLE(early, ts, INTERVAL '10 seconds') GROUP BY ALL"
TIMES = {"early": "ts", "late": "ts"}
PER_SECOND, GROUPS = 10_000, 4_096
STEP_US = 250_000


@dataclass(frozen=True)
class Held:
    """The most that was held, and milliseconds of the steps that gave results."""

    rows: int
    bytes: int
    result_ms: float


def stream(seed: int, seconds: int) -> pa.Table:
    """Rows of one stream in the order of time."""
    count = seconds * PER_SECOND
    times = ads.START_US + np.arange(count) * (1_000_000 // PER_SECOND)
    groups = np.random.default_rng(seed).integers(0, GROUPS, count)
    return pa.table({"ts": pa.array(times).view(pa.timestamp("us")), "k": pa.array(groups)}, schema=SCHEMA)


def compare(skew_s: int, seconds: int) -> tuple[Held, Held, str | None]:
    """What ours and an ordering union hold, and a difference of their results."""
    tables = {"early": stream(1, seconds), "late": stream(2, seconds)}
    ours, found = _ours(tables, skew_s)
    ordered, other = _ordered(tables, skew_s)
    return ours, ordered, difference(found, other, ordered=False)


def _arrivals(tables: Mapping[str, pa.Table], skew_s: int) -> list[dict[str, pa.RecordBatch]]:
    """What comes in each quarter of a second."""
    rows = PER_SECOND * STEP_US // 1_000_000
    delays = {"early": 0, "late": skew_s * 1_000_000 // STEP_US}
    steps = max(-(-table.num_rows // rows) + delays[name] for name, table in tables.items())
    batches = {name: table.to_batches(max_chunksize=rows) for name, table in tables.items()}
    return [
        {name: mine[step - delays[name]] for name, mine in batches.items() if 0 <= step - delays[name] < len(mine)}
        for step in range(steps)
    ]


class Most:
    """The most that was held at a time."""

    def __init__(self) -> None:
        self.rows = self.bytes = 0
        self.waits: list[float] = []

    def saw(self, rows: int, size: int, seconds: float, results: list[pa.RecordBatch]) -> None:
        self.rows, self.bytes = max(self.rows, rows), max(self.bytes, size)
        if results:
            self.waits.append(seconds * 1_000)

    def held(self) -> Held:
        return Held(self.rows, self.bytes, statistics.median(self.waits) if self.waits else 0.0)


def _ours(tables: Mapping[str, pa.Table], skew_s: int) -> tuple[Held, pa.Table]:
    feeding, most = Feeding(OURS, tables, TIMES), Most()
    query = feeding.query()
    found: list[pa.RecordBatch] = []
    for come in _arrivals(tables, skew_s):
        begun = time.perf_counter()
        rows, promises = {}, {}
        for scan, name in feeding.scans.items():
            if name in come:
                rows[scan] = query.arrived(scan, come[name])
                promises[scan] = come[name]["ts"][-1].value + 1
        given = query.advance(rows, promises)
        found += given
        held = [one for _, one in query.held()]
        most.saw(sum(map(len, held)), sum(one.bytes for one in held), time.perf_counter() - begun, given)
    found += query.advance({}, dict.fromkeys(feeding.scans))
    query.close()
    feeding.close()
    return most.held(), pa.Table.from_batches(found, schema=feeding.plan.schema)


def _ordered(tables: Mapping[str, pa.Table], skew_s: int) -> tuple[Held, pa.Table]:
    """A merge that gives rows in order, batch by batch, and the same query behind it."""
    feeding, most = Feeding(ORDERED, {"early": tables["early"]}, TIMES), Most()
    query = feeding.query()
    (scan,) = feeding.scans
    waiting: list[tuple[int, int, pa.RecordBatch]] = []
    passed = dict.fromkeys(tables, -1)
    found: list[pa.RecordBatch] = []
    number = 0
    for come in _arrivals(tables, skew_s):
        begun = time.perf_counter()
        for name, batch in come.items():
            passed[name] = batch["ts"][-1].value
            number += 1
            heapq.heappush(waiting, (batch["ts"][0].value, number, batch))
        to, ready = min(passed.values()), []
        while waiting and waiting[0][2]["ts"][-1].value <= to:
            ready.append(heapq.heappop(waiting)[2])
        given: list[pa.RecordBatch] = []
        if ready:
            rows = pa.Table.from_batches(ready).sort_by("ts")
            given = query.advance({scan: query.arrived(scan, rows)}, {scan: to + 1})
        found += given
        held = [one for _, one in query.held()]
        rows_held = sum(map(len, held)) + sum(batch.num_rows for _, _, batch in waiting)
        size = sum(one.bytes for one in held) + sum(batch.nbytes for _, _, batch in waiting)
        most.saw(rows_held, size, time.perf_counter() - begun, given)
    if waiting:
        rest = pa.Table.from_batches([batch for _, _, batch in sorted(waiting, key=lambda one: one[:2])])
        found += query.consume(scan, rest)
    found += query.advance({}, {scan: None})
    query.close()
    feeding.close()
    return most.held(), pa.Table.from_batches(found, schema=feeding.plan.schema)
