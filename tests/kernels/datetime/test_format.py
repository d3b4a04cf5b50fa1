"""strftime and strptime against DuckDB."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tests.kernels.datetime.times import make_times
from tests.kernels.harness import both
from tests.kernels.oracle import call, check, col, connect, lit
from tsql.kernels.expr.errors import BindError, ExecutionError
from tsql.kernels.expr.types import DATE, TIMESTAMP, TIMESTAMPTZ, VARCHAR

TABLE = make_times(rows=60)
FORMATS = [
    "%Y-%m-%d %H:%M:%S.%f",
    "%a %A %w %u %d %-d %b %h %B %m %-m %y %-y %H %-H %I %-I %p %M %-M %S %-S",
    "%f|%g|%z|%j|%-j|%U|%W|%c|%x|%X|%G|%V|100%%",
    "é%Yé",
    "plain text",
    "%H",
]


def c(name):
    return col(TABLE, name)


@pytest.mark.parametrize("column", ["d", "ts", "tz"])
def test_strftime(column):
    check([(f"strftime({column}, '{f}')", call("strftime", c(column), lit(f))) for f in FORMATS], TABLE)


def test_strftime_with_the_format_first_and_far_years():
    pairs = [
        ("strftime('%Y', ts)", call("strftime", lit("%Y"), c("ts"))),
        ("strftime(tz, '%Z')", call("strftime", c("tz"), lit("%Z"))),
        ("strftime(ts, '%Z')", call("strftime", c("ts"), lit("%Z"))),
    ]
    for text in ("0012-03-04 (BC)", "12012-03-04", "infinity", "-infinity"):
        ((value,),) = connect().execute(f"SELECT DATE '{text}' - DATE '1970-01-01'").fetchall()
        pairs.append(
            (f"strftime(DATE '{text}', '%Y %y %G %-y')", call("strftime", lit(value, DATE), lit("%Y %y %G %-y")))
        )
    check(pairs, TABLE)


def test_nanoseconds():
    assert both([call("strftime", lit(1_000_001, TIMESTAMP), lit("%S.%n!"))])[0].to_pylist() == ["01.000001000!"]


def test_null_and_bad_formats():
    assert both(
        [call("strftime", lit(0, TIMESTAMP), lit(None, VARCHAR)), call("strptime", lit("1"), lit(None, VARCHAR))]
    )[0].to_pylist() == [None]
    for bad in ("%i", "%-f", "%", "%-", "%Y%Q"):
        with pytest.raises(BindError, match="Failed to parse format specifier"):
            both([call("strftime", lit(0, TIMESTAMP), lit(bad))])
    with pytest.raises(BindError, match="must be a constant expression"):
        table = pa.table({"f": ["%Y"]})
        both([call("strftime", lit(0, TIMESTAMP), col(table, "f"))], table)


TEXTS = {
    "%Y-%m-%d": [
        "2020-01-02",
        " 2020-1-2  ",
        "2020-1-2x",
        "2020-13-2",
        "2020-02-30",
        "x",
        "",
        "2020-02-29",
        "1900-02-29",
        "12345-01-01",
        "-44-01-01",
        None,
    ],
    "%y-%m-%d": ["68-02-03", "69-02-03", "20-2-3"],
    "%b %d, %Y": ["Jan 2, 2020", "JAN 2, 2020", "feb 29,  2020", "january 2, 2020", "Ja"],
    "%A %B %-d %Y": ["monday january 2 2020", "Sunday May 31 1999", "Someday May 1 2000"],
    "%Y-%j": ["2020-060", "2020-366", "2019-366", "2020-0", "2020-1"],
    "%I:%M %p": ["11:30 PM", "12:30 am", "12:30 pm", "13:30 am", "0:30 am", "11:30 XM", "11:30 P"],
    "%Y %U %w": ["2020 08 6", "2020 00 3", "2021 53 0"],
    "%Y %W %a": ["2020 08 Sat", "2021 1 mon", "2017 52 sun"],
    "%Y %W": ["2020 08", "2018 1"],
    "%G %V %u": ["2020 09 3", "2015 53 7", "2021 1 1"],
    "%G %V": ["2020 09"],
    "%H:%M:%S.%f": ["3:04:05.678", "23:59:59.999999", "24:00:00.0", "1:2:3.", "1:2:3.1234567", "23:60:00.1"],
    "%S.%g": ["5.678", "5.6", "60.1"],
    "%Y%m%d": ["20200102", "2020010", "202001022"],
    "%c": ["2020-01-02 03:04:05"],
    "%Y foo %%": ["2020 foo %", "2020 fOo %", "2020  foo   %", "2020foo %"],
    "%Y-%m-%d %H": ["2020-01-02   03", "2020-01-0203"],
    "%Y-%m-%d %j": ["2020-5-1 060"],
}


def test_try_strptime():
    for format, texts in TEXTS.items():
        table = pa.table({"s": pa.array(texts, pa.string())})
        check([(f"try_strptime(s, '{format}')", call("try_strptime", col(table, "s"), lit(format)))], table)


def test_offsets_and_zones():
    table = pa.table({"s": ["2020-01-02 +05:30", "2020-01-02 -05", "2020-01-02 +0530", "2020-01-02 Z", "2020-01-02 5"]})
    check([("try_strptime(s, '%Y-%m-%d %z')", call("try_strptime", col(table, "s"), lit("%Y-%m-%d %z")))], table)
    check([("strptime('2020-01-02 UTC', '%Y-%m-%d %Z')", call("strptime", lit("2020-01-02 UTC"), lit("%Y-%m-%d %Z")))])
    assert call("strptime", lit("x"), lit("%z")).type == TIMESTAMPTZ


def test_special_texts():
    check(
        [
            (f"strptime('{text}', '%Y')", call("strptime", lit(text), lit("%Y")))
            for text in ("infinity", "-infinity", "epoch")
        ]
    )


def test_a_text_that_does_not_fit_is_an_error():
    with pytest.raises(
        ExecutionError, match='Could not parse string "2020-1-2x" according to format specifier "%Y-%m-%d"'
    ):
        both([call("strptime", lit("2020-1-2x"), lit("%Y-%m-%d"))])


def test_strptime_reads_what_strftime_writes():
    rng = random.Random(9)
    micros = [rng.randrange(-60_000_000_000_000_000, 250_000_000_000_000_000) for _ in range(60)]
    table = pa.table({"ts": pa.array(micros, pa.int64()).cast(pa.timestamp("us"))})
    for format in ("%Y-%m-%d %H:%M:%S.%f", "%A, %d %B %Y %I:%M:%S.%f %p", "%Y %j %H %M %S %f", "%G-W%V-%u %X.%f"):
        text = call("strftime", col(table, "ts"), lit(format))
        assert both([call("strptime", text, lit(format))], table)[0].cast(pa.int64()).to_pylist() == micros
