"""Nexmark live: events per second of processor time, query by query, and the same queries on Spark Structured
Streaming."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from bench import nexmark
from bench.live_cases.feeding import Feeding, Watch, pieces
from tsql.tpch.measure import difference

TIMES = dict.fromkeys(("person", "auction", "bid"), "date_time")


@dataclass(frozen=True)
class Measured:
    """A query over all events. why: what is wrong with its answer."""

    name: str
    events_per_second: float
    per_core: float
    ratio: float
    why: str | None


def measure(query: nexmark.Query, tables: Mapping[str, pa.Table], batch_rows: int, runs: int = 2) -> Measured:
    """Feed a query its tables, after its answer was compared with the bounded one."""
    events = sum(table.num_rows for name, table in tables.items() if name in TIMES)
    used = {name: table for name, table in tables.items() if name in query.sql}
    feeding = Feeding(query.sql, used, TIMES)
    given = pieces(used, TIMES, batch_rows)
    why = difference(feeding.bounded(), feeding.live(given), ordered=False)
    seconds = cpu = bounded = math.inf
    for _ in range(runs):
        with Watch() as watch:
            feeding.bounded()
        bounded = min(bounded, watch.spent.cpu_seconds)
        live = feeding.query()
        with Watch() as watch:
            feeding.live(given, live)
        seconds, cpu = min(seconds, watch.spent.seconds), min(cpu, watch.spent.cpu_seconds)
    feeding.close()
    return Measured(query.name, events / seconds, events / cpu, bounded / cpu, why)


def mean(values: list[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 0.0
