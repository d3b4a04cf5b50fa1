"""RANGE frames by time: offsets that are intervals, over every shape of data, as DuckDB has them."""

from __future__ import annotations

import pytest

import tsql
from tests.temporal.asking import ask_duckdb
from tests.temporal.data import events
from tsql.tpch.measure import difference

FRAMES = (
    "ORDER BY ts RANGE BETWEEN INTERVAL '10 seconds' PRECEDING AND CURRENT ROW",
    "ORDER BY ts RANGE BETWEEN INTERVAL '1 second' PRECEDING AND INTERVAL '2500 milliseconds' FOLLOWING",
    "ORDER BY ts RANGE BETWEEN INTERVAL '5 seconds' FOLLOWING AND UNBOUNDED FOLLOWING",
    "ORDER BY ts RANGE BETWEEN UNBOUNDED PRECEDING AND INTERVAL '1 day' PRECEDING",
    "ORDER BY ts DESC RANGE BETWEEN INTERVAL '10 seconds' PRECEDING AND INTERVAL '0 seconds' FOLLOWING",
    "ORDER BY ts RANGE BETWEEN INTERVAL '1 month' PRECEDING AND INTERVAL '1 month' FOLLOWING",
    "ORDER BY ts NULLS FIRST RANGE BETWEEN INTERVAL '3 seconds' PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW",
    "ORDER BY ts::DATE RANGE BETWEEN INTERVAL '1 day' PRECEDING AND INTERVAL '1 day' FOLLOWING",
    "ORDER BY ts::TIME RANGE BETWEEN INTERVAL '1 minute' PRECEDING AND CURRENT ROW",
    "ORDER BY ts::TIMESTAMPTZ RANGE BETWEEN INTERVAL '7 seconds' PRECEDING AND CURRENT ROW",
    "ORDER BY ts RANGE BETWEEN to_seconds(abs(k)) PRECEDING AND CURRENT ROW",
)


@pytest.mark.parametrize(
    "shape", ["unsorted", "few_times", "on_bounds", "around_1970", "long_gaps", "null_times", "empty"]
)
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.in_turn(2)
def test_frames_are_duckdbs(frame: str, shape: str) -> None:
    table = events(shape, 4)
    if "to_seconds" in frame:
        table = table.filter(table["k"].is_valid())
    sql = (
        "SELECT id, count(*) OVER w AS n, sum(v) OVER w AS s, min(x) OVER w AS low, first_value(ts) OVER w "
        f"AS f FROM events WINDOW w AS (PARTITION BY k {frame})"
    )
    with tsql.connect(threads=2) as db:
        db.register("events", table)
        ours = db.sql(sql).arrow()
    why = difference(ask_duckdb(sql, {"events": table}), ours, ordered=False)
    assert why is None, why
