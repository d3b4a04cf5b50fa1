"""What a view keeps, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tsql
from tsql.backends.live.sinks.sink import Output
from tsql.kernels.expr.errors import CatalogError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT
from tsql.live_view import LEAST_ROWS, LiveView


def test_a_terminal_keeps_the_last_rows() -> None:
    """However many come, and whether or not somebody looks."""
    schema = pa.schema([("a", pa.int64())])
    view = LiveView("result", Schema.of(("a", BIGINT)), 3)
    view.open(Output(schema, (BIGINT,), "job"))
    rows = LEAST_ROWS // 4
    for epoch in range(1, 21):
        view.write(pa.record_batch([pa.array(range((epoch - 1) * rows, epoch * rows))], schema=schema))
        view.commit(epoch, view.prepare(epoch))
        assert sum(batch.num_rows for batch in view._changes) <= LEAST_ROWS
    assert view.table()["a"].to_pylist() == [20 * rows - 3, 20 * rows - 2, 20 * rows - 1]
    assert view.left_out == 20 * rows - 3


def test_nothing_is_read_from_a_sink(tmp_path: Path) -> None:
    with tsql.connect() as db:
        db.sql(f"CREATE SINK Out WITH (connector = 'parquet', path = '{tmp_path}')")
        with pytest.raises(CatalogError, match='"Out" is a sink: jobs write to it, and nothing can be read from it'):
            db.sql("SELECT * FROM out")
