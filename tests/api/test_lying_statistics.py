"""A Parquet file whose statistics are wrong gives an error or an answer, never a write outside of memory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tsql.kernels.expr.errors import ExecutionError

LARGEST = 77_000_003


@pytest.fixture
def lying(tmp_path: Path) -> Path:
    """A column with a value of 77,000,003 in a file that says 3 is the largest."""
    path = tmp_path / "lying.parquet"
    pq.write_table(
        pa.table({"k": pa.array([0, 1, 2, LARGEST] * 50, pa.int64())}), path, compression="none", use_dictionary=False
    )
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:]
    assert footer.count(LARGEST.to_bytes(8, "little")) == 2
    path.write_bytes(data[:start] + footer.replace(LARGEST.to_bytes(8, "little"), (3).to_bytes(8, "little")))
    return path


def test_groups_by_a_key_out_of_bounds(lying: Path) -> None:
    with tsql.connect(threads=2) as db, pytest.raises(ExecutionError, match="outside of the bounds"):
        db.sql(f"SELECT k, count(*) FROM '{lying}' GROUP BY k").arrow()


def test_rows_are_read_as_they_are(lying: Path) -> None:
    with tsql.connect(threads=2) as db:
        assert db.sql(f"SELECT count(*) AS n, sum(k) AS s FROM '{lying}'").fetchall() == [(200, 50 * (3 + LARGEST))]
