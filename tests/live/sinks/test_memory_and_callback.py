"""Sinks of this process: a table in memory, and a function."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.live.sinks.jobs import SCHEMA, TYPES, batches_of, expected, output
from tests.live.sinks.targets import rows_in
from tsql.backends.live.sinks.callback import Callback
from tsql.backends.live.sinks.memory import MemorySink
from tsql.backends.live.sinks.sink import CHANGE, Output
from tsql.kernels.expr.errors import TsqlError
from tsql.kernels.expr.types import TINYINT

CHANGES = Output(SCHEMA.append(pa.field(CHANGE, pa.int8())), (*TYPES, TINYINT), "job-a", True)


def changes(change: int) -> pa.RecordBatch:
    (_, rows) = batches_of(1)
    return pa.RecordBatch.from_arrays([*rows.columns, pa.array([change] * len(rows), pa.int8())], schema=CHANGES.schema)


def test_changes_in_memory() -> None:
    sink = MemorySink()
    sink.open(CHANGES)
    sink.recover(0, None)
    for epoch, change in enumerate((1, 1, -1), 1):
        sink.write(changes(change))
        sink.commit(epoch, sink.prepare(epoch))
    (_, rows) = batches_of(1)
    assert len(sink.table()) == 3 * len(rows)
    assert sink.result().equals(pa.Table.from_batches([rows]))


def test_result_without_changes() -> None:
    sink = MemorySink()
    sink.open(output())
    sink.recover(0, None)
    assert sink.result().num_rows == 0
    assert sink.result().schema == SCHEMA


def test_no_job_yet() -> None:
    with pytest.raises(TsqlError, match="no job has been started"):
        MemorySink().table()


def test_two_jobs_in_one_memory() -> None:
    sink = MemorySink()
    sink.open(output())
    with pytest.raises(TsqlError, match="holds the rows of another job"):
        sink.open(output("job-b"))


def test_callback() -> None:
    """The function has the rows of an epoch once it is prepared, before the checkpoint is durable."""
    seen: list[pa.RecordBatch] = []
    sink = Callback(seen.append)
    sink.open(output())
    sink.recover(0, None)
    for epoch in (1, 2, 3, 4, 5):
        for rows in batches_of(epoch):
            sink.write(rows)
        assert rows_in(pa.Table.from_batches(seen, SCHEMA)) == expected(epoch - 1)
        token = sink.prepare(epoch)
        assert rows_in(pa.Table.from_batches(seen, SCHEMA)) == expected(epoch)
        sink.commit(epoch, token)
    sink.recover(5, None)
    sink.close()
    assert rows_in(pa.Table.from_batches(seen, SCHEMA)) == expected(5)
    assert not sink.is_exact and sink.last_committed() is None
    assert all(batch.num_rows for batch in seen)


def test_function_that_fails() -> None:
    def wrong(rows: pa.RecordBatch) -> None:
        raise KeyError("nothing")

    sink = Callback(wrong)
    sink.open(output())
    sink.recover(0, None)
    for rows in batches_of(1):
        sink.write(rows)
    with pytest.raises(TsqlError, match=r"wrong failed: KeyError: 'nothing'") as caught:
        sink.prepare(1)
    assert isinstance(caught.value.__cause__, KeyError)
