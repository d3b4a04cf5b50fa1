"""Hive partitions and file names as columns of CSV, JSON and Arrow files: as DuckDB has them, and used to skip
files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.feather
import pytest

import tsql
from tsql.backends.io.open import open_source
from tsql.kernels.expr.errors import TsqlError
from tsql.kernels.expr.nodes import Call, Column, Literal
from tsql.kernels.expr.types import BIGINT, BOOLEAN

PARTS = {("2023", "2023-01-02"): [1, 2], ("2024", "2024-05-06"): [3], ("2024", "__HIVE_DEFAULT_PARTITION__"): [4, 5]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hive")
    for (year, day), values in PARTS.items():
        here = root / f"year={year}" / f"day={day}"
        here.mkdir(parents=True)
        (here / "f.csv").write_text("a,b\n" + "".join(f"{v},x{v}\n" for v in values))
        (here / "f.json").write_text("".join(f'{{"a": {v}, "b": "x{v}"}}\n' for v in values))
        pa.feather.write_feather(
            pa.table({"a": values, "b": [f"x{v}" for v in values]}), here / "f.arrow", compression="uncompressed"
        )
    return root


@pytest.fixture(scope="module")
def db() -> Any:
    with tsql.connect(threads=2) as session:
        yield session


@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_{kind}('{files}') ORDER BY a",
        "SELECT * FROM read_{kind}('{files}') WHERE year = 2024 ORDER BY a",
        "SELECT a FROM read_{kind}('{files}') WHERE day IS NULL ORDER BY a",
        "SELECT year, count(*) AS n FROM read_{kind}('{files}') GROUP BY year ORDER BY year",
        "SELECT day FROM read_{kind}('{files}') WHERE day >= DATE '2024-01-01'",
        "SELECT count(*) AS n FROM read_{kind}('{files}') WHERE year = 1999",
        "SELECT * FROM read_{kind}('{files}', hive_types => {{'year': 'VARCHAR'}}) ORDER BY a",
        "SELECT * FROM read_{kind}('{files}', hive_types_autocast => false) ORDER BY a",
        "SELECT * FROM read_{kind}('{files}', hive_partitioning => false) ORDER BY a",
        "SELECT * FROM read_{kind}('{files}', filename => true, hive_partitioning => false) ORDER BY a",
        "SELECT filename, year FROM read_{kind}('{files}', filename => true) ORDER BY a",
    ],
)
def test_as_duckdb(folder: Path, db: Any, kind: str, query: str) -> None:
    sql = query.format(kind=kind, files=folder / "*" / "*" / f"*.{kind}")
    expected, ours = duckdb.sql(sql), db.sql(sql)
    assert (ours.columns, ours.types) == (expected.columns, [str(t) for t in expected.types])
    assert ours.fetchall() == expected.fetchall()


def test_arrow_files(folder: Path, db: Any) -> None:
    relation = db.sql(f"SELECT * FROM '{folder}/*/*/*.arrow' WHERE year = 2024 ORDER BY a")
    assert relation.columns == ["a", "b", "day", "year"] and relation.types == ["BIGINT", "VARCHAR", "DATE", "BIGINT"]
    assert [row[0] for row in relation.fetchall()] == [3, 4, 5]


@pytest.mark.parametrize("kind", ["csv", "json", "arrow"])
def test_files_that_cannot_match_are_not_read(folder: Path, kind: str) -> None:
    source = open_source(str(folder / "*" / "*" / f"*.{kind}"))
    only = Call("=", (Column("year", BIGINT), Literal(2023, BIGINT)), BOOLEAN)
    assert len(source.splits(("a",), None)) == 3
    (split,) = source.splits(("a", "year"), only)
    assert "year=2023" in split.path and split.order == 0
    assert [batch.column_names for batch in source.read(split, ("year", "a"))][0] == ["year", "a"]
    known = source.statistics().columns["year"]
    assert (known.minimum, known.maximum, known.distinct, known.exact) == (2023, 2024, 2, True)


def test_a_partition_replaces_a_column_of_the_file(tmp_path: Path, db: Any) -> None:
    (tmp_path / "a=7").mkdir()
    (tmp_path / "a=7" / "f.csv").write_text("a,b\n1,2\n")
    assert (
        db.read_csv(tmp_path / "a=7" / "f.csv").fetchall()
        == duckdb.read_csv(str(tmp_path / "a=7" / "f.csv"), hive_partitioning=True).fetchall()
        == [(7, 2)]
    )


def test_plans_and_descriptions_keep_them(folder: Path, db: Any) -> None:
    relation = db.read_csv(str(folder / "*" / "*" / "*.csv"), filename=True)
    assert sorted(tsql.load_plan_text(relation.plan()).run(db).fetchall(), key=str) == sorted(
        relation.fetchall(), key=str
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("hive_types => {'month': 'BIGINT'}", "there is no partition month"),
        ("hive_types => {'day': 'BIGINT'}", "could not convert '2023-01-02' to BIGINT"),
        ("filename => 'a'", "the files have a column a already"),
        ("hive_partitioning => 'x'", "option hive_partitioning is true or false"),
    ],
)
def test_bad_options(folder: Path, db: Any, options: str, message: str) -> None:
    with pytest.raises(TsqlError) as caught:
        db.sql(f"FROM read_csv('{folder}/*/*/*.csv', {options})")
    assert message in str(caught.value)


def test_partitions_that_are_not_there(tmp_path: Path, db: Any) -> None:
    (tmp_path / "f.csv").write_text("a\n1\n")
    with pytest.raises(TsqlError, match="not all in folders named key=value"):
        db.read_csv(tmp_path / "f.csv", hive_partitioning=True)
