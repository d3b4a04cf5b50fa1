"""Columns read for some rows alone: random files of all types, encodings, codecs and page sizes, against pyarrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tsql.backends.io.parquet.pages import ChunkReader, Selection, read_all
from tsql.backends.io.parquet.source import ParquetSource


def random_table(rng: np.random.Generator) -> pa.Table:
    rows, nulls, values = int(rng.integers(1, 6000)), rng.random() < 0.6, int(rng.choice([1, 7, 300, 100_000]))
    numbers = rng.integers(0, values, rows)
    numbers = np.sort(numbers) if rng.random() < 0.5 else numbers

    def column(data: object, kind: pa.DataType) -> pa.Array:
        return pa.array(data, kind, mask=rng.random(rows) < rng.choice([0.02, 0.3, 0.98]) if nulls else None)

    return pa.table(
        {
            "i": column(numbers, pa.int32()),
            "l": column(numbers * 1000, pa.int64()),
            "f": column(numbers * 0.5, pa.float64()),
            "b": column(numbers % 2 == 0, pa.bool_()),
            "s": column(["é" * (int(n) % 40 if n % 3 else 0) + str(n) for n in numbers], pa.string()),
        }
    )


def write(table: pa.Table, path: str, rng: np.random.Generator) -> None:
    pq.write_table(
        table,
        path,
        row_group_size=int(rng.choice([500, 1 << 20])),
        data_page_size=int(rng.choice([100, 2000, 1 << 20])),
        dictionary_pagesize_limit=int(rng.choice([200, 1 << 20])),
        use_dictionary=bool(rng.random() < 0.8),
        compression=str(rng.choice(["snappy", "none", "zstd", "gzip", "lz4"])),
        data_page_version=str(rng.choice(["1.0", "2.0"])),
        write_batch_size=int(rng.choice([16, 1024])),
    )


@pytest.mark.parametrize("seed", range(8))
def test_selected_rows_are_those_of_pyarrow(tmp_path, seed):
    rng = np.random.default_rng(seed)
    table, path = random_table(rng), str(tmp_path / "x.parquet")
    pq.write_table(
        table,
        path,
        data_page_size=int(rng.choice([100, 2000])),
        use_dictionary=bool(seed % 2),
        compression=("snappy", "none", "zstd")[seed % 3],
    )
    source = ParquetSource([path])
    file, total = source._file(path), table.num_rows
    readers = [
        ChunkReader(
            source._descriptor(file), file.footer.size, file.footer.chunks[0][i], file.form(i), total, True, "x"
        )
        for i in range(table.num_columns)
    ]
    start = 0
    while start < total:
        rows = int(min(total - start, rng.integers(1, 3000)))
        chosen = np.nonzero(rng.random(rows) < rng.choice([0, 0.001, 0.02, 0.3, 1.0]))[0]
        for found, column in zip(read_all(readers, rows, Selection.of(chosen)), table.columns, strict=True):
            found.validate(full=True)
            assert found.to_pylist() == column.slice(start, rows).take(pa.array(chosen)).to_pylist()
        start += rows


@pytest.mark.parametrize("seed", range(8))
def test_a_late_scan_gives_the_rows_of_pyarrow(tmp_path, seed):
    rng = np.random.default_rng(100 + seed)
    table, path = random_table(rng), str(tmp_path / "x.parquet")
    write(table, path, rng)
    session = tsql.connect(threads=2)
    limit = int(rng.integers(0, 200))
    for where, chosen in (
        (f"l < {limit}", [v is not None and v < limit for v in table["l"].to_pylist()]),
        (
            "i = 0 AND b",
            [i == 0 and bool(b) for i, b in zip(table["i"].to_pylist(), table["b"].to_pylist(), strict=True)],
        ),
    ):
        found = session.sql(f"SELECT i, l, f, b, s FROM '{path}' WHERE {where}").arrow()
        assert found.to_pylist() == table.filter(pa.array(chosen)).to_pylist()


def test_a_plan_says_what_is_read_late(tmp_path):
    path = str(tmp_path / "x.parquet")
    pq.write_table(pa.table({"a": list(range(1000)), "b": list(range(1000))}), path)
    session = tsql.connect(threads=1)
    rows = session.sql(f"EXPLAIN PHYSICAL SELECT b FROM '{path}' WHERE a < 10").arrow().to_pylist()
    assert "late=yes" in str(rows)
