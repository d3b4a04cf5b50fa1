"""Tables in memory of more than one block: every encoding, read back and scanned in morsels of all sizes."""

from __future__ import annotations

import datetime as dt
import tracemalloc
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tsql
from tests.duck import empty_duckdb
from tsql.kernels.blocks.encode import BLOCK_ROWS, encode
from tsql.kernels.expr.types import BIGINT

ROWS = 70_000  # a little more than one block of 65,536 rows


def column(kind: str, rng: np.random.Generator) -> pa.Array:
    """A column of a type whose values need the widest form of it."""
    mask = rng.random(ROWS) < 0.01
    numbers = rng.integers(0, 2**62, ROWS)
    match kind:
        case "ubigint":
            return pa.array(numbers.astype(np.uint64) * 4 + 1, pa.uint64(), mask=mask)
        case "hugeint":
            return pa.array(
                [None if m else Decimal(int(n)) * 10**15 for n, m in zip(numbers, mask, strict=True)],
                pa.decimal128(38, 0),
            )
        case "decimal":
            return pa.array(
                [None if m else Decimal(int(n) % 10**9).scaleb(-2) for n, m in zip(numbers, mask, strict=True)],
                pa.decimal128(15, 2),
            )
        case "bigint":
            return pa.array(numbers - 2**61, pa.int64(), mask=mask)
        case "smallint":
            return pa.array((numbers % 30000 - 15000).astype(np.int16), pa.int16(), mask=mask)
        case "double":
            return pa.array(rng.normal(size=ROWS), mask=mask)
        case "boolean":
            return pa.array(numbers % 2 == 0, mask=mask)
        case "text":
            return pa.array([None if m else f"text {n}" for n, m in zip(numbers, mask, strict=True)])
        case "dictionary":
            return pa.array([None if m else f"word {n % 300}" for n, m in zip(numbers, mask, strict=True)])
        case "date":
            return pa.array(
                [
                    None if m else dt.date(1960, 1, 1) + dt.timedelta(int(n) % 30000)
                    for n, m in zip(numbers, mask, strict=True)
                ]
            )
        case "interval":
            return pa.array(
                [
                    None if m else pa.MonthDayNano([int(n) % 50, int(n) % 31, int(n) % 10**6 * 1000])
                    for n, m in zip(numbers, mask, strict=True)
                ]
            )
    raise ValueError(kind)


KINDS = [
    "ubigint",
    "hugeint",
    "decimal",
    "bigint",
    "smallint",
    "double",
    "boolean",
    "text",
    "dictionary",
    "date",
    "interval",
]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(5)
    return pa.table({"id": pa.array(np.arange(ROWS)), **{kind: column(kind, rng) for kind in KINDS}})


@pytest.mark.parametrize("batch_rows", [0, 997])
@pytest.mark.parametrize("kind", KINDS)
def test_read_back(table: pa.Table, kind: str, batch_rows: int) -> None:
    db = tsql.connect(threads=2, batch_rows=batch_rows)
    db.register("source", table.select(["id", kind]))
    db.execute("CREATE TABLE t AS SELECT * FROM source")
    found = db.sql("SELECT * FROM t").arrow()[kind]
    assert found.cast(table[kind].type).equals(table[kind])


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("interval", "boolean")])
def test_filters_use_zone_maps_rightly(table: pa.Table, kind: str) -> None:
    db, con = tsql.connect(threads=2), empty_duckdb()
    db.register("source", table)
    db.execute("CREATE TABLE t AS SELECT * FROM source")
    con.register("t", table)
    middle: Any = table[kind].take(pc.sort_indices(table[kind]))[ROWS // 2].as_py()
    for op in ("<", "<=", "=", ">", ">=", "<>"):
        query = (
            f"SELECT count(*) AS n, min(id) AS low, max(id) AS high FROM t WHERE {kind} {op} $1 AND id BETWEEN "
            "100 AND 69000"
        )
        assert db.sql(query, [middle]).fetchall() == con.execute(query, [middle]).fetchall()
        literal = f"'{middle}'" if kind in ("text", "dictionary", "date") else str(middle)
        query = query.replace("$1", literal)
        assert db.sql(query).fetchall() == con.sql(query).fetchall()


@pytest.mark.parametrize(
    ("fall", "is_sorted"),
    [(None, True), (3, False), (BLOCK_ROWS, False), (3 * BLOCK_ROWS - 1, False), (4 * BLOCK_ROWS, False)],
)
def test_order_is_found_block_by_block(fall: int | None, is_sorted: bool) -> None:
    """`fall`: the row whose value is less than the one before it. Only a block of the rows is looked at at a time."""
    values = np.arange(4 * BLOCK_ROWS + 2) // 3 * 3
    if fall is not None:
        values[fall] = values[fall - 1] - 1
    found = encode("x", BIGINT, pa.chunked_array([values]))
    tracemalloc.start()
    try:
        assert found.is_sorted is is_sorted
        assert tracemalloc.get_traced_memory()[1] < 2 * BLOCK_ROWS
    finally:
        tracemalloc.stop()
