"""read_text and read_blob: a row for each file, as DuckDB reads them, and what cannot be read that way."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import tsql
from tests.duck import empty_duckdb
from tests.sources.support import rows_of
from tsql.backends.io.open import from_description, open_source
from tsql.kernels.expr.errors import SourceError

CONTENTS = {
    "a.md": b"# Title\n\ntext \xe2\x82\xac\n",
    "b.md": b"",
    "deep/c.md": b"one\r\ntwo\0three",
    "d.md.gz": b"\x1f\x8bnot unpacked",
    "e.bin": bytes(range(256)),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seconds, (name, content) in enumerate(CONTENTS.items()):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (0, 1_700_000_000.75 + seconds))
    return tmp_path


@pytest.mark.parametrize(
    "call",
    [
        "read_text('{0}/a.md')",
        "read_text(['{0}/b.md', '{0}/a.md'])",
        "read_text('{0}/*.md')",
        "read_text('{0}/**/*.md')",
        "read_blob('{0}/*')",
        "read_blob(['{0}/e.bin', '{0}/e.bin'])",
    ],
)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT filename, content, size, CAST(last_modified AS VARCHAR) AS changed FROM {0}",
        "SELECT size, filename FROM {0} WHERE size > 0",
        "SELECT count(*) AS n, sum(size) AS bytes, max(last_modified) = TIMESTAMPTZ '2023-11-14 22:13:24+00' FROM {0}",
        "SELECT length(content) AS n FROM {0} WHERE filename LIKE '%a.md'",
    ],
)
def test_as_duckdb_reads_them(folder: Path, call: str, query: str) -> None:
    text = query.format(call.format(folder))
    if "blob" in call:
        text = text.replace("length(content)", "octet_length(content)")
    expected = empty_duckdb().execute("SET TimeZone = 'UTC'").sql(text)
    assert expected is not None
    assert sorted(tsql.connect(threads=2).sql(text).fetchall()) == sorted(expected.fetchall())


def test_columns(folder: Path) -> None:
    found = [tsql.connect().sql(f"DESCRIBE FROM read_{kind}('{folder}/a.md')").fetchall() for kind in ("text", "blob")]
    for rows, content in zip(found, ("VARCHAR", "BLOB"), strict=True):
        assert [row[:2] for row in rows] == [
            ("filename", "VARCHAR"),
            ("content", content),
            ("size", "BIGINT"),
            ("last_modified", "TIMESTAMP WITH TIME ZONE"),
        ]


def test_a_description_opens_it_again(folder: Path) -> None:
    source = open_source(str(folder / "*.md"), "text")
    assert rows_of(from_description(source.describe() or {})) == rows_of(source)
    assert source.statistics().rows == 2


def test_text_that_is_not_utf_8(folder: Path) -> None:
    db = tsql.connect()
    with pytest.raises(SourceError, match=r"(?s)e\.bin: its content is not UTF-8: byte 129.*read_blob"):
        db.sql(f"SELECT content FROM read_text('{folder}/*.bin')").fetchall()
    # Its size can be asked for: the content is not read.
    assert db.sql(f"SELECT size FROM read_text('{folder}/*.bin')").fetchall() == [(256,)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("read_text('{0}/nope.md')", "no such file"),
        ("read_text(['{0}/a.md', '{0}/nope.md'])", "no such file"),
        ("read_blob('{0}/nope*')", "no file matches this pattern"),
        ("read_text('{0}/deep')", "is a folder, not a file"),
        ("read_text([])", "takes a path or a list of paths"),
        ("read_text('{0}/a.md', filename => true)", "unknown option filename for text files"),
    ],
)
def test_what_is_not_there(folder: Path, call: str, message: str) -> None:
    with pytest.raises(tsql.TsqlError, match=message):
        tsql.connect().sql(f"SELECT size FROM {call.format(folder)}").fetchall()


def test_a_file_that_goes_away(folder: Path) -> None:
    source = open_source(str(folder / "a.md"), "text")
    (folder / "a.md").unlink()
    for column in ("content", "size", "last_modified"):
        with pytest.raises(SourceError, match="no such file"):
            rows_of(source, (column,))


def test_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p")
    writer = threading.Thread(target=(tmp_path / "p").write_bytes, args=(b"abc",), daemon=True)
    writer.start()
    query = f"SELECT size, content FROM read_text('{tmp_path}/p')"
    assert tsql.connect().sql(query).fetchall() == [(3, "abc")]
    writer.join()
