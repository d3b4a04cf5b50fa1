"""Options of read_csv about whole files: encodings, separators of thousands, plain names, blank lines, samples; as in
DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tsql
from tests.sources.support import duck, literal, ours
from tsql.kernels.expr.errors import SourceError, TsqlError

BLANK = [
    "\na,b\n1,x\n2,y\n", "\n\n\na,b\n1,x\n", "\r\na,b\r\n1,x\r\n", "  \na,b\n1,x\n", "\t\na,b\n1,2\n",
    "\n \n\na,b\n1,2\n", "\n1,x\n2,y\n", "\n1\n2\n", "\na\n1\n2\n", "\n\na\n\n1\n", '""\na,b\n1,2\n',
    "\n# c\na,b\n1,2\n", "  \n1,2\n3,4\n", "\n\n1,2\n", "\n\n", "  \n", "\n,\na,b\n1,2\n",
]  # fmt: skip


@pytest.mark.parametrize("text", [text for text in BLANK if text not in ("\n\n",)])
def test_blank_lines_above_the_header_are_not_there(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    assert ours(path) == duck("read_csv", path)


@pytest.mark.parametrize(
    "options",
    [
        {"header": True},
        {"header": False},
        {"header": True, "columns": {"x": "INT", "y": "VARCHAR"}},
        {"skip": 1},
        {"all_varchar": True},
    ],
)
def test_blank_lines_with_other_options(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\na,b\n1,x\n2,y\n")
    assert ours(path, **options) == duck("read_csv", path, **options)


def test_the_lines_to_skip_come_before_the_blank_ones(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("junk\n\n\na,b\n1,x\n2,\n")
    assert ours(path, skip=1) == ([("a", "BIGINT"), ("b", "VARCHAR")], [(1, "x"), (2, None)])
    with pytest.raises(SourceError, match="line 6: column b: could not convert"):
        ours(path, skip=1, types={"b": "INTEGER"}, nullstr="x")


def test_lines_to_skip_end_with_line_ends_only(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for end in ("\n", "\r\n", "\r"):
        path.write_bytes(end.join(["one\u2028two\x0cthree", "a,b", "1,x", ""]).encode())
        assert ours(path, skip=1) == ([("a", "BIGINT"), ("b", "VARCHAR")], [(1, "x")])


@pytest.mark.parametrize(
    "encoding", ["utf-8", "UTF-8", "utf-16", "latin-1", "cp1252", "utf-16-be", "shift_jis", "utf-32"]
)
def test_encodings(tmp_path: Path, encoding: str) -> None:
    text = "日本" if encoding == "shift_jis" or encoding.lower().startswith("utf") else "é ü"
    path = tmp_path / "t.csv"
    content = "a,b\n" + f'1,"{text}\n{text}"\n' * 1_000 + "2,z\n" * 40_000
    path.write_bytes(content.encode(encoding))
    expected = [(1, f"{text}\n{text}")] * 1_000 + [(2, "z")] * 40_000
    assert ours(path, encoding=encoding)[1] == expected
    if encoding in ("utf-8", "latin-1", "utf-16"):
        assert duck("read_csv", path, encoding=encoding)[1] == expected
    assert ours(path, encoding=encoding, comment="#", skip=1, header=False)[1] == expected


def test_wrong_encodings(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("a,b\n1,é\n".encode("utf-16"))
    with pytest.raises(SourceError, match=r"t\.csv: this file is UTF-16\n.*encoding => 'utf-16'"):
        ours(path)
    for name in ("nope", "base64", "rot13"):
        with pytest.raises(SourceError, match=f"unknown encoding '{name}'"):
            ours(path, encoding=name)
    path.write_bytes(b"a,b\n1,x\n2,\xe9\n")
    with pytest.raises(SourceError, match=r"line 3: column b is not valid UTF-8\n.*encoding => 'latin-1'"):
        ours(path)
    path.write_bytes("a,b\n1,x\n2,y\n".encode("utf-16")[:-1])
    with pytest.raises(SourceError, match=r"t\.csv: after line \d: the file is not valid utf-16"):
        ours(path, encoding="utf-16")


THOUSANDS = [
    "1,000;x\n2,500;y\n",
    "1,000.5;x\n2,500;y\n",
    "1,0,00;x\n2;y\n",
    "-1,000;x\n2;y\n",
    ",5;x\n2;y\n",
    "1,;x\n2;y\n",
    "1.5,0;x\n2;y\n",
    "1,000e3;x\n2;y\n",
    "x;1\n1,000;2\n",
    "1,000;x\n;y\n",
    "99,999,999,999,999,999,999;x\n",
]


@pytest.mark.parametrize("rows", THOUSANDS)
def test_thousands(tmp_path: Path, rows: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b\n" + rows)
    assert ours(path, thousands=",", delim=";") == duck("read_csv", path, thousands=",", delim=";")
    if not rows.startswith("x"):
        for kind in ("BIGINT", "DOUBLE", "DECIMAL(12,2)", "HUGEINT", "VARCHAR"):
            options = {"thousands": ",", "delim": ";", "types": {"a": kind}}
            if rows.startswith("99") and kind in ("BIGINT", "DECIMAL(12,2)"):
                continue
            assert ours(path, **options) == duck("read_csv", path, **options), kind


def test_thousands_and_decimal_commas(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1.000,5;1.000\n-2.500.000;7\n")
    options = {"thousands": ".", "decimal_separator": ","}
    assert ours(path, **options) == duck("read_csv", path, **options)
    for wrong in ({"thousands": ","} | {"decimal_separator": ","}, {"thousands": "."}):
        with pytest.raises(SourceError, match="also the decimal separator"):
            ours(path, **wrong)
    with pytest.raises(SourceError, match="option thousands is one plain character"):
        ours(path, thousands="ab")


def test_thousands_past_the_sample(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b\n" + "1;2.5\n" * 25_000 + "1,234,567;9,999.25\n")
    assert ours(path, thousands=",") == duck("read_csv", path, thousands=",")
    path.write_text("a;b\n" + "1;2.5\n" * 25_000 + "1,23x;9,999.25\n")
    with pytest.raises(SourceError, match="line 25002: column a: could not convert '1,23x' to BIGINT"):
        ours(path, thousands=",")


HEADERS = [
    'Hello World,SELECT,1abc,a-b,ÄÖ,  x ,a.b,a__b,,a b,A B,"q""q",_,order,日本,é1', "Hello,hello,HELLO",
    "from,table,column0,date,end,a@b,%,##,__,3", "a  b,a\tb, ,x", "ﬁ,½,Ⅷ",
]  # fmt: skip


@pytest.mark.parametrize("header", HEADERS)
def test_normalized_names(tmp_path: Path, header: str) -> None:
    path = tmp_path / "t.csv"
    width = header.count(",") + 1
    path.write_text(header + "\n" + ",".join(map(str, range(width))) + "\n")
    assert ours(path, normalize_names=True, header=True, delim=",") == duck(
        "read_csv", path, normalize_names=True, header=True, delim=","
    )


def test_normalized_names_with_other_names(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a b,c\n1,2\n")
    for options in (
        {"names": ["X Y"]},
        {"types": {"a_b": "VARCHAR"}},
        {"columns": {"A B": "INT", "c": "INT"}},
        {"header": False},
    ):
        assert ours(path, normalize_names=True, **options) == duck("read_csv", path, normalize_names=True, **options)
    with pytest.raises(SourceError, match="names column a b, which the file does not have"):
        ours(path, normalize_names=True, types={"a b": "VARCHAR"})


@pytest.mark.parametrize("last", ["x", "2.5", "99999999999999999999", "2020-01-01", "true", ""])
def test_a_sample_of_all_rows(tmp_path: Path, last: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,y\n" * 45_000 + f"{last},z\n")
    assert ours(path, sample_size=-1) == duck("read_csv", path, sample_size=-1)
    assert ours(path, sample_size=60_000) == duck("read_csv", path, sample_size=60_000)


def test_a_sample_of_all_rows_goes_over_dates_again(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n" + "01/02/2020\n" * 30_000 + "02/13/2020\n")
    assert ours(path, sample_size=-1)[0] == [("a", "DATE")]
    path.write_text("a\n" + "01/02/2020\n" * 30_000 + "02/13/2020\n" + "13/02/2020\n")
    assert ours(path, sample_size=-1)[0] == [("a", "VARCHAR")]
    path.write_text("a\n" + "01/02/2020\n" * 22_000 + "13/02/2020\n" + "01/02/2020\n" * 22_000 + "02/13/2020\n")
    assert ours(path, sample_size=-1)[0] == [("a", "VARCHAR")]


def test_small_samples_and_wrong_ones(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n2\n3\n")
    assert ours(path, sample_size=1) == duck("read_csv", path, sample_size=1)
    for size in (0, -2, "many", True):
        with pytest.raises(SourceError, match="option sample_size is a number of rows, or -1 for all of them"):
            ours(path, sample_size=size)


def test_options_in_all_places(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("Le Prix;b\n1.000,5;é\n".encode("latin-1"))
    options = {
        "encoding": "latin-1",
        "thousands": ".",
        "decimal_separator": ",",
        "normalize_names": True,
        "sample_size": -1,
    }
    named = ", ".join(f"{name} {literal(value)}" for name, value in options.items() if name != "sample_size")
    with tsql.connect() as db:
        expected = [(1000.5, "é")]
        found = db.read_csv(path, **options)
        assert (found.columns, found.fetchall()) == (["le_prix", "b"], expected)
        assert (
            db.sql(
                f"SELECT le_prix, b FROM read_csv('{path}', "
                f"{', '.join(f'{n} => {literal(v)}' for n, v in options.items())})"
            ).fetchall()
            == expected
        )
        db.sql(
            f"CREATE TABLE w WITH (connector = 'csv', path = '{path}', "
            f"{', '.join(f'{n} = {literal(v)}' for n, v in options.items())})"
        )
        assert db.sql("FROM w").fetchall() == expected
        db.sql("CREATE TABLE t (p DOUBLE, q VARCHAR)")
        db.sql(f"COPY t FROM '{path}' (HEADER, {named})")
        assert db.sql("FROM t").fetchall() == expected
        with pytest.raises(TsqlError, match=r"unknown option thousand for csv files\n(.*\n)*.*did you mean thousands"):
            db.read_csv(path, thousand=",")


def test_wide_files_are_sniffed_in_a_time_that_grows_with_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        ",".join(f"c{i}" for i in range(20_000)) + "\n" + (",".join(str(i) for i in range(20_000)) + "\n") * 3
    )
    assert ours(path)[1] == [tuple(range(20_000))] * 3
    path.write_text(",".join(["same"] * 20_000) + "\n" + ",".join(["1"] * 20_000) + "\n")
    names = [name for name, _ in ours(path)[0]]
    assert names[:3] == ["same", "same_1", "same_2"]
    assert len(set(names)) == 20_000
