"""Definitions of columns and keys that a database keeps: UNIQUE NULLS NOT DISTINCT, TIMESTAMP(0). DuckDB has no such
key: what is expected follows the standard, in which two NULLs are one value there."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

import tsql
from tsql.catalog.definition import TableDefinition
from tsql.kernels.expr.errors import ConstraintError, TsqlError


def _refused(db: tsql.Session, sql: str, message: str) -> None:
    before = db.sql("SELECT count(*) AS n FROM k").arrow()["n"][0].as_py()
    with pytest.raises(ConstraintError, match=message):
        db.execute(sql)
    assert db.sql("SELECT count(*) AS n FROM k").arrow()["n"][0].as_py() == before


@pytest.mark.parametrize(
    "dtype", ["INTEGER", "VARCHAR", "DOUBLE", "HUGEINT", "TIMESTAMP", "DECIMAL(20, 2)", "BLOB", "BOOLEAN"]
)
def test_null_is_a_value_of_such_a_key(dtype: str) -> None:
    with tsql.connect(threads=1) as db:
        db.execute(f"CREATE TABLE k (a {dtype} UNIQUE NULLS NOT DISTINCT)")
        db.execute("INSERT INTO k VALUES (NULL)")
        _refused(db, "INSERT INTO k VALUES (NULL)", 'Duplicate key "a: NULL" violates unique constraint')
        db.execute("DELETE FROM k")
        _refused(db, "INSERT INTO k VALUES (NULL), (NULL)", "Duplicate key")


@pytest.mark.parametrize("said", ["", " NULLS DISTINCT"])
def test_other_keys_take_any_number_of_nulls(said: str) -> None:
    with tsql.connect(threads=1) as db:
        db.execute(f"CREATE TABLE k (a INTEGER UNIQUE{said}, b INTEGER, UNIQUE{said} (a, b))")
        db.execute("INSERT INTO k VALUES (NULL, 1), (NULL, 1)")
        assert db.sql("SELECT count(*) AS n FROM k").arrow()["n"].to_pylist() == [2]


def test_keys_of_several_columns() -> None:
    with tsql.connect(threads=1) as db:
        db.execute("CREATE TABLE k (a VARCHAR, b INTEGER, UNIQUE NULLS NOT DISTINCT (a, b))")
        db.execute("INSERT INTO k VALUES (NULL, 1), (NULL, NULL), ('', 1), ('', NULL), ('x', NULL)")
        for row in ("(NULL, 1)", "(NULL, NULL)", "('', 1)", "('', NULL)", "('x', NULL)"):
            _refused(db, f"INSERT INTO k VALUES {row}", "Duplicate key")
        db.execute("INSERT INTO k VALUES (NULL, 2), ('x', 1)")
        _refused(db, "UPDATE k SET b = NULL WHERE a IS NULL", "Duplicate key")
        db.execute("UPDATE k SET b = 7 WHERE a IS NULL AND b IS NULL")
        db.execute("INSERT INTO k VALUES (NULL, NULL)")


def test_conflicts_find_the_row_with_null() -> None:
    with tsql.connect(threads=1) as db:
        db.execute("CREATE TABLE k (a INTEGER UNIQUE NULLS NOT DISTINCT, n INTEGER DEFAULT 1)")
        for _ in range(3):
            db.execute("INSERT INTO k (a) VALUES (NULL) ON CONFLICT (a) DO UPDATE SET n = k.n + 1")
        db.execute("INSERT OR IGNORE INTO k VALUES (NULL, 100), (5, 5)")
        assert db.sql("SELECT * FROM k ORDER BY a").arrow().to_pydict() == {"a": [5, None], "n": [5, 3]}


def test_a_database_keeps_both(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with tsql.connect(path) as db:
        db.execute("CREATE TABLE k (a INTEGER UNIQUE NULLS NOT DISTINCT, s TIMESTAMP(0), ms TIMESTAMP(3))")
        db.execute("INSERT INTO k VALUES (NULL, '2020-01-01 00:00:00.6', '2020-01-01 00:00:00.0006')")
    with tsql.connect(path) as db:
        _refused(db, "INSERT INTO k (a) VALUES (NULL)", "Duplicate key")
        db.execute("ALTER TABLE k RENAME COLUMN a TO b")
        db.execute("ALTER TABLE k RENAME COLUMN s TO t")
        db.execute("CHECKPOINT")
    with tsql.connect(path) as db:
        _refused(db, "INSERT INTO k (b) VALUES (NULL)", 'Duplicate key "b: NULL"')
        db.execute("INSERT INTO k VALUES (1, '2021-01-01 00:00:00.5', '2021-01-01 00:00:00.0005')")
        assert db.sql("SELECT t, ms FROM k ORDER BY t").arrow().to_pydict() == {
            "t": [datetime(2020, 1, 1, 0, 0, 1), datetime(2021, 1, 1, 0, 0, 1)],
            "ms": [datetime(2020, 1, 1, 0, 0, 0, 1000), datetime(2021, 1, 1, 0, 0, 0, 1000)],
        }


def test_definitions_without_them_are_written_as_before() -> None:
    with tsql.connect(threads=1) as db:
        db.execute("CREATE TABLE k (a INTEGER PRIMARY KEY, b TIMESTAMP UNIQUE, c TIMESTAMP(6))")
        definition = db.catalog.entry("k").definition
    data = definition.to_json()
    assert data["keys"] == [[["a"], True], [["b"], False]]
    assert all(set(column) == {"name", "type", "not_null", "default"} for column in data["columns"])
    assert TableDefinition.from_json(data) == definition


def test_copy_rounds_too(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("s\n2020-01-01 00:00:00.7\n2020-01-01 00:00:00.2\n")
    with tsql.connect(threads=1) as db:
        db.execute("CREATE TABLE k (s TIMESTAMP(0))")
        db.execute(f"COPY k FROM '{tmp_path / 'a.csv'}' (HEADER true)")
        assert db.sql("SELECT s FROM k ORDER BY s").arrow()["s"].to_pylist() == [
            datetime(2020, 1, 1),
            datetime(2020, 1, 1, 0, 0, 1),
        ]


def test_times_of_files_are_read_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("s\n2020-01-01 00:00:00.7\n")
    with tsql.connect(threads=1) as db:
        with pytest.raises(TsqlError, match="TIMESTAMP takes no digits here"):
            db.execute(f"CREATE TABLE k (s TIMESTAMP(0)) WITH (connector = 'csv', path = '{tmp_path / 'a.csv'}')")
