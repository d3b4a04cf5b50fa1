"""What windows, ASOF joins and row patterns refuse: each error names its place and a way out."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tsql

EVENTS = pa.table({"k": [1], "n": [5], "s": ["x"], "ts": pa.array([0], pa.timestamp("us")), "window_start": [1]})
PLAIN = "(SELECT k, n, s, ts FROM t)"


@pytest.fixture(scope="module")
def db() -> tsql.Session:
    session = tsql.connect()
    session.register("t", EVENTS)
    session.execute("CREATE TABLE p AS SELECT k, n, s, ts FROM t")
    return session


@pytest.mark.parametrize(
    ("sql", "message", "place"),
    [
        (
            "SELECT * FROM TUMBLE(p, n, INTERVAL '1 second')",
            "TUMBLE needs the time of a row: a TIMESTAMP, a TIMESTAMPTZ or a DATE, not a BIGINT",
            "n,",
        ),
        (
            "SELECT * FROM HOP(p, s, slide => INTERVAL '1 second', size => INTERVAL '1 second')",
            "HOP needs the time of a row",
            "s,",
        ),
        ("SELECT * FROM TUMBLE(p, tz, INTERVAL '1 second')", 'column "tz" does not exist', "tz,"),
        ("SELECT * FROM TUMBLE(p, ts, to_seconds(n))", "size of TUMBLE must be a constant interval", "to_seconds"),
        ("SELECT * FROM TUMBLE(p, ts, to_seconds(-1))", "size of TUMBLE must be more than zero", "to_seconds"),
        ("SELECT * FROM TUMBLE(p, ts, to_months(1))", "size of TUMBLE cannot be in months or years", "to_months"),
        (
            "SELECT * FROM CUMULATE(p, ts, step => to_seconds(2), size => to_seconds(5))",
            "the size of CUMULATE must be a multiple of its step",
            "to_seconds(5)",
        ),
        ("SELECT * FROM TUMBLE(p, ts, rows => n)", "rows of TUMBLE must be a constant, at least 1", "n)"),
        (
            "SELECT * FROM TUMBLE(p, ts, INTERVAL '1 day', timezone => 'Europe/Berlin')",
            "windows are aligned in UTC",
            "'Europe",
        ),
        (
            "SELECT * FROM TUMBLE(t, ts, INTERVAL '1 second')",
            "the input of TUMBLE has a column window_start already",
            "TUMBLE",
        ),
        (
            "SELECT * FROM TUMBLE(SLIDE(p, ts, INTERVAL '1 second'), ts, INTERVAL '1 second')",
            "the rows of its input have lifetimes",
            "TUMBLE",
        ),
        (
            "SELECT a.k FROM SLIDE(p, ts, INTERVAL '1 second') a ASOF JOIN p b ON a.k = b.k AND a.ts >= b.ts",
            "an ASOF JOIN is of plain relations",
            "p b",
        ),
        (
            (
                "SELECT * FROM SLIDE(p, ts, INTERVAL '1 second') MATCH_RECOGNIZE (ORDER BY ts MEASURES "
                "count(*) AS n PATTERN (A) DEFINE A AS n > 0)"
            ),
            "the rows of its input have lifetimes",
            "MATCH",
        ),
    ],
)
def test_errors(db: tsql.Session, sql: str, message: str, place: str) -> None:
    with pytest.raises(tsql.BindError) as refused:
        db.sql(sql).arrow()
    assert message in refused.value.message
    assert refused.value.position is not None
    assert sql[refused.value.position :].startswith(place), sql[refused.value.position :]


S = "SLIDE(p, ts, INTERVAL '1 second')"


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        (f"SELECT count(*) FROM (SELECT k FROM {S} LIMIT 10%)", "10%"),
        (f"SELECT count(*) FROM (SELECT k FROM {S} LIMIT (SELECT max(k) FROM p))", "(SELECT max"),
        (f"WITH c AS (SELECT k FROM {S} LIMIT 10%) SELECT k FROM c", "10%"),
        (f"SELECT k FROM p WHERE EXISTS (SELECT 1 FROM {S} s WHERE s.k = p.k LIMIT 50%)", "50%"),
    ],
)
def test_limits_of_an_instant_are_constant(db: tsql.Session, sql: str, place: str) -> None:
    with pytest.raises(
        tsql.BindError, match="LIMIT in a subquery over a temporal relation takes a constant number of rows"
    ) as refused:
        db.sql(sql).arrow()
    assert sql[refused.value.position :].startswith(place), sql[refused.value.position :]
    assert refused.value.hint.startswith("LIMIT at the end of the whole query")


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT k FROM {S} LIMIT 1",
        f"(SELECT k FROM {S} LIMIT 1)",
        f"SELECT k FROM (SELECT k FROM {S}) LIMIT 1",
        f"SELECT k FROM (SELECT k FROM {S} LIMIT ALL)",
        f"SELECT k FROM p WHERE EXISTS (SELECT 1 FROM {S} s WHERE s.k = p.k LIMIT 1)",
        f"SELECT k FROM (SELECT k FROM {S} ORDER BY k)",
        "SELECT k FROM SLIDE((SELECT * FROM p LIMIT 1), ts, INTERVAL '1 second')",
        f"SELECT a.k FROM {S} a JOIN (SELECT k FROM p LIMIT 1) b ON a.k = b.k",
        "SEQUENCED VALIDTIME SELECT k FROM stamped LIMIT 1",
        f"CREATE OR REPLACE TABLE cut AS SELECT k FROM {S} LIMIT 1",
    ],
)
def test_limits_that_mean_something(db: tsql.Session, sql: str) -> None:
    db.register("stamped", pa.table({"k": [1], "ts": pa.array([0], pa.timestamp("us"))}), time="ts")
    assert db.sql(sql).arrow().num_rows == 1


def test_a_constant_may_be_computed(db: tsql.Session) -> None:
    assert db.sql("SELECT epoch(window_end) FROM TUMBLE(p, ts, to_seconds(10) + INTERVAL '2 seconds')").fetchall() == [
        (12.0,)
    ]


def test_rows_without_a_time_are_counted(db: tsql.Session) -> None:
    db.register("gaps", pa.table({"ts": pa.array([0, None, 5, None], pa.timestamp("us"))}))
    for windows in (
        "TUMBLE(gaps, ts, INTERVAL '1 second')",
        "HOP(gaps, ts, slide => INTERVAL '1 second', size => INTERVAL '2 seconds')",
        "SESSION(gaps, ts, gap => INTERVAL '1 second')",
    ):
        relation = db.sql(f"SELECT window_start, count(*) AS n FROM {windows} GROUP BY window_start")
        assert {row[1] for row in relation.fetchall()} == {2}
        assert sum(relation.counts.values()) == 2, windows


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT window_start, count(*) FROM p GROUP BY window_start", "FROM TUMBLE(t, ts, INTERVAL '1 minute')"),
        ("SELECT Window_End FROM p", "a window function of FROM adds it"),
        ("SELECT date_bin(INTERVAL '1 minute', ts) FROM p", "time_bucket(width, time) does the same"),
        ("SELECT nvl(n, 0) FROM p", "coalesce(a, b) does the same"),
    ],
)
def test_the_way_out(db: tsql.Session, sql: str, hint: str) -> None:
    with pytest.raises(tsql.BindError) as refused:
        db.sql(sql).arrow()
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM TUMBLE(p, ts, $size)",
        "SELECT * FROM HOP(p, ts, slide => $size, size => INTERVAL '1 minute')",
        "SELECT * FROM SESSION(p, ts, gap => $size)",
        "SELECT * FROM CHOP(SLIDE(p, ts, INTERVAL '1 second'), $size)",
        "SELECT * FROM p a ASOF JOIN p b ON a.ts >= b.ts TOLERANCE $size",
    ],
)
def test_parameters_on_which_the_plan_depends(db: tsql.Session, sql: str) -> None:
    with pytest.raises(tsql.BindError, match="cannot be a parameter: the plan of the query depends on it") as refused:
        db.sql(sql, {"size": "1 minute"}).arrow()
    assert sql[refused.value.position :].startswith("$size")
    assert refused.value.hint.startswith("write the value, as in INTERVAL '")


@pytest.mark.parametrize("shown", ["k, id, window_id", "k, window_id, count(*)"])
def test_windows_of_more_rows_than_there_can_be(db: tsql.Session, shown: str) -> None:
    """They are never full; windows that begin so many rows apart are the first of each key."""
    keys = [1, 1, 2, 2, 2, 3]
    db.register("keyed", pa.table({"k": keys, "id": range(6), "ts": pa.array(range(6), pa.timestamp("us"))}))
    grouped = " GROUP BY ALL" if "count" in shown else ""
    for most in (2**63 - 1, 2**63 - 2, 2**62):
        for call in (
            f"TUMBLE(keyed PARTITION BY k, ts, rows => {most})",
            f"HOP(keyed PARTITION BY k, ts, slide_rows => 2, rows => {most})",
        ):
            assert db.sql(f"SELECT {shown} FROM {call}{grouped}").fetchall() == []
        first = [(1, 0, 0), (1, 1, 0), (2, 2, 0), (2, 3, 0)] if not grouped else [(1, 0, 2), (2, 0, 2)]
        assert (
            db.sql(
                f"SELECT {shown} FROM HOP(keyed PARTITION BY k, ts, slide_rows => {most}, rows => "
                f"2){grouped} ORDER BY ALL"
            ).fetchall()
            == first
        )
