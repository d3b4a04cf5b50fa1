"""store_rejects: rows with errors are left out of the result, and stand in two tables with DuckDB's columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import tsql
from tsql.kernels.expr.errors import CatalogError, SourceError, TsqlError

FILES = {
    "cast": 'a,b,c\n1,x,2020-01-01\nzz,y,2020-01-02\n9,ok,2020-02-02\nbad,é,bad\n,,\n4,"q\nr",nope\n',
    "width": "a,b,c\n1,x,2020-01-01\n3,z\n5,w,2020-01-03,extra,more\n\n9,ok,2020-02-02\n7\n",
    "both": "a,b,c\n"
    + "1,x,2020-01-01\n" * 3_000
    + "1,x\n"
    + "2,y,2020-01-01\n" * 3_000
    + "q,y,2020-01-01\n3,y,z\n4,y,2020-01-01\n",
    "none": "a,b,c\n1,x,2020-01-01\n",
    "ends": "a,b,c\n1,x,2020-01-01\nzz,é,2020-01-02\n3,z",
}
COLUMNS = (
    "columns = {'a': 'INTEGER', 'b': 'VARCHAR', 'c': 'DATE'}, header = true, delim = ',', quote = '\"', "
    "auto_detect = false"
)
ERRORS = (
    "SELECT file_id, line, line_byte_position, byte_position, column_idx, column_name, "
    "error_type::VARCHAR, csv_line, error_message FROM {} ORDER BY ALL"
)
SCANS = (
    "SELECT file_id, file_path, delimiter, quote, escape, skip_rows, has_header, columns, date_format "
    "FROM {} ORDER BY ALL"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("rejects")
    for name, text in FILES.items():
        (found / f"{name}.csv").write_bytes(text.encode())
    return found


@pytest.fixture
def db() -> Any:
    with tsql.connect() as session:
        yield session


@pytest.mark.parametrize("name", FILES)
def test_rejected_rows_are_those_of_duckdb(folder: Path, db: Any, name: str) -> None:
    query = f"SELECT * FROM read_csv('{folder / name}.csv', store_rejects = true, {COLUMNS})"
    with duckdb.connect() as other:
        assert db.sql(query).fetchall() == other.sql(query).fetchall()
        found = db.sql(ERRORS.format("reject_errors")).fetchall()
        expected = other.sql(ERRORS.format("reject_errors")).fetchall()
        if '"' not in FILES[name]:
            assert found == expected
        # The byte of a value behind one in quotes is not counted as there.
        assert [row[:3] + row[4:] for row in found] == [row[:3] + row[4:] for row in expected]
        assert db.sql(SCANS.format("reject_scans")).fetchall() == other.sql(SCANS.format("reject_scans")).fetchall()


def test_the_tables_have_duckdbs_columns(folder: Path, db: Any) -> None:
    db.read_csv(folder / "none.csv", store_rejects=True).fetchall()
    with duckdb.connect() as other:
        other.sql(f"FROM read_csv('{folder}/none.csv', store_rejects = true)").fetchall()
        for table in ("reject_errors", "reject_scans"):
            assert db.table(table).columns == other.table(table).columns


def test_several_files_names_and_a_limit(folder: Path, db: Any) -> None:
    query = (
        f"SELECT count(*) FROM read_csv(['{folder}/cast.csv', '{folder}/width.csv'], rejects_table = "
        f"'bad_rows', rejects_scan = 'Scans', rejects_limit = 2, {COLUMNS})"
    )
    assert db.sql(query).fetchall() == [(5,)]
    assert db.sql("SELECT file_id, line FROM bad_rows ORDER BY ALL").fetchall() == [(0, 3), (0, 5), (1, 3), (1, 4)]
    assert db.sql("SELECT count(*) FROM SCANS").fetchall() == [(2,)]
    assert "reject_errors" not in db.tables()


def test_reading_again_does_not_count_twice_and_another_query_is_another_scan(folder: Path, db: Any) -> None:
    relation = db.read_csv(
        folder / "both.csv", store_rejects=True, header=True, columns={"a": "INTEGER", "b": "VARCHAR", "c": "DATE"}
    )
    for _ in range(3):
        assert len(relation.fetchall()) == 6_001
    assert db.sql("SELECT scan_id, count(*) FROM reject_errors GROUP BY ALL").fetchall() == [(1, 3)]
    db.sql(f"SELECT a FROM read_csv('{folder}/both.csv', store_rejects = true, {COLUMNS})").fetchall()
    assert db.sql("SELECT scan_id, count(*) FROM reject_errors GROUP BY ALL ORDER BY ALL").fetchall() == [
        (1, 3),
        (2, 3),
    ]


def test_copy_and_tables_over_files(folder: Path, db: Any) -> None:
    db.sql("CREATE TABLE t (a INTEGER, b VARCHAR, c DATE)")
    db.sql(f"COPY t FROM '{folder}/cast.csv' (HEADER, STORE_REJECTS true)")
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(3,)]
    assert db.sql("SELECT line FROM reject_errors ORDER BY ALL").fetchall() == [(3,), (5,), (5,), (7,)]
    db.sql(
        "CREATE TABLE w (a INTEGER, b VARCHAR, c DATE) WITH (connector = 'csv', path = "
        f"'{folder}/width.csv', store_rejects = true, rejects_table = 'others')"
    )
    assert db.sql("SELECT count(*) FROM w").fetchall() == [(2,)]
    assert db.sql("SELECT DISTINCT line FROM others ORDER BY ALL").fetchall() == [(3,), (4,), (7,)]


def test_long_lines_open_quotes_and_bytes_that_are_no_text(tmp_path: Path, db: Any) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n1,x\n2," + b"k" * 300 + b"\n3,y\n")
    assert db.read_csv(path, store_rejects=True, max_line_size=200).fetchall() == [(1, "x"), (3, "y")]
    assert db.sql("SELECT line, error_type FROM reject_errors").fetchall() == [(3, "LINE SIZE OVER MAXIMUM")]
    path.write_bytes(b'a,b\n1,x\n2,\xff\n3,y\n4,"z\n5,w\n')
    assert db.read_csv(path, rejects_table="more", quote='"', delim=",").fetchall() == [(1, "x"), (3, "y")]
    assert db.sql("SELECT line, error_type FROM more ORDER BY ALL").fetchall() == [
        (3, "INVALID ENCODING"),
        (5, "UNQUOTED VALUE"),
    ]


def test_a_query_that_stops_early_tells_of_what_it_has_read(tmp_path: Path, db: Any) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,z\nx,z\n" + f"1,{'z' * 120}\n" * 30_000 + "y,z\n")
    assert db.sql(
        f"SELECT a FROM read_csv('{path}', store_rejects = true, types = {{'a': 'BIGINT'}}) LIMIT 1"
    ).fetchall() == [(1,)]
    assert (3,) in db.sql("SELECT line FROM reject_errors").fetchall()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"rejects_limit": 3}, "option rejects_limit needs store_rejects"),
    ({"store_rejects": True, "ignore_errors": False}, "ignore_errors is false"),
    ({"store_rejects": True, "rejects_limit": -1}, "option rejects_limit is a number of at least 0"),
    ({"rejects_table": "x", "rejects_scan": "X"}, "both say"),
    ({"store_rejects": "perhaps"}, "option store_rejects is true or false"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_options(folder: Path, db: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        db.read_csv(folder / "none.csv", **options)


def test_a_name_that_is_taken(folder: Path, db: Any) -> None:
    db.sql("CREATE TABLE reject_errors (a INTEGER)")
    with pytest.raises(CatalogError, match='store_rejects: "reject_errors" exists already'):
        db.read_csv(folder / "none.csv", store_rejects=True)
    assert db.tables() == ["reject_errors"]
    with pytest.raises(TsqlError, match="did you mean store_rejects"):
        db.read_csv(folder / "none.csv", store_reject=True)
