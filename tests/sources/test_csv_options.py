"""Options of read_csv that change how rows are cut: the same rows, names and types as DuckDB's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

import tsql
from tsql.kernels.expr.errors import SourceError, TsqlError

FILES = {
    "short": "a,b,c\n1,2,3\n4,5\n6\n7,8,9\n",
    "short_text": "a,b,c\n1,x,\"p,q\"\n2\n3,\"y\ny\"\n",
    "comments": "# top\na,b\n1,2\n# mid\n3,4 # tail\n5,6\n",
    "hashes": "a,b\n1,#x\n2,y\n",
    "quoted_hash": "a,b\n1,\"x # y\"\n2,z # note\n",
    "commas": "a;b\n1,5;x\n2,25;y\n",
    "comma_integers": "a;b\n1;x\n2;y\n",
    "loose": "a,b\n1,\"x\"y\"\n2,z\n",
    "loose_more": "a,b\n1,\"say \"hi\" now\"\n2,\"plain\"\n3,\"dou\"\"ble\"\n",
    "long": f"a,b\n1,{'x' * 40}\n2,z\n",
    "nulls": "a,b\n1,NULL\n2,-\n3,x\n",
    "dates": "d,t\n03.02.2024,03.02.2024 10:11:12\n31.12.2023,31.12.2023 00:00:00\n",
    "slashes": "d,n\n2024|01|02,1\n",
}  # fmt: skip

CASES = [
    ("short", "null_padding => true"),
    ("short", "null_padding => true, header => true"),
    ("short", "null_padding => true, all_varchar => true"),
    ("short", "null_padding => true, names => ['x']"),
    ("short", "null_padding => true, nullstr => 'none'"),
    ("short", "ignore_errors => true, header => true"),
    ("comments", "comment => '#'"),
    ("comments", "header => true"),
    ("comments", "comment => '#', skip => 1"),
    ("hashes", "header => true"),
    ("quoted_hash", "comment => '#'"),
    ("commas", "decimal_separator => ','"),
    ("commas", "decimal_separator => ',', delim => ';', types => {'a': 'DECIMAL(9,2)'}"),
    ("commas", "delim => ';'"),
    ("comma_integers", "decimal_separator => ','"),
    ("loose", "header => true"),
    ("loose", "strict_mode => false"),
    ("long", "max_line_size => 200"),
    ("nulls", "nullstr => ['NULL', '-']"),
    ("nulls", "column_names => ['p', 'q'], column_types => ['VARCHAR', 'VARCHAR']"),
    ("dates", "dateformat => '%d.%m.%Y', timestampformat => '%d.%m.%Y %H:%M:%S'"),
    ("slashes", "dateformat => '%Y|%m|%d', delim => ','"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("csv")
    for name, text in FILES.items():
        (found / f"{name}.csv").write_text(text)
    return found


@pytest.fixture(scope="module")
def db() -> Any:
    with tsql.connect(threads=2) as session:
        yield session


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{name}: {options}" for name, options in CASES])
def test_as_duckdb(folder: Path, db: Any, name: str, options: str) -> None:
    query = f"FROM read_csv('{folder / f'{name}.csv'}', {options})"
    expected, ours = duckdb.sql(query), db.sql(query)
    assert (ours.columns, ours.types) == (expected.columns, [str(t) for t in expected.types])
    assert ours.fetchall() == expected.fetchall()


def test_a_line_that_is_too_long(folder: Path, db: Any) -> None:
    for name in ("max_line_size", "maximum_line_size"):
        with pytest.raises(SourceError, match=r"long\.csv: line 2: 42 bytes, more than max_line_size \(20\)"):
            db.read_csv(folder / "long.csv", **{name: 20}).fetchall()
    assert db.read_csv(folder / "long.csv", max_line_size=20, ignore_errors=True, header=True).fetchall() == [(2, "z")]


def test_lines_of_errors_count_comments(tmp_path: Path, db: Any) -> None:
    (tmp_path / "f.csv").write_text("# one\na,b\n1,2\n# four\n3,x\n")
    with pytest.raises(SourceError, match=r"f\.csv: line 5: column b: could not convert 'x'"):
        db.read_csv(tmp_path / "f.csv", comment="#", types={"b": "BIGINT"}).fetchall()
    (tmp_path / "g.csv").write_text("# one\na,b\n1,2\n# four\n3,4,5\n")
    with pytest.raises(SourceError, match=r"g\.csv: line 5: expected 2 fields, found 3"):
        db.read_csv(tmp_path / "g.csv", comment="#", header=True, delim=",").fetchall()


def test_bytes_that_are_no_text_are_found_behind_comments(tmp_path: Path, db: Any) -> None:
    (tmp_path / "f.csv").write_bytes(b"# one\na,b\n1,x\n2,\xff\xfe\n")
    with pytest.raises(SourceError, match="UTF-8"):
        db.read_csv(tmp_path / "f.csv", comment="#").fetchall()


@pytest.mark.parametrize(
    "options",
    [
        "decimal_separator => ';'",
        "comment => '##'",
        "max_line_size => -1",
        "null_padding => 'perhaps'",
        "coment => '#'",
    ],
)
def test_bad_options(folder: Path, db: Any, options: str) -> None:
    with pytest.raises(TsqlError, match="option"):
        db.sql(f"FROM read_csv('{folder / 'short.csv'}', {options})")


def test_many_rows_through_the_plain_stream(tmp_path: Path, db: Any) -> None:
    rows = 50_000
    (tmp_path / "f.csv").write_text(
        "a,b,c\n" + "".join(f'{i},"t,{i}"{"" if i % 3 else f",{i * 2}"}\n# {i}\n' for i in range(rows))
    )
    query = (
        "SELECT count(*), sum(a), count(c), sum(c), max(length(b)) FROM read_csv('{}', comment => '#', "
        "null_padding => true)"
    ).format(tmp_path / "f.csv")
    thirds = range(0, rows, 3)
    assert db.sql(query).fetchall() == [(rows, sum(range(rows)), len(thirds), 2 * sum(thirds), len(f"t,{rows - 1}"))]


def test_what_duckdb_does_not_read(folder: Path, db: Any) -> None:
    """Line ends inside quotes with null_padding, and doubled quotes beside stray ones."""
    assert db.read_csv(folder / "short_text.csv", null_padding=True).fetchall() == [
        (1, "x", "p,q"),
        (2, None, None),
        (3, "y\ny", None),
    ]
    assert db.read_csv(folder / "loose_more.csv", strict_mode=False).fetchall() == [
        (1, 'say "hi" now'),
        (2, "plain"),
        (3, 'dou"ble'),
    ]


def test_a_plan_file_keeps_the_options(folder: Path, db: Any) -> None:
    relation = db.read_csv(folder / "short.csv", null_padding=True)
    assert tsql.load_plan_text(relation.plan()).run(db).fetchall() == relation.fetchall()


REFUSED = [
    ("names => ['x', 'x']", 'option names: the name "x" is repeated'),
    ("column_names => ['x', 'X']", 'option names: the name "X" is repeated'),
    ("names => ['x', ' ']", "option names: the name of a column is empty"),
    ("names => ['b']", 'option names: the file has a column "b" of its own'),
    ("columns => {'a': 'INT', 'A': 'INT'}", 'option columns: the name "A" is repeated'),
    ("columns => {'a': 'INT', 'a': 'INT'}", '"a" is given twice'),
    ("types => {'a': 'INT', 'A': 'INT'}", 'option types: the name "A" is repeated'),
    ("delim => '\"', quote => '\"'", "options delim and quote are the same character, '\"'"),
    ("sep => '|', escape => '|'", "options delim and escape are the same character, '|'"),
    ("delim => ',', comment => ','", "options delim and comment are the same character, ','"),
    ("quote => '#', comment => '#'", "options quote and comment are the same character, '#'"),
    ("escape => '#', comment => '#'", "options escape and comment are the same character, '#'"),
    ("delim => ';', nullstr => ['-', 'a;']", "option nullstr holds the delimiter, ';'"),
    *(
        (f"{name} => NULL", f"option {name} is NULL")
        for name in (
            "header",
            "skip",
            "names",
            "columns",
            "all_varchar",
            "nullstr",
            "sample_size",
            "union_by_name",
            "types",
        )
    ),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[options for options, _ in REFUSED])
def test_options_that_duckdb_refuses_too(tmp_path: Path, db: Any, options: str, message: str) -> None:
    (tmp_path / "f.csv").write_text("a,b\n1,2\n")
    query = f"FROM read_csv('{tmp_path / 'f.csv'}', {options})"
    with pytest.raises(duckdb.Error):
        duckdb.sql(query).fetchall()
    with pytest.raises(TsqlError, match=re.escape(message)):
        db.sql(query)


def test_options_beside_each_other(tmp_path: Path, db: Any) -> None:
    (tmp_path / "f.csv").write_text('a"b\n1"2\n')
    for options in ("delim => '\"'", "delim => '\"', quote => ''"):
        query = f"FROM read_csv('{tmp_path / 'f.csv'}', {options})"
        assert db.sql(query).fetchall() == duckdb.sql(query).fetchall() == [(1, 2)]
    with pytest.raises(TsqlError, match="option header is given twice"):
        db.sql(f"FROM read_csv('{tmp_path / 'f.csv'}', header => true, header => false)")
    with pytest.raises(TsqlError, match="option delim is the end of a line"):
        db.read_csv(tmp_path / "f.csv", delim="\n")
    assert db.read_csv(tmp_path / "f.csv", delim='"', header=None, names=None).fetchall() == [(1, 2)]
