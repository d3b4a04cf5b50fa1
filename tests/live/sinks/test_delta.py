"""The Delta sink: what the log says, and a table that others change too."""

from __future__ import annotations

import json
from pathlib import Path

from deltalake import DeltaTable

import tsql
from tests.live.sinks.jobs import Checkpoint, batches_of, expected, ordered, output, run
from tests.live.sinks.targets import TARGETS


def test_table_that_was_compacted(tmp_path: Path) -> None:
    """The log knows that an epoch was committed when its file is no longer a part of the table."""
    target, checkpoint = TARGETS["delta"](tmp_path), Checkpoint()
    run(target.sink(), checkpoint, 3, output())
    table = DeltaTable(tmp_path / "out")
    table.optimize.compact()
    assert len(table.file_uris()) == 1
    sink = target.sink()
    sink.open(output())
    epoch, token = checkpoint.get()
    sink.recover(epoch, token)
    sink.commit(epoch, token)
    assert ordered(target.rows()) == expected(3)
    table.update_incremental()
    before = table.version()
    for rows in batches_of(5):
        sink.write(rows)
    token = sink.prepare(4)
    for _ in range(2):
        sink.commit(4, token)
    table.update_incremental()
    assert table.version() == before + 1
    sink.close()
    assert len(target.rows()) == len(expected(3)) + len(expected(5)) - len(expected(4))


def test_log(tmp_path: Path) -> None:
    run(TARGETS["delta"](tmp_path).sink(), Checkpoint(), 2, output())
    entry = (tmp_path / "out" / "_delta_log" / f"{2:020}.json").read_text()
    actions = {name: value for line in entry.splitlines() for name, value in json.loads(line).items()}
    assert actions["txn"]["appId"] == "job-a" and actions["txn"]["version"] == 2
    assert json.loads(actions["add"]["stats"]) == {"numRecords": len(expected(2)) - len(expected(1))}


def test_tsql_reads_it(tmp_path: Path) -> None:
    run(TARGETS["delta"](tmp_path).sink(), Checkpoint(), 6, output())
    found = tsql.connect().sql(f"SELECT * FROM delta_scan('{tmp_path / 'out'}') ORDER BY epoch, row").fetchall()
    assert found == expected(6)


def test_another_writer(tmp_path: Path) -> None:
    """Appends of others between epochs do not disturb."""
    target, checkpoint = TARGETS["delta"](tmp_path), Checkpoint()
    other = Checkpoint()
    for epochs in (1, 2, 3):
        run(target.sink(), checkpoint, epochs, output())
        run(target.sink(), other, epochs, output("job-b"))
    assert ordered(target.rows()) == ordered(expected(3) + expected(3, "job-b"))
