"""Windows at the ends of the range of TIMESTAMP, and infinite times: the windows of the definition, or an error where
one of them is no time."""

from __future__ import annotations

import random
from collections.abc import Callable

import duckdb
import pyarrow as pa
import pytest

import tsql
from tests.temporal.live.test_live import plan_of
from tests.temporal.reference import windows
from tests.temporal.reference.rows import HOUR, MINUTE, SECOND, Rows
from tsql.backends import Run
from tsql.backends.live.query import LiveQuery
from tsql.planner.physical.operators.scan import Scan

FIRST, LAST, INFINITE = -9223372022400000000, 2**63 - 2, 2**63 - 1
"""290309-12-22 (BC) 00:00:00 and 294247-01-10 04:00:54.775806, as in DuckDB."""

CALLS: dict[str, tuple[str, Callable[[Rows], Rows]]] = {
    "tumble": ("TUMBLE(t, ts, INTERVAL '7 hours')", lambda rows: windows.tumble(rows, "ts", 7 * HOUR)),
    "tumble with an offset": (
        "TUMBLE(t, ts, INTERVAL '7 hours', offset => INTERVAL '5 hours')",
        lambda rows: windows.tumble(rows, "ts", 7 * HOUR, 5 * HOUR),
    ),
    "tumble by a microsecond": ("TUMBLE(t, ts, INTERVAL '1 microsecond')", lambda rows: windows.tumble(rows, "ts", 1)),
    "hop": (
        "HOP(t, ts, slide => INTERVAL '7 minutes', size => INTERVAL '1 hour')",
        lambda rows: windows.hop(rows, "ts", 7 * MINUTE, HOUR),
    ),
    "hop by its size": (
        "HOP(t, ts, slide => INTERVAL '7 minutes', size => INTERVAL '7 minutes')",
        lambda rows: windows.hop(rows, "ts", 7 * MINUTE, 7 * MINUTE),
    ),
    "hop with an offset": (
        "HOP(t, ts, slide => INTERVAL '5 hours', size => INTERVAL '12 hours', offset => INTERVAL '-1 hour')",
        lambda rows: windows.hop(rows, "ts", 5 * HOUR, 12 * HOUR, -HOUR),
    ),
    "cumulate": (
        "CUMULATE(t, ts, step => INTERVAL '11 minutes', size => INTERVAL '55 minutes')",
        lambda rows: windows.cumulate(rows, "ts", 11 * MINUTE, 55 * MINUTE),
    ),
    "session": ("SESSION(t, ts, gap => INTERVAL '20 minutes')", lambda rows: windows.session(rows, "ts", 20 * MINUTE)),
}
FORMS = {
    "rows": "SELECT window_start, window_end, id FROM {}",
    "groups": "SELECT window_start, window_end, count(*) AS n FROM {} GROUP BY window_start, window_end",
    "one bound": "SELECT window_end, count(*) AS n FROM {} GROUP BY window_end",
    "count": "SELECT count(*) AS n FROM {}",
}


def near(times: list[int | None]) -> pa.Table:
    return pa.table(
        {"id": pa.array(range(len(times)), pa.int64()), "ts": pa.array(times, pa.int64()).cast(pa.timestamp("us"))}
    )


def numbers(table: pa.Table) -> list[tuple[int, ...]]:
    """The rows, with times as numbers: Python has no such years."""
    columns = [c.cast(pa.int64()).to_pylist() for c in table.columns]
    return sorted(zip(*columns, strict=True))


def expected(form: str, rows: Rows) -> list[tuple[int, ...]]:
    """What a form of query gives over rows in windows."""
    if form == "rows":
        return sorted((row["window_start"], row["window_end"], row["id"]) for row in rows)
    if form == "count":
        return [(len(rows),)]
    keys = [(row["window_start"], row["window_end"]) if form == "groups" else (row["window_end"],) for row in rows]
    return sorted((*key, keys.count(key)) for key in set(keys))


def answer(sql: str, table: pa.Table, live: bool) -> list[tuple[int, ...]]:
    with tsql.connect(threads=2) as session:
        session.register("t", table)
        if not live:
            return numbers(session.sql(sql).arrow())
        plan = plan_of(session, sql)
        (scan,) = {s.name for s in plan.root.walk() if isinstance(s, Scan)}
        query = LiveQuery(plan, {scan: "ts"}, Run())
        found = [batch for row in range(table.num_rows) for batch in query.consume(scan, table.slice(row, 1))]
        return numbers(pa.Table.from_batches([*found, *query.punctuate(scan, None)], schema=plan.schema))


def is_time(us: int) -> bool:
    return FIRST <= us <= LAST


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("live", [False, True], ids=["at once", "live"])
@pytest.mark.in_turn(2)
def test_ends_of_time(name: str, form: str, live: bool, pytestconfig: pytest.Config) -> None:
    call, define = CALLS[name]
    rng = random.Random(f"{name} {form} {live}")
    sql = FORMS[form].format(call)
    seen: set[bool] = set()
    tries = 8 if pytestconfig.getoption("--all-configurations") else 4
    for number in range(8):
        if number >= tries and True in seen:
            break
        reach = rng.choice([3, SECOND, HOUR, 8 * HOUR, 15 * HOUR])
        # Where all rows are near one end, half of the tries would be errors; with both ends, differences of times leave
        # 64 bits.
        times = [
            *(FIRST + rng.randint(0, reach) for _ in range(rng.randint(0, 2))),
            0,
            *(LAST - rng.randint(0, reach) for _ in range(rng.randint(0, 2))),
        ]
        table = near([*times, None, INFINITE, -INFINITE])
        rows = define([{"id": i, "ts": us} for i, us in enumerate(times)])
        fits = all(is_time(row[side]) for row in rows for side in ("window_start", "window_end"))
        seen.add(fits)
        if fits:
            assert answer(sql, table, live) == expected(form, rows), times
            continue
        with pytest.raises(
            tsql.ExecutionError, match="Date and time not in timestamp range: a window of this row"
        ) as refused:
            answer(sql, table, live)
        if not live:
            assert sql[refused.value.position :].startswith("ts,")
    assert True in seen


@pytest.mark.parametrize("form", FORMS)
def test_the_first_and_the_last_row_that_fit(form: str) -> None:
    """Each window form at the last microsecond at which its windows are times, and one further: computed from the
    definition."""
    for call, define in CALLS.values():
        for end, inwards in ((FIRST, 1), (LAST, -1)):

            def fits(
                distance: int, end: int = end, inwards: int = inwards, define: Callable[[Rows], Rows] = define
            ) -> bool:
                return all(
                    is_time(row[side])
                    for row in define([{"id": 0, "ts": end + inwards * distance}])
                    for side in ("window_start", "window_end")
                )

            low, high = -1, 20 * HOUR
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if fits(middle) else (middle, high)
            sql = FORMS[form].format(call)
            time = end + inwards * high
            assert answer(sql, near([time]), False) == expected(form, define([{"id": 0, "ts": time}])), sql
            if high:
                with pytest.raises(tsql.ExecutionError, match="not in timestamp range"):
                    answer(sql, near([time - inwards]), False)


@pytest.mark.parametrize("form", FORMS)
def test_hops_with_gaps(form: str) -> None:
    """Windows that fit are right; a row less than a slide from an end may be refused."""
    sql = FORMS[form].format("HOP(t, ts, slide => INTERVAL '1 hour', size => INTERVAL '7 minutes')")
    times = [FIRST, FIRST + 7 * MINUTE, FIRST + HOUR, LAST - HOUR, LAST - HOUR - 20 * MINUTE]
    rows = windows.hop([{"id": i, "ts": us} for i, us in enumerate(times)], "ts", HOUR, 7 * MINUTE)
    assert answer(sql, near(times), False) == expected(form, rows)
    with pytest.raises(tsql.ExecutionError, match="not in timestamp range"):
        answer(sql, near([LAST]), False)


def test_sessions_of_a_largest_size() -> None:
    sql = (
        "SELECT window_start, window_end, id FROM SESSION(t, ts, gap => INTERVAL '2 hours', max_size => "
        "INTERVAL '3 hours')"
    )
    times = [FIRST, FIRST + HOUR, FIRST + 3 * HOUR, 0, LAST - 3 * HOUR, LAST - 2 * HOUR]
    rows = windows.session([{"id": i, "ts": us} for i, us in enumerate(times)], "ts", 2 * HOUR, max_size=3 * HOUR)
    assert answer(sql, near(times), False) == expected("rows", rows)


def test_count_windows() -> None:
    for call in ("TUMBLE(t, ts, rows => 2)", "HOP(t, ts, slide_rows => 1, rows => 2)"):
        sql = f"SELECT window_start, window_end, id FROM {call}"
        assert answer(sql, near([FIRST, LAST - 1]), False) == [(FIRST, LAST, 0), (FIRST, LAST, 1)]
        with pytest.raises(tsql.ExecutionError, match="not in timestamp range"):
            answer(sql, near([FIRST, LAST]), False)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("TUMBLE(t, ts, INTERVAL '200000000 days')", "size of TUMBLE"),
        ("HOP(t, ts, slide => INTERVAL '1 day', size => INTERVAL '2000000000 days')", "size of HOP"),
        ("HOP(t, ts, slide => INTERVAL '2000000000 days', size => INTERVAL '1 day')", "slide of HOP"),
        ("SESSION(t, ts, gap => INTERVAL '106000000 days')", "gap of SESSION"),
        ("TUMBLE(t, ts, INTERVAL '1 day', offset => INTERVAL '-200000000 days')", "offset of TUMBLE"),
    ],
)
def test_lengths_beyond_all_times(call: str, name: str) -> None:
    sql = f"SELECT * FROM {call}"
    with pytest.raises(tsql.BindError, match=f"{name} is longer than 146,000 years") as refused:
        answer(sql, near([0]), False)
    assert sql[refused.value.position :].startswith("INTERVAL '")


def test_a_window_of_a_hundred_thousand_years() -> None:
    size = 50_000_000 * 24 * HOUR
    sql = "SELECT window_start, window_end, id FROM TUMBLE(t, ts, INTERVAL '50000000 days')"
    times = [-size, -1, 0, size - 1, size]
    assert answer(sql, near(times), False) == expected(
        "rows", windows.tumble([{"id": i, "ts": us} for i, us in enumerate(times)], "ts", size)
    )


@pytest.mark.parametrize(
    "call",
    [
        "CHOP(SLIDE(t, ts, INTERVAL '1 microsecond'), INTERVAL '7 hours')",
        "QUANTIZE(SLIDE(t, ts, INTERVAL '1 microsecond'), slide => INTERVAL '7 hours')",
        "QUANTIZE(LIFETIME(t, start => ts), slide => INTERVAL '7 hours', size => INTERVAL '21 hours')",
    ],
)
def test_lifetimes_on_a_grid(call: str) -> None:
    """The grid has no points there: an error that shows the function."""
    for time in (FIRST, LAST - 1):
        sql = f"SELECT id FROM {call}"
        with pytest.raises(tsql.ExecutionError, match="Date and time not in timestamp range") as refused:
            answer(sql, near([time]), False)
        assert sql[refused.value.position :].startswith(call[:5])


@pytest.mark.parametrize(
    ("call", "times", "message"),
    [
        (
            "POINT_AT_END(LIFETIME(t, start => TIMESTAMP '2000-01-01', end => ts))",
            [LAST],
            "Date and time not in timestamp range",
        ),
        (
            "CHOP(LIFETIME(t, start => ts, end => TIMESTAMP '2000-01-01'), INTERVAL '1 day')",
            [-INFINITE],
            "CHOP of a lifetime that begins at -infinity",
        ),
        ("CHOP(LIFETIME(t, start => ts), INTERVAL '1 day')", [0], "CHOP of an open lifetime"),
    ],
)
def test_lifetimes_without_ends(call: str, times: list[int | None], message: str) -> None:
    sql = f"SELECT id FROM {call}"
    with pytest.raises(tsql.ExecutionError, match=message) as refused:
        answer(sql, near(times), False)
    assert sql[refused.value.position :].startswith(call[:5])


@pytest.mark.parametrize(
    "call",
    [
        "CHOP(SLIDE(t, ts, INTERVAL '1 second'), INTERVAL '200000000 days')",
        "QUANTIZE(LIFETIME(t, start => ts), slide => INTERVAL '200000000 days')",
    ],
)
def test_grids_beyond_all_times(call: str) -> None:
    sql = f"SELECT id FROM {call}"
    with pytest.raises(tsql.BindError, match="is longer than 146,000 years") as refused:
        answer(sql, near([0]), False)
    assert sql[refused.value.position :].startswith("INTERVAL '200000000")


@pytest.mark.parametrize("width", ["7 hours", "7 days", "1 month", "5 months", "100000 years", "200000000 days"])
def test_time_bucket_fails_where_duckdb_does(width: str) -> None:
    for origin in ("", ", TIMESTAMP '1970-01-01'", ", TIMESTAMP '1970-01-01 12:00:00'", ", INTERVAL '1 hour'"):
        sql = f"SELECT time_bucket(INTERVAL '{width}', ts{origin}) FROM t"
        with duckdb.connect() as connection:
            connection.register("t", near([FIRST]))
            with pytest.raises(duckdb.Error):
                connection.sql(sql).fetchall()
        with pytest.raises(tsql.ExecutionError) as refused:
            answer(sql, near([FIRST]), False)
        assert sql[refused.value.position :].startswith("time_bucket")
