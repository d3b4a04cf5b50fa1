"""Arrow IPC files that change, and the columns of them that are read."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import tsql
from tsql.kernels.expr.errors import SourceError


def test_a_file_that_is_truncated_while_it_is_open(tmp_path: Path) -> None:
    """No crash by a mapped page that is gone: rows that were read, or an error that names the file."""
    path = tmp_path / "t.arrow"
    table = pa.table({"a": list(range(400_000)), "s": ["text"] * 400_000})
    with pa.ipc.new_file(path, table.schema) as writer:
        for batch in table.to_batches(50_000):
            writer.write_batch(batch)
    with tsql.connect() as db:
        relation = db.sql(f"SELECT sum(a) FROM '{path}'")
        assert relation.fetchall() == [(400_000 * 399_999 // 2,)]
        os.truncate(path, 1_000_000)
        with pytest.raises(SourceError, match="t.arrow"):
            relation.fetchall()
        assert db.sql("SELECT 1").fetchall() == [(1,)]


def test_columns_in_any_order_and_none(tmp_path: Path) -> None:
    path = tmp_path / "t.arrow"
    table = pa.table({"s": ["x", None, "z"], "n": [[1], None, []], "a": [1, 2, 3], "b": [True, False, None]})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, 2)
    with tsql.connect() as db:
        assert db.sql(f"SELECT a, s, a AS again FROM '{path}'").fetchall() == [(1, "x", 1), (2, None, 2), (3, "z", 3)]
        assert db.sql(f"SELECT b, s FROM '{path}' WHERE a > 1").fetchall() == [(False, None), (None, "z")]
        assert db.sql(f"SELECT count(*) FROM '{path}'").fetchall() == [(3,)]
