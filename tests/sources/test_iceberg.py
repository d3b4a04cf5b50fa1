"""Iceberg tables: rows against the package that wrote them, snapshots, changed columns, what is refused."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.spark.cluster import InProcess
from tsql.backends.io.parquet import sampled
from tsql.backends.io.parquet import source as parquet
from tsql.backends.spark.backend import SparkBackend
from tsql.kernels.expr.errors import SourceError
from tsql.planner.bind.binder import parse_expression

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")
LongType = pytest.importorskip("pyiceberg.types").LongType


@pytest.fixture
def db() -> Iterator[Any]:
    with tsql.connect() as session:
        yield session


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Any]:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("n")
    yield catalog
    catalog.engine.dispose()


DATA = pa.table({
    "a": pa.array([1, None, 3, 4], pa.int32()),
    "k": ["x", "y z/%", None, "x"],
    "d": pa.array([dt.date(2024, 1, 1), dt.date(1960, 5, 5), None, dt.date(2024, 1, 1)]),
    "z": pa.array([dt.datetime(2024, 1, n, tzinfo=dt.timezone.utc) for n in (1, 2, 3, 4)], pa.timestamp("us", "UTC")),
    "l": pa.array([[1], [], None, [2, 3]], pa.list_(pa.int64())),
})  # fmt: skip


def made(lake: Any, name: str = "t", *identities: str, data: pa.Table = DATA) -> Any:
    table = lake.create_table(f"n.{name}", schema=data.schema)
    if identities:
        with table.update_spec() as spec:
            for column in identities:
                spec.add_identity(column)
    table.append(data)
    return table


def folder(table: Any) -> str:
    return str(table.location()).removeprefix("file://")


def rows(data: Any) -> list[Any]:
    return sorted(data, key=repr)


def expected(table: Any, columns: list[str], **scan: Any) -> list[Any]:
    data = table.scan(**scan).to_arrow()
    return rows(zip(*(data.column(name).to_pylist() for name in columns), strict=True))


@pytest.mark.parametrize("by", [(), ("k",), ("k", "d"), ("z",), ("a",)])
def test_rows(db: Any, lake: Any, by: tuple[str, ...]) -> None:
    table = made(lake, "t", *by)
    relation = db.sql(f"SELECT * EXCLUDE (l) FROM iceberg_scan('{folder(table)}')")
    assert [str(kind) for kind in relation.sql_types] == ["INTEGER", "VARCHAR", "DATE", "TIMESTAMPTZ"]
    assert rows(relation.fetchall()) == expected(table, ["a", "k", "d", "z"])
    assert "Iceberg snapshot" in relation.explain("physical")
    assert rows(tsql.load_plan_text(relation.plan()).run(db).fetchall()) == rows(relation.fetchall())
    assert db.sql(f"SELECT count(*) FROM iceberg_scan('{table.metadata_location}') WHERE k = 'x'").fetchall() == [(2,)]


def test_the_manifest_tells_of_files_that_are_not_opened(
    db: Any, lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of very many files, manifests say the rows and the bounds; files that a filter rules out are not opened."""
    monkeypatch.setattr(parquet, "ALL_FOOTERS", 3)
    monkeypatch.setattr(sampled, "SAMPLED_FILES", 2)
    table = made(lake)
    days = [dt.date(1950, 1, 1) + dt.timedelta(days=100 * n) for n in range(8)]
    for number, day in enumerate(days):
        part = pa.table({"a": pa.array([-number, 100 * number], pa.int32()), "d": [day, None]})
        table.append(pa.table({**{f.name: pa.nulls(2, f.type) for f in DATA.schema}, **part.to_pydict()}, DATA.schema))
    with table.update_schema() as change:
        change.update_column("a", LongType())
    source: Any = db.catalog.open_file(folder(table), "iceberg")
    source.read_in_tasks()
    assert source.statistics().rows == 20
    known = source.statistics().columns["a"]
    assert (known.minimum, known.maximum, known.exact) == (-7, 700, False)
    splits = source.splits(("a",), None)
    assert all(split.detail[2] == Path(split.file).stat().st_size for split in splits) and len(splits) == 9
    for filter, count in (("a = 650", 1), ("a < -5", 2), ("d = DATE '1950-07-20'", 1), ("a > 700", 0)):
        assert len(source.splits(("a", "d"), parse_expression(filter, source.schema))) == count, filter
    assert len(source._files) <= 2
    with tsql.Session(SparkBackend(InProcess(3))) as cluster:
        for filter in ("a = 600", "a < -5", "d = DATE '1950-07-20'", "d IS NULL"):
            query = f"SELECT a, d FROM iceberg_scan('{folder(table)}') WHERE {filter}"
            assert rows(cluster.sql(query).fetchall()) == rows(db.sql(query).fetchall()) != []


def test_partitions_are_pruned(db: Any, lake: Any) -> None:
    source = db.catalog.open_file(folder(made(lake, "t", "k")), "iceberg")
    splits = source.splits(("a",), parse_expression("k = 'x'", source.schema))
    assert [split.rows for split in splits] == [2] and source.statistics().rows == 4


def test_changed_columns(db: Any, lake: Any) -> None:
    """Columns are renamed, dropped, added again under an old name, widened and moved: the field id decides."""
    from pyiceberg.types import LongType, StringType

    table = made(lake, "t", "k")
    with table.update_schema() as change:
        change.rename_column("a", "b")
        change.delete_column("d")
    with table.update_schema() as change:
        change.add_column("a", StringType())
        change.add_column("d", StringType())
        change.update_column("b", LongType())
        change.move_first("z")
    relation = db.sql(f"SELECT * EXCLUDE (l) FROM iceberg_scan('{folder(table)}')")
    assert relation.columns == ["z", "b", "k", "a", "d"]
    assert rows(relation.fetchall()) == expected(table, ["z", "b", "k", "a", "d"])
    with table.update_spec() as spec:
        spec.remove_field("k")
    table.append(pa.table({"b": pa.array([9], pa.int64()), "k": ["q"], "a": ["new"]}))
    assert rows(db.sql(f"SELECT * EXCLUDE (l) FROM iceberg_scan('{folder(table)}')").fetchall()) == expected(
        table, ["z", "b", "k", "a", "d"]
    )


def test_time_travel(db: Any, lake: Any) -> None:
    table = made(lake)
    first = table.current_snapshot()
    with table.update_schema() as change:
        change.rename_column("a", "b")
    table.append(DATA.rename_columns(["b", *DATA.column_names[1:]]))
    path = f"'{folder(table)}'"
    assert db.sql(f"SELECT count(*), sum(b) FROM iceberg_scan({path})").fetchall() == [(8, 16)]
    old = db.sql(f"SELECT count(*), sum(a) FROM iceberg_scan({path}, snapshot_id => {first.snapshot_id})")
    assert old.fetchall() == [(4, 8)]
    at = dt.datetime.fromtimestamp(first.timestamp_ms / 1000, dt.timezone.utc).isoformat()
    assert db.sql(f"SELECT count(*) FROM iceberg_scan({path}, timestamp => '{at}')").fetchall() == [(4,)]
    assert db.sql(f"SELECT count(*) FROM iceberg_scan({path}, version => 1)").fetchall() == [(4,)]
    assert db.sql(f"SELECT count(*) FROM iceberg_scan({path}, version => 0)").fetchall() == [(0,)]
    for wrong, message in (
        ("snapshot_id => 1", "there is no snapshot 1"),
        ("timestamp => '1999-01-01'", "there is no snapshot at 1999-01-01 or before"),
        ("timestamp => 'soon'", "option timestamp is a time"),
        ("version => 99", "there is no metadata file of version 99"),
        ("snapshot_id => 1, timestamp => '2024-01-01'", "not both"),
    ):
        with pytest.raises(SourceError, match=message):
            db.sql(f"FROM iceberg_scan({path}, {wrong})")


def test_what_is_refused(db: Any, lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(lake)
    with pytest.raises(SourceError, match="this is no Iceberg table"):
        db.sql(f"FROM iceberg_scan('{tmp_path}')")
    (tmp_path / "wrong.metadata.json").write_text("{}")
    with pytest.raises(SourceError, match="cannot be read as an Iceberg table"):
        db.sql(f"FROM iceberg_scan('{tmp_path}/wrong.metadata.json')")
    from pyiceberg.table import DataScan

    plan = DataScan.plan_files

    def with_deletes(scan: Any) -> Any:
        tasks = list(plan(scan))
        for task in tasks:
            task.delete_files.add(task.file)
        return tasks

    monkeypatch.setattr(DataScan, "plan_files", with_deletes)
    with pytest.raises(SourceError, match="1 files of this Iceberg table have delete files") as caught:
        db.sql(f"SELECT * FROM iceberg_scan('{folder(table)}')")
    assert caught.value.line_column == (1, 15) and "Spark" in (caught.value.hint or "")


def test_the_package_is_missing(db: Any, lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(lake)
    monkeypatch.setitem(sys.modules, "pyiceberg.table", None)
    with pytest.raises(SourceError, match="iceberg_scan needs the package pyiceberg") as caught:
        db.sql(f"FROM iceberg_scan('{folder(table)}')")
    assert caught.value.hint == "pip install 'tsql[iceberg]'"
