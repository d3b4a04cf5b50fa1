"""Sources of very many files: bounds without parsing all chunks, and tasks that open their own files only."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.spark.cluster import InProcess
from tsql.backends.io.open import from_description, open_source
from tsql.backends.io.parquet import source as parquet
from tsql.backends.io.parquet.footer import read_footer
from tsql.backends.io.parquet.source import ParquetSource
from tsql.backends.io.parquet.statistics import chunk_bounds, quick_bounds
from tsql.backends.io.parquet.table import TableSource, table_options, with_files
from tsql.backends.spark.backend import SparkBackend
from tsql.kernels.expr.types import BIGINT, DATE


def folder(at: Path, files: int, name: str = "day={number}/part.parquet") -> str:
    for number in range(files):
        path = at / name.format(number=number)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"a": [number, number + 1], "s": [str(number), None]}), path)
    return str(at)


def test_statistics_of_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = ParquetSource([folder(tmp_path, 9)])
    expected = few.splits(("a",), None), few.statistics().rows, few.statistics().columns["a"]
    monkeypatch.setattr(parquet, "FEW_FILES", 2)
    many = ParquetSource([str(tmp_path)])
    assert (many.splits(("a",), None), many.statistics().rows, many.statistics().columns["a"]) == expected


def test_bounds_are_those_of_the_parsed_footer(tmp_path: Path) -> None:
    day, moment = dt.date(2024, 1, 2), dt.datetime(2024, 1, 2, 3, 4, 5, 6)
    columns: dict[str, Any] = {
        "i32": pa.array([3, None, -7], pa.int32()),
        "i64": pa.array([3, 1 << 40, -7], pa.int64()),
        "i8": pa.array([3, None, -7], pa.int8()),
        "u32": pa.array([3, 4_000_000_000, 1], pa.uint32()),
        "f": pa.array([0.5, float("nan"), -1.0], pa.float64()),
        "day": pa.array([day, None, day], pa.date32()),
        "moment": pa.array([moment, None, moment], pa.timestamp("us")),
        "nanos": pa.array([moment, None, moment], pa.timestamp("ns")),
        "seconds": pa.array([dt.time(1, 2, 3), None, dt.time(4)], pa.time32("ms")),
        "price": pa.array([Decimal("1.25"), None, Decimal("-3.00")], pa.decimal128(9, 2)),
        "wide": pa.array([Decimal("1.25"), None, Decimal("-3.00")], pa.decimal128(30, 2)),
        "text": pa.array(["b", None, "a"]),
        "yes": pa.array([True, None, False]),
        "nothing": pa.array([None, None, None], pa.int64()),
    }
    path = str(tmp_path / "all.parquet")
    pq.write_table(pa.table(columns), path, row_group_size=2, store_decimal_as_integer=True)
    for text in (path, str(tmp_path / "none.parquet")):
        if text != path:
            pq.write_table(pa.table(columns), text, row_group_size=2, write_statistics=False)
        source, footer = ParquetSource([text]), read_footer(text)
        for index, field in enumerate(source.schema):
            expected = chunk_bounds(footer, index, field.type)
            assert quick_bounds(footer, index, field.type) == expected, field.name


@pytest.mark.parametrize("name", ["part{number}.parquet", "day={number}/x.parquet", "r=eu{number}/x.parquet"])
def test_a_few_of_many_files_have_the_schema_of_all(tmp_path: Path, name: str) -> None:
    check_part(ParquetSource([folder(tmp_path, 5, name)]))


def check_part(whole: ParquetSource) -> None:
    """A task that knows its own files alone reads them as a source of all files does."""
    names = whole.schema.names
    for last in whole.splits(names, None):
        part: Any = from_description(with_files(whole.describe_some(), [last]))
        assert part.paths == tuple(dict.fromkeys((whole.paths[0], last.path))) and part.schema == whole.schema
        assert list(part.read(last, names)) == list(whole.read(last, names))


def test_partitions_whose_type_depends_on_all_files(tmp_path: Path) -> None:
    for value in ("1", "b", "__HIVE_DEFAULT_PARTITION__"):
        folder(tmp_path / "two" / f"n={len(value)}" / f"p={value}", 1, "x.parquet")
    check_part(ParquetSource([str(tmp_path / "two")]))


def test_a_union_by_name_in_parts(tmp_path: Path) -> None:
    for number, columns in enumerate(({"a": [1]}, {"a": [2.5], "b": ["x"]}, {"B": ["y"]})):
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet")
    whole = ParquetSource([str(tmp_path)], {"union_by_name": True})
    assert [str(field.type) for field in whole.schema] == ["DOUBLE", "VARCHAR"]
    check_part(whole)


def test_tables_of_many_files(tmp_path: Path) -> None:
    """The files of a catalog or a log: their columns have other names in the files, and values beside them."""
    place = folder(tmp_path, 3, "{number}.parquet")
    columns: Any = [("x", BIGINT, "a"), ("day", DATE, "day"), ("new", BIGINT, "none")]
    paths = [f"{place}/{number}.parquet" for number in range(3)]
    check_part(TableSource(paths, table_options(columns, ["day"], [[5], [None], [7]])))


def test_declared_columns_of_many_files(tmp_path: Path) -> None:
    place = folder(tmp_path, 3)
    whole: Any = open_source(place, None, {"schema": {"S": "VARCHAR", "a": "DOUBLE", "day": "BIGINT"}})
    check_part(whole)


@pytest.mark.parametrize("many", [2, 1000])
def test_tasks_open_their_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    """Whatever a task opens, the rows are the same; of many files it opens the first and its own."""
    monkeypatch.setattr("tsql.backends.io.open.MANY_FILES", many)
    opened: list[int] = []

    def from_description_counted(description: dict[str, Any]) -> Any:
        found: Any = from_description(description)
        opened.append(len(found.paths))
        return found

    monkeypatch.setattr("tsql.backends.spark.kept.from_description", from_description_counted)
    place = folder(tmp_path, 9)
    with tsql.Session(SparkBackend(InProcess(3))) as db:
        found = db.sql(f"SELECT day, sum(a) AS a, count(s) AS s FROM '{place}' GROUP BY day ORDER BY day").arrow()
    assert found.to_pylist() == [{"day": n, "a": 2 * n + 1, "s": 1} for n in range(9)]
    assert max(opened) == (9 if many > 9 else 4)


def test_tasks_open_files_of_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsql.backends.io.open.MANY_FILES", 2)
    place = folder(tmp_path, 5, "{number}.parquet")
    paths = [f"{place}/{number}.parquet" for number in range(5)]
    with tsql.Session(SparkBackend(InProcess(3))) as db:
        db.catalog.add("t", TableSource(paths, table_options([("a", BIGINT, "a")])))
        assert db.sql("SELECT sum(a), count(*) FROM t").fetchall() == [(25, 10)]
