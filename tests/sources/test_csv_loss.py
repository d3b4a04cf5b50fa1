"""No row of a text file is lost without an error: long fields, quotes that stay open, files that are cut or shrink.

What a file holds is defined by Python's csv module, or by DuckDB.
"""

from __future__ import annotations

import csv
import gc
import gzip
import io
import json
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.patience import wait_until
from tests.sources.support import duck, ours, rows_of
from tsql.backends.io.csv import input as csv_input
from tsql.backends.io.csv import sniff as csv_sniff
from tsql.backends.io.csv import source as csv_source
from tsql.backends.io.json import values as json_values
from tsql.backends.io.open import open_source
from tsql.kernels.expr.errors import SourceError

KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize("length", [131_073, 520_000])
@pytest.mark.parametrize("field", ["{}", '"{}"', '"{},\n"'], ids=["plain", "quoted", "lines"])
def test_a_first_record_with_a_long_field_is_read_as_duckdb_reads_it(tmp_path: Path, length: int, field: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1," + field.format("x" * length) + "\n2,y\n")
    assert ours(path) == duck("read_csv", path)


@pytest.mark.parametrize(
    "options",
    [{}, {"header": True, "columns": {"a": "BIGINT", "b": "VARCHAR"}}, {"ignore_errors": True}, {"comment": "#"}],
)
def test_fields_of_megabytes(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "t.csv"
    long = "some longer text,\n" * 120_000
    path.write_text(f'a,b\n1,"{long}"\n2,y\n')
    assert ours(path, **options)[1] == [(1, long), (2, "y")]
    path.write_text(f"a,b\n1,{'x' * (3 * MIB)}\n2,y\n")
    assert ours(path, **options)[1] == [(1, "x" * (3 * MIB)), (2, "y")]


def test_a_header_of_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("h" * 2_100_000 + ",b\n1,2\n")
    assert ours(path)[1] == [(1, 2)]


def test_many_blank_lines_before_the_first_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n" * 2_100_000 + "a,b\n" + "\n" * 30_000 + "1,2\n")
    assert ours(path) == ([("a", "BIGINT"), ("b", "BIGINT")], [(1, 2)])


def test_the_limit_of_the_csv_module_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1," + "x" * 200_000 + "\n")
    before = csv.field_size_limit(1000)
    try:
        assert len(ours(path)[1]) == 1
        assert len(ours(path, comment="#")[1]) == 1
        assert csv.field_size_limit() == 1000
    finally:
        csv.field_size_limit(before)


OPEN_QUOTES: list[tuple[str, dict[str, Any], int]] = [
    ("a,b\n" + "1,x\n" * 30_000 + '1,"abc\n' + "1,x\n" * 3_000, {}, 30_002),
    ("a,b\n" + "1,x\n" * 30_000 + '1,"abc', {}, 30_002),
    ("a,b\n" + '1,"x"\n' * 400_000 + '1,"abc\n' + "1,x\n" * 200_000, {}, 400_002),
    ('a,b\n1,2\n3,"abc\n4,5\n', {"quote": '"', "delim": ","}, 3),
    ('a,b\n1,2\n3,"abc\n4,5\n', {"quote": '"', "delim": ",", "columns": {"a": "BIGINT", "b": "VARCHAR"}}, 3),
    ('a,b\n1,2\n# c\n3,"abc\n4,5\n', {"quote": '"', "delim": ",", "comment": "#"}, 4),
    ('\n\na,b\n\n1,2\n\n3,"abc\n4,5\n', {"quote": '"', "delim": ","}, 7),
    ('a,b\n"1\n2",2\n3,"abc\n4,5\n', {"quote": '"', "delim": ","}, 4),
    ('a\n1\n"abc\n4\n', {"quote": '"'}, 3),
    ("a,b\n1,2\n3,'abc\n4,5\n", {"quote": "'", "delim": ","}, 3),
    ('a,b\n1,2\n3,"ab\\"\n4,5\n', {"quote": '"', "escape": "\\", "delim": ","}, 3),
]


@pytest.mark.parametrize(("text", "options", "line"), OPEN_QUOTES)
def test_a_quote_that_stays_open_is_an_error_with_its_line(
    tmp_path: Path, text: str, options: dict[str, Any], line: int
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(
        SourceError, match=rf"t\.csv: line {line}: a quote in the row that starts here is never closed"
    ) as error:
        ours(path, **options)
    assert "quote => ''" in str(error.value)


def test_ignoring_errors_leaves_out_the_row_that_does_not_end(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,x\n" * 30_000 + '1,"abc\n' + "1,x\n" * 3_000)
    for options in ({"quote": '"'}, {"quote": '"', "comment": "#"}):
        assert (
            len(ours(path, ignore_errors=True, **options)[1])
            == 30_000
            == len(duck("read_csv", path, ignore_errors=True, **options)[1])
        )


def test_quotes_that_close_at_the_very_end_are_no_error(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for end in ('2,"z"', '2,"z"\n', '2,"z\n"', '2,"z""\n"\n', "2,", "2,\r", '2,""', '2,"""q"', "2,z\r\n\r\n"):
        path.write_bytes(("a,b\n1,x\n" + end).encode())
        with path.open(newline="") as file:
            expected = [(int(a), b or None) for a, b in [row for row in csv.reader(file) if row][1:]]
        assert ours(path, quote='"', delim=",", header=True)[1] == expected, end


def test_a_row_over_the_limit_is_an_error_that_names_the_line_and_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_input, "LARGEST_LINE_BYTES", 4 * MIB)
    path = tmp_path / "t.csv"
    for rows, line in ((0, 1), (100, 102)):
        path.write_text(
            ("a,b\n" + '1,"x"\n' * rows) * bool(rows) + '2,"' + "yyyyyyyyyyyyyyy\n" * MIB + '",z\n' + "1,x\n" * 10
        )
        with pytest.raises(
            SourceError,
            match=rf"t\.csv: line {line}: the row that starts here has more than {4 * MIB} bytes.*\n?.*max_line_size",
        ):
            ours(path, quote='"', delim=",")
    path.write_text("a,b\n1,x\n2," + "y" * (9 * MIB) + "\n")
    with pytest.raises(SourceError, match=r"line 3: the row that starts here has more"):
        ours(path, sample_size=1)
    assert ours(path, max_line_size=16 * MIB)[1] == [(1, "x"), (2, "y" * (9 * MIB))]


def test_nul_characters_are_data(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for rows in (3, 3_000):
        path.write_bytes(b"a,b\n" + b"1,some text\n" * rows + b"1,x\0y\n2,z\n")
        assert ours(path) == duck("read_csv", path)


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,x\n" * 5_000)
    whole = csv_input.open_input

    def shrinking(*arguments: Any) -> Any:
        stream = whole(*arguments)
        os.truncate(path, 1_001)
        return stream

    for options in ({}, {"encoding": "latin-1"}, {"comment": "#"}):
        source = open_source(path, None, options)
        with (
            monkeypatch.context() as patch,
            pytest.raises(SourceError, match=r"t\.csv: the file became shorter while it was read"),
        ):
            patch.setattr(csv_input, "open_input", shrinking)
            rows_of(source)
        path.write_text("a,b\n" + "1,x\n" * 5_000)


def test_an_ndjson_file_that_shrinks_while_it_is_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"a": 1}\n' * 1_000)
    source = open_source(path)
    whole = json_values.open_input

    def shrinking(*arguments: Any) -> Any:
        stream = whole(*arguments)
        os.truncate(path, 9 * 500)
        return stream

    monkeypatch.setattr(json_values, "open_input", shrinking)
    with pytest.raises(SourceError, match=r"t\.json: the file became shorter while it was read"):
        rows_of(source)


def test_rows_that_came_after_the_header_was_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n")
    source = open_source(path)
    path.write_text("a,b\n1,x\n")
    assert rows_of(source) == [("1", "x")]


def test_threads_of_pyarrow_let_go_of_what_they_read(tmp_path: Path) -> None:
    """The end of a program waits for them, so nothing may stay for ever."""
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + '1,"x"\n' * 500_000)
    before = set(csv_input._in_use)
    for options in ({}, {"comment": "#"}, {"encoding": "latin-1"}):
        source = open_source(path, None, options)
        batches = source.read(source.splits(("a",), None)[0], ("a",))
        next(batches)
        batches.close()
    assert len(rows_of(open_source(path))) == 500_000
    del source, batches
    assert wait_until(lambda: gc.collect() >= 0 and set(csv_input._in_use) <= before)


@pytest.mark.parametrize("ending", ["gz", "zst"])
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_compressed_stream_that_is_cut_anywhere_is_an_error(tmp_path: Path, kind: str, ending: str) -> None:
    text = b"a,b\n" + b"1,x\n" * 5_000 if kind == "csv" else b'{"a": 1, "b": "x"}\n' * 5_000
    if ending == "gz":
        whole = gzip.compress(text)
    else:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as out:
            out.write(text)
        whole = sink.getvalue().to_pybytes()
    path = tmp_path / f"t.{kind}.{ending}"
    path.write_bytes(whole + whole)
    assert len(ours(path, **({"header": False} if kind == "csv" else {}))[1]) == 10_000 + 2 * (kind == "csv")
    for cut in (1, 4, 8, 9, len(whole) // 2, len(whole) - 1):
        for before in (b"", whole):
            path.write_bytes(before + whole[:-cut])
            with pytest.raises(SourceError, match=rf"t\.{kind}\.{ending}"):
                ours(path)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", ""])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_ends_of_lines_and_byte_order_marks(tmp_path: Path, end: str, bom: bytes) -> None:
    path = tmp_path / "t.csv"
    line = end or "\n"
    path.write_bytes(bom + (line.join(["a,b", "1,x", "2,y"]) + end).encode())
    assert ours(path) == duck("read_csv", path) == ([("a", "BIGINT"), ("b", "VARCHAR")], [(1, "x"), (2, "y")])


def test_lines_of_ndjson_of_any_length(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    rng = random.Random(5)
    expected = [(i, "x" * rng.choice([0, 65_535, 65_536, 65_537, 2 * MIB, 5 * MIB])) for i in range(12)]
    for end in ("\n", ""):
        path.write_text("\n".join(json.dumps({"a": a, "b": b}) for a, b in expected) + end)
        assert ours(path)[1] == expected


NDJSON_DAMAGE = [
    b'{"a":1}\n{"a":2',
    b'{"a":1}\n{"a":"x',
    b'{"a":1}\n\0{"a":2}\n',
    b'{"a":1}\n{"a":"x\0y"}\n',
    b'{"a":1}\0\n{"a":2}\n{"a":3}\n',
    b'{"a":1}\n{"a":"\xff"}\n',
    b'{"a":1}\n{"a":2}{"a":\n',
    b'[{"a":1},',
    b'[{"a":1}',
]


@pytest.mark.parametrize("content", NDJSON_DAMAGE)
@pytest.mark.parametrize("before", [0, 300_000])
def test_damaged_json_is_an_error_wherever_it_is(tmp_path: Path, content: bytes, before: int) -> None:
    if before and content.startswith(b"["):
        content = b"[" + b'{"a":1},' * (before // 3) + content[1:]
    path = tmp_path / "t.json"
    path.write_bytes(content if content.startswith(b"[") else b'{"a":1}\n' * before + content)
    with pytest.raises(SourceError, match=r"t\.json"):
        ours(path)


NEAR = (64 * KIB, 128 * KIB, 1 * MIB)
ALPHABETS = ("x", 'x"', "x\n", "x,;|\t", "xé日", "x'", "x\",\n\r\\'", "x#")


def random_table(rng: random.Random, columns: int, rows: int) -> list[list[str]]:
    """Texts of all lengths, some just below and above the sizes of blocks and limits."""

    def value() -> str:
        alphabet = rng.choice(ALPHABETS)
        if rng.random() < 0.06:
            length = rng.choice(NEAR) + rng.randrange(-3, 4)
            return ("".join(rng.choices(alphabet, k=64)) * (length // 64 + 1))[:length]
        return "".join(rng.choices(alphabet, k=rng.choice([0, 1, 2, 3, 10, 50])))

    return [[value() for _ in range(columns)] for _ in range(rows)]


@pytest.mark.parametrize("seed", range(12))
def test_random_tables_written_by_the_csv_module_come_back(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    print("seed", seed)
    rng = random.Random(seed)
    columns = rng.choice([1, 2, 3, 8])
    rows = random_table(rng, columns, rng.choice([1, 2, 5, 60]))
    delimiter, quote = rng.choice(",;|\t"), rng.choice("\"'")
    escape = rng.choice([None, "\\"])
    end = rng.choice(["\n", "\r\n"])
    text = io.StringIO()
    quoting = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    writer = csv.writer(
        text,
        delimiter=delimiter,
        quotechar=quote,
        doublequote=escape is None,
        escapechar=escape,
        lineterminator=end,
        quoting=quoting,
    )
    writer.writerow([f"c{i}" for i in range(columns)])
    writer.writerows(rows)
    content = text.getvalue()
    path = tmp_path / "t.csv"
    path.write_bytes((content if rng.random() < 0.5 or columns == 1 else content.removesuffix(end)).encode())
    with path.open(newline="", encoding="utf-8") as file, csv_input.fields_of_any_length():
        defined = list(
            csv.reader(file, delimiter=delimiter, quotechar=quote, doublequote=escape is None, escapechar=escape)
        )
    assert defined[1:] == rows
    options: dict[str, Any] = {
        "delim": delimiter,
        "quote": quote,
        "header": True,
        "all_varchar": True,
        "nullstr": "no such value",
        "escape": escape or quote,
    }
    expected = [tuple(row) for row in rows]
    assert rows_of(open_source(path, None, options)) == expected
    assert rows_of(open_source(path, None, options | {"null_padding": True})) == expected
    monkeypatch.setattr(csv_source, "BLOCK_BYTES", rng.choice([1_000, 65_536, 100_000]))
    monkeypatch.setattr(csv_sniff, "SAMPLE_BYTES", rng.choice([100, 70_000]))
    assert rows_of(open_source(path, None, options)) == expected


@pytest.mark.parametrize("seed", range(6))
def test_random_tables_are_sniffed(tmp_path: Path, seed: int) -> None:
    """Without options, where the delimiter occurs in every row and quotes are those that everybody uses."""
    print("seed", seed)
    rng = random.Random(seed)
    rows = [[str(i), *row] for i, row in enumerate(random_table(rng, 3, 60))]
    delimiter = rng.choice(",;|\t")
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(["i", "a", "b", "c"])
    writer.writerows(rows)
    path = tmp_path / "t.csv"
    path.write_text(text.getvalue(), newline="")
    assert ours(path, all_varchar=True, nullstr="no such value")[1] == [tuple(row) for row in rows]
