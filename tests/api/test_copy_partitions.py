"""COPY .. PARTITION_BY: every value comes back as it was, here and in DuckDB, and no partition takes the place of
another."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import duckdb
import pytest

import tsql
from tsql.kernels.expr.errors import SourceError

HARD = [
    "", None, "NULL", "null", "Null", "__HIVE_DEFAULT_PARTITION__", "%5F_HIVE_DEFAULT_PARTITION__",
    "_HIVE_DEFAULT_PARTITION__", "\0", "%00", "%", "%%", "%41", "%zz", "a/b", "/", "//", "..", ".", "../..", ".hidden",
    "_hidden", "a=b", "=", "k=1", "a\nb", "\n", "\r", "\t", " ", "  a ", "é", "日本", "😀", "\u0301", "a:b", "*", "?",
    "[ab]", "{a}", "~", "~root", "$HOME", "`", "'", '"', "\\", "|", "#", "+", "a+b",
    "&", ";", ",", "<>", "@!()^", "\x01", "\x7f", "-", "0", "00", "-0", "1e5", "1.0", "true", "nan", "infinity",
    "x" * 200, "é" * 40,
]  # fmt: skip
"""Values that are something else to a file system, to a shell, or to a reader of partitions."""

AS_TEXT = "SELECT k, v FROM read_parquet('{}/**/*.parquet', hive_partitioning => true, hive_types_autocast => false)"


def written(folder: Path, values: list[Any], options: str = "") -> list[tuple[Any, int]]:
    rows = [(value, number) for number, value in enumerate(values)]
    with tsql.connect() as db:
        db.register("t", {"k": tsql_array(values), "v": list(range(len(values)))})
        db.sql(f"COPY t TO '{folder}' (FORMAT parquet, PARTITION_BY (k){options})")
    return rows


def tsql_array(values: list[Any]) -> Any:
    import pyarrow as pa

    return pa.array(values, pa.string()) if all(value is None or isinstance(value, str) for value in values) else values


def ours(query: str) -> list[tuple[Any, ...]]:
    return sorted(tsql.connect().sql(query).fetchall(), key=lambda row: row[-1])


def test_hard_values_come_back(tmp_path: Path) -> None:
    rows = written(tmp_path / "out", HARD)
    assert ours(AS_TEXT.format(tmp_path / "out")) == rows
    assert ours(f"SELECT k, v FROM '{tmp_path}/out'") == rows
    assert ours(f"SELECT k, v FROM '{tmp_path}/out/*/*.parquet'") == rows
    assert len(list((tmp_path / "out").iterdir())) == len(HARD)
    assert sorted(os.listdir(tmp_path)) == ["out"]


def test_duckdb_reads_them_and_names_its_folders_alike(tmp_path: Path) -> None:
    rows = written(tmp_path / "ours", HARD)
    other = duckdb.connect()
    assert sorted(other.sql(AS_TEXT.format(tmp_path / "ours")).fetchall(), key=lambda row: row[1]) == rows
    other.execute("CREATE TABLE t (k VARCHAR, v INTEGER)")
    other.executemany("INSERT INTO t VALUES (?, ?)", rows)
    other.execute(f"COPY t TO '{tmp_path}/theirs' (FORMAT parquet, PARTITION_BY (k))")
    # Among texts a DuckDB reader knows NULL as one; where the other values are numbers it does not, so that we write
    # these otherwise.
    texts = {f"k={value}" for value in ("NULL", "null", "Null")}
    assert set(os.listdir(tmp_path / "theirs")) - texts == set(os.listdir(tmp_path / "ours")) - {
        "k=%4EULL",
        "k=%6Eull",
        "k=%4Eull",
    }
    assert ours(AS_TEXT.format(tmp_path / "theirs")) == rows


@pytest.mark.parametrize("seed", range(4))
def test_random_values_come_back(seed: int, tmp_path: Path) -> None:
    generator = random.Random(seed)
    letters = "aZ09-_.~ %/=\0\n\r\t:*?[]{}()<>|\\\"'`$&;,#+@!^é日😀\x7f\x80\u2028NUL"
    values: list[Any] = [
        None if generator.random() < 0.05 else "".join(generator.choices(letters, k=generator.randrange(12)))
        for _ in range(60)
    ]
    values += generator.choices(HARD, k=20)
    rows = written(tmp_path / "out", values)
    assert ours(AS_TEXT.format(tmp_path / "out")) == rows, f"seed {seed}"
    assert sorted(duckdb.sql(AS_TEXT.format(tmp_path / "out")).fetchall(), key=lambda row: row[1]) == rows, (
        f"seed {seed}"
    )


def test_several_keys_of_several_types(tmp_path: Path) -> None:
    db = tsql.connect()
    db.sql(
        """CREATE TABLE t AS SELECT i % 3 AS a, DATE '2020-01-01' + (i % 2)::INTEGER AS "b=/%",
                  CASE WHEN i % 5 > 0 THEN i % 5 END AS _c, i % 2 = 0 AS ".d", i AS v FROM range(60) r(i)"""
    )
    db.sql(f"""COPY t TO '{tmp_path}/out' (FORMAT parquet, PARTITION_BY (a, "b=/%", _c, ".d"))""")
    back = db.sql(f"""SELECT a, "b=/%", _c, ".d", v FROM '{tmp_path}/out' ORDER BY v""")
    assert back.types == ["BIGINT", "DATE", "BIGINT", "VARCHAR", "BIGINT"]
    expected = [(*row[:3], str(row[3]).lower(), row[4]) for row in db.sql("FROM t ORDER BY v").fetchall()]
    assert back.fetchall() == expected
    assert (
        db.sql(f"""SELECT count(*) FROM '{tmp_path}/out' WHERE _c IS NULL AND a = 1""").fetchall()
        == db.sql("SELECT count(*) FROM t WHERE _c IS NULL AND a = 1").fetchall()
    )


@pytest.mark.parametrize(
    "names",
    [("k=1", "k=NULL"), ("k=1", "k=__HIVE_DEFAULT_PARTITION__"), ("k=1", "k="), ("k=2020-01-01", "k=null"),
     ("k=", "k=__HIVE_DEFAULT_PARTITION__"), ("k=NULL",), ("k=NULL", "k=x"), ("k=%5F_HIVE_DEFAULT_PARTITION__", "k=1"),
     ("k=%zz", "k=%4", "k=a+b")],
)  # fmt: skip
def test_folders_of_others_mean_what_they_mean_in_duckdb(names: tuple[str, ...], tmp_path: Path) -> None:
    for number, name in enumerate(names):
        (tmp_path / name).mkdir()
        duckdb.sql(f"COPY (SELECT {number} AS v) TO '{tmp_path}/{name}/d.parquet'")
    query = f"SELECT v, k FROM read_parquet('{tmp_path}/*/*.parquet', hive_partitioning => true) ORDER BY v"
    theirs = duckdb.sql(query)
    found = tsql.connect().sql(query)
    assert (found.types, found.fetchall()) == ([str(kind) for kind in theirs.types], theirs.fetchall())


def test_what_is_not_utf8_is_itself(tmp_path: Path) -> None:
    for name in ("k=%E9", "k=%E8", "k=a"):
        (tmp_path / name).mkdir()
        duckdb.sql(f"COPY (SELECT 1 AS v) TO '{tmp_path}/{name}/d.parquet'")
    assert sorted(tsql.connect().sql(f"SELECT k FROM '{tmp_path}'").fetchall()) == [("%E8",), ("%E9",), ("a",)]
    os.mkdir(os.fsencode(tmp_path) + b"/k=\xe9")
    os.link(tmp_path / "k=a" / "d.parquet", os.fsencode(tmp_path) + b"/k=\xe9/d.parquet")
    with pytest.raises(SourceError, match="the name of a folder is not UTF-8"):
        tsql.connect().sql(f"SELECT k FROM '{tmp_path}'")


@pytest.mark.parametrize("value", ["x" * 254, "é" * 43, "/" * 90])
def test_values_that_are_too_long_are_an_error_before_anything_is_written(value: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(
        SourceError, match="partition_by: a value of column k is too long to be the name of a folder"
    ) as error:
        written(tmp_path / "out", ["a", value], ", OVERWRITE")
    assert error.value.position is not None or "255" in str(error.value)
    assert os.listdir(tmp_path) == ["out"] and not os.listdir(tmp_path / "out")


def test_paths_that_are_too_long(tmp_path: Path) -> None:
    db = tsql.connect()
    columns = ", ".join(f"repeat('x', 240) AS k{i}" for i in range(18))
    names = ", ".join(f"k{i}" for i in range(18))
    with pytest.raises(SourceError, match="make a path that is too long"):
        db.sql(f"COPY (SELECT {columns}, 1 AS v) TO '{tmp_path}/out' (FORMAT parquet, PARTITION_BY ({names}))")
    assert not os.listdir(tmp_path)


def test_folders_that_are_there(tmp_path: Path) -> None:
    """OVERWRITE leaves nothing of the old folder, OVERWRITE_OR_IGNORE only what has other names; links and modes
    stay."""
    out, link = tmp_path / "real", tmp_path / "link"
    out.mkdir(mode=0o750)
    out.chmod(0o750)
    link.symlink_to(out)
    written(link, ["a", "b"])
    assert link.is_symlink() and sorted(os.listdir(out)) == ["k=a", "k=b"]
    with pytest.raises(SourceError, match="is not empty"):
        written(link, ["c"])
    written(link, ["c"], ", OVERWRITE_OR_IGNORE")
    assert sorted(os.listdir(out)) == ["k=a", "k=b", "k=c"]
    written(link, ["d"], ", OVERWRITE")
    assert link.is_symlink() and os.listdir(out) == ["k=d"] and out.stat().st_mode & 0o777 == 0o750
    assert sorted(os.listdir(tmp_path)) == ["link", "real"]


@pytest.mark.parametrize("columns", ["a, a", "a, A", "b, a, b"])
def test_a_repeated_column(columns: str, tmp_path: Path) -> None:
    query = f"COPY (SELECT 1 AS a, 2 AS b, 3 AS c) TO '{tmp_path}/p' (FORMAT parquet, PARTITION_BY ({columns}))"
    with pytest.raises(duckdb.BinderException, match="duplicate columns"):
        duckdb.sql(query)
    with pytest.raises(SourceError, match=r'partition_by: the column "[ab]" is repeated'):
        tsql.connect().sql(query)
    assert not (tmp_path / "p").exists()
