"""CSV: detection and contents as DuckDB reads them, options, and one clear error for each kind of damage."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.sources.support import duck, ours, rows_of
from tsql.backends.io.csv import source as csv_source
from tsql.backends.io.open import open_source
from tsql.kernels.expr.errors import SourceError

SAME_AS_DUCKDB = [
    "a,b\n1,2\n3,4\n", "1,2\n3,4\n", "a,b\nx,y\nz,w\n", "a;b\n1;x\n", "a|b\n1|2.5\n", "a\tb\n1\ttrue\n", "a\n1\n2\n",
    "a\n", "", "a,b\n", "\n", "a,b\r\n1,2\r\n3,4", "\ufeffa,b\n1,2\n", 'a,b\n1,"x\ny"\n2,"q""r"\n', "a,b\n,\n1,\n",
    'a,b\n"",x\n', 'a,b\n"",""\nx,y\n', "a,a,b\n1,2,3\n", "a,A\n1,2\n", ",b\n1,2\n", "a\n+5\n6\n", "a\n 5\n6 \n",
    "a\n007\n", "a\n1_000\n", "a\n1e5\n", "a\n1.\n.5\n", "a\nt\nf\n", "a\nTRUE\nFalse\n", "a\nyes\nno\n", "a\n0\n1\n",
    "a\n99999999999999999999\n", "a\n2020-01-01\n", "a\n2020/01/02\n", "a\n01/02/2020\n", "a\n13/02/2020\n",
    "a\n01-02-2020\n", "a\n01-13-2020\n", "a\n10:20:30\n", "a\n10:20\n", "a\n2020-01-01 10:20:30\n",
    "a\n2020-01-01T10:20:30Z\n", "a\n2020-01-01 10:20:30+02\n", "a\n2020-01-01\n2020-01-01 10:00:00\n",
    "a\n2020-01-01 10:20\n", "a\n20200101\n", "a\n1\n2.5\nx\n", "a\n1\n2.5\n", "a\ntrue\n1\n", "a,b\n1,NULL\n",
    "a,b\n1,'x,y'\n", 'a,b\n"1","x"\n', '"a","b"\n"1","x"\n', "a\n\n1\n\n2\n", "a,b\n\n1,2\n", "only one line of text",
    "5", "a b c\nd e f\n", 'a,b\n1,"unterminated\n2,3\n', "id,name\n1,\n2,\n", "x,y\nx,y\nx,y\n", "a;b,c\n1;2,3\n",
    "a,\n1,\n2,\n", "2020-01-01,x\n2020-01-02,y\n", "1\n2\n", "name\nbob\nal\n", "1,a\n2,b\n", "1,\n2,\n",
    "a\tb\n1\t2,5\n", 'a,b\nx"y,1\n', "1,2,3,4,5,6,7,8,9,0\n", "1,2,3,4,5,6,7,8,9,0,1\n", " a , b \n1,2\n",
    "a,b\n1, x \n", ",,\n1,2,3\n", ",,\na,b,c\n", "a,,\nb,c,d\n", "1,2\nx,y\n", "a,1\nb,2\n", "it's,b\nthat's,2\n",
    "a,b\n1,2\n\n\n", "a\r1\r2\r", "a\nTrue\n\nfalse\n", "a\n2020-1-1 1:2:3\n", "a\n2020-13-01\n", "a\n2020-02-30\n",
    "a\n1:02:03\n", "a\n10:20:30.5\n", "a\n01/02/2020 10:00:00\n", "a\n1/2/2020\n", "a,b\n1.5,é\n2,日本\n",
]  # fmt: skip

SAME_WITH_OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("a,b\n1,NULL\n", {"nullstr": "NULL"}), ("a,b\n1,-\n", {"nullstr": ["-", "NA"]}), ("a,b\n1,x\n", {"header": False}),
    ("1,x\n2,y\n", {"header": True}), ("a,b\n1,x\n", {"columns": {"p": "INTEGER", "q": "VARCHAR"}}),
    ("a,b\n1,x\n", {"types": {"a": "DOUBLE"}}), ("junk\na,b\n1,2\n", {"skip": 1}),
    ("a,b\n1,2\n4,5,6\n7,8\n", {"ignore_errors": True}),
    ("a,b\n1,2\nx,5\n7,8\n", {"ignore_errors": True, "columns": {"a": "INT", "b": "INT"}}),
    ("a,b\n1,'x,y'\n", {"quote": "'"}), ("a\n31/12/2020\n", {"dateformat": "%d/%m/%Y"}),
    ("a,b\n1,2\n", {"names": ["x", "y"]}), ("a,b\n1,2\n", {"all_varchar": True}),
    ("a,b\n1,2\n", {"types": ["VARCHAR", "INT"]}),
    ("1,2\n3,4\n", {"header": True, "columns": {"a": "INT", "b": "INT"}}),
    ("x,y\n1,2\n", {"columns": {"a": "INT", "b": "INT"}}),
    ("1,2\n1,2\n", {"columns": {"a": "INT", "b": "INT"}}),
    ("a,b\nc,d\n", {"columns": {"x": "VARCHAR", "y": "VARCHAR"}}), ("a\n1.555\n", {"types": {"a": "DECIMAL(5,2)"}}),
    ("a\n1.5\n", {"types": {"a": "INT"}}), ("a,b\n1,2\n", {"delim": ";"}), ("a,b\n1,2\n", {"skip": 1}),
    ("a\n2020-05-06\n", {"types": {"a": "TIMESTAMP"}}),
    ("a\n+5\n-7\n", {"types": {"a": "BIGINT"}}), ("a\n1\n0\ny\n", {"types": {"a": "BOOLEAN"}}),
    ("a,b\n300,1\n", {"ignore_errors": True, "types": {"a": "TINYINT"}}),
]  # fmt: skip


@pytest.mark.parametrize("text", SAME_AS_DUCKDB)
def test_detects_and_reads_as_duckdb(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    assert ours(path) == duck("read_csv", path)


@pytest.mark.parametrize(("text", "options"), SAME_WITH_OPTIONS)
def test_options_mean_what_they_mean_in_duckdb(tmp_path: Path, text: str, options: dict[str, Any]) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    assert ours(path, **options) == duck("read_csv", path, **options)


ERRORS: list[tuple[bytes, dict[str, Any], str]] = [
    (b"a,b\n1,2\n4,5,6\n", {}, "line 3: expected 2 fields, found 3"),
    (b"a,b,c\n1,2\n4,5,6\n7,8,9\n", {}, "line 2: expected 3 fields, found 2"),
    (b'a,b\n1,"x\ny"\n4,5,6\n7,8\n', {}, "line 4: expected 2 fields, found 3"),
    (b"a,b\n1,\xff\n", {}, "line 2: column b is not valid UTF-8"),
    (b"a,b\n1,2\nx,5\n", {"columns": {"a": "INT", "b": "INT"}}, "line 3: column a: could not convert 'x' to INTEGER"),
    (b"a\n300\n", {"types": {"a": "TINYINT"}}, "line 2: column a: could not convert '300' to TINYINT"),
    (b"\xff\xfea\x00,\x00", {}, "UTF-16"),
    (b"PK\x03\x04\x00\x00\x00", {}, "not a text file"),
    (b"a,b\n1,2\n", {"columns": {"a": "INT"}}, "option columns names 1 columns, the file has 2"),
    (b"a,b\n1,2\n", {"types": {"zz": "INT"}}, "column zz, which the file does not have"),
    (b"a,b\n1,2\n", {"types": {"a": "NOPE"}}, "unknown type NOPE"),
    (b"a,b\n1,2\n", {"delim": "||"}, "one plain character"),
    (b"a,b\n1,2\n", {"heading": True}, "did you mean header?"),
    (b"a,b\n1,2\n", {"skip": -1}, "at least 0"),
    (b"a,b\n1,2\n", {"header": "maybe"}, "true or false"),
]


@pytest.mark.parametrize(("content", "options", "message"), ERRORS)
def test_bad_input_is_one_clear_error(tmp_path: Path, content: bytes, options: dict[str, Any], message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(SourceError) as error:
        ours(path, **options)
    assert message in str(error.value)


def test_ignoring_errors_drops_rows_that_are_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n1,x\n2,\xff\xfe\n3,y\n")
    assert ours(path, ignore_errors=True)[1] == [(1, "x"), (3, "y")]


def test_values_past_the_sample_that_pyarrow_does_not_read_are_cast_as_duckdb_casts_them(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{i},{i}.5,2020-01-01 00:00:00,true" for i in range(30_000)]
    rows[25_000] = "+7,+1.25,2020-1-2 3:04,YES"
    path.write_text("i,d,t,b\n" + "\n".join(rows) + "\n")
    found, expected = ours(path), duck("read_csv", path)
    assert found == expected
    assert found[1][25_000][0] == 7


def test_a_bad_value_past_the_sample_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("i\n" + "\n".join(str(i) for i in range(25_000)) + "\noops\n")
    with pytest.raises(SourceError, match="line 25002: column i: could not convert 'oops' to BIGINT"):
        ours(path)


def test_small_blocks_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "".join(f'{i},"{"x" * (i % 700)}\n{i}"\n' for i in range(900)))
    whole = ours(path)
    monkeypatch.setattr(csv_source, "BLOCK_BYTES", 512)
    assert ours(path) == whole == duck("read_csv", path)


def test_compressed_files(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b\n1,x\n"))
    with pa.CompressedOutputStream(str(tmp_path / "t.csv.zst"), "zstd") as out:
        out.write(b"a,b\n1,x\n")
    for name in ("t.csv.gz", "t.csv.zst"):
        assert ours(tmp_path / name) == ([("a", "BIGINT"), ("b", "VARCHAR")], [(1, "x")])
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"1,x\n" * 5000)[:-20])
    with pytest.raises(SourceError, match="cut.csv.gz"):
        ours(tmp_path / "cut.csv.gz")


def test_several_files(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b\n1,x\n")
    (tmp_path / "2.csv").write_text("b,a\ny,2\n")
    (tmp_path / "3.csv").write_text("a,b\n")
    assert sorted(ours(str(tmp_path / "*.csv"))[1]) == [(1, "x"), (2, "y")]
    (tmp_path / "4.csv").write_text("a,c\n4,z\n")
    with pytest.raises(SourceError, match=r"4\.csv: column b, which is in .*1\.csv, is missing here"):
        ours(str(tmp_path / "*.csv"))
    found = ours(str(tmp_path / "*.csv"), union_by_name=True)
    assert found[0] == [("a", "BIGINT"), ("b", "VARCHAR"), ("c", "VARCHAR")]
    assert sorted(found[1]) == sorted(duck("read_csv", tmp_path / "*.csv", union_by_name=True)[1])


def test_only_the_needed_columns_in_the_order_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,c\n1,x,2.5\n2,y,3.5\n")
    source = open_source(path)
    assert rows_of(source, ("c", "a")) == [(2.5, 1), (3.5, 2)]
    assert sum(batch.num_rows for split in source.splits((), None) for batch in source.read(split, ())) == 2


def test_wide_files(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(",".join(f"c{i}" for i in range(3000)) + "\n" + ",".join(str(i) for i in range(3000)) + "\n")
    assert ours(path)[1] == [tuple(range(3000))]
