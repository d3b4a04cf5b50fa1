"""Digests and encodings against DuckDB; the engine's own hash against its promises."""

from __future__ import annotations

import random

import duckdb
import pyarrow as pa
import pytest

from tests.kernels.harness import both, evaluate
from tests.kernels.strings.string_cases import NASTY, call, check, columns_of, duckdb_values, nasty_table, text
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.expr.nodes import Column, Literal
from tsql.kernels.expr.types import BIGINT, BLOB, DOUBLE, HUGEINT, INTEGER, INTERVAL, VARCHAR
from tsql.kernels.functions.strings.encoding import ALPHABET

SIZES = (0, 1, 3, 31, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 200)


@pytest.mark.parametrize("name", ["md5", "sha1", "sha256"])
def test_digests(name: str) -> None:
    rng = random.Random(1)
    check(
        name,
        pa.table(
            {
                "s": pa.array(
                    [
                        *(None if s is None else s for s in NASTY[:12]),
                        *("".join(rng.choice("abé🦆") for _ in range(n)) for n in (3, 40)),
                    ],
                    pa.string(),
                )
            }
        ),
    )
    table = pa.table({"b": pa.array([rng.randbytes(n) for n in (*SIZES, 1000)], pa.binary())})
    (got,) = evaluate([call(name, *columns_of(table))], table)
    assert got.to_pylist() == duckdb_values(f"{name}(b)", table)


@pytest.mark.parametrize("name", ["hex", "unhex", "base64", "from_base64", "encode", "decode"])
def test_encodings(name: str) -> None:
    rng = random.Random(2)
    blobs = [None, *(rng.randbytes(n) for n in (0, 1, 2, 3, 4, 5, 17, 30))]
    texts = [s for s in NASTY if s is None or "\0" not in s]
    match name:
        case "unhex":
            table = pa.table(
                {"s": pa.array([None if b is None else b.hex()[i % 2 :] for i, b in enumerate(blobs)], pa.string())}
            )
        case "from_base64":
            table = pa.table({"s": duckdb_values("base64(b)", pa.table({"b": pa.array(blobs, pa.binary())}))})
        case "base64":
            table = pa.table({"b": pa.array(blobs, pa.binary())})
        case "decode":
            table = pa.table({"b": pa.array([None if s is None else s.encode() for s in texts], pa.binary())})
        case _:
            table = pa.table({"s": texts})
    check(name, table)


def test_hex_of_numbers() -> None:
    numbers = [None, 0, 1, 15, 16, 255, -1, 2**31, -(2**63), 2**63 - 1, 123456789]
    check("hex", pa.table({"n": pa.array(numbers, pa.int64())}))
    check("hex", pa.table({"n": pa.array([None, 0, 2**64 - 1, 10], pa.uint64())}))
    table = pa.table({"n": pa.array([0, 1, 2**100, 10**37, -1], pa.decimal128(38, 0))})
    (got,) = both([call("hex", Column("n", HUGEINT))], table)
    assert got.to_pylist() == duckdb_values("hex(n::HUGEINT)", table)
    check("hex", nasty_table(30, 2, b="blob"))


@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize(
    ("name", "value"),
    [("unhex", text("12x4")), ("unhex", text("g1")), ("from_base64", text("YQ=")), ("from_base64", text("YQ*=")),
     ("from_base64", text("====")), ("from_base64", text("Y===")),
     *(("decode", Literal(b, BLOB)) for b in (b"\xff", b"a\x80", b"\xc3", b"\xe2\x82", b"\xc0\x80", b"\xed\xa0\x80",
                                              b"\xf4\x90\x80\x80", b"\xe0\x80\x80"))],
)  # fmt: skip
def test_failures(name: str, value: Literal, interpret: bool) -> None:
    sql = f"'{value.value}'" if value.type == VARCHAR else "'" + "".join(f"\\x{b:02X}" for b in value.value) + "'::BLOB"
    with pytest.raises(duckdb.Error):
        duckdb_values(f"{name}({sql})")
    with pytest.raises(ExecutionError):
        evaluate([call(name, value)], interpret=interpret)


def test_the_alphabet() -> None:
    assert len(set(ALPHABET)) == 64 and ALPHABET.startswith(b"ABC") and ALPHABET.endswith(b"9+/")


def hash_of(*values: Literal) -> int:
    (got,) = both([call("hash", *values)])
    (value,) = got.to_pylist()
    assert isinstance(value, int) and 0 <= value < 2**64
    return value


def test_hash_of_equal_values_is_equal() -> None:
    assert hash_of(Literal(5, INTEGER)) == hash_of(Literal(5, BIGINT)) == hash_of(Literal(5, HUGEINT))
    assert hash_of(Literal(-5, INTEGER)) == hash_of(Literal(-5, HUGEINT))
    assert hash_of(Literal(0.0, DOUBLE)) == hash_of(Literal(-0.0, DOUBLE))
    assert hash_of(Literal((1, 0, 0), INTERVAL)) == hash_of(Literal((0, 30, 0), INTERVAL))
    assert hash_of(text("a"), text("b")) != hash_of(text("b"), text("a"))


def test_hash_differs() -> None:
    values = [
        *(Literal(i, BIGINT) for i in range(-20, 20)),
        *(text("x" * n) for n in range(20)),
        Literal(None, VARCHAR),
        Literal(2**70, HUGEINT),
        Literal(1.5, DOUBLE),
    ]
    got = evaluate([call("hash", v) for v in values])
    assert len({g.to_pylist()[0] for g in got}) == len(values)
