"""Digests and hashes: md5, sha1, sha256 and hash."""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import BLOB, BOOLEAN, UBIGINT, VARCHAR
from tsql.kernels.functions.arithmetic import number
from tsql.kernels.functions.registry import function
from tsql.kernels.functions.strings.basics import Text, built
from tsql.kernels.runtime.digest import SHA256_TABLE, md5_text, sha1_text, sha256_text
from tsql.kernels.runtime.text.strings import mix64, str_hash

NULL_HASH = 0x6E756C6C
COMBINE = -0x61C8864680B583EB
SEED = 0x2545F4914F6CDD1D
"""Keeps 0, which `mix64` maps to itself, apart from the empty string."""


def _register_digest(name: str, make: Callable[..., Val], table: bytes | None, of_abc: str) -> None:
    for t, example in ((VARCHAR, f"{name}('abc')"), (BLOB, f"{name}('abc'::BLOB)")):

        @function(name, args=(t,), returns=VARCHAR, lazy=True, examples=((example, of_abc),))
        def digest(k: PipelineKernel, s: Datum) -> Text:
            """The digest of the bytes in hexadecimal."""
            return built(k, make, k.null if table is None else k.static(table), s.ptr, s.len)


_register_digest("md5", md5_text, None, "900150983cd24fb0d6963f7d28e17f72")
_register_digest("sha1", sha1_text, None, "a9993e364706816aba3e25717850c26c9cd0d89d")
_register_digest(
    "sha256", sha256_text, SHA256_TABLE, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
)


def hash_value(k: PipelineKernel, d: Datum) -> Val:
    """i64: the hash of a value that is not NULL. Equal values have equal hashes, also across integer types."""
    t = d.type
    if t.is_string:
        return str_hash(k, d.ptr, d.len)
    if t.name == "INTERVAL":
        months, days, micros = d.parts
        order = (months.to("i128") * 30 + days.to("i128")) * 86_400_000_000 + micros.to("i128")
        return _hash_integer(k, order)
    if t.is_float:
        value = d.value.to("f64")
        # -0.0 equals 0.0, and every NaN equals every other.
        bits = k.select(
            value == 0.0, k.i64(0), k.select(value != value, k.i64(0x7FF8000000000000), value.bits_as("i64"))
        )
        return mix64(k, bits ^ SEED)
    if t == BOOLEAN:
        return mix64(k, d.value.to("i64") ^ SEED)
    return _hash_integer(k, number(d).value)


def _hash_integer(k: PipelineKernel, value: Val) -> Val:
    if value.type == "i64":
        return mix64(k, value ^ SEED)
    low, high = value.to("i64"), (value >> 64).to("i64")
    return mix64(k, low ^ SEED) ^ k.select(high == low >> 63, k.i64(0), mix64(k, high))


@function(
    "hash",
    args=("any", "any"),
    variadic=True,
    returns=UBIGINT,
    nulls="custom",
    ranged=True,
    examples=(("hash('a') = hash('a')", True), ("hash(1) = hash(2)", False), ("hash(NULL) IS NULL", False)),
)
def hash_(k: PipelineKernel, *args: Datum) -> Val:
    """A 64-bit hash of one or more values, NULL included. The numbers are this engine's own: they differ from DuckDB's
    and may change between versions."""
    first, *rest = args
    total = _hash_or_null(k, first)
    for d in rest:
        value = _hash_or_null(k, d)
        total = mix64(k, total * COMBINE + value)
    return total


def _hash_or_null(k: PipelineKernel, d: Datum) -> Val:
    value = hash_value(k, d)
    return value if d.valid is None else k.select(d.valid, value, k.i64(NULL_HASH))
