"""Writers: CSV and JSON text as DuckDB's COPY writes it, files that read back, and no half file when a query fails."""

from __future__ import annotations

import datetime as dt
import io
import math
import random
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.duck import empty_duckdb
from tests.sources.support import ours, table_of
from tsql.backends.io.open import open_source
from tsql.backends.io.value_text import date_text, interval_text, json_number, stamp_text
from tsql.backends.io.writers import ROW_GROUP_ROWS, write
from tsql.kernels.expr.errors import ExecutionError, SourceError

TABLE = pa.table({
    "i": [1, None, -5, 7], "b": [True, None, False, True], "d": [1.5, None, 1e16, math.nan],
    "d2": [1e300, None, 1e-7, -math.inf], "f": pa.array([0.1, None, 3.4e38, 1e10], pa.float32()),
    "dec": pa.array([Decimal("1.50"), None, Decimal("-0.05"), Decimal(12)], pa.decimal128(5, 2)),
    "wide": pa.array([Decimal("0.0000000001"), None, Decimal(10**20), Decimal(-3)], pa.decimal128(38, 10)),
    "s": ["a,b", None, 'x"y', ""],
    "t": ["line\nbreak", None, "cr\rx", " lead"], "u": ["é😀", None, "back\\slash", "tab\there"],
    "v": ["#x", None, "a#b", "NULL"], "day": [dt.date(2020, 1, 1), None, dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "time": pa.array([36_000_500_000, None, 0, 86_399_000_001], pa.time64("us")),
    "ts": pa.array([0, None, 1_577_872_800_123_456, -1], pa.timestamp("us")),
    "tz": pa.array([0, None, 1_577_872_800_100_000, -500_000], pa.timestamp("us", "UTC")),
    "blob": pa.array([b"ab", None, b"\x00\xff'\"\\~", b""]),
    "iv": pa.array([pa.MonthDayNano([14, -3, 360_000_500_000_000]), None, pa.MonthDayNano([0, 0, -3_000_000_000]),
                    pa.MonthDayNano([-14, 1, 0])], pa.month_day_nano_interval()),
    "k": pa.array(["p", None, "q,r", "p"]).dictionary_encode(), "u8": pa.array([1, None, 255, 0], pa.uint8()),
    "c": ["\x1f\x08\x0c", None, "/", "\x7f"],
})  # fmt: skip


def by_duckdb(table: pa.Table, path: Path) -> bytes:
    with empty_duckdb() as connection:
        connection.execute("SET timezone = 'UTC'")
        connection.register("t", table)
        connection.execute(f"COPY (SELECT * FROM t) TO '{path}'")
    return path.read_bytes()


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_text_is_what_duckdb_writes(tmp_path: Path, kind: str) -> None:
    for name in TABLE.column_names:
        table = TABLE.select([name])
        out = io.BytesIO()
        assert write(table.to_batches(), table.schema, kind, out) == 4
        assert out.getvalue() == by_duckdb(table, tmp_path / f"d.{kind}"), name
    write(TABLE.to_batches(), TABLE.schema, kind, tmp_path / f"m.{kind}")
    assert (tmp_path / f"m.{kind}").read_bytes() == by_duckdb(TABLE, tmp_path / f"d.{kind}")


def test_random_doubles_are_written_as_duckdb_writes_them(tmp_path: Path) -> None:
    choose = random.Random(1)
    values = [struct.unpack("<d", struct.pack("<Q", choose.getrandbits(63)))[0] for _ in range(1000)] + [
        float(choose.randint(0, 10 ** choose.randint(1, 25))) for _ in range(1000)
    ]
    values = [value for value in values if value == value] + [10.0**e for e in range(-30, 30)] + [-0.0]
    table = pa.table({"x": values})
    for kind in ("csv", "json"):
        out = io.BytesIO()
        write(table.to_batches(), table.schema, kind, out)
        assert out.getvalue() == by_duckdb(table, tmp_path / f"d.{kind}")
    assert json_number(1e21) == "1e21" and json_number(123456.75) == "123456.75"


def test_far_dates_and_intervals() -> None:
    assert stamp_text(-735_500 * 86_400_000_000 + 1) == "0045-04-09 (BC) 00:00:00.000001"
    assert interval_text(0, 0, 0) == "00:00:00" and interval_text(13, 1, -1) == "1 year 1 month 1 day -00:00:00.000001"
    with empty_duckdb() as connection:
        for day in (-735_500, 3_000_000, -719_163, 2_932_897, -1_000_000):
            assert connection.execute(f"SELECT (DATE '1970-01-01' + {day})::VARCHAR").fetchall() == [(date_text(day),)]


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_binary_formats_read_back(tmp_path: Path, kind: str) -> None:
    table = TABLE.drop_columns(["iv"]) if kind == "parquet" else TABLE
    path = tmp_path / f"t.{kind}"
    plain = pa.schema([field.with_type(pa.string()) if field.name == "k" else field for field in table.schema])
    write(table.to_batches(max_chunksize=1), plain, kind, path)
    back = table_of(open_source(path))
    assert back.to_pylist().__repr__() == table.to_pylist().__repr__()


def test_parquet_row_groups_and_types(tmp_path: Path) -> None:
    rows = ROW_GROUP_ROWS + 5
    table = pa.table(
        {"i": range(rows), "d": pa.array([1] * rows, pa.int64()).cast(pa.decimal128(19, 0)).cast(pa.decimal128(15, 0))}
    )
    assert write(table.to_batches(max_chunksize=1000), table.schema, "parquet", tmp_path / "t.parquet") == rows
    metadata = pq.read_metadata(tmp_path / "t.parquet")
    assert metadata.num_rows == rows and metadata.num_row_groups == 2
    assert metadata.row_group(0).column(1).physical_type == "INT64"
    with pytest.raises(SourceError, match="column iv is INTERVAL"):
        write(TABLE.to_batches(), TABLE.schema, "parquet", tmp_path / "iv.parquet")
    assert not (tmp_path / "iv.parquet").exists()


@pytest.mark.parametrize("kind", ["csv", "json", "arrow", "parquet"])
def test_a_failed_query_leaves_no_half_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"t.{kind}"
    path.write_text("as it was")
    table = pa.table({"i": [1, 2]})

    def failing() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches()
        raise ExecutionError("division by zero")

    with pytest.raises(ExecutionError):
        write(failing(), table.schema, kind, path)
    assert path.read_text() == "as it was" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["csv", "json", "arrow", "parquet"])
def test_no_rows_and_repeated_names(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"t.{kind}"
    schema = pa.schema([("a", pa.int64()), ("a", pa.int64()), ("x,y", pa.string())])
    assert write(iter(()), schema, kind, path) == 0
    if kind == "csv":
        assert path.read_text() == 'a,a_1,"x,y"\n'
    elif kind == "json":
        assert path.read_text() == ""
    else:
        assert ours(path) == ([("a", "BIGINT"), ("a_1", "BIGINT"), ("x,y", "VARCHAR")], [])


def test_targets_that_cannot_be_written(tmp_path: Path) -> None:
    table = pa.table({"a": [1]})
    with pytest.raises(SourceError, match="cannot write"):
        write(table.to_batches(), table.schema, "csv", tmp_path / "no" / "such" / "folder.csv")
    with pytest.raises(SourceError, match="unknown format xls"):
        write(table.to_batches(), table.schema, "xls", tmp_path / "t.xls")
