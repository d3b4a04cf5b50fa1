"""The shared test tables, as Arrow: small, deterministic, and full of the values that break engines.

`load <name>` in a `.slt` file registers one in both engines. A decimal128(38, 0) column stands for HUGEINT.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.slt.datasets_joins import JOINED

HUGEINT = pa.decimal128(38, 0)
TIMESTAMP = pa.timestamp("us")
TIMESTAMPTZ = pa.timestamp("us", tz="UTC")
INTERVAL = pa.month_day_nano_interval()


def _table(schema: dict[str, pa.DataType], rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, schema.values(), strict=True)], names=list(schema)
    )


def _at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def _iv(months: int, days: int, micros: int) -> pa.MonthDayNano:
    return pa.MonthDayNano([months, days, micros * 1000])


ALL_TYPES = {
    "id": pa.int32(), "b": pa.bool_(), "i8": pa.int8(), "i16": pa.int16(), "i32": pa.int32(), "i64": pa.int64(),
    "i128": HUGEINT, "u8": pa.uint8(), "u16": pa.uint16(), "u32": pa.uint32(), "u64": pa.uint64(), "f32": pa.float32(),
    "f64": pa.float64(), "d4": pa.decimal128(4, 1), "d9": pa.decimal128(9, 2), "d18": pa.decimal128(18, 4),
    "d38": pa.decimal128(38, 10), "s": pa.string(), "bl": pa.binary(), "d": pa.date32(), "t": pa.time64("us"),
    "ts": TIMESTAMP, "tz": TIMESTAMPTZ, "iv": INTERVAL,
}  # fmt: skip


def all_types() -> pa.Table:
    """One column per type. Rows: zero, all NULL, smallest, largest, minus one, then ordinary and special values."""
    midnight, last = dt.time(0), dt.time(23, 59, 59, 999999)
    big = Decimal(10**37)
    rows: list[tuple[Any, ...]] = [
        (0, False, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, "0.0", "0", "0", "0", "", b"", "1970-01-01", midnight,
         "1970-01-01", "1970-01-01", _iv(0, 0, 0)),
        (1, *[None] * 23),
        (2, False, -(2**7), -(2**15), -(2**31), -(2**63), -big, 0, 0, 0, 0, -3.4028234663852886e38, -math.inf,
         "-999.9", "-9999999.99", "-99999999999999.9999", "-9999999999999999999999999999.9999999999", " ", b"\x00",
         "0001-01-01", midnight,
         "0001-01-01", "1900-01-01", _iv(-12, -30, -1)),
        (3, True, 2**7 - 1, 2**15 - 1, 2**31 - 1, 2**63 - 1, big, 2**8 - 1, 2**16 - 1, 2**32 - 1, 2**64 - 1,
         3.4028234663852886e38, math.inf,
         "999.9", "9999999.99", "99999999999999.9999", "9999999999999999999999999999.9999999999", "zzz", b"\xff\xfe",
         "9999-12-31", last,
         "9999-12-31 23:59:59.999999", "2100-12-31 23:59:59.999999", _iv(120, 365, 86_400_000_000)),
        (4, True, -1, -1, -1, -1, -1, 1, 1, 1, 1, -0.0, -0.0, "-0.1", "-0.01", "-0.0001", "-0.0000000001", "a", b"a",
         "1969-12-31", dt.time(0, 0, 1),
         "1969-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999", _iv(0, -1, 0)),
        (5, False, 1, 1, 1, 1, 1, 2, 2, 2, 2, 1.5, math.nan, "0.1", "0.01", "0.0001", "0.0000000001", "A", b"A",
         "1970-01-02", dt.time(12, 30, 45),
         "1970-01-01 00:00:00.000001", "1970-01-01 00:00:00.000001", _iv(1, 0, 0)),
        (6, True, 42, 1000, 100000, 10**12, 10**20, 42, 1000, 100000, 10**12, 0.1, 0.1, "12.5", "1234.56", "1234.5678",
         "1234.5678901234", "hello", b"hello",
         "2000-02-29", dt.time(23, 59, 59), "2000-02-29 12:34:56.789012", "2000-02-29 12:34:56.789012",
         _iv(0, 1, 3_600_000_000)),
        (7, None, -42, -1000, -100000, -(10**12), -(10**20), 100, 30000, 2**31, 2**63, -2.5, -2.5, "-12.5", "-1234.56",
         "-1234.5678", "-1234.5678901234",
         "Größe", "Größe".encode(), "2023-12-31", dt.time(1, 2, 3, 456789), "2023-12-31 23:59:59",
         "2023-12-31 23:59:59", _iv(14, 3, 1_500_000)),
        (8, True, 42, None, 100000, None, 7, 42, None, 100000, None, math.inf, 1e308, None, "1234.56", None, "3",
         "日本語", b"\xe6\x97\xa5",
         "2024-02-29", None, "2024-02-29 00:00:00", None, _iv(0, 30, 0)),
        (9, False, None, 7, None, 7, None, None, 7, None, 7, math.nan, 5e-324, "7.0", None, "7.0000", None, None, None,
         None, dt.time(7, 0), None, "2024-03-10 07:00:00.5", None),
        (10, None, 7, 8, 9, 10, 11, 7, 8, 9, 10, 2.0, 3.0, "7.5", "8.25", "9.1250", "10.0000000001", "it's", b"it's",
         "1582-10-15", dt.time(12, 0),
         "1582-10-15 12:00:00", "1970-01-01 00:00:01", _iv(0, 0, -1)),
        (11, True, 7, 8, 9, 10, 11, 7, 8, 9, 10, 2.0, 3.0, "7.5", "8.25", "9.1250", "10.0000000001", "it's", b"it's",
         "1582-10-15", dt.time(12, 0),
         "1582-10-15 12:00:00", "1970-01-01 00:00:01", _iv(0, 0, -1)),
    ]  # fmt: skip
    shaped = []
    for row in rows:
        values: list[Any] = list(row)
        for index in range(13, 17):
            values[index] = None if values[index] is None else Decimal(values[index])
        values[19] = None if values[19] is None else dt.date.fromisoformat(values[19])
        values[21] = None if values[21] is None else _at(values[21])
        values[22] = None if values[22] is None else _at(values[22]).replace(tzinfo=dt.UTC)
        shaped.append(tuple(values))
    return _table(ALL_TYPES, shaped)


NUMS = {
    "id": pa.int32(),
    "g": pa.int32(),
    "k": pa.string(),
    "x": pa.int32(),
    "y": pa.float64(),
    "z": pa.decimal128(10, 2),
    "flag": pa.bool_(),
}


def nums() -> pa.Table:
    """100 rows for grouping: g has 5 groups and NULL, group 4 has only NULLs in x, y, z; k repeats with case and
    gaps."""
    keys = ["red", "green", "blue", None, "Red", ""]
    rows = []
    for i in range(100):
        g = None if i % 11 == 10 else i * 7 % 5
        blank = g == 4
        x = None if blank or i % 13 == 5 else (i * 37) % 41 - 20
        y = None if blank or i % 17 == 3 else ((i * 29) % 64 - 32) / 8
        z = None if blank or i % 19 == 7 else Decimal((i * 7919) % 20001 - 10000) / 100
        rows.append((i, g, keys[i * i % 6], x, y, z, None if i % 7 == 0 else i % 3 == 0))
    return _table(NUMS, rows)


def words() -> pa.Table:
    """Strings: empty, blank, case, accents, combining marks, CJK, emoji, LIKE and regex metacharacters, long ones."""
    values = [
        None, "", " ", "a", "A", "ab", "abc", "ABC", "abcabc", "Hello, World", "hello world", "  padded  ", "tab\there",
        "line\nbreak", "50%", "under_score", "back\\slash", "it's", 'say "hi"', "Größe", "größe", "STRASSE", "straße",
        "e\u0301", "é", "日本語", "日本", "🦆🦆", "a🦆b", "Ωmega", "İstanbul", "naïve café", "a.b.c", "a,b,,c",
        "x=1;y=2", "2024-01-15", "12345", "-17", "3.14", " 42 ", "1e3", "true", "NULL", "0xff", "foo123bar45",
        "john.doe@example.com", "aaa", "AaBbCc", "x" * 100, "abc" * 20, "the quick brown fox jumps over the lazy dog",
        "\u00a0nbsp\u00a0", "^start$", "(paren)", "[a-z]+", "end ",
    ]  # fmt: skip
    return _table(
        {"id": pa.int32(), "s": pa.string(), "p": pa.string(), "n": pa.int32()},
        [(i, v, ["a", "b", "o", None, ""][i % 5], [0, 1, 2, 3, -1, None, 100][i % 7]) for i, v in enumerate(values)],
    )


def times() -> pa.Table:
    """Dates and timestamps: before 1970, leap days, ends of months and years, ISO weeks that belong to another year."""
    stamps = [
        None, "1970-01-01 00:00:00", "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00.000001",
        "2000-02-29 12:34:56.789012", "1900-02-28 23:59:59", "1900-03-01 00:00:00", "2024-02-29 23:59:59.999999",
        "2023-02-28 00:00:00", "2024-12-31 23:59:59", "2025-01-01 00:00:00", "2020-12-28 08:00:00",
        "2021-01-03 08:00:00", "2021-01-04 08:00:00", "2005-01-01 10:10:10.101010", "2004-12-31 01:01:01.010101",
        "1999-12-31 12:00:00", "2010-03-31 06:30:00", "2010-04-30 18:45:30.5", "0001-01-01 00:00:00",
        "9999-12-31 23:59:59.999999", "1582-10-04 00:00:00", "1582-10-15 00:00:00", "2024-03-10 02:30:00",
        "2024-11-03 01:30:00", "2022-06-15 15:15:15.000015", "2022-06-15 15:15:15.000015", "1955-11-05 06:15:00",
        "2015-10-21 16:29:00", "2038-01-19 03:14:07", "2038-01-19 03:14:08", "1901-12-13 20:45:52",
    ]  # fmt: skip
    spans = [
        _iv(0, 0, 0),
        _iv(1, 0, 0),
        _iv(0, 1, 0),
        _iv(0, 0, 1),
        _iv(-1, 0, 0),
        _iv(12, 3, 14_400_000_000),
        None,
        _iv(0, -31, 0),
        _iv(0, 0, -3_600_000_000),
        _iv(25, 0, 0),
        _iv(0, 45, 5_400_000_000),
    ]
    rows = []
    for i, text in enumerate(stamps):
        at = None if text is None else _at(text)
        other = (
            None
            if i % 9 == 4 or at is None
            else _at("2020-02-29 13:00:00") + dt.timedelta(days=i * 13, seconds=i * 3601)
        )
        tz = None if at is None or at.year in (1, 9999) else at.replace(tzinfo=dt.UTC)
        rows.append((i, at, at and at.date(), at and at.time(), tz, other, spans[i % len(spans)], i % 6 - 2))
    return _table(
        {
            "id": pa.int32(),
            "ts": TIMESTAMP,
            "d": pa.date32(),
            "t": pa.time64("us"),
            "tz": TIMESTAMPTZ,
            "other": TIMESTAMP,
            "iv": INTERVAL,
            "n": pa.int32(),
        },
        rows,
    )


def orders() -> pa.Table:
    """120 orders as a shop would have them."""
    countries = ["DE", "FR", "US", "JP", None]
    statuses = ["open", "paid", "shipped", "returned", "paid", "shipped"]
    rows = []
    for i in range(120):
        placed = _at("2023-11-20 08:00:00") + dt.timedelta(hours=i * 17, minutes=i * i % 60)
        shipped = None if statuses[i % 6] == "open" else (placed + dt.timedelta(days=i % 9)).date()
        rows.append(
            (
                1000 + i,
                f"customer {i * 31 % 23:02d}",
                countries[i * 3 % 5],
                statuses[i % 6],
                Decimal((i * 7907) % 99999) / 100 + 1,
                (i * 5) % 12 + 1,
                round((i % 8) * 0.025, 3),
                placed,
                shipped,
            )
        )
    schema = {
        "id": pa.int64(),
        "customer": pa.string(),
        "country": pa.string(),
        "status": pa.string(),
        "amount": pa.decimal128(12, 2),
        "qty": pa.int16(),
        "discount": pa.float64(),
        "placed": TIMESTAMP,
        "shipped": pa.date32(),
    }
    return _table(schema, rows)


def points() -> pa.Table:
    """(x, y) pairs per series for the two-argument statistics; series c is constant, d has one point, e has NULLs."""
    rows = (
        [("a", float(i), 2.0 * i + 1) for i in range(8)]
        + [("b", float(i), (-1.0) ** i * i) for i in range(9)]
        + [("c", 3.0, float(i)) for i in range(4)]
    )
    rows += [
        ("d", 1.0, 1.0),
        ("e", None, 1.0),
        ("e", 1.0, None),
        ("e", None, None),
        ("f", 1.0, 2.0),
        ("f", 2.0, 1.0),
        ("f", None, 7.0),
    ]
    return _table({"series": pa.string(), "x": pa.float64(), "y": pa.float64()}, rows)


def mixed() -> pa.Table:
    """40 rows of moderate values, for random expressions: sums are exact in binary, arithmetic a few levels deep cannot
    overflow."""
    texts = [
        "",
        "a",
        "b",
        "ab",
        "Ab",
        "abc",
        "hello",
        "Hello world",
        "é",
        "日本",
        "🦆",
        " x ",
        "10",
        "-3",
        "a%b",
        "a_b",
        None,
    ]
    base = dt.date(2019, 12, 30)
    rows = []
    for i in range(40):
        a = None if i % 9 == 8 else i * 11 % 41 - 20
        b = None if i % 7 == 3 else (i * 137) % 201 - 100
        c = None if i % 10 == 6 else (i * 7919) % 20001 - 10000
        x = None if i % 8 == 5 else (i * 53 % 128 - 64) / 16
        n = None if i % 6 == 1 else Decimal((i * 3571) % 4001 - 2000) / 100
        day = None if i % 11 == 4 else base + dt.timedelta(days=i * 37 % 800 - 400)
        at = (
            None
            if i % 12 == 7
            else dt.datetime(2020, 2, 28, 23, 30) + dt.timedelta(hours=i * 31 % 500 - 250, microseconds=i * 999)
        )
        rows.append(
            (
                i,
                a,
                b,
                c,
                abs(b or 0),
                x,
                n,
                texts[i * 5 % 17],
                None if i % 5 == 4 else i * i % 3 == 1,
                day,
                at,
                b and b % 4,
            )
        )
    schema = {
        "id": pa.int32(), "a": pa.int8(), "b": pa.int32(), "c": pa.int64(), "u": pa.uint32(), "x": pa.float64(),
        "n": pa.decimal128(9, 2), "s": pa.string(), "p": pa.bool_(), "d": pa.date32(), "ts": TIMESTAMP, "g": pa.int32(),
    }  # fmt: skip
    return _table(schema, rows)


DATASETS: dict[str, pa.Table] = {
    "all_types": all_types(),
    "nums": nums(),
    "words": words(),
    "times": times(),
    "orders": orders(),
    "points": points(),
    "mixed": mixed(),
    "empty": _table(NUMS, []),
    "empty_types": _table(ALL_TYPES, []),
    "nulls": _table(NUMS, [(i, None, None, None, None, None, None) for i in range(3)]),
    "one": _table(NUMS, [(7, 1, "only", -5, 2.5, Decimal("3.25"), True)]),
    **JOINED,
}
