"""The windows of the references: worked out by hand, against DuckDB, and against each other."""

from __future__ import annotations

from collections import Counter

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from tests.duck import empty_duckdb
from tests.temporal.data import (
    ALL_SHAPES,
    SIZE,
    assert_same_rows,
    event_tables,
    events,
    repeatable,
    selected,
    shuffled,
    to_rows,
)
from tests.temporal.reference.rows import SECOND, Rows, count, group_by, grouped, moment, total, us
from tests.temporal.reference.windows import count_windows, cumulate, hop, null_times, session, tumble

SHAPES = pytest.mark.parametrize("shape", ALL_SHAPES)
WINDOW = ("window_start", "window_end")


def at(*times: int | None, **columns: list[int]) -> Rows:
    """Rows at these times, numbered by `id`."""
    return [
        {"id": place, "ts": time} | {name: values[place] for name, values in columns.items()}
        for place, time in enumerate(times)
    ]


def placed(rows: Rows) -> list[tuple[int, int, int]]:
    """(start, end, id) of each row in each of its windows."""
    return sorted((row["window_start"], row["window_end"], row["id"]) for row in rows)


def duck(sql: str, **tables: pa.Table) -> pa.Table:
    with empty_duckdb() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(sql).to_arrow_table()


def test_times() -> None:
    assert us("1970-01-01 00:00:01") == SECOND and us("00:00:01") == SECOND and us("1969-12-31 23:59:59.999999") == -1
    assert all(us(moment(time)) == time for time in (0, -1, 1, us("1901-01-01"), us("2200-12-31 23:59:59.999999")))


def test_tumble() -> None:
    """Size 10: the bound belongs to the window that it opens, and rounding is down on both sides of zero."""
    assert placed(tumble(at(0, 9, 10, -1, -10, -11, None), "ts", 10)) == [
        (-20, -10, 5),
        (-10, 0, 3),
        (-10, 0, 4),
        (0, 10, 0),
        (0, 10, 1),
        (10, 20, 2),
    ]
    # Windows from 3 on: [-7, 3), [3, 13).
    assert placed(tumble(at(0, 3, 12, 13), "ts", 10, offset=3)) == [(-7, 3, 0), (3, 13, 1), (3, 13, 2), (13, 23, 3)]
    assert (
        placed(tumble(at(0, 3), "ts", 10, offset=3))
        == placed(tumble(at(0, 3), "ts", 10, offset=-7))
        == [(-7, 3, 0), (3, 13, 1)]
    )
    assert null_times(at(None, 1, None), "ts") == 2


def test_hop() -> None:
    """Size 10 every 5: 12 is in [5, 15) and [10, 20). Size 7 every 5 (no multiple): 11 is in [5, 12) and [10, 17), 13
    in the second alone."""
    assert placed(hop(at(12), "ts", 5, 10)) == [(5, 15, 0), (10, 20, 0)]
    assert placed(hop(at(11, 13), "ts", 5, 7)) == [(5, 12, 0), (10, 17, 0), (10, 17, 1)]
    assert placed(hop(at(-1), "ts", 5, 10, offset=2)) == [(-8, 2, 0), (-3, 7, 0)]


def test_hop_with_gaps() -> None:
    """Size 3 every 10: 2 is in [0, 3), 3 and 9 are in no window, 10 is in the next."""
    assert placed(hop(at(2, 3, 9, 10, -7, -8), "ts", 10, 3)) == [(-10, -7, 5), (0, 3, 0), (10, 13, 3)]


def test_cumulate() -> None:
    """Steps of 2 up to 6: 3 is in [0, 4) and [0, 6), 2 opens the second step, -1 is in the last step of [-6, 0)."""
    assert placed(cumulate(at(3, 2, -1, 0), "ts", 2, 6)) == [
        (-6, 0, 2),
        (0, 2, 3),
        (0, 4, 0),
        (0, 4, 1),
        (0, 4, 3),
        (0, 6, 0),
        (0, 6, 1),
        (0, 6, 3),
    ]
    with pytest.raises(ValueError, match="multiple"):
        cumulate(at(1), "ts", 4, 6)


def test_session() -> None:
    """Gap 5: 0, 5, 10 are exactly 5 apart and stay together, 16 is 6 after 10. The order of the rows does not
    matter."""
    assert placed(session(at(10, 0, 5, 16), "ts", 5)) == [(0, 15, 0), (0, 15, 1), (0, 15, 2), (16, 21, 3)]
    by_key = session(at(0, 3, 1, 9, k=[1, 1, 2, 1]), "ts", 5, ("k",))
    assert placed(by_key) == [(0, 8, 0), (0, 8, 1), (1, 6, 2), (9, 14, 3)]


def test_session_of_a_largest_size() -> None:
    """Gap 5, at most 10: 10 is 10 after 0 and starts another session. [0, 9 + 5) is cut at 10; [10, 10 + 5) is not
    cut."""
    assert placed(session(at(0, 4, 9, 10), "ts", 5, max_size=10)) == [(0, 10, 0), (0, 10, 1), (0, 10, 2), (10, 15, 3)]
    # The size may be less than the gap: every window is then cut.
    assert placed(session(at(0, 1, 2, 3), "ts", 5, max_size=2)) == [(0, 2, 0), (0, 2, 1), (2, 4, 2), (2, 4, 3)]


def test_count_windows() -> None:
    """Two rows each, numbered by time: 1, 2 | 5, 5 and one row left, which is in none. Bounds end a microsecond after
    the last row."""
    rows = count_windows(at(5, 2, 5, 1, 9, None), "ts", 2)
    assert sorted((row["window_id"], *place) for row in rows for place in placed([row])) == [
        (0, 1, 3, 1),
        (0, 1, 3, 3),
        (1, 5, 6, 0),
        (1, 5, 6, 2),
    ]
    # Three rows every two: rows 0-2 and 2-4 of the order; every four with gaps: rows 0-2 only.
    assert Counter(row["window_id"] for row in count_windows(at(0, 1, 2, 3, 4, 5), "ts", 3, 2)) == {0: 3, 1: 3}
    assert [row["id"] for row in count_windows(at(0, 1, 2, 3, 4, 5), "ts", 3, 4)] == [0, 1, 2]
    # Per key each counts from 0; a key with too few rows has no window.
    by_key = count_windows(at(0, 1, 2, 3, 4, k=[1, 2, 1, 2, 3]), "ts", 2, keys=("k",))
    assert sorted((row["k"], row["window_id"], row["id"]) for row in by_key) == [
        (1, 0, 0),
        (1, 0, 2),
        (2, 0, 1),
        (2, 0, 3),
    ]


def test_tied_count_windows_have_equal_bounds() -> None:
    rows = count_windows(at(7, 7, 7, 7), "ts", 2)
    assert [(row["window_id"], row["window_start"], row["window_end"]) for row in rows] == [
        (0, 7, 8),
        (0, 7, 8),
        (1, 7, 8),
        (1, 7, 8),
    ]
    assert [row["id"] for row in rows] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "call",
    [
        lambda: tumble([], "ts", 0),
        lambda: hop([], "ts", -1, 5),
        lambda: session([], "ts", 0),
        lambda: count_windows([], "ts", 0),
    ],
)
def test_sizes_are_positive(call) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        call()


@SHAPES
@pytest.mark.parametrize("offset", [0, 3 * SECOND, -7_000_001])
def test_tumble_is_time_bucket(shape: str, offset: int) -> None:
    """DuckDB's time_bucket with the epoch (and the offset) as its origin. A NULL time is in no bucket."""
    table = events(shape)
    sql = f"""SELECT id, b AS window_start, b + INTERVAL '10 seconds' AS window_end
              FROM (SELECT id, time_bucket(INTERVAL '10 seconds', ts, make_timestamp({offset})) AS b FROM events)
              WHERE b IS NOT NULL"""
    assert_same_rows(selected(tumble(to_rows(table), "ts", SIZE, offset), "id", *WINDOW), duck(sql, events=table))


@SHAPES
@pytest.mark.parametrize(("slide", "size"), [(1, 10), (5, 10), (10, 10), (4, 10), (10, 4), (60, 1)])
def test_hop_is_a_lateral_series(shape: str, slide: int, size: int) -> None:
    """DuckDB: for each row the starts of the grid from the last one not after it backwards, as long as the window still
    holds it."""
    table = events(shape)
    sql = f"""SELECT id, make_timestamp(s) AS window_start, make_timestamp(s + {size * SECOND}) AS window_end
              FROM (SELECT id, epoch_us(ts) AS t,
                           epoch_us(ts) - ((epoch_us(ts) % {slide * SECOND}) + {slide * SECOND}) % {slide * SECOND} AS f
                    FROM events WHERE ts IS NOT NULL),
                   LATERAL (SELECT unnest(generate_series(f, f - {size * SECOND}, -{slide * SECOND})) AS s)
              WHERE s <= t AND t < s + {size * SECOND}"""
    assert_same_rows(
        selected(hop(to_rows(table), "ts", slide * SECOND, size * SECOND), "id", *WINDOW), duck(sql, events=table)
    )


@SHAPES
@pytest.mark.parametrize("gap", [1, 2 * SECOND, SIZE])
def test_session_by_lag(shape: str, gap: int) -> None:
    """DuckDB: a row starts a session if the one before it is more than the gap away; sessions are numbered by a running
    sum."""
    table = events(shape)
    sql = f"""WITH marked AS (SELECT *,
                                     CASE WHEN epoch_us(ts) - epoch_us(lag(ts) OVER w) <= {gap} THEN 0 ELSE 1 END AS new
                              FROM events WHERE ts IS NOT NULL WINDOW w AS (PARTITION BY k ORDER BY ts)),
                   numbered AS (SELECT *, sum(new) OVER (PARTITION BY k ORDER BY ts ROWS UNBOUNDED PRECEDING) AS number
                                FROM marked)
              SELECT k, min(ts) AS window_start, make_timestamp(max(epoch_us(ts)) + {gap}) AS window_end, count(*) AS n
              FROM numbered GROUP BY k, number"""
    ours = group_by(session(to_rows(table), "ts", gap, ("k",)), ("k", *WINDOW), n=count)
    assert_same_rows(ours, duck(sql, events=table))


@SHAPES
@pytest.mark.parametrize(("size", "slide"), [(1, 1), (3, 3), (5, 2), (2, 3)])
def test_count_windows_by_row_number(shape: str, size: int, slide: int) -> None:
    table = events(shape)
    sql = f"""WITH numbered AS (SELECT *, row_number() OVER (PARTITION BY k ORDER BY ts, id) - 1 AS n,
                                       count(*) OVER (PARTITION BY k) AS rows
                                FROM events WHERE ts IS NOT NULL)
              SELECT k, min(ts) AS window_start, max(ts) + INTERVAL '1 microsecond' AS window_end, w AS window_id,
                     sum(v)::BIGINT AS total
              FROM numbered, LATERAL (SELECT unnest(range(rows)) AS w)
              WHERE n BETWEEN w * {slide} AND w * {slide} + {size - 1}
              GROUP BY k, w, rows HAVING w * {slide} + {size} <= rows"""
    windows = count_windows(to_rows(table), "ts", size, slide, ("k",))
    assert_same_rows(group_by(windows, ("k", *WINDOW, "window_id"), total=total("v")), duck(sql, events=table))


@repeatable(80)
@hypothesis.given(event_tables(), st.integers(1, 40), st.integers(-30, 30))
def test_hop_of_its_own_size_is_tumble(table: pa.Table, seconds: int, offset: int) -> None:
    rows = to_rows(table)
    assert placed(hop(rows, "ts", seconds * SECOND, seconds * SECOND, offset)) == placed(
        tumble(rows, "ts", seconds * SECOND, offset)
    )
    assert placed(cumulate(rows, "ts", seconds * SECOND, seconds * SECOND, offset)) == placed(
        tumble(rows, "ts", seconds * SECOND, offset)
    )


@repeatable(80)
@hypothesis.given(event_tables(), st.integers(1, 12), st.integers(1, 12), st.integers(-30, 30))
def test_every_row_is_in_its_windows(table: pa.Table, slide: int, size: int, offset: int) -> None:
    """A row is in every window of the grid that holds it, and in no other: for a multiple of the slide in exactly size
    / slide of them."""
    found = hop(to_rows(table), "ts", slide * SECOND, size * SECOND, offset)
    for row in found:
        assert row["window_start"] <= row["ts"] < row["window_end"] == row["window_start"] + size * SECOND
        assert (row["window_start"] - offset) % (slide * SECOND) == 0
    assert len(placed(found)) == len(set(placed(found)))
    if size % slide == 0:
        timed = len(table) - null_times(to_rows(table), "ts")
        assert len(found) == timed * (size // slide)


@repeatable(80)
@hypothesis.given(event_tables(), st.integers(1, 20 * SECOND), st.none() | st.integers(1, 60 * SECOND))
def test_sessions_hold_every_row_once(table: pa.Table, gap: int, max_size: int | None) -> None:
    """Every timed row is in one session of its key; sessions of a key are more than a gap apart, or cut by the largest
    size; none is longer than it."""
    rows = to_rows(table)
    found = session(rows, "ts", gap, ("k",), max_size)
    assert sorted(row["id"] for row in found) == [row["id"] for row in rows if row["ts"] is not None]
    assert placed(found) == placed(session(to_rows(shuffled(table, 1)), "ts", gap, ("k",), max_size))
    for group in grouped(found, ("k",)).values():
        windows = sorted({(row["window_start"], row["window_end"]) for row in group})
        for (start, end), (later, _) in zip(windows, windows[1:]):
            assert later > end or (max_size is not None and later >= start + max_size)
        assert all(max_size is None or end - start <= max_size for start, end in windows)


@repeatable(60)
@hypothesis.given(event_tables(), st.integers(1, 5), st.integers(1, 5))
def test_count_windows_have_their_rows(table: pa.Table, size: int, slide: int) -> None:
    rows = to_rows(table)
    found = count_windows(rows, "ts", size, slide, ("k",))
    assert all(n == size for n in Counter((row["k"], row["window_id"]) for row in found).values())
    mixed = count_windows(to_rows(shuffled(table, 2, keep=("k", "ts"))), "ts", size, slide, ("k",))
    assert_same_rows(mixed, found)
