"""Targets that do not take the rows: one clear message each, before anything is written."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.live.sinks.jobs import SCHEMA, Checkpoint, batches_of, expected, output, run
from tests.live.sinks.targets import TARGETS, Target
from tsql.backends.live.sinks.connectors import sink_for, sink_of
from tsql.backends.live.sinks.sink import Output
from tsql.kernels.expr.errors import TsqlError
from tsql.kernels.expr.types import BIGINT, INTERVAL, TIME

FOLDERS = ["parquet", "delta"]
FILES = ["ndjson", "parquet", "delta"]


def begin(connector: str, path: Path, about: Output | None = None) -> None:
    sink = sink_of(connector, {"path": str(path)})
    try:
        sink.open(about or output())
        sink.recover(0, None)
    finally:
        sink.close()


def message(connector: str, path: Path, about: Output | None = None) -> str:
    with pytest.raises(TsqlError) as caught:
        begin(connector, path, about)
    return caught.value.message


@pytest.mark.parametrize("connector", FOLDERS)
def test_file_in_place_of_a_folder(connector: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("mine")
    assert message(connector, path) == f"cannot write {path}: it is a file, not a folder"
    assert message(connector, path / "below") == f"cannot write {path / 'below'}: {path} is a file, not a folder"
    assert path.read_text() == "mine"


def test_folder_in_place_of_a_file(tmp_path: Path) -> None:
    assert message("ndjson", tmp_path) == f"cannot write {tmp_path}: it is a folder"
    pipe = tmp_path / "pipe.ndjson"
    os.mkfifo(pipe)
    assert message("ndjson", pipe) == f"cannot write {pipe}: it is no regular file"


@pytest.mark.parametrize("connector", FOLDERS)
def test_folder_that_cannot_be_written(connector: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may write everywhere; only the answer of the system differs.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert message(connector, tmp_path / "out") == f"cannot write {tmp_path / 'out'}: Permission denied"
    assert list(tmp_path.iterdir()) == []


def test_file_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "file" / "out.ndjson"
    path.parent.write_text("mine")
    assert message("ndjson", path) == f"cannot write {path}: File exists"


def test_files_with_other_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a.parquet")
    assert message("parquet", tmp_path) == (
        f"cannot write {tmp_path}: its file a.parquet has other columns: (n int64), and the query gives "
        "(epoch int64, row int64, text string, ts timestamp[us])"
    )
    (tmp_path / "b.parquet").write_text("no")
    assert message("parquet", tmp_path).startswith(f"{tmp_path / 'b.parquet'} is no Parquet file: ")


def test_table_with_other_columns(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(tmp_path / "other", pa.table({"n": [1]}))
    assert message("delta", tmp_path / "other").endswith(
        "the table has other columns: (n int64), and the query gives (epoch int64, row int64, text string, ts "
        "timestamp[us])"
    )
    write_deltalake(tmp_path / "parts", pa.table({"n": [1], "m": [2]}), partition_by=["n"])
    about = Output(pa.schema([("n", pa.int64())]), (BIGINT,), "job-a")
    assert message("delta", tmp_path / "parts", about).endswith(
        "it is partitioned by n, which live jobs do not write"
    )
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("mine")
    assert message("delta", tmp_path / "files").endswith("the folder has files and is no Delta table")


def test_table_with_constraints(tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    write_deltalake(tmp_path / "t", pa.table({"n": [1]}))
    DeltaTable(tmp_path / "t").alter.add_constraint({"small": "n < 10"})
    about = Output(pa.schema([("n", pa.int64())]), (BIGINT,), "job-a")
    assert message("delta", tmp_path / "t", about).endswith(
        "it has the feature delta.constraints.small, which live jobs do not write"
    )


def test_table_without_nulls(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    DeltaTable.create(tmp_path / "t", schema)
    sink = sink_of("delta", {"path": str(tmp_path / "t")})
    sink.open(Output(pa.schema([("n", pa.int64())]), (BIGINT,), "job-a"))
    sink.recover(0, None)
    sink.write(pa.record_batch({"n": pa.array([1])}))
    with pytest.raises(TsqlError, match="column n is NOT NULL, and the query gives a NULL"):
        sink.write(pa.record_batch({"n": pa.array([None], pa.int64())}))
    sink.close()


def test_damaged_log(tmp_path: Path) -> None:
    begin("delta", tmp_path / "t")
    (entry,) = (tmp_path / "t" / "_delta_log").glob("*.json")
    entry.write_text("{")
    assert message("delta", tmp_path / "t").startswith(f"cannot write {tmp_path / 't'}: ")


def test_damaged_manifest(tmp_path: Path) -> None:
    begin("parquet", tmp_path / "out")
    manifest = tmp_path / "out" / "_manifest" / "job-a.json"
    for text in ("{", "[]"):
        manifest.write_text(text)
        assert message("parquet", tmp_path / "out").startswith(f"{manifest} is damaged: ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"n":1}\n', "it has the columns n, and the query gives epoch, row, text, ts"),
        ("[1]\n", "it has no columns, and the query gives epoch, row, text, ts"),
        ("n\n1\n", "its first line is no JSON: Expecting value: line 1 column 1 (char 0)"),
        ('{"epo', "it ends within a line that is no job's"),
    ],
)
def test_lines_with_other_columns(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "out.ndjson"
    path.write_text(text)
    assert message("ndjson", path) == f"cannot write {path}: {said}"
    assert path.read_text() == text


@pytest.mark.parametrize("connector", FOLDERS)
def test_types_that_the_format_has_not(connector: str, tmp_path: Path) -> None:
    about = Output(pa.schema([("i", pa.month_day_nano_interval())]), (INTERVAL,), "job-a")
    assert message(connector, tmp_path, about) == "column i is INTERVAL, which is not written to Parquet"
    if connector == "delta":
        about = Output(pa.schema([("t", pa.time64("us"))]), (TIME,), "job-a")
        assert message(connector, tmp_path, about) == "column t is TIME, which Delta tables have not"


def test_unsigned_integers_in_delta(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    kinds = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.dictionary(pa.int32(), pa.string())]
    schema = pa.schema([(str(kind)[:6], kind) for kind in kinds])
    most = [255, 65535, 2**32 - 1, 2**64 - 1, "x"]
    for _ in range(2):
        sink = sink_of("delta", {"path": str(tmp_path / "t")})
        sink.open(Output(schema, (), "job-a"))
        sink.close()
    sink.open(Output(schema, (), "job-a"))
    sink.recover(0, None)
    sink.write(pa.record_batch([pa.array([value], kind) for value, kind in zip(most, kinds)], schema=schema))
    sink.commit(1, sink.prepare(1))
    sink.close()
    found = DeltaTable(tmp_path / "t").to_pyarrow_table()
    assert [column[0].as_py() for column in found.columns] == most
    begin("delta", tmp_path / "t", Output(schema, (), "job-b"))


def test_two_jobs_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "out.ndjson"
    sink = sink_for(path)
    sink.open(output())
    sink.recover(0, None)
    assert message("ndjson", path, output("job-b")) == f"cannot write {path}: another job is writing to it"
    sink.close()
    begin("ndjson", path, output("job-b"))


def lose_parquet(target: Target) -> None:
    (staged,) = (target.folder / "out").glob(".part-*.staged")
    staged.unlink()


def lose_lines(target: Target) -> None:
    (staged,) = target.folder.glob(".out.ndjson-*.staged")
    staged.unlink()


def lose_delta(target: Target) -> None:
    (staged,) = (target.folder / "out").glob("part-*.parquet")
    staged.unlink()


@pytest.mark.parametrize(
    ("kind", "lose"), [("parquet", lose_parquet), ("ndjson", lose_lines), ("delta", lose_delta)]
)
def test_staged_rows_that_are_gone(kind: str, lose: Callable[[Target], None], tmp_path: Path) -> None:
    """The job does not go on without them."""
    target: Target = TARGETS[kind](tmp_path)
    sink = target.sink()
    sink.open(output())
    sink.recover(0, None)
    for rows in batches_of(1):
        sink.write(rows)
    token = sink.prepare(1)
    sink.close()
    lose(target)
    again = target.sink()
    again.open(output())
    with pytest.raises(TsqlError, match="the rows of epoch 1 were written before the checkpoint, and are gone"):
        again.recover(1, token)
    again.close()


def test_results_that_were_taken_away(tmp_path: Path) -> None:
    """A reader may remove the files that it has read."""
    target, checkpoint = TARGETS["parquet"](tmp_path), Checkpoint()
    run(target.sink(), checkpoint, 3, output())
    for name in (tmp_path / "out").glob("*.parquet"):
        name.unlink()
    run(target.sink(), checkpoint, 5, output())
    assert target.rows() == expected(5)[len(expected(3)) :]


def test_file_that_was_moved_away(tmp_path: Path) -> None:
    target, checkpoint = TARGETS["ndjson"](tmp_path), Checkpoint()
    run(target.sink(), checkpoint, 3, output())
    target.path.rename(tmp_path / "old")
    run(target.sink(), checkpoint, 5, output())
    assert target.rows() == expected(5)[len(expected(3)) :]


def test_lines_that_somebody_else_wrote(tmp_path: Path) -> None:
    """They are kept between epochs. Where a half append was, the job does not guess."""
    target, checkpoint = TARGETS["ndjson"](tmp_path), Checkpoint()
    run(target.sink(), checkpoint, 1, output())
    with open(target.path, "a") as file:
        file.write('{"epoch":7,"row":0,"text":null,"ts":"2024-01-01 00:00:00"}\n')
    run(target.sink(), checkpoint, 2, output())
    assert len(target.rows()) == len(expected(2)) + 1

    record = json.loads((tmp_path / ".out.ndjson.epochs").read_text())["append"]
    text = target.path.read_bytes()
    (tmp_path / record["staged"]).write_bytes(text[record["start"] :])
    target.path.write_bytes(text[: record["start"] + 5] + b"x" * 5000 + b"\n")
    assert "it was changed while the rows of epoch 2 were written" in message("ndjson", target.path)
    target.path.write_bytes(text[: record["start"] - 1])
    assert "it was changed while the rows of epoch 2 were written" in message("ndjson", target.path)
    # What a crash of the machine leaves: bytes that were never written, in the place of those that were.
    target.path.write_bytes(text[: record["start"] + 5] + b"\0" * 7)
    run(target.sink(), checkpoint, 3, output())
    assert target.path.read_bytes()[: len(text)] == text


@pytest.mark.parametrize(
    ("connector", "library", "options", "said"),
    [
        ("delta", "deltalake", {"path": "t"}, "a Delta table needs the package deltalake"),
        ("kafka", "confluent_kafka", {"brokers": "127.0.0.1:1", "topic": "t"}, "needs the package confluent-kafka"),
        ("postgres", "psycopg", {"url": "postgresql://x", "table": "t"}, "PostgreSQL needs the package psycopg"),
    ],
)
def test_missing_package(
    connector: str, library: str, options: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(TsqlError) as caught:
        sink = sink_of(connector, options)
        sink.open(Output(SCHEMA, (), "job-a"))
    assert said in caught.value.message
    assert caught.value.hint == f"pip install 'tsql[{connector}]'"
