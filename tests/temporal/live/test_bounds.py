"""Punctuations at the edges of time, and names that meet those of the machinery: results are those of the plain run."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tsql
from tests.temporal.live.lives import rows_of
from tests.temporal.live.test_live import plan_of
from tsql.backends import Run
from tsql.backends.live.arrivals import stored_time
from tsql.backends.live.query import LiveQuery
from tsql.kernels.expr.nodes import Call, Cast, Column, Literal
from tsql.kernels.expr.types import BIGINT, DATE, INTERVAL, TIMESTAMP
from tsql.planner.physical.planfile import parse_plan
from tsql.planner.physical.progress import DAY_US, INFINITE, INFINITE_DAY, Progress

TIMES = pa.schema([("v", pa.int64()), ("ts", pa.timestamp("us"))])
DATES = pa.schema([("v", pa.int64()), ("ts", pa.date32())])


def live(sql: str, schema: pa.Schema, messages: list, parameters: dict | None = None, **settings: object) -> list[dict]:
    """Rows (lists of times, with v = 1) and punctuations (numbers) in the order in which they come."""
    with tsql.connect(shards=2, **settings) as session:
        session.register("t", schema.empty_table())
        plan = parse_plan(
            session.sql(sql, parameters).plan(), session.catalog, parameters=dict.fromkeys(parameters or {}, BIGINT)
        )
        query = LiveQuery(plan, {"t": "ts"}, Run(parameters=parameters or {}))
        found = []
        for message in messages:
            if isinstance(message, list):
                stored = pa.array(message, pa.int32() if schema is DATES else pa.int64()).cast(schema.field("ts").type)
                found += query.consume("t", pa.table([pa.array([1] * len(message), pa.int64()), stored], schema=schema))
            else:
                found += query.punctuate("t", message)
        found += query.punctuate("t")
        table = pa.Table.from_batches(found, schema=plan.schema)
        dates = [
            table.column(n).cast(pa.int32()) if pa.types.is_date(table.schema.field(n).type) else table.column(n)
            for n in table.column_names
        ]
        return sorted(rows_of(pa.table(dates, names=table.column_names)), key=repr)


BOTH = [-INFINITE, [-INFINITE], -INFINITE, [-INFINITE, 0], 5, [10], INFINITE, [INFINITE], INFINITE, [INFINITE]]
"""Infinite times around two finite ones."""


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("ts + INTERVAL '1 day'", {-INFINITE: 2, DAY_US: 1, DAY_US + 10: 1, INFINITE: 2}),
        ("ts - INTERVAL '1 day'", {-INFINITE: 2, -DAY_US: 1, 10 - DAY_US: 1, INFINITE: 2}),
        ("CAST(ts AS DATE)", {-INFINITE_DAY: 2, 0: 2, INFINITE_DAY: 2}),
        ("CAST(CAST(ts AS DATE) AS TIMESTAMP)", {-INFINITE: 2, 0: 2, INFINITE: 2}),
    ],
)
def test_infinite_times_are_one_group(key: str, expected: dict[int, int]) -> None:
    found = live(f"SELECT {key} AS key, count(*) AS n FROM t GROUP BY ALL", TIMES, BOTH)
    assert [(row["key"], row["n"]) for row in found] == sorted(
        expected.items(), key=lambda pair: repr({"key": pair[0], "n": pair[1]})
    )


@pytest.mark.parametrize("key", ["ts", "CAST(ts AS TIMESTAMP)"])
def test_infinite_dates_are_one_group(key: str) -> None:
    messages = [-INFINITE, [-INFINITE_DAY], -INFINITE, [-INFINITE_DAY], 0, [3]]
    assert sorted(
        row["n"] for row in live(f"SELECT {key} AS key, count(*) AS n FROM t GROUP BY ALL", DATES, messages)
    ) == [1, 2]


@pytest.mark.parametrize(
    "windows",
    [
        "TUMBLE(t, ts, INTERVAL '1 hour', offset => INTERVAL '-7 seconds')",
        "HOP(t, ts, INTERVAL '1 hour', INTERVAL '2 hours')",
        "CUMULATE(t, ts, INTERVAL '1 hour', INTERVAL '2 hours')",
        "SESSION(t, ts, gap => INTERVAL '1 hour')",
    ],
)
def test_windows_at_the_edges_of_time(windows: str) -> None:
    sql = f"SELECT window_start, window_end, count(*) AS n FROM {windows} GROUP BY ALL"
    assert live(sql, TIMES, BOTH) == live(sql, TIMES, [[0, 10]])


@pytest.mark.parametrize("name", ["given", "self", "time", "values"])
def test_a_key_may_have_any_name(name: str) -> None:
    assert live(f'SELECT ts AS "{name}", count(*) AS n FROM t GROUP BY ALL', TIMES, [[0], 5, [7]]) == [
        {name: 0, "n": 1},
        {name: 7, "n": 1},
    ]


def test_a_parameter_may_be_called_as_a_key_is() -> None:
    found = live(
        "SELECT CAST(ts AS DATE) AS d, sum(v + $d)::BIGINT AS n FROM t GROUP BY ALL",
        TIMES,
        [[0], 5 * DAY_US, [7 * DAY_US]],
        {"d": 100},
    )
    assert found == [{"d": 0, "n": 101}, {"d": 7, "n": 101}]


def test_sums_of_intervals_have_no_bound() -> None:
    """Without the optimizer they stand in the plan as they were written."""
    sql = (
        "SELECT ts, CAST(INTERVAL '1 day' + INTERVAL '1 hour' AS VARCHAR) AS i, count(*) AS n FROM t GROUP "
        "BY ts, INTERVAL '1 day' + INTERVAL '1 hour'"
    )
    assert len(live(sql, TIMES, [[0], 5, [7]], optimizer=False)) == 2


def test_bounds_stay_in_range() -> None:
    time, day = Column("ts", TIMESTAMP), Column("d", DATE)
    later = Call("+", (time, Literal((0, 1, 0), INTERVAL)), TIMESTAMP)
    for bound in (-INFINITE, INFINITE):
        assert Progress({"ts": bound}).lower(later) == bound
        assert abs(Progress({"ts": bound}).lower(Cast(time, DATE))) == INFINITE_DAY
        assert Progress({"d": stored_time(bound, DATE)}).lower(Cast(day, TIMESTAMP)) == bound
    assert Progress({"ts": INFINITE - 1}).lower(later) == INFINITE
    assert stored_time(200_000_000 * DAY_US, DATE) == 200_000_000, "dates reach further than times"


def test_a_null_where_the_schema_has_none_is_an_error() -> None:
    with tsql.connect() as session:
        session.execute("CREATE TABLE t (v BIGINT NOT NULL, ts TIMESTAMP)")
        query = LiveQuery(plan_of(session, "SELECT v, ts FROM t"), {"t": "ts"})
        with pytest.raises(tsql.SourceError, match="a NULL has come"):
            query.consume("t", pa.table([pa.nulls(1, pa.int64()), pa.nulls(1, pa.timestamp("us"))], schema=TIMES))
