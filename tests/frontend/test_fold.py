"""Casts folded while binding give the value that DuckDB gives; what is not folded stays a cast."""

from __future__ import annotations

import datetime
import decimal
import math

import pytest

from tests.frontend.support import oracle
from tsql.kernels.expr.nodes import Cast, Literal
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import parse_type
from tsql.planner.bind.binder import parse_expression

DUCK = oracle()
EPOCH = datetime.datetime(1970, 1, 1)
CASES = [
    ("1", "TINYINT"), ("127", "TINYINT"), ("-128", "TINYINT"), ("5", "HUGEINT"), ("5", "DOUBLE"), ("5", "FLOAT"),
    ("5", "DECIMAL(5,2)"), ("1.555", "DECIMAL(5,2)"), ("-1.555", "DECIMAL(5,2)"), ("1.5", "INTEGER"),
    ("2.5", "INTEGER"), ("-2.5", "INTEGER"), ("0.1", "DOUBLE"), ("0.1", "FLOAT"), ("true", "INTEGER"), ("0", "BOOLEAN"),
    ("7", "BOOLEAN"), ("1.50", "VARCHAR"), ("-0.05", "VARCHAR"), ("42", "VARCHAR"), ("true", "VARCHAR"),
    ("'12'", "INTEGER"), ("' 12 '", "INTEGER"), ("'-12'", "TINYINT"), ("'1.5'", "DOUBLE"), ("'1e3'", "DOUBLE"),
    ("'12.345'", "DECIMAL(5,2)"), ("'.5'", "DECIMAL(5,2)"), ("'true'", "BOOLEAN"), ("'FALSE'", "BOOLEAN"),
    ("'2020-02-29'", "DATE"), ("'1969-12-31'", "DATE"), ("'0001-01-01'", "DATE"), ("'9999-12-31'", "DATE"),
    ("'2020-1-2'", "DATE"), ("'10:20:30.5'", "TIME"), ("'2020-01-01 10:20:30.123456'", "TIMESTAMP"),
    ("'2020-01-01T10:20:30'", "TIMESTAMP"), ("'2020-01-01'", "TIMESTAMP"), ("'1960-01-01 00:00:01'", "TIMESTAMP"),
    ("DATE '2020-01-01'", "TIMESTAMP"), ("'ab\\x00\\xff'", "BLOB"), ("DATE '2020-01-01'", "VARCHAR"),
]  # fmt: skip


def stored(value, dtype):
    """A Python value of DuckDB in the stored form of a Literal."""
    if isinstance(value, decimal.Decimal):
        return int(value.scaleb(dtype.scale))
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.date):
        return (value - EPOCH.date()).days
    if isinstance(value, datetime.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    return value


@pytest.mark.parametrize(("text", "target"), CASES)
def test_folded_cast_is_what_duckdb_gives(text, target):
    expr = parse_expression(f"CAST({text} AS {target})", Schema(()))
    assert isinstance(expr, Literal)
    assert expr.dtype == parse_type(target)
    (theirs,) = DUCK.execute(f"SELECT CAST({text} AS {target})").fetchone()
    assert expr.value == stored(theirs, expr.dtype)


@pytest.mark.parametrize(("text", "interval"),
                         [("'3 days'", (0, 3, 0)), ("'1 year 2 months 3 days'", (14, 3, 0)),
                          ("'04:05:06.5'", (0, 0, 14_706_500_000)), ("'-1 day'", (0, -1, 0)),
                          ("'2 weeks -03:00:00'", (0, 14, -10_800_000_000)),
                          ("'1 hour 30 minutes'", (0, 0, 5_400_000_000))])  # fmt: skip
def test_intervals(text, interval):
    assert parse_expression(f"INTERVAL {text}", Schema(())).value == interval
    months, days, us = interval
    assert DUCK.execute(
        f"SELECT INTERVAL {text} = to_months({months}) + to_days({days}) + to_microseconds({us})"
    ).fetchone() == (True,)


@pytest.mark.parametrize(("text", "interval"),
                         [("3 DAYS", (0, 3, 0)), ("'3' DAY", (0, 3, 0)), ("1 QUARTER", (3, 0, 0)),
                          ("1.7 DAY", (0, 1, 0)), ("'1.5' SECOND", (0, 0, 1_500_000)), ("(-2) MONTHS", (-2, 0, 0)),
                          ("1 MILLENNIUM", (12000, 0, 0)), ("-1 HOUR", (0, 0, -3_600_000_000))])  # fmt: skip
def test_intervals_with_units(text, interval):
    assert parse_expression(f"INTERVAL {text}", Schema(())).value == interval


@pytest.mark.parametrize("text",
                         ["CAST('x' AS INTEGER)", "CAST(300 AS TINYINT)", "CAST('1.5' AS INTEGER)",
                          "CAST('2020-02-30' AS DATE)", "CAST('maybe' AS BOOLEAN)", "CAST(1e300 AS FLOAT)",
                          "CAST(99999 AS DECIMAL(4,1))", "INTERVAL 'soon'"])  # fmt: skip
def test_what_may_fail_stays_a_cast(text):
    assert isinstance(parse_expression(text, Schema(())), Cast)


def test_special_floats():
    assert math.isnan(parse_expression("CAST('nan' AS DOUBLE)", Schema(())).value)
    assert parse_expression("CAST('-inf' AS FLOAT)", Schema(())).value == -math.inf
