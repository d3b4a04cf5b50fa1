"""Formats against plain Python: messages and lines of all types, and what a bad one does to the others."""

from __future__ import annotations

import datetime as dt
import io
import json
import random
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tsql.backends.live.formats.format import BAD, format_of
from tsql.backends.live.sources.notices import Notices
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import (
    BIGINT,
    BLOB,
    BOOLEAN,
    DATE,
    DECIMAL,
    DOUBLE,
    FLOAT,
    HUGEINT,
    INTEGER,
    INTERVAL,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    TINYINT,
    UBIGINT,
    VARCHAR,
)

EVERY = Schema.of(
    ("b", BOOLEAN), ("t", TINYINT), ("i", INTEGER), ("l", BIGINT), ("u", UBIGINT), ("h", HUGEINT), ("f", FLOAT),
    ("d", DOUBLE), ("c", DECIMAL(9, 2)), ("w", DECIMAL(30, 3)), ("day", DATE), ("clock", TIME), ("ts", TIMESTAMP),
    ("tz", TIMESTAMPTZ), ("s", VARCHAR),
)  # fmt: skip
SMALL = Schema.of(("id", BIGINT), ("name", VARCHAR))
DAY = dt.timedelta(days=1)


def made(format: str, schema: Schema, **options: Any) -> tuple[Any, Notices]:
    notices = Notices()
    return format_of({"format": format, **options}, schema, notices), notices


def where(number: int) -> str:
    return f"message {number}"


def row_of(rng: random.Random, nulls: float) -> dict[str, Any]:
    time = dt.datetime(2000, 1, 1) + dt.timedelta(microseconds=rng.randrange(10**15))
    row: dict[str, Any] = {
        "b": rng.random() < 0.5,
        "t": rng.randrange(-128, 128),
        "i": rng.randrange(-(2**31), 2**31),
        "l": rng.choice([-(2**63), 2**63 - 1, rng.randrange(-1000, 1000)]),
        "u": rng.choice([2**64 - 1, rng.randrange(1000)]),
        "h": Decimal(rng.choice([-1, 1]) * rng.randrange(10**38)),
        "f": rng.randrange(-1000, 1000) / 8,
        "d": rng.choice([1e300, -0.1, rng.random()]),
        "c": Decimal(rng.randrange(-(10**9) + 1, 10**9)).scaleb(-2),
        "w": Decimal(rng.randrange(-(10**28), 10**28)).scaleb(-3),
        "day": time.date(),
        "clock": time.time(),
        "ts": time,
        "tz": time.replace(tzinfo=dt.timezone.utc),
        "s": rng.choice(["", "x", 'q"uo"te', "a,b", "ümläut", "back\\slash", "tab\t", " "]),
    }
    return {name: None if rng.random() < nulls else value for name, value in row.items()}


def as_json(row: dict[str, Any], rng: random.Random) -> bytes:
    def plain(value: Any) -> Any:
        if isinstance(value, Decimal):
            return int(value) if value == value.to_integral_value() and value.as_tuple().exponent == 0 else float(value)
        return str(value) if isinstance(value, dt.date | dt.time) else value

    shown = {name: plain(value) for name, value in row.items() if value is not None or rng.random() < 0.5}
    for name in ("c", "w"):
        if row[name] is not None:
            shown[name] = str(row[name])  # a float would round it
    items = list(shown.items())
    rng.shuffle(items)
    return json.dumps({**dict(items), "more": [1, {"x": 2}]}, indent=rng.choice([None, None, 1])).encode()


def as_csv(row: dict[str, Any]) -> bytes:
    def text(value: Any) -> str:
        if value is None:
            return ""
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        return '"' + shown.replace('"', '""') + '"' if isinstance(value, str) else shown

    return ",".join(map(text, row.values())).encode()


@pytest.mark.parametrize("nulls", [0.0, 0.3])
def test_every_type(nulls: float) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    rows = [row_of(rng, nulls) for _ in range(700)]
    for schema in (EVERY, Schema(tuple(field for field in EVERY if field.name != "h"))):
        wanted = [{field.name: row[field.name] for field in schema} for row in rows]
        found, _ = made("json", schema)
        batch = found.decode([as_json(row, rng) for row in rows], where)
        batch.validate(full=True)
        assert batch.schema == schema.to_arrow()
        assert batch.to_pylist() == wanted
        found, _ = made("csv", schema)
        batch = found.decode([as_csv(row) for row in wanted], where)
        # An empty text is NULL, as it is in CSV files.
        assert batch.to_pylist() == [{**row, "s": row["s"] or None} for row in wanted]
        table = pa.Table.from_pylist(wanted, schema=schema.to_arrow())
        found, _ = made("arrow", schema)
        assert (
            found.decode([streamed(table[:300]), streamed(table[300:300]), streamed(table[300:])], where).to_pylist()
            == wanted
        )


def streamed(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, 100)
    return sink.getvalue()


def test_binary() -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    rows = [row_of(rng, 0.0) for _ in range(300)]
    schema = Schema(tuple(field for field in EVERY if field.name != "s"))
    epoch = dt.datetime(1970, 1, 1)

    def micros(time: dt.datetime) -> int:
        return (time - epoch) // dt.timedelta(microseconds=1)

    def packed(row: dict[str, Any]) -> bytes:
        clock = dt.datetime.combine(epoch, row["clock"])
        head = struct.pack("<?biqQ", row["b"], row["t"], row["i"], row["l"], row["u"])
        wide = int(row["h"]).to_bytes(16, "little", signed=True)
        mid = struct.pack("<fdq", row["f"], row["d"], int(row["c"].scaleb(2)))
        other = int(row["w"].scaleb(3)).to_bytes(16, "little", signed=True)
        days = (row["day"] - epoch.date()) // DAY
        return (
            head + wide + mid + other + struct.pack("<iqqq", days, micros(clock), micros(row["ts"]), micros(row["ts"]))
        )

    messages, left = [], [packed(row) for row in rows]
    while left:
        count = rng.randint(1, 3)
        messages.append(b"".join(left[:count]))
        left = left[count:]
    found, _ = made("binary", schema)
    batch = found.decode(messages, where)
    batch.validate(full=True)
    assert batch.to_pylist() == [{name: row[name] for name in schema.names} for row in rows]
    assert found.decode([], where).num_rows == 0


@pytest.mark.parametrize(
    ("columns", "message", "error"),
    [
        ((("a", INTEGER),), b"abc", "message 1: has 3 bytes; a record has 4"),
        ((("a", INTEGER),), b"", "message 1: has 0 bytes; a record has 4"),
        (
            (("a", TINYINT), ("b", BOOLEAN), ("x", TINYINT), ("y", TINYINT)),
            b"\0\2\0\0",
            "message 1: column b: the stored",
        ),
    ],
)
def test_bad_binary(columns: Any, message: bytes, error: str) -> None:
    good = b"\0" * 4
    found, _ = made("binary", Schema.of(*columns))
    with pytest.raises(SourceError, match=error):
        found.decode([good, message, good], where)
    found, notices = made("binary", Schema.of(*columns), ignore_errors=True)
    rows = 2 if message == b"abc" else 3
    assert found.decode([good, message, good, good + message], where).num_rows == rows
    assert notices.left_out[BAD] >= 1 and error in notices.texts[0]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (DECIMAL(5, 2), 100_000),
        (DECIMAL(5, 2), -100_000),
        (DECIMAL(20, 0), 10**20),
        (DECIMAL(20, 0), -(10**20)),
        (TIME, -1),
    ],
)
def test_binary_values_out_of_range(kind: Any, value: int) -> None:
    found, _ = made("binary", Schema.of(("a", kind)))
    bytes = 8 if kind == TIME or kind.width <= 18 else 16
    inside = value - (1 if value > 0 else -1)
    assert found.decode([inside.to_bytes(bytes, "little", signed=True)], where).num_rows == 1
    with pytest.raises(SourceError, match="message 0: column a: the stored value is no"):
        found.decode([value.to_bytes(bytes, "little", signed=True)], where)


@pytest.mark.parametrize(
    ("format", "kind"),
    [("json", INTERVAL), ("csv", INTERVAL), ("binary", VARCHAR), ("binary", BLOB), ("binary", INTERVAL)],
)
def test_types_that_a_format_cannot_hold(format: str, kind: Any) -> None:
    with pytest.raises(SourceError, match=f"column a is {kind}, which format {format} cannot hold"):
        made(format, Schema.of(("a", kind)))


BAD_MESSAGES = [
    ("json", b'{"id": ', "malformed JSON: Expecting value"),
    ("json", b"", "malformed JSON"),
    ("json", b"[1]", "expected an object, found list"),
    ("json", b'{"id": "x"}', "column id: could not convert 'x' to BIGINT"),
    ("json", b'{"id": 9223372036854775808}', "column id: could not convert"),
    ("json", b'{"id": 1, "name": "\xff"}', "malformed JSON: not valid UTF-8"),
    ("json", b"[" * 100_000, "malformed JSON: nested too deeply"),
    ("csv", b"1", "expected 2 fields, found 1"),
    ("csv", b"1,a,b", "expected 2 fields, found 3"),
    ("csv", b"", "the message is empty"),
    ("csv", b"1,a\n2,b", "the message has a line break"),
    ("csv", b"x,a", "column id: could not convert 'x' to BIGINT"),
    ("csv", b'1,"a', "a quote is never closed"),
    ("csv", b"1,\xff", "column name: could not convert"),
    ("arrow", b"no arrow", "not an Arrow IPC stream"),
    ("arrow", b"", "not an Arrow IPC stream"),
    ("arrow", streamed(pa.table({"id": [1]})), "there is no column name"),
    ("arrow", streamed(pa.table({"id": [1], "name": [2]})) + b"", ""),
]


@pytest.mark.parametrize(("format", "message", "error"), BAD_MESSAGES)
def test_bad_messages(format: str, message: bytes, error: str) -> None:
    """It is named with its column; if errors are ignored it is left out, and only it."""
    if not error:
        found, _ = made(format, SMALL)
        assert found.decode([message], where).to_pylist() == [{"id": 1, "name": "2"}]
        return
    good = {
        "json": [json.dumps({"id": i, "name": f"n{i}"}).encode() for i in range(1200)],
        "csv": [f"{i},n{i}".encode() for i in range(1200)],
        "arrow": [streamed(pa.table({"id": [i], "name": [f"n{i}"]})) for i in range(30)],
    }[format]
    rows = [{"id": i, "name": f"n{i}"} for i in range(len(good))]
    for at in (0, len(good) // 2, len(good)):
        messages = [*good[:at], message, *good[at:]]
        found, _ = made(format, SMALL)
        with pytest.raises(SourceError) as raised:
            found.decode(messages, where)
        assert raised.value.message.startswith(f"message {at}: ") and error in raised.value.message
        found, notices = made(format, SMALL, ignore_errors=True)
        assert found.decode([message, *messages, message], where).to_pylist() == rows
        assert notices.left_out[BAD] == 3
        assert error in notices.texts[0]


@pytest.mark.parametrize("format", ["json", "csv"])
def test_lines(format: str) -> None:
    """Blank lines are nothing; a bad line is named by its number."""
    lines = {
        "json": [b'{"id": 1, "name": "a"}', b"", b'  {"id": 2}\r', b"\r", b'{"id": 3}'],
        "csv": [b"1,a", b"", b"2,\r", b"\r", b"3,"],
    }[format]
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 3, "name": None}]
    found, _ = made(format, SMALL)
    for end in (b"", b"\n", b"\n\n"):
        assert found.decode_lines(b"\n".join(lines) + end, where).to_pylist() == rows
        assert found.decode_lines(b"\n\r\n" + b"\n".join(lines) + end, where).to_pylist() == rows
    for nothing in (b"", b"\n", b"\r\n\n"):
        assert found.decode_lines(nothing, where).num_rows == 0
    with pytest.raises(SourceError, match="message 4: "):
        found.decode_lines(b"\n".join([*lines[:4], b"x", lines[4]]), where)


def test_random_quotes() -> None:
    """Rows with quotes that may not be closed: the others come, in their order."""
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(60):
        lines, rows, bad = [], [], 0
        for number in range(rng.randint(1, 40)):
            if rng.random() < 0.1:
                lines.append(f'{number},"open'.encode())
                bad += 1
            else:
                text = "".join(rng.choice('a",b') for _ in range(rng.randint(1, 4)))
                lines.append(f'{number},"{text.replace(chr(34), 2 * chr(34))}"'.encode())
                rows.append({"id": number, "name": text})
        found, notices = made("csv", SMALL, ignore_errors=True)
        batch = found.decode_lines(b"\n".join(lines), where) if rng.random() < 0.5 else found.decode(lines, where)
        assert batch.to_pylist() == rows
        assert notices.left_out[BAD] == bad


def test_nanoseconds_are_told() -> None:
    schema = Schema.of(("ts", TIMESTAMP))
    for format, message in (
        ("json", b'{"ts": "2026-01-01 00:00:00.123456789"}'),
        ("csv", b"2026-01-01 00:00:00.123456789"),
    ):
        found, notices = made(format, schema)
        assert found.decode([message], where)["ts"].cast(pa.int64()).to_pylist()[0] % 10**6 == 123456
        assert notices.texts[0] == "digits below microseconds of column ts were dropped"
