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
from tsql.backends.io.open import from_description
from tsql.backends.io.parquet import source as parquet
from tsql.backends.io.parquet.footer import read_footer
from tsql.backends.io.parquet.source import ParquetSource
from tsql.backends.io.parquet.statistics import chunk_bounds, quick_bounds
from tsql.backends.spark.backend import SparkBackend


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
    whole = ParquetSource([folder(tmp_path, 5, name)])
    some = whole.describe_some()
    assert some is not None and some["paths"] == [whole.paths[0]]
    part = from_description({**some, "paths": [whole.paths[0], whole.paths[3]]})
    assert part.schema == whole.schema
    split = next(split for split in whole.splits(("a",), None) if split.path == whole.paths[3])
    names = whole.schema.names
    assert list(part.read(split, names)) == list(whole.read(split, names))


def test_partitions_whose_type_depends_on_all_files(tmp_path: Path) -> None:
    for value, other in (("1", "x"), ("2", "y"), ("b", "z")):
        folder(tmp_path / f"p={value}" / f"q={other}", 1, "x.parquet")
    assert ParquetSource([str(tmp_path)]).describe_some() is not None, "all are texts"
    for value in ("1", "b"):
        folder(tmp_path / "two" / f"n={len(value)}" / f"p={value}", 1, "x.parquet")
    assert ParquetSource([str(tmp_path / "two")]).describe_some() is None, "1 alone would be a number"


def test_a_union_by_name_needs_all_files(tmp_path: Path) -> None:
    assert ParquetSource([folder(tmp_path, 3)], {"union_by_name": True}).describe_some() is None


@pytest.mark.parametrize("many", [2, 1000])
def test_tasks_open_their_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    """Whatever a task opens, the rows are the same; of many files it opens the first and its own."""
    monkeypatch.setattr("tsql.backends.spark.stages.MANY_FILES", many)
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
