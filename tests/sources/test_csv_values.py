"""CSV values that are not written like the others of their column, or as no other reader writes them: detected and cast
as by DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import tsql
from tests.duck import empty_duckdb
from tests.sources.support import DUCKDB_NAMES, duck, literal, ours, types_of
from tsql.backends.io.open import open_source
from tsql.kernels.expr.errors import SourceError

LINE_BREAKS = [
    'a,b\n1,2\n3,"4\n5"\n', 'a,b\n1,2\n3,"4\r\n5"\n', 'a,b\r\n1,2\r\n3,"4\r\n5"\r\n', 'a,b\n1,2.5\n3,"4\n5.5"\n',
    'a,b\n1,2\n3,"4\n"\n', 'a,b\n1,2\n3,"\n4"\n', 'a,b\n1,2020-01-01\n3,"2020-01-02\n2020-01-03"\n', '"1\n2",x\n3,y\n',
    'a\n"2024-01-01\n10:00:00"\n',
]  # fmt: skip

UNLIKE = [
    "nan\n1", "1\ninf", "1.5\n-inf", "1\nInfinity", "1\n-Infinity", "nan", "NaN", "1\nNAN", "1\nINF", "nan\ninf",
    "99999999999999999999\nnan", "1.5\n+inf", "nan\nx", "007\nnan", "inf\n1", "-inf\n1.5", "inf\nnan", "Infinity\nnan",
    "true\ninf", "10:00:00\ninfinity", "1\nepoch", " 1\n nan ", "inf", "infinity", "-infinity", "epoch", "EPOCH",
    "infinity\nepoch", "infinity\nfoo", "2020-01-01\ninfinity", "2020-01-01\n-infinity", "2020-01-01\ninf",
    "infinity\n2020-01-01", "+infinity\n2020-01-01", "2020-01-01\nepoch", "2020-01-01\n0001-01-01 (BC)",
    "0001-01-01 (BC)", "2020-01-01\n12345-01-01", "12345-01-01", "12345/1/1", "123-01-01", "-0001-01-01", "0000-01-01",
    "-0001-1-1 (BC)", "12345-02-30", "5877642-06-25 (BC)\n5881580-07-10", "5881580-07-11", "99999999-01-01",
    "2020-01-01 \n infinity", "2020-01-01 00:00:00\ninfinity", "2020-01-01 00:00:00\nepoch",
    "2020-01-01 00:00:00+00\ninfinity", "infinity\n2020-01-01 00:00:00", "2020-01-01\n12345-01-01 00:00:00",
    "2020-01-01 00:00:00\n12345-01-01 00:00:00", "2020-01-01 00:00:00\n0001-01-01 (BC) 00:00:00",
    "0001-01-01 (BC) 00:00:00+00", "-0001-01-01 00:00:00", "12345-01-01T10:00:00", "12345-01-01 10:00:00.5Z",
    "2024-01-01 00:00:00\n2024-01-01 00:00:00Z", "2024-01-01T00:00:00Z\n2024-01-01T00:00:00",
    "2020-01-01 10:00:00.5\n2020-01-01 10:00:00.5+05:30",
    "2024-01-01 00:00:00\n2024-01-01 00:00:00 UTC\n2024-01-01 00:00:00Z", "2024-01-01\n2024-01-01 00:00:00Z",
    "2024-01-01 00:00:00Z\n2024-01-01", "2020-01-01 00:00:00\n2020-01-01",
    "2020-01-01 00:00:00+02\n12345-01-01 00:00:00",
    "170141183460469231731687303715884105727", "-170141183460469231731687303715884105728",
    "5\n100000000000000000000000000000000000000\n\n-1",
]  # fmt: skip

FIRST_ROWS = [
    "nan\n1\n2\n", "1\n2\nnan\n", "nan\n1.5\n", "inf\n1.5\n2\n", "inf,1\n1.5,2\n", "inf,b\n1.5,2\n", "inf,1\ninf,2\n",
    "infinity\n2020-01-01\n", "epoch\n2020-01-01\n", "epoch\n2020-01-01 00:00:00\n", "epoch\n2020-01-01 00:00:00Z\n",
    "epoch,b\n2020-01-01 00:00:00,1\n", "epoch\n1\n2\n", "2020-01-01 10:00:00\n2020-01-02\n2020-01-03\n",
    "2020-01-01\n2020-01-01 00:00:00\n", "12345-01-01\n2020-01-01\n", "2020-01-01 10:00:00Z\n2020-01-01 10:00:00\n",
    "12345-01-01 00:00:00\n2020-01-01 00:00:00\n", "0001-01-01 (BC),5\n2020-01-01,6\n",
    "170141183460469231731687303715884105727\n5\n",
]  # fmt: skip

CAST = [
    "infinity", "-infinity", "inf", "epoch", " epoch", "-infinity ", "+inf", "0001-01-01 (BC)", "2024-01-05 (bc)",
    "12345-01-01", "12345/1/1", "123-1-1", "0000-01-01", "2024-01-05 00:00:00", "2024-01-05T10:11:12Z",
    "2024-01-05 10:11:12+02", "2024-01-05 24:00:00", "2024-01-05 (BC) 10:00:00Z", "12345-01-01 10:00+02",
    "5881580-07-10", "5881580-07-11", "5877642-06-25 (BC)", "5877642-06-24 (BC)", "294247-01-10 04:00:54.775806",
    "294247-01-10 04:00:54.775807", "290309-12-22 (BC) 00:00:00", "290309-12-21 (BC) 00:00:00", "12345-02-30",
    "12345-02-30 10:00:00", "0000-01-01 (BC)",
]  # fmt: skip


def as_text(path: Path, **options: Any) -> tuple[list[tuple[str, str]], list[tuple[Any, ...]]]:
    """Names, types and rows, these as text: Python has no name for most of the times that are tested here."""
    types = types_of(open_source(path, None, options))
    columns = ", ".join(f'"{name}"::VARCHAR' for name, _ in types)
    return types, tsql.connect().sql(f"SELECT {columns} FROM read_csv({_arguments(path, options)})").fetchall()


def duck_as_text(path: Path, **options: Any) -> tuple[list[tuple[str, str]], list[tuple[Any, ...]]]:
    """The same from DuckDB, which must hold the rows first: it would read a cast column of a file as text."""
    with empty_duckdb() as connection:
        connection.execute("SET timezone = 'UTC'")
        connection.execute(f"CREATE TABLE t AS FROM read_csv({_arguments(path, options)})")
        table = connection.table("t")
        types = [
            (name, DUCKDB_NAMES.get(str(kind), str(kind)))
            for name, kind in zip(table.columns, table.types, strict=True)
        ]
        return types, connection.sql("SELECT columns(*)::VARCHAR FROM t").fetchall()


def _arguments(path: Path, options: dict[str, Any]) -> str:
    return ", ".join([literal(str(path)), *(f"{name} = {literal(value)}" for name, value in options.items())])


def written(folder: Path, text: str) -> Path:
    path = folder / "t.csv"
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("text", LINE_BREAKS)
def test_a_line_break_inside_a_value(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    assert ours(path) == duck("read_csv", path)


def test_a_message_shows_a_value_on_one_line(tmp_path: Path) -> None:
    path = written(tmp_path, 'a,b\n1,2\n3,"4\n5"\n')
    with pytest.raises(SourceError) as error:
        ours(path, types={"b": "INT"})
    assert r"line 3: column b: could not convert '4\n5' to INTEGER" in str(error.value)


@pytest.mark.parametrize("values", UNLIKE)
def test_values_that_are_not_written_alike_are_detected_as_by_duckdb(tmp_path: Path, values: str) -> None:
    path = written(tmp_path, f"a\n{values}\n")
    assert as_text(path) == duck_as_text(path)


@pytest.mark.parametrize("text", FIRST_ROWS)
def test_a_first_row_of_such_values_is_a_header_where_it_is_in_duckdb(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    assert as_text(path) == duck_as_text(path)


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "TIMESTAMPTZ"])
@pytest.mark.parametrize("value", CAST)
def test_a_stated_type_is_cast_to_as_in_duckdb(tmp_path: Path, value: str, kind: str) -> None:
    # The row before keeps DuckDB from guessing a format of dates from the one value.
    path = written(tmp_path, f"a\n2020-01-01\n{value}\n")
    options = {"header": True, "columns": {"a": kind}}
    try:
        expected = duck_as_text(path, **options)
    except duckdb.ConversionException:
        with pytest.raises(SourceError, match=f"line 3: column a: could not convert .* to {kind}"):
            ours(path, **options)
    else:
        assert as_text(path, **options) == expected


def test_a_decimal_comma_beside_nan_and_infinity(tmp_path: Path) -> None:
    path = written(tmp_path, "a;b\n1,5;x\nnan;y\n-inf;z\n")
    options = {"delim": ";", "decimal_separator": ","}
    assert as_text(path, **options) == duck_as_text(path, **options)


def test_copy_from_reads_what_only_a_cast_reads(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "d,h\n2024-01-05 00:00:00,170141183460469231731687303715884105727\ninfinity,-1\n,\n0001-01-01 (BC),2.5\n",
    )
    session = tsql.connect()
    session.sql("CREATE TABLE t (d DATE, h HUGEINT)")
    session.sql(f"COPY t FROM '{path}'")
    expected = [
        ("2024-01-05", "170141183460469231731687303715884105727"),
        ("infinity", "-1"),
        (None, None),
        ("0001-01-01 (BC)", "3"),
    ]
    assert session.sql("SELECT d::VARCHAR, h::VARCHAR FROM t").fetchall() == expected


def test_ignoring_errors_keeps_what_only_a_cast_reads(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "d,h\n2024-01-05,1\noops,2\n12345-01-01,3\nepoch,170141183460469231731687303715884105728\ninfinity,170141183460469231731687303715884105727\n",
    )
    options = {"ignore_errors": True, "types": {"d": "DATE", "h": "HUGEINT"}}
    assert as_text(path, **options) == duck_as_text(path, **options)
    assert len(as_text(path, **options)[1]) == 3


def test_decimals_of_files_keep_all_their_digits(tmp_path: Path) -> None:
    path, digits = tmp_path / "long.csv", "9" * 38
    path.write_text(
        f"a,b,c,d\n{digits},0.{digits},0.00000000000000000000000000000009223372036854775807e50,-{digits}\n-1,0.5,12,1\n"
    )
    sql = (
        f"SELECT * FROM read_csv({literal(path)}, columns = {{'a': 'DECIMAL(38,0)', 'b': 'DECIMAL(38,38)', "
        "'c': 'BIGINT', 'd': 'HUGEINT'})"
    )
    assert tsql.connect().sql(sql).fetchall() == empty_duckdb().sql(sql).fetchall()
