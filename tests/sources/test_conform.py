"""Files as columns that were declared for them (`schema => {..}`), for every kind of file and through plan files."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import tsql
from tests.sources.support import table_of
from tsql.backends.io.open import from_description, open_source
from tsql.kernels.expr.errors import SourceError

DAY = dt.datetime(2024, 2, 29)
TABLE = pa.table(
    {
        "n": pa.array([1, None, 3], pa.int32()),
        "price": pa.array([Decimal("1.50"), Decimal("2.25"), None], pa.decimal128(10, 2)),
        "day": [DAY, None, DAY],
        "word": ["a", "b", "1"],
    }
)
WANTED = {"Day": "TIMESTAMP", "price": "DOUBLE", "n": "BIGINT"}
EXPECTED = {"Day": [DAY, None, DAY], "price": [1.5, 2.25, None], "n": [1, None, 3]}


def write(folder: Path, kind: str) -> str:
    path = str(folder / f"t.{kind}")
    match kind:
        case "parquet":
            pq.write_table(TABLE, path)
        case "arrow":
            feather.write_feather(TABLE, path, compression="uncompressed")
        case _:
            with tsql.connect(threads=1) as db:
                db.register("t", TABLE)
                db.sql("FROM t").write(path)
    return path


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "json"])
def test_every_kind_of_file(tmp_path: Path, kind: str) -> None:
    source = open_source(write(tmp_path, kind), None, {"schema": WANTED})
    assert [str(field) for field in source.schema] == [f"{name} {kind}" for name, kind in WANTED.items()]
    assert table_of(source).to_pydict() == EXPECTED
    assert table_of(source, ("n",)).to_pydict() == {"n": [1, None, 3]}
    assert table_of(from_description(source.describe())).select(list(WANTED)).to_pydict() == EXPECTED


def test_binary_files_are_cast(tmp_path: Path) -> None:
    for kind in ("parquet", "arrow"):
        source = open_source(
            write(tmp_path, kind), None, {"schema": {"day": "DATE", "price": "DECIMAL(8, 1)", "n": "VARCHAR"}}
        )
        assert table_of(source).to_pydict() == {
            "day": [DAY.date(), None, DAY.date()],
            "price": [Decimal("1.5"), Decimal("2.3"), None],
            "n": ["1", None, "3"],
        }


def test_the_same_columns_are_the_same_source(tmp_path: Path) -> None:
    path = write(tmp_path, "parquet")
    plain = open_source(path)
    assert type(open_source(path, None, {"schema": {field.name: str(field.type) for field in plain.schema}})) is type(
        plain
    )


def test_statistics_and_skipping_survive_what_is_not_cast(tmp_path: Path) -> None:
    path = write(tmp_path, "parquet")
    source = open_source(path, None, {"schema": {"N": "INTEGER", "price": "DOUBLE"}})
    known = source.statistics()
    assert known.rows == 3 and (known.columns["N"].minimum, known.columns["N"].maximum) == (1, 3)
    assert "price" not in known.columns


def test_csv_by_position_and_empty_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,x\n2,y\n")
    (tmp_path / "empty.csv").write_text("")
    wanted = {"schema": {"n": "BIGINT", "word": "VARCHAR"}}
    assert table_of(open_source(str(tmp_path / "a.csv"), None, wanted)).to_pydict() == {"n": [1, 2], "word": ["x", "y"]}
    assert table_of(open_source(str(tmp_path / "empty.csv"), None, wanted)).to_pydict() == {"n": [], "word": []}
    with pytest.raises(SourceError, match="columns names 3 columns, the file has 2"):
        open_source(str(tmp_path / "a.csv"), None, {"schema": {"n": "BIGINT", "word": "VARCHAR", "more": "DATE"}})


def test_folders_that_are_columns(tmp_path: Path) -> None:
    folder = tmp_path / "year=2024"
    folder.mkdir()
    (folder / "a.csv").write_text("n\n1\n2\n")
    source = open_source(str(tmp_path / "*" / "a.csv"), None, {"schema": {"year": "VARCHAR", "n": "DOUBLE"}})
    assert table_of(source).to_pydict() == {"year": ["2024", "2024"], "n": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"other": "BIGINT"}, "there is no column other in the file"),
        ({"n": "TIMESTAMP"}, "column n is INTEGER in the file, which cannot be read as TIMESTAMP"),
        ({"n": "NUMBERS"}, "option schema: "),
        ("n BIGINT", "option schema maps column names to types"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, wanted: Any, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        open_source(write(tmp_path, "parquet"), None, {"schema": wanted})
