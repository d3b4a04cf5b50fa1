"""COPY to files and from them: formats, options, partitions, errors; DuckDB reads what was written, and the other way
round."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import tsql
from tests.duck import empty_duckdb
from tsql.kernels.expr.errors import BindError, ConstraintError, SourceError

ROWS = [
    (1, "plain", 1.5, "2024-01-01"),
    (2, 'a "quoted", text', None, None),
    (3, "", -0.25, "2024-02-29"),
    (4, None, 1e100, "1969-12-31"),
]


@pytest.fixture
def db():
    with tsql.connect() as session:
        session.execute("CREATE TABLE t (a INTEGER, s VARCHAR, x DOUBLE, d DATE)")
        for row in ROWS:
            session.execute("INSERT INTO t VALUES (?, ?, ?, CAST(? AS DATE))", list(row))
        yield session


def shown(rows) -> list[tuple[str, ...]]:
    return sorted(tuple(str(value) for value in row) for row in rows)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("t.csv", ""), ("t.csv.gz", ""), ("t.parquet", ""), ("t.json", ""),
        ("t.data", "(FORMAT parquet, COMPRESSION zstd)"),
        ("t.tbl", "(FORMAT csv, DELIMITER '|', HEADER false, NULLSTR 'NULL')"),
        ("t.csv", "(HEADER, QUOTE '''', ESCAPE '''')"), ("t.json", "(ARRAY true)"),
        ("t.csv", "(FORCE_QUOTE (s, a))"),
    ],
)  # fmt: skip
def test_round_trip_and_duckdb(db, tmp_path: Path, name: str, options: str) -> None:
    path = tmp_path / name
    assert db.sql(f"COPY t TO '{path}' {options}").fetchall() == [(4,)]
    db.execute("CREATE TABLE back AS SELECT * FROM t WITH NO DATA")
    reading = (
        options.replace("COMPRESSION zstd", "")
        .replace(", )", ")")
        .replace("(FORCE_QUOTE (s, a))", "")
        .replace("(ARRAY true)", "")
    )
    assert db.sql(f"COPY back FROM '{path}' {reading}").fetchall() == [(4,)]
    # Where NULL is written as nothing, a quoted empty text reads as NULL, too: allow_quoted_nulls is on, as in DuckDB.
    lost = {"": None} if name.startswith("t.csv") else {}
    assert shown(db.table("back").fetchall()) == shown(
        [lost.get(value, value) for value in row] for row in db.table("t").fetchall()
    )
    other = empty_duckdb()
    other.execute("CREATE TABLE back (a INTEGER, s VARCHAR, x DOUBLE, d DATE)")
    other.execute(f"COPY back FROM '{path}' {reading}")
    assert [row[0] for row in other.sql("SELECT a FROM back ORDER BY a").fetchall()] == [1, 2, 3, 4]
    assert (
        other.sql("SELECT x, d FROM back WHERE a = 3").fetchall() == db.sql("SELECT x, d FROM t WHERE a = 3").fetchall()
    )


def test_copy_a_query_and_some_columns(db, tmp_path: Path) -> None:
    db.execute(f"COPY (SELECT a, a * 2 AS twice FROM t WHERE a > 2 ORDER BY a) TO '{tmp_path}/q.csv'")
    assert (tmp_path / "q.csv").read_text() == "a,twice\n3,6\n4,8\n"
    db.execute(f"COPY t (x, a) TO '{tmp_path}/c.csv' (HEADER false)")
    assert (tmp_path / "c.csv").read_text().split("\n")[0] == "1.5,1"
    db.execute(
        f"CREATE TABLE u (b BIGINT, a VARCHAR DEFAULT 'none', twice INTEGER); COPY u (b, twice) FROM '{tmp_path}/q.csv'"
    )
    assert db.sql("SELECT * FROM u ORDER BY b").fetchall() == [(3, "none", 6), (4, "none", 8)]


def test_copy_checks_constraints(db, tmp_path: Path) -> None:
    db.execute(
        f"COPY t TO '{tmp_path}/t.csv'; CREATE TABLE k (a INTEGER PRIMARY KEY, s VARCHAR NOT NULL, x DOUBLE, d DATE)"
    )
    with pytest.raises(ConstraintError, match="NOT NULL constraint failed: k.s"):
        db.execute(f"COPY k FROM '{tmp_path}/t.csv'")
    assert db.sql("SELECT count(*) FROM k").fetchall() == [(0,)]


def test_partitions(db, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    assert db.sql(
        f"COPY (SELECT a, a % 2 AS odd, s FROM t) TO '{folder}' (FORMAT parquet, PARTITION_BY (odd, s))"
    ).fetchall() == [(4,)]
    assert sorted(p.relative_to(folder).parts[0] for p in folder.rglob("*.parquet")) == [
        "odd=0",
        "odd=0",
        "odd=1",
        "odd=1",
    ]
    read = duckdb.sql(
        f"SELECT a, odd, s FROM read_parquet('{folder}/*/*/*.parquet', hive_partitioning = true) ORDER BY a"
    ).fetchall()
    assert [(row[0], int(row[1])) for row in read] == [(1, 1), (2, 0), (3, 1), (4, 0)]
    assert [row[2] for row in read][:2] == ["plain", 'a "quoted", text']
    with pytest.raises(SourceError, match="is not empty"):
        db.execute(f"COPY t TO '{folder}' (FORMAT parquet, PARTITION_BY (a))")
    db.execute(f"COPY t TO '{folder}' (FORMAT parquet, PARTITION_BY a, OVERWRITE)")
    assert sorted(p.name for p in folder.iterdir()) == ["a=1", "a=2", "a=3", "a=4"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("COPY t TO 'x.csv' (FORMAT foo)", 'Copy Function with name "foo" does not exist'),
        ("COPY t TO 'x.csv' (DELIMITTER '|')", 'unrecognized option "delimitter"(.*\n)*hint: did you mean delimiter?'),
        ("COPY t TO 'x.csv' (DELIMITER 'ab')", "one plain character"),
        ("COPY t TO 'x.parquet' (COMPRESSION zip)", "unknown compression zip"),
        ("COPY t TO 'x' (FORMAT parquet, PARTITION_BY nope)", 'there is no column "nope"'),
        ("COPY nope TO 'x.csv'", 'table "nope" does not exist'),
        ("COPY t FROM 'missing.csv'", "missing.csv"),
        ("COPY t TO 'no/such/folder/x.csv'", "cannot write no/such/folder/x.csv"),
    ],
)
def test_errors(db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tsql.TsqlError, match=message):
        db.execute(text)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("COPY t TO 'x.csv' (FORMAT csv, FORMAT parquet)", "FORMAT parquet"),
        ("COPY t TO 'x.csv' (HEADER, header false)", "header"),
        ("COPY t FROM 'x.csv' (DELIM ',', DELIM ';')", "DELIM ';'"),
        ("SELECT * FROM read_csv('x.csv', header = true, header = false)", "header = false"),
        ("SELECT * FROM read_csv('x.csv', columns = {'a': 'INTEGER', 'a': 'VARCHAR'})", None),
    ],
)
def test_an_option_is_given_once(db, statement: str, place: str | None) -> None:
    with pytest.raises(BindError, match="twice") as caught:
        db.sql(statement)
    assert caught.value.position is not None
    assert place is None or caught.value.position == statement.index(place)
    with pytest.raises(duckdb.Error), empty_duckdb() as duck:
        duck.execute("CREATE TABLE t (a INTEGER)")
        duck.execute(statement)


def test_data_or_no_data_is_said_once(db) -> None:
    with pytest.raises(BindError, match="an option of CREATE TABLE is given twice"):
        db.sql("CREATE TABLE u AS SELECT 1 AS a WITH DATA WITH NO DATA")


REFUSED = [
    ("quote ',', delim ','", "options delim and quote are the same character"),
    ("delim '\"'", "options delim and quote are the same character"),
    ("escape ','", "options delim and escape are the same character"),
    ("null ','", "option nullstr holds the delimiter"),
    ("nullstr 'a\"'", "option nullstr holds the quote"),
    ("header NULL", "option header is NULL"),
    ("null NULL", "option null is NULL"),
    ("force_quote (z)", 'force_quote: there is no column "z"'),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[options for options, _ in REFUSED])
def test_csv_options_that_duckdb_refuses_too(tmp_path: Path, options: str, message: str) -> None:
    query = f"COPY (SELECT 1 AS a, 2 AS b) TO '{tmp_path}/f.csv' (FORMAT csv, {options})"
    with pytest.raises(duckdb.Error):
        duckdb.sql(query)
    with pytest.raises(SourceError, match=message):
        tsql.connect().sql(query)
    assert not (tmp_path / "f.csv").exists()


@pytest.mark.parametrize("columns", ["(A)", "(b, a)", "(*)", "*"])
def test_force_quote_is_as_duckdbs(columns: str, tmp_path: Path) -> None:
    for name, run in (("ours", tsql.connect().sql), ("theirs", duckdb.sql)):
        run(f"COPY (SELECT 1 AS a, NULL AS b, 'x' AS c) TO '{tmp_path}/{name}' (FORMAT csv, force_quote {columns})")
    assert (tmp_path / "ours").read_text() == (tmp_path / "theirs").read_text()
