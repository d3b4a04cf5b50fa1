"""Dates, times and intervals at the ends of their ranges, in all the forms that a result has."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import tsql
from tsql.kernels.expr.errors import ExecutionError, SourceError


@pytest.fixture(scope="module")
def db() -> tsql.Session:
    return tsql.connect()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("DATE '200000-01-01'", "200000-01-01"),
        ("DATE 'infinity'", "infinity"),
        ("DATE '-infinity'", "-infinity"),
        ("DATE '0044-03-15 (BC)'", "0044-03-15 (BC)"),
        ("TIME '24:00:00'", "24:00:00"),
        ("TIMESTAMPTZ '200000-01-01 00:00:00+00'", "200000-01-01 00:00:00+00"),
        ("TIMESTAMPTZ 'infinity'", "infinity"),
        ("DATE '9999-12-31'", dt.date(9999, 12, 31)),
        ("DATE '0001-01-01'", dt.date(1, 1, 1)),
        ("TIME '23:59:59.999999'", dt.time(23, 59, 59, 999999)),
    ],
)
def test_pandas_has_the_values_of_fetchall(db: Any, text: str, value: Any) -> None:
    relation = db.sql(f"SELECT 1 AS n, {text} AS x, 'a' AS s UNION ALL SELECT 2, NULL, 'b' ORDER BY n")
    assert [row[1] for row in relation.fetchall()] == [value, None]
    frame = relation.pandas()
    assert list(frame.columns) == ["n", "x", "s"]
    assert frame["x"].tolist() == [value, None]
    assert str(value)[:4] in str(frame) and text and repr(relation)


def test_pandas_has_timestamps_of_all_years(db: Any) -> None:
    frame = db.sql("SELECT TIMESTAMP '290000-01-01 10:00:00' AS far, TIMESTAMP '0044-03-15 (BC)' AS old").pandas()
    assert [str(kind) for kind in frame.dtypes] == ["datetime64[us]", "datetime64[us]"]
    assert str(frame["far"][0]) == "290000-01-01 10:00:00"
    assert frame["old"].astype("int64")[0] == db.sql("SELECT epoch_us(TIMESTAMP '0044-03-15 (BC)')").fetchone()[0]
    assert (
        str(db.sql("SELECT TIMESTAMPTZ '9999-12-31 23:59:59.999999+00' AS x").pandas()["x"].dtype)
        == "datetime64[us, UTC]"
    )


def test_columns_of_one_name_in_pandas(db: Any) -> None:
    frame = db.sql("SELECT DATE '200000-01-01' AS x, DATE '2020-01-01' AS x").pandas()
    assert frame.iloc[0].tolist() == ["200000-01-01", dt.date(2020, 1, 1)]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("DATE 'infinity'", "infinity"),
        ("DATE '262143-01-01'", "262143-01-01"),
        ("TIMESTAMP '-infinity'", "-infinity"),
        ("TIMESTAMP '290000-01-01'", "290000-01-01 00:00:00"),
        ("TIMESTAMPTZ '290000-01-01 00:00:00+00'", "290000-01-01 00:00:00"),
        ("TIME '24:00:00'", "24:00:00"),
    ],
)
def test_polars_says_what_it_cannot_hold(db: Any, text: str, shown: str) -> None:
    with pytest.raises(SourceError, match=f"column x holds {shown}, which polars cannot hold"):
        db.sql(f"SELECT {text} AS x").polars()


def test_polars_holds_the_others(db: Any) -> None:
    frame = db.sql(
        "SELECT DATE '262142-12-31' AS d, TIMESTAMP '262142-12-31 23:59:59.999999' AS t, TIME '23:59:59' "
        "AS c, NULL::DATE AS n"
    ).polars()
    assert (
        "+262142-12-31 23:59:59.999999" in str(frame) and frame["c"][0] == dt.time(23, 59, 59) and frame["n"][0] is None
    )


def test_intervals(db: Any) -> None:
    assert db.sql(
        "SELECT INTERVAL '3000000 years', INTERVAL '2147483647 days', INTERVAL '-178956970 years'"
    ).fetchall() == [("3000000 years", "2147483647 days", "-178956970 years")]
    assert db.sql("SELECT INTERVAL '1000000 days'").fetchall() == [(dt.timedelta(days=1_000_000),)]
    assert len(db.sql("SELECT INTERVAL '3000000 years' AS x").pandas()) == 1
    with pytest.raises(SourceError, match="column x holds intervals that are too long for polars"):
        db.sql("SELECT INTERVAL '2147483647 days' AS x").polars()


def test_an_interval_that_arrow_cannot_hold_is_an_error(db: Any) -> None:
    """Arrow's intervals have nanoseconds; what has more of them than 64 bits was another interval without a word."""
    for text in ("2562047788 hours", "-2562047788 hours", "9223372036854775807 microseconds"):
        with pytest.raises(ExecutionError, match="Interval out of range"):
            db.sql(f"SELECT INTERVAL '{text}' AS x").fetchall()
    assert db.sql("SELECT INTERVAL '2562047 hours'").fetchall() == [(dt.timedelta(hours=2562047),)]
    assert db.sql(
        "SELECT CAST(INTERVAL '2562047788 hours' AS VARCHAR), CASE WHEN false THEN INTERVAL '2562047788 hours' END"
    ).fetchall() == [("2562047788:00:00", None)]
