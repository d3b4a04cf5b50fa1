"""Result values as text and as Python objects, against DuckDB's cast to VARCHAR and its client."""

import datetime as dt
import random
import struct
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.duck import empty_duckdb
from tsql.kernels.expr import types as T
from tsql.values import python_values, texts

_random = random.Random(20)
_MICROSECONDS = [_random.randint(-(10**17), 10**18) for _ in range(500)] + [0, -1, 10**6, 1500, 2**63 - 1, -(2**63 - 1)]
_DAYS = [_random.randint(-(2**21), 2**24) for _ in range(500)] + [0, -1, 2**31 - 1, -(2**31 - 1)]
_INTERVALS = [
    pa.MonthDayNano(
        [
            _random.randint(-30, 30),
            _random.randint(-3, 3),
            _random.choice([0, 1000, _random.randint(-(10**12), 10**12) * 1000]),
        ]
    )
    for _ in range(300)
]

COLUMNS = [
    (T.BOOLEAN, pa.array([True, False, None])),
    (T.UBIGINT, pa.array([0, 2**64 - 1, None], pa.uint64())),
    (T.HUGEINT, pa.array([Decimal(10**37), Decimal(-(10**37)), None], pa.decimal128(38, 0))),
    (T.DECIMAL(18, 3), pa.array([Decimal("0.001"), Decimal("-0.001"), Decimal("123.000"), None], pa.decimal128(18, 3))),
    (T.DECIMAL(38, 20), pa.array([Decimal("0.00000000001"), Decimal("-7")], pa.decimal128(38, 20))),
    (
        T.DOUBLE,
        pa.array(
            [struct.unpack("d", struct.pack("Q", _random.getrandbits(64)))[0] for _ in range(500)]
            + [0.0, -0.0, 1e15, 1e16, 1e-4, 1e-5, float("inf")]
        ),
    ),
    (
        T.FLOAT,
        pa.array([0.1, 16777216.0, 1e15, 1e16, 1e-5, 1.5e-7, -0.0, float("nan"), float("-inf"), None], pa.float32()),
    ),
    (T.VARCHAR, pa.array(["", "a\nb", "日本", None])),
    (T.VARCHAR, pa.array(["x", None, "x"]).dictionary_encode()),
    (T.BLOB, pa.array([bytes(range(256)), b"", None])),
    (T.DATE, pa.array([*_DAYS, None], pa.int32()).cast(pa.date32())),
    (T.TIME, pa.array([0, 1, 86_399_999_999, 43_200_500_000], pa.time64("us"))),
    (T.TIMESTAMP, pa.array([*_MICROSECONDS, None], pa.timestamp("us"))),
    (T.TIMESTAMPTZ, pa.array(_MICROSECONDS, pa.timestamp("us", "UTC"))),
    (T.INTERVAL, pa.array([*_INTERVALS, None])),
]


@pytest.fixture(scope="module")
def oracle():
    connection = empty_duckdb()
    connection.execute("SET timezone = 'UTC'")
    return connection


@pytest.mark.parametrize(("sql_type", "column"), COLUMNS, ids=[str(t) for t, _ in COLUMNS])
def test_texts_are_those_of_duckdb(oracle, sql_type, column):
    oracle.register("data", pa.table({"x": column}))
    expected = [row[0] for row in oracle.execute("SELECT x::VARCHAR FROM data").fetchall()]
    assert texts(column) == expected


def test_python_values():
    day = dt.date(2020, 2, 29)
    assert python_values(pa.array([day, None]), T.DATE) == [day, None]
    assert python_values(pa.array([Decimal(7)], pa.decimal128(38, 0)), T.HUGEINT) == [7]
    assert python_values(pa.array([5], pa.timestamp("us")), T.TIMESTAMP) == [dt.datetime(1970, 1, 1, 0, 0, 0, 5)]
    assert python_values(pa.array([5], pa.timestamp("us", "UTC")), T.TIMESTAMPTZ) == [
        dt.datetime(1970, 1, 1, 0, 0, 0, 5, dt.UTC)
    ]
    assert python_values(pa.array([1_000_001], pa.time64("us")), T.TIME) == [dt.time(0, 0, 1, 1)]
    assert python_values(pa.array([pa.MonthDayNano([1, 2, 3000])]), T.INTERVAL) == [
        dt.timedelta(days=32, microseconds=3)
    ]


def test_what_python_cannot_hold_comes_as_text():
    assert python_values(pa.array([10**18], pa.timestamp("us")), T.TIMESTAMP) == ["33658-09-27 01:46:40"]
    assert python_values(pa.array([2**31 - 1], pa.int32()).cast(pa.date32()), T.DATE) == ["infinity"]
    assert python_values(
        pa.array([pa.MonthDayNano([0, 2**31 - 1, 0]), pa.MonthDayNano([-(2**31), 0, 1000])]), T.INTERVAL
    ) == [
        "2147483647 days",
        "-178956970 years -8 months 00:00:00.000001",
    ]
