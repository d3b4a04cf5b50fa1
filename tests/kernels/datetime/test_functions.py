"""date_diff, date_sub, age, date_trunc, time_bucket, makers and names against DuckDB."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.kernels.datetime.times import make_times
from tests.kernels.harness import both, evaluate
from tests.kernels.oracle import call, check, col, lit
from tsql.kernels.expr.errors import BindError, ExecutionError
from tsql.kernels.expr.types import BIGINT, DATE, DOUBLE, INTERVAL, TIMESTAMP, TIMESTAMPTZ
from tsql.kernels.functions.datetime.difference import COUNTABLE, DAYS, TICKS, WEEKS
from tsql.kernels.functions.datetime.trunc import TRUNCATABLE

TABLE = make_times()
MINUTE = 60_000_000


def c(name):
    return col(TABLE, name)


@pytest.mark.parametrize("name", ["date_diff", "date_sub"])
@pytest.mark.parametrize("columns", ["d e", "ts us", "tz uz"])
def test_differences(name, columns):
    a, b = columns.split()
    # With a time zone DuckDB counts these otherwise: ISO years by their number, times in milliseconds.
    skipped = ("isoyear", *DAYS, *WEEKS, *TICKS) if (name, a) == ("date_sub", "tz") else ()
    parts = [p for p in COUNTABLE if p not in skipped]
    check([(f"{name}('{part}', {a}, {b})", call(name, lit(part), c(a), c(b))) for part in parts], TABLE)


@pytest.mark.parametrize("name", ["date_diff", "date_sub"])
def test_differences_of_times(name):
    check([(f"{name}('{part}', tm, un)", call(name, lit(part), c("tm"), c("un"))) for part in TICKS], TABLE)


def test_differences_of_close_times():
    table = pa.table(
        {
            "a": pa.array([0, -1, 10**15, 86_399_999_999, None], pa.int64()).cast(pa.timestamp("us")),
            "b": pa.array([1, 0, 10**15 - 1, 86_400_000_000, 1], pa.int64()).cast(pa.timestamp("us")),
        }
    )
    pairs = [
        (f"{name}('{part}', a, b)", call(name, lit(part), col(table, "a"), col(table, "b")))
        for name in ("date_diff", "date_sub")
        for part in COUNTABLE
    ]
    check(pairs, table)


def test_age():
    check(
        [
            ("age(ts, us)", call("age", c("ts"), c("us"))),
            ("age(tz, uz)", call("age", c("tz"), c("uz"))),
            ("age(us, ts)", call("age", c("us"), c("ts"))),
        ],
        TABLE,
    )


@pytest.mark.parametrize("column", ["d", "ts", "tz", "iv"])
def test_date_trunc(column):
    check(
        [(f"date_trunc('{part}', {column})", call("date_trunc", lit(part), c(column))) for part in TRUNCATABLE], TABLE
    )


def test_parts_from_a_column():
    table = TABLE.slice(0, 40).append_column("p", pa.array(["year", "week", "hour", None, "Quarter"] * 8))
    p = col(table, "p")
    check(
        [
            ("date_trunc(p, ts)", call("date_trunc", p, c("ts"))),
            ("date_diff(p, ts, us)", call("date_diff", p, c("ts"), c("us"))),
            ("date_sub(p, d, e)", call("date_sub", p, c("d"), c("e"))),
        ],
        table,
    )


WIDTHS = {
    "7 hours": (0, 0, 420 * MINUTE),
    "10 days": (0, 10, 0),
    "1 day 1 hour": (0, 1, 60 * MINUTE),
    "5 months": (5, 0, 0),
}


@pytest.mark.parametrize("column", ["d", "ts", "tz", "tm"])
def test_time_bucket(column):
    other = {"d": "e", "ts": "us", "tz": "uz", "tm": "un"}[column]
    offsets = {"1 day 3 hours": (0, 1, 180 * MINUTE), "2 months": (2, 0, 0)}
    pairs = []
    for text, parts in WIDTHS.items():
        if column == "tz" and text == "1 day 1 hour":
            continue
        width = lit(parts, INTERVAL)
        pairs.append((f"time_bucket(INTERVAL '{text}', {column})", call("time_bucket", width, c(column))))
        pairs.append(
            (f"time_bucket(INTERVAL '{text}', {column}, {other})", call("time_bucket", width, c(column), c(other)))
        )
        for offset_text, offset in offsets.items():
            pairs.append(
                (
                    f"time_bucket(INTERVAL '{text}', {column}, INTERVAL '{offset_text}')",
                    call("time_bucket", width, c(column), lit(offset, INTERVAL)),
                )
            )
    check(pairs, TABLE.slice(0, 40))


def test_names_and_last_days():
    check(
        [
            (f"{name}({column})", call(name, c(column)))
            for name in ("dayname", "monthname", "last_day")
            for column in ("d", "ts", "tz")
        ],
        TABLE,
    )


def test_epochs():
    pairs = [
        (f"{name}({column})", call(name, c(column)))
        for name in ("epoch_ms", "epoch_us")
        for column in ("d", "ts", "tz", "tm", "iv")
    ]
    pairs += [
        (f"{name}({column})", call(name, c(column)))
        for name, column in (("epoch_ns", "tm"), ("epoch_ns", "iv"), ("nanosecond", "ts"), ("nanosecond", "tm"))
    ]
    check(pairs, TABLE)


def test_makers():
    table = pa.table({
        "y": [2020, 1, 9999, -44, 0, None], "m": [2, 12, 1, 3, 6, 1], "d": [29, 31, 1, 15, 30, 1],
        "h": [0, 23, 24, 5, 12, 1], "i": [0, 59, 0, 6, 30, 1], "s": [0.0, 59.999999, 0.0, 1.2345678, 60.5, 1.0],
        "us": [0, 10**15, -(10**15), 1, -1, None],
    })  # fmt: skip
    v = lambda name: col(table, name)
    check(
        [
            ("make_date(y, m, d)", call("make_date", v("y"), v("m"), v("d"))),
            ("make_time(h, i, s)", call("make_time", v("h"), v("i"), v("s"))),
            (
                "make_timestamp(y, m, d, h, i, s)",
                call("make_timestamp", *(v(n) for n in ("y", "m", "d", "h", "i", "s"))),
            ),
            (
                "make_timestamptz(abs(y) + 1, m, 1, h, i, s)",
                call(
                    "make_timestamptz",
                    call("+", call("abs", v("y")), lit(1, BIGINT)),
                    v("m"),
                    lit(1, BIGINT),
                    v("h"),
                    v("i"),
                    v("s"),
                ),
            ),
            ("make_timestamp(us)", call("make_timestamp", v("us"))),
            ("epoch_ms(us)", call("epoch_ms", v("us"))),
            ("to_timestamp(s)", call("to_timestamp", v("s"))),
            ("to_timestamp(-0.0000015)", call("to_timestamp", lit(-0.0000015))),
        ],
        table,
    )


def test_the_current_time_is_one_per_query():
    names = ("now", "current_timestamp", "current_date", "today", "localtimestamp", "localtime")
    table = pa.table({"x": [1, 2, 3]})
    results = evaluate([call(n) for n in names] + [call("age", lit(0, TIMESTAMP))], table)
    assert all(len(set(map(str, a.to_pylist()))) == 1 for a in results)
    assert str(results[0][0])[:10] == str(results[2][0])


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (lambda: call("make_date", lit(2020, BIGINT), lit(13, BIGINT), lit(2, BIGINT)), "Date out of range: 2020-13-2"),
        (
            lambda: call("make_date", lit(5881580, BIGINT), lit(7, BIGINT), lit(11, BIGINT)),
            "Date out of range: 5881580-7-11",
        ),
        (lambda: call("make_time", lit(25, BIGINT), lit(2, BIGINT), lit(3.5)), "Time out of range: 25:2:3"),
        (lambda: call("make_time", lit(1, BIGINT), lit(2, BIGINT), lit(float("nan"))), "Time out of range"),
        (lambda: call("make_timestamp", lit(2**63 - 1, BIGINT)), "Timestamp microseconds out of range"),
        (lambda: call("epoch_ms", lit(2**63 - 1, BIGINT)), r"Could not convert Timestamp\(MS\) to Timestamp\(US\)"),
        (lambda: call("epoch_ns", lit(2**62, TIMESTAMP)), r"Could not convert Timestamp\(US\) to Timestamp\(NS\)"),
        (lambda: call("to_timestamp", lit(float("inf"), DOUBLE)), "Epoch seconds out of range"),
        (lambda: call("time_bucket", lit((0, 0, 0), INTERVAL), lit(0, TIMESTAMP)), "Period must be greater than 0"),
        (lambda: call("time_bucket", lit((-1, 0, 0), INTERVAL), lit(0, TIMESTAMP)), "Period must be greater than 0"),
        (
            lambda: call("time_bucket", lit((1, 1, 0), INTERVAL), lit(0, TIMESTAMP)),
            "Month intervals cannot have day or time component",
        ),
        (
            lambda: call("time_bucket", lit((0, 1, 1), INTERVAL), lit(0, TIMESTAMPTZ)),
            "Day intervals cannot have time component",
        ),
        (
            lambda: call("date_trunc", lit("year"), lit(-9223372022400000000, TIMESTAMP)),
            "Date and time not in timestamp range",
        ),
        (lambda: call("date_trunc", lit("month"), lit(2**31 - 5, DATE)), "Date and time not in timestamp range"),
    ],
)
def test_errors(expression, message):
    with pytest.raises(ExecutionError, match=message):
        both([expression()])


def test_parts_that_cannot_be_truncated_or_counted():
    with pytest.raises(BindError, match="Specifier type not implemented for DATETRUNC"):
        both([call("date_trunc", lit("era"), lit(0, TIMESTAMP))])
    with pytest.raises(BindError, match="Specifier type not implemented for DATEDIFF"):
        both([call("date_diff", lit("era"), lit(0, TIMESTAMP), lit(0, TIMESTAMP))])


def test_infinity():
    infinity, day = lit(2**63 - 1, TIMESTAMP), lit((0, 1, 0), INTERVAL)
    check(
        [
            ("date_trunc('month', DATE '-infinity')", call("date_trunc", lit("month"), lit(-(2**31) + 1, DATE))),
            ("date_trunc('century', TIMESTAMP 'infinity')", call("date_trunc", lit("century"), infinity)),
            ("time_bucket(INTERVAL 1 DAY, TIMESTAMP 'infinity')", call("time_bucket", day, infinity)),
            ("time_bucket(INTERVAL 1 DAY, DATE 'infinity')", call("time_bucket", day, lit(2**31 - 1, DATE))),
            (
                "time_bucket(INTERVAL 1 DAY, TIMESTAMP '2020-01-01', TIMESTAMP 'infinity')",
                call("time_bucket", day, lit(1577836800000000, TIMESTAMP), infinity),
            ),
            (
                "date_diff('month', TIMESTAMP 'infinity', TIMESTAMP '2020-01-01')",
                call("date_diff", lit("month"), infinity, lit(1577836800000000, TIMESTAMP)),
            ),
            (
                "age(TIMESTAMP 'infinity', TIMESTAMP '2020-01-01')",
                call("age", infinity, lit(1577836800000000, TIMESTAMP)),
            ),
            ("dayname(TIMESTAMP 'infinity')", call("dayname", infinity)),
            ("last_day(TIMESTAMP 'infinity')", call("last_day", infinity)),
            ("isfinite(TIMESTAMP 'infinity')", call("isfinite", infinity)),
            ("isinf(TIMESTAMP 'infinity')", call("isinf", infinity)),
            ("epoch_ms(TIMESTAMP 'infinity')", call("epoch_ms", infinity)),
        ]
    )
