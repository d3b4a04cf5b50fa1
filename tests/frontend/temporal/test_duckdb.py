"""The DuckDB text of temporal SQL, run in DuckDB on a few rows; the answers are worked out by hand from the
definitions."""

from __future__ import annotations

import datetime as dt

import pytest
from sqlglot.errors import UnsupportedError

from tests.duck import empty_duckdb
from tests.frontend.temporal.examples import EXAMPLES
from tsql.grammar.generator import to_duckdb

DAY = dt.datetime(2020, 1, 1)
PERIODS = {"rates": ("vs", "ve")}
TABLES = """
CREATE TABLE bids AS SELECT * FROM (VALUES
  (1, 'a', TIMESTAMP '2020-01-01 00:00:00'), (2, 'a', TIMESTAMP '2020-01-01 00:04:59'),
  (3, 'b', TIMESTAMP '2020-01-01 00:05:00'),
  (4, 'a', TIMESTAMP '2020-01-01 00:12:00'), (5, 'b', NULL)) t(id, k, ts);
CREATE TABLE old AS SELECT * FROM (VALUES (1, TIMESTAMP '1969-12-31 23:59:59'), (2, TIMESTAMP '1969-12-31 23:00:00'))
  t(id, ts);
CREATE TABLE rates AS SELECT * FROM (VALUES
  ('x', 1, TIMESTAMP '2020-01-01', TIMESTAMP '2020-01-02'), ('x', 2, TIMESTAMP '2020-01-02', NULL),
  ('y', 3, TIMESTAMP '2020-01-01', NULL)) t(cur, rate, vs, ve);
CREATE TABLE orders AS SELECT * FROM (VALUES
  (1, 'x', TIMESTAMP '2020-01-01 12:00:00'), (2, 'x', TIMESTAMP '2020-01-02'), (3, 'x', TIMESTAMP '2019-12-31'),
  (4, 'z', TIMESTAMP '2020-01-03')) t(id, cur, ts);
CREATE TABLE ties AS SELECT * FROM (VALUES (1, 3), (2, 1), (3, 1), (4, 2), (5, 9)) t(id, n);
"""


@pytest.fixture(scope="module")
def duck():
    connection = empty_duckdb()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(TABLES)
    return connection


def rows(duck, text):
    return duck.sql(to_duckdb(text, PERIODS)).fetchall()


def at(minutes, seconds=0, micros=0):
    return DAY + dt.timedelta(minutes=minutes, seconds=seconds, microseconds=micros)


def test_tumble(duck):
    assert rows(duck,
                "SELECT id, window_start, window_end FROM TUMBLE(bids, ts, INTERVAL '5 minutes') ORDER BY id") == [
        (1, at(0), at(5)), (2, at(0), at(5)), (3, at(5), at(10)), (4, at(10), at(15)),
    ]  # fmt: skip


def test_tumble_adds_its_columns_at_the_end_and_keeps_the_name(duck):
    result = duck.sql(to_duckdb("SELECT bids.* FROM TUMBLE(bids, ts, INTERVAL '5 minutes')"))
    assert result.columns == ["id", "k", "ts", "window_start", "window_end"]
    assert rows(
        duck,
        (
            "SELECT count(*) FROM TUMBLE((SELECT * FROM bids WHERE id > 2) b, b.ts, INTERVAL '1 day') AS w "
            "WHERE w.window_start = DATE '2020-01-01'"
        ),
    ) == [(2,)]
    assert rows(duck, "SELECT max(e) FROM TUMBLE(bids, ts, INTERVAL '5 minutes') AS w(a, b, c, d, e)") == [(at(15),)]


def test_tumble_with_an_offset(duck):
    assert rows(duck,
                ("SELECT id, window_start FROM TUMBLE(bids, ts, INTERVAL '5 minutes', offset => INTERVAL '1 minute') "
                 "ORDER BY id")) == [
        (1, at(-4)), (2, at(1)), (3, at(1)), (4, at(11)),
    ]  # fmt: skip


def test_windows_are_aligned_to_the_epoch(duck):
    weeks = "SELECT DISTINCT window_start FROM TUMBLE(bids, ts, INTERVAL '7 days')"
    assert rows(duck, weeks) == [(dt.datetime(2019, 12, 26),)]  # a Thursday, as 1970-01-01 was
    assert rows(duck, "SELECT id, window_start FROM TUMBLE(old, ts, INTERVAL '1 hour') ORDER BY id") == [
        (1, dt.datetime(1969, 12, 31, 23)), (2, dt.datetime(1969, 12, 31, 23)),
    ]  # fmt: skip


def test_hop(duck):
    assert rows(duck,
                ("SELECT id, window_start, window_end FROM HOP(bids, ts, slide => INTERVAL '2 minutes', "
                 "size => INTERVAL '5 minutes') ORDER BY ALL")) == [
        (1, at(-4), at(1)), (1, at(-2), at(3)), (1, at(0), at(5)),
        (2, at(0), at(5)), (2, at(2), at(7)), (2, at(4), at(9)),
        (3, at(2), at(7)), (3, at(4), at(9)),
        (4, at(8), at(13)), (4, at(10), at(15)), (4, at(12), at(17)),
    ]  # fmt: skip


def test_hop_with_gaps(duck):
    assert rows(
        duck, "SELECT id, window_start FROM HOP(bids, ts, INTERVAL '5 minutes', INTERVAL '2 minutes') ORDER BY ALL"
    ) == [(1, at(0)), (3, at(5))]


def test_cumulate(duck):
    assert rows(duck,
                ("SELECT id, window_start, window_end FROM CUMULATE(bids, ts, INTERVAL '2 minutes', "
                 "INTERVAL '6 minutes') ORDER BY ALL")) == [
        (1, at(0), at(2)), (1, at(0), at(4)), (1, at(0), at(6)), (2, at(0), at(6)), (3, at(0), at(6)),
        (4, at(12), at(14)), (4, at(12), at(16)), (4, at(12), at(18)),
    ]  # fmt: skip


def test_session_of_a_key(duck):
    query = (
        "SELECT id, window_start, window_end FROM SESSION(bids PARTITION BY k, ts, gap => INTERVAL '4 "
        "minutes 59 seconds') ORDER BY id"
    )
    assert rows(duck, query) == [
        (1, at(0), at(9, 58)),
        (2, at(0), at(9, 58)),
        (3, at(5), at(9, 59)),
        (4, at(12), at(16, 59)),
    ]
    closer = query.replace("4 minutes 59", "4 minutes 58")
    assert [start for _, start, _ in rows(duck, closer)] == [at(0), at(4, 59), at(5), at(12)]


def test_session_of_all_rows(duck):
    assert rows(duck,
                "SELECT id, window_start, window_end FROM SESSION(bids, ts, INTERVAL '5 minutes') ORDER BY id") == [
        (1, at(0), at(10)), (2, at(0), at(10)), (3, at(0), at(10)), (4, at(12), at(17)),
    ]  # fmt: skip


def test_count_windows_of_a_key(duck):
    assert rows(duck,
                ("SELECT id, window_start, window_end, window_id FROM TUMBLE(bids PARTITION BY k, ts, rows => 2) "
                 "ORDER BY id")) == [
        (1, at(0), at(4, 59, 1), 0), (2, at(0), at(4, 59, 1), 0),
    ]  # fmt: skip


def test_hopping_count_windows(duck):
    query = (
        "SELECT window_id, list(id ORDER BY ts) FROM HOP(bids, ts, rows => 3, slide_rows => 1) GROUP BY "
        "window_id ORDER BY 1"
    )
    assert rows(duck, query) == [(0, [1, 2, 3]), (1, [2, 3, 4])]
    assert rows(duck, query.replace("rows => 3, slide_rows => 1", "rows => 1, slide_rows => 3")) == [(0, [1]), (1, [4])]


def test_ties_of_count_windows_follow_the_input(duck):
    query = (
        "SELECT window_id, list(id ORDER BY id) FROM TUMBLE(ties, TIMESTAMP '2020-01-01' + n * INTERVAL '1 "
        "day', rows => 1) GROUP BY 1 ORDER BY 1"
    )
    assert rows(duck, query) == [(0, [2]), (1, [3]), (2, [4]), (3, [1]), (4, [5])]


def test_a_window_function_over_another_replaces_its_columns(duck):
    query = (
        "SELECT * FROM TUMBLE(TUMBLE(bids, ts, INTERVAL '5 minutes'), window_end, INTERVAL '10 minutes') WHERE id = 1"
    )
    assert rows(duck, query) == [(1, "a", at(0), at(0), at(10))]


def test_lifetimes_are_added_columns(duck):
    assert rows(duck,
                ("SELECT id FROM LIFETIME(bids, start => ts, duration => INTERVAL '1 minute' * id) WHERE k = 'a' "
                 "ORDER BY id")) == [
        (1, at(0), at(1)), (2, at(4, 59), at(6, 59)), (4, at(12), at(16)),
    ]  # fmt: skip
    assert rows(duck,
                "SELECT rate, valid_to FROM LIFETIME(rates, start => vs, end => ve) WHERE cur = 'x' ORDER BY rate") == [
        (1, dt.datetime(2020, 1, 2), DAY), (2, None, dt.datetime(2020, 1, 2)),
    ]  # fmt: skip
    assert rows(duck, "SELECT rate FROM LIFETIME(rates) ORDER BY rate LIMIT 1") == [(1, DAY, dt.datetime(2020, 1, 2))]
    assert rows(duck, "SELECT id FROM LIFETIME(bids, start => ts, end => ts)") == []
    assert rows(duck, "SELECT id FROM SLIDE(bids, ts, INTERVAL '2 minutes') WHERE id = 3") == [(3, at(5), at(7))]


def test_lifetimes_moved_and_cut(duck):
    inner = "SLIDE(bids, ts, INTERVAL '2 minutes')"
    assert rows(duck, f"SELECT id FROM SHIFT({inner}, INTERVAL '-1 minute') WHERE id = 3") == [(3, at(4), at(6))]
    assert rows(duck, f"SELECT id FROM EXTEND({inner}, INTERVAL '1 minute') WHERE id = 3") == [(3, at(5), at(8))]
    assert rows(duck, f"SELECT id FROM CLIP({inner}, INTERVAL '1 minute') WHERE id = 3") == [(3, at(5), at(6))]
    assert rows(duck, "SELECT id FROM CLIP(LIFETIME(bids, start => ts), INTERVAL '1 minute') WHERE id = 3") == [
        (3, at(5), at(6))
    ]
    assert rows(duck, f"SELECT id FROM POINT_AT_END({inner}) WHERE id = 3") == [(3, at(7), at(7, 0, 1))]
    assert rows(duck,
                ("SELECT id FROM CHOP(SLIDE(bids, ts, INTERVAL '5 minutes'), INTERVAL '3 minutes') WHERE id = 3 "
                 "ORDER BY 2")) == [
        (3, at(5), at(6)), (3, at(6), at(9)), (3, at(9), at(10)),
    ]  # fmt: skip


def test_asof(duck):
    query = "SELECT o.id, b.id FROM orders o ASOF LEFT JOIN bids b ON o.ts >= b.ts ORDER BY 1"
    assert rows(duck, query) == [(1, 4), (2, 4), (3, None), (4, 4)]
    assert rows(duck, query.replace("ASOF LEFT", "ASOF")) == [(1, 4), (2, 4), (4, 4)]


def test_tolerance_is_inclusive(duck):
    query = (
        "SELECT o.id, b.id FROM orders o ASOF LEFT JOIN bids b ON o.ts >= b.ts TOLERANCE INTERVAL '11 hours "
        "48 minutes' ORDER BY 1"
    )
    assert rows(duck, query) == [(1, 4), (2, None), (3, None), (4, None)]
    assert rows(duck, query.replace("48", "47")) == [(1, None), (2, None), (3, None), (4, None)]
    assert rows(duck, query.replace("ASOF LEFT", "ASOF")) == [(1, 4)]


def test_tolerance_towards_the_future(duck):
    query = (
        "SELECT o.id, b.id FROM orders o ASOF JOIN bids b ON b.k = 'b' AND o.ts <= b.ts TOLERANCE INTERVAL "
        "'1 day 5 minutes' ORDER BY 1"
    )
    assert rows(duck, query) == [(3, 3)]
    assert rows(duck, query.replace("o.ts <= b.ts", "b.ts >= o.ts")) == [(3, 3)]
    assert rows(duck, query.replace("5 minutes", "4 minutes")) == []


def test_as_of(duck):
    query = (
        "SELECT o.id, r.rate FROM orders o LEFT JOIN rates FOR VALID_TIME AS OF o.ts AS r ON o.cur = r.cur "
        "OR r.cur = 'q' ORDER BY 1"
    )
    assert rows(duck, query) == [(1, 1), (2, 2), (3, None), (4, None)]
    assert rows(
        duck, "SELECT id, rate FROM orders o JOIN rates FOR VALID_TIME AS OF o.ts AS r USING (cur) ORDER BY 1"
    ) == [(1, 1), (2, 2)]
    assert rows(duck, "SELECT rates.rate FROM rates FOR SYSTEM_TIME AS OF TIMESTAMP '2020-01-02' ORDER BY 1") == [
        (2,),
        (3,),
    ]


def test_periods_of_the_script():
    script = """CREATE TABLE r (rate INT, a TIMESTAMP, b TIMESTAMP, PERIOD FOR valid_time (a, b)) WITH (path = 'x');
        CREATE STREAM s (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) WITH (path = 'y');
        INSERT INTO r VALUES (7, TIMESTAMP '2020-01-01', NULL);
        INSERT INTO s VALUES (1, TIMESTAMP '2020-06-01');
        CREATE TABLE result AS SELECT id, rate FROM s JOIN r FOR VALID_TIME AS OF s.ts ON TRUE EMIT FINAL;
        DROP STREAM s"""
    connection = empty_duckdb()
    connection.execute(to_duckdb(script))
    assert connection.sql("FROM result").fetchall() == [(1, 7)]
    assert connection.sql("SHOW TABLES").fetchall() == [("r",), ("result",)]


def test_when_results_leave_is_no_part_of_the_text():
    assert (
        to_duckdb("SELECT a FROM t EMIT CHANGES")
        == to_duckdb("SELECT a FROM t PROGRESSIVE EVERY 5 PERCENT")
        == "SELECT a FROM t"
    )


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        ("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS TRUE)", "MATCH_RECOGNIZE"),
        ("SEQUENCED VALIDTIME SELECT a FROM t", "SEQUENCED VALIDTIME"),
        ("SELECT * FROM a CLIP JOIN b ON a.k = b.k", "CLIP JOIN"),
        ("SHOW STREAMS", "SHOW STREAMS"),
        ("CREATE STREAM s WITH (path = 'x')", "a stream whose columns are those of its files"),
        ("SELECT * FROM SESSION(t, ts, INTERVAL '1 hour', max_size => INTERVAL '1 day')", "SESSION with max_size"),
        ("SELECT * FROM HOP(t, ts, $slide, INTERVAL '1 day')", "HOP with a size or slide that is no literal"),
        ("SELECT * FROM TUMBLE(t, ts, INTERVAL '1 day', timezone => 'Europe/Rome')",
         "windows in the time zone Europe/Rome"),
        ("SELECT * FROM TUMBLE(LIFETIME(t, start => ts), ts, INTERVAL '1 day')", "TUMBLE of a temporal relation"),
        ("SELECT count(*) FROM LIFETIME(t, start => ts)", "LIFETIME in a query that is evaluated per snapshot"),
        ("SELECT a FROM LIFETIME(t, start => ts) GROUP BY a", "LIFETIME in a query that is evaluated per snapshot"),
        ("SELECT DISTINCT a FROM SLIDE(t, ts, INTERVAL '1 day')", "SLIDE in a query that is evaluated per snapshot"),
        ("SELECT * FROM LIFETIME(t, start => ts) a JOIN b ON a.k = b.k",
         "LIFETIME in a query that is evaluated per snapshot"),
        ("SELECT * FROM b JOIN LIFETIME(t, start => ts) a ON a.k = b.k",
         "LIFETIME in a query that is evaluated per snapshot"),
        ("SELECT count(*) FROM (SELECT * FROM LIFETIME(t, start => ts))",
         "LIFETIME in a query that is evaluated per snapshot"),
        ("SELECT a FROM LIFETIME(t, start => ts) UNION SELECT 1", "LIFETIME in a query that is evaluated per snapshot"),
        ("SELECT a FROM LIFETIME(t, start => ts) WHERE a IN (SELECT 1)",
         "LIFETIME in a query that is evaluated per snapshot"),
        ("SELECT a FROM STITCH(LIFETIME(t, start => ts))", "STITCH"),
        ("SELECT a FROM QUANTIZE(LIFETIME(t, start => ts), INTERVAL '1 day')", "QUANTIZE"),
        ("SELECT a FROM SHIFT(t, INTERVAL '1 day')", "SHIFT of a relation that is not made by LIFETIME or SLIDE"),
        ("SELECT a FROM LIFETIME(t)", "LIFETIME without start"),
        ("SELECT * FROM o JOIN t FOR VALID_TIME AS OF o.ts ON TRUE",
         'FOR VALID_TIME AS OF: the period of "t" is not known'),
        ("SELECT * FROM a ASOF JOIN b USING (k, ts) TOLERANCE INTERVAL '1 second'",
         "ASOF JOIN .. USING with TOLERANCE"),
        ("SELECT * FROM a ASOF JOIN b ON ts >= b.ts TOLERANCE INTERVAL '1 second'", "ASOF JOIN with TOLERANCE unless"),
    ],
)  # fmt: skip
def test_what_duckdb_cannot_say(text, construct):
    with pytest.raises(UnsupportedError) as caught:
        to_duckdb(text)
    assert str(caught.value).startswith(f"DuckDB cannot say {construct}")


@pytest.mark.parametrize("text", EXAMPLES)
def test_duckdb_reads_the_text(text):
    connection = empty_duckdb()
    try:
        shown = to_duckdb(text, PERIODS)
    except UnsupportedError:
        return
    for statement in shown.split("; "):
        if statement.startswith(("SELECT", "WITH", "(")):
            assert connection.extract_statements(statement)
