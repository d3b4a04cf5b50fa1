"""What CREATE STREAM and `start(sink=..)` say, as sinks; and one clear error for all else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tsql.backends.live.sinks.callback import Callback
from tsql.backends.live.sinks.connectors import CONNECTORS, check_options, sink_for, sink_of
from tsql.backends.live.sinks.memory import MemorySink
from tsql.backends.live.sinks.ndjson_file import NdjsonFile
from tsql.backends.live.sinks.parquet_folder import ParquetFolder
from tsql.kernels.expr.errors import TsqlError

WRONG = [
    ("parqet", {}, "no connector 'parqet' to write to\nhint: results go to delta, kafka, ndjson, parquet, postgres"),
    ("parquet", {}, "connector parquet needs the option path"),
    ("parquet", {"path": ""}, "option path is empty or holds a NUL character"),
    ("parquet", {"path": "a\0b"}, "option path is empty or holds a NUL character"),
    ("parquet", {"path": 3}, "option path is a string, not 3"),
    (
        "parquet",
        {"path": "p", "paht": "q"},
        "connector parquet has no option 'paht'\nhint: its options are compression, path, row_group_rows",
    ),
    (
        "parquet",
        {"path": "p", "partition_by": "day"},
        "connector parquet has no option partition_by: a rename shows all files of an epoch at once, so an epoch is one"
        " file",
    ),
    ("parquet", {"path": "p", "row_group_rows": "many"}, "option row_group_rows is a number of at least 0, not 'many'"),
    ("parquet", {"path": "p", "row_group_rows": True}, "option row_group_rows is a number of at least 0, not True"),
    ("postgres", {"url": "postgresql:///x"}, "connector postgres needs the option table"),
    ("kafka", {"brokers": "h:1", "kafka": "x"}, "connector kafka has no option 'kafka'"),
]


@pytest.mark.parametrize(("connector", "options", "message"), WRONG)
def test_wrong_options(connector: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TsqlError) as caught:
        check_options(connector, options)
    assert str(caught.value).startswith(message)


def test_options() -> None:
    assert isinstance(sink_of("JSON", {"path": "p"}), NdjsonFile)
    assert check_options("parquet", {"path": Path("p"), "row_group_rows": "9"}) == {"path": "p", "row_group_rows": 9}
    assert check_options("kafka", {"brokers": "h:1", "topic": "t", "kafka.linger.ms": 5}) == {
        "brokers": "h:1",
        "topic": "t",
        "settings": {"linger.ms": "5"},
    }


def test_wrong_values() -> None:
    with pytest.raises(TsqlError, match="option compression is one of snappy, zstd, .*, not 'rar'"):
        sink_of("parquet", {"path": "p", "compression": "rar"})
    with pytest.raises(TsqlError, match="option row_group_rows is at least 1, not 0"):
        sink_of("parquet", {"path": "p", "row_group_rows": 0})


@pytest.mark.parametrize("name", sorted(CONNECTORS))
def test_classes(name: str) -> None:
    """Each row names a class that takes its options."""
    made = CONNECTORS[name].load()
    taken = made.__init__.__code__.co_varnames[1 : made.__init__.__code__.co_argcount]
    options = [option.argument or key for key, option in CONNECTORS[name].options.items()]
    assert set(options) <= set(taken) and (not CONNECTORS[name].settings or "settings" in taken)
    assert made.is_exact


def test_targets(tmp_path: Path) -> None:
    memory = MemorySink()
    assert sink_for(memory) is memory
    assert isinstance(sink_for(print), Callback)
    assert isinstance(sink_for("out.ndjson"), NdjsonFile)
    assert isinstance(sink_for(tmp_path / "out.JSONL"), NdjsonFile)
    assert isinstance(sink_for("results"), ParquetFolder)
    assert isinstance(sink_for(tmp_path), ParquetFolder)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (3, "results cannot go to int 3\nhint: sink is a function, a folder, the name of an .ndjson file, the name of"),
        (None, "results cannot go to NoneType None"),
        (MemorySink, "results cannot go to the class MemorySink"),
        ("out.csv", "jobs do not write .csv files (out.csv)\nhint: name a folder, which gets Parquet files, or"),
        ("out.parquet", "jobs do not write .parquet files"),
        ("s3://bucket/out", "cannot write s3://bucket/out: jobs write local files and folders only"),
        ("s3://bucket/out.ndjson", "cannot write s3://bucket/out.ndjson: jobs write local files and folders only"),
        ("", "the path of a sink is empty or holds a NUL character"),
        ("a\0b", "the path of a sink is empty or holds a NUL character"),
    ],
)
def test_wrong_targets(target: Any, message: str) -> None:
    with pytest.raises(TsqlError) as caught:
        sink_for(target)
    assert str(caught.value).startswith(message)


def test_nothing_is_imported() -> None:
    """The registry loads no client library."""
    code = (
        "import sys, tsql.backends.live.sinks.connectors\n"
        "print(sorted({'deltalake', 'psycopg', 'confluent_kafka', 'pyarrow.parquet'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
