"""Delta tables: rows against the package that wrote them, time travel, partitions, renamed columns, what is refused."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.spark.cluster import InProcess
from tsql.backends.io.open import open_source
from tsql.backends.io.parquet import sampled
from tsql.backends.io.parquet import source as parquet
from tsql.backends.spark.backend import SparkBackend
from tsql.kernels.expr.errors import SourceError
from tsql.planner.bind.binder import parse_expression

deltalake = pytest.importorskip("deltalake")
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.timezone.utc)
VECTOR = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"


@pytest.fixture
def db() -> Iterator[Any]:
    with tsql.connect() as session:
        yield session


def table(start: int, rows: int) -> pa.Table:
    numbers = range(start, start + rows)
    return pa.table({
        "a": pa.array([None if n % 5 == 0 else n for n in numbers], pa.int64()),
        "k": pa.array([None if n % 7 == 0 else ("x", "y z/%", "ü=1")[n % 3] for n in numbers]),
        "d": pa.array([dt.date(2024, 1, 1 + n % 2) for n in numbers]),
        "m": pa.array([Decimal(n) / 4 for n in numbers], pa.decimal128(10, 2)),
        "z": pa.array([NOON + dt.timedelta(hours=n) for n in numbers], pa.timestamp("us", "UTC")),
        "n": pa.array([dt.datetime(1969, 1, 1) + dt.timedelta(days=n) for n in numbers], pa.timestamp("us")),
        "l": pa.array([[n] for n in numbers], pa.list_(pa.int64())),
    })  # fmt: skip


def written(path: Path, **options: Any) -> Any:
    deltalake.write_deltalake(str(path), table(0, 20), **options)
    deltalake.write_deltalake(str(path), table(20, 10), mode="append")
    return deltalake.DeltaTable(str(path))


def rows(data: Any) -> list[Any]:
    return sorted(data, key=repr)


def expected(found: Any, columns: list[str]) -> list[Any]:
    data = found.to_pyarrow_table().select(columns)
    return rows(zip(*(data.column(name).to_pylist() for name in columns), strict=True))


@pytest.mark.parametrize("by", [[], ["k"], ["k", "d"], ["m"], ["z"], ["n", "a"]])
def test_rows(db: Any, tmp_path: Path, by: list[str]) -> None:
    found = written(tmp_path / "t", partition_by=by)
    relation = db.sql(f"SELECT * EXCLUDE (l) FROM delta_scan('{tmp_path}/t')")
    assert [str(kind) for kind in relation.sql_types] == [
        "BIGINT", "VARCHAR", "DATE", "DECIMAL(10,2)", "TIMESTAMPTZ", "TIMESTAMP"
    ]  # fmt: skip
    assert rows(relation.fetchall()) == expected(found, ["a", "k", "d", "m", "z", "n"])
    count = db.sql(f"SELECT count(*) FROM delta_scan('{tmp_path}/t') WHERE k = 'y z/%'").fetchall()
    assert count == [(sum(row[0] == "y z/%" for row in expected(found, ["k"])),)]
    assert "Delta version 1" in relation.explain("physical")
    assert tsql.load_plan_text(relation.plan()).run(db).fetchall() == relation.fetchall()
    assert db.sql(f"SELECT count(*) FROM delta_scan('file://{tmp_path}/t')").fetchall() == [(30,)]
    with pytest.raises(SourceError, match="this folder is a Delta table"):
        db.read_parquet(f"{tmp_path}/t")


def test_the_log_tells_of_files_that_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many files, the log says the rows and the bounds; files that a filter rules out are not opened."""
    monkeypatch.setattr(parquet, "ALL_FOOTERS", 3)
    monkeypatch.setattr(sampled, "SAMPLED_FILES", 2)
    for number in range(8):
        deltalake.write_deltalake(str(tmp_path / "t"), table(100 * number + 1, 4), mode="append", partition_by=["d"])
    log = deltalake.DeltaTable(str(tmp_path / "t"))
    source: Any = open_source(str(tmp_path / "t"), "delta")
    source.read_in_tasks()
    assert source.statistics().rows == 32
    known = source.statistics().columns["a"]
    assert (known.minimum, known.maximum, known.exact) == (1, 704, False)
    assert sum(split.expected for split in source.splits(("a",), None)) == 32
    assert all(split.detail[2] == Path(split.file).stat().st_size for split in source.splits(("a",), None))
    kept = source.splits(("a",), parse_expression("a = 301", source.schema))
    assert len(kept) == 1 and len(source._files) <= 2
    with tsql.Session(SparkBackend(InProcess(3))) as db:
        scan = f"delta_scan('{tmp_path}/t')"
        assert db.sql(f"SELECT count(*), count(a), sum(a) FROM {scan}").fetchall() == [
            (32, len(found := [a for (a,) in expected(log, ["a"]) if a is not None]), sum(found))
        ]
        assert db.sql(f"SELECT a, k FROM {scan} WHERE a = 301").fetchall() == [
            row for row in expected(log, ["a", "k"]) if row[0] == 301
        ]
        assert db.sql(f"SELECT count(*) FROM {scan} WHERE a IS NULL").fetchall() == [(32 - len(found),)]


def test_partitions_are_pruned(db: Any, tmp_path: Path) -> None:
    written(tmp_path / "t", partition_by=["d"])
    source = db.catalog.open_file(str(tmp_path / "t"), "delta")
    splits = source.splits(("a",), parse_expression("d = DATE '2024-01-02'", source.schema))
    assert splits and all("d=2024-01-02" in split.file for split in splits)
    assert source.statistics().rows == 30 and source.statistics().columns["a"].maximum == 29


def test_time_travel(db: Any, tmp_path: Path) -> None:
    written(tmp_path / "t")
    path = f"'{tmp_path}/t'"
    assert db.sql(f"SELECT count(*) FROM delta_scan({path}, version => 0)").fetchall() == [(20,)]
    assert db.sql(f"SELECT count(*) FROM delta_scan({path}, timestamp => '2999-01-01T00:00:00Z')").fetchall() == [(30,)]
    sql = f"SELECT count(*) FROM delta_scan({path})"
    assert db.sql(sql).fetchall() == [(30,)]
    deltalake.DeltaTable(str(tmp_path / "t")).delete("a < 10")
    assert db.sql(sql).fetchall() == [(len(deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table()),)]
    deltalake.DeltaTable(str(tmp_path / "t")).delete()
    assert db.sql(sql).fetchall() == [(0,)]
    for wrong, message in (
        ("version => 99", "cannot be read as a Delta table"),
        ("version => 'x'", "option version is a number"),
        ("version => 1, timestamp => '2024-01-01'", "version or timestamp, not both"),
        ("timestamp => 'soon'", "cannot be read as a Delta table"),
        ("versoin => 1", "unknown option versoin"),
    ):
        with pytest.raises(SourceError, match=message):
            db.sql(f"FROM delta_scan({path}, {wrong})")


def test_added_columns(db: Any, tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "t"), pa.table({"a": [1]}))
    deltalake.write_deltalake(str(tmp_path / "t"), pa.table({"a": [2], "b": ["x"]}), mode="append", schema_mode="merge")
    assert db.sql(f"FROM delta_scan('{tmp_path}/t') ORDER BY a").fetchall() == [(1, None), (2, "x")]


def log(
    folder: Path, fields: list[Any], protocol: dict[str, Any], configuration: dict[str, str], adds: list[Any]
) -> None:
    """The log of a table, written by hand."""
    (folder / "_delta_log").mkdir(parents=True, exist_ok=True)
    meta = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9", "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}), "partitionColumns": [],
        "configuration": configuration, "createdTime": 0,
    }  # fmt: skip
    lines = [{"protocol": protocol}, {"metaData": meta}, *({"add": add} for add in adds)]
    (folder / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, lines)))


def added(folder: Path, name: str, data: pa.Table, **more: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    pq.write_table(data, folder / name)
    size = (folder / name).stat().st_size
    return {"path": name, "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True, **more}


def test_renamed_columns(db: Any, tmp_path: Path) -> None:
    """Columns are stored under physical names, which stay when they are renamed."""
    folder = tmp_path / "t"
    fields = [
        {"name": shown, "type": "long", "nullable": True,
         "metadata": {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": stored}}
        for number, shown, stored in ((1, "b", "col-1"), (2, "a", "col-2"))
    ]  # fmt: skip
    add = added(folder, "f.parquet", pa.table({"col-1": [1, 2], "col-2": [10, 20], "a": [7, 7]}))
    log(folder, fields, {"minReaderVersion": 2, "minWriterVersion": 5}, {"delta.columnMapping.mode": "name"}, [add])
    assert db.sql(f"SELECT a, b FROM delta_scan('{folder}') ORDER BY a").fetchall() == [(10, 1), (20, 2)]


def test_what_is_refused(db: Any, tmp_path: Path) -> None:
    fields = [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": ["deletionVectors"]}
    vector = {"storageType": "i", "pathOrInlineDv": VECTOR, "sizeInBytes": 40, "cardinality": 6}
    folder = tmp_path / "t"
    add = added(folder, "f.parquet", pa.table({"a": list(range(30))}), deletionVector=vector)
    log(folder, fields, {**features, "readerFeatures": ["deletionVectors"]}, {}, [add])
    with pytest.raises(SourceError, match="deletion vectors") as caught:
        db.sql(f"SELECT * FROM delta_scan('{folder}')")
    assert caught.value.line_column == (1, 15)
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(SourceError, match="cannot be read as a Delta table"):
            db.sql(f"FROM delta_scan('{path}')")
    with pytest.raises(SourceError, match="one table, not 2"):
        db.sql("FROM delta_scan(['a', 'b'])")


def test_the_package_is_missing(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(SourceError, match="delta_scan needs the package deltalake") as caught:
        db.sql("FROM delta_scan('t')")
    assert caught.value.hint == "pip install 'tsql[delta]'"
