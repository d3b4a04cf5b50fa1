"""Opening: kinds by name and by content, folders and globs, and one error that names the path for whatever is not
there."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from tests.sources.support import ours, rows_of, table_of
from tsql.backends.io.ipc import IpcSource
from tsql.backends.io.open import from_description, open_source
from tsql.kernels.expr.errors import SourceError

TABLE = pa.table(
    {
        "a": [1, 2, 3],
        "s": ["x", None, "z"],
        "k": pa.array(["u", "v", "u"]).dictionary_encode(),
        "l": pa.array(["p", "q", None], pa.large_string()),
    }
)
ROWS = [(1, "x", "u", "p"), (2, None, "v", "q"), (3, "z", "u", None)]


def write_ipc(path: Path, stream: bool, compression: str | None = None) -> None:
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(str(path), TABLE.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for batch in TABLE.to_batches(max_chunksize=2):
            writer.write_batch(batch)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_ipc_files_and_streams(tmp_path: Path, stream: bool, compression: str | None) -> None:
    path = tmp_path / "t.arrow"
    write_ipc(path, stream, compression)
    source = open_source(path)
    assert isinstance(source, IpcSource) and rows_of(source) == ROWS
    assert rows_of(source, ("l", "a")) == [(row[3], row[0]) for row in ROWS]
    assert source.statistics().rows == (None if stream else 3)
    assert len(source.splits(("a",), None)) == (1 if stream else 2)
    assert sum(batch.num_rows for split in source.splits((), None) for batch in source.read(split, ())) == 3
    assert rows_of(from_description(source.describe())) == ROWS


def test_feather(tmp_path: Path) -> None:
    pyarrow.feather.write_feather(TABLE, tmp_path / "t.feather")
    assert ours(tmp_path / "t.feather")[1] == ROWS


def test_ipc_files_that_disagree(tmp_path: Path) -> None:
    for number, table in enumerate(
        (pa.table({"x": [1]}), pa.table({"x": pa.array([2], pa.int8())}), pa.table({"x": ["abc"]}))
    ):
        with pa.ipc.new_file(str(tmp_path / f"{number}.arrow"), table.schema) as writer:
            writer.write_table(table)
    assert ours([tmp_path / "0.arrow", tmp_path / "1.arrow"])[1] == [(1,), (2,)]
    with pytest.raises(SourceError, match=r"2\.arrow: column x is VARCHAR here and BIGINT in .*0\.arrow"):
        ours([tmp_path / "0.arrow", tmp_path / "2.arrow"])


@pytest.mark.parametrize("stream", [False, True])
def test_damaged_ipc_is_an_error_or_rows(tmp_path: Path, stream: bool) -> None:
    path = tmp_path / "t.arrow"
    write_ipc(path, stream)
    whole = path.read_bytes()
    choose = random.Random(3)
    cuts = [whole[:length] for length in range(0, len(whole), 37)]
    for _ in range(250):
        damaged = bytearray(whole)
        damaged[choose.randrange(len(whole))] ^= 1 << choose.randrange(8)
        cuts.append(bytes(damaged))
    for content in cuts:
        path.unlink()
        path.write_bytes(content)
        try:
            source = open_source(path, "ipc")
            for split in source.splits(source.schema.names, None):
                for batch in source.read(split, source.schema.names):
                    batch.validate(full=True)
        except SourceError as error:
            assert str(path) in str(error) and len(str(error)) < 600


def test_kinds_are_found_by_content_where_the_name_says_nothing(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "one")
    write_ipc(tmp_path / "two", stream=True)
    (tmp_path / "three").write_text('{"a": 1}\n')
    (tmp_path / "four").write_text("just text")
    assert (
        ours(tmp_path / "one")[1] == ROWS
        and ours(tmp_path / "two")[1] == ROWS
        and ours(tmp_path / "three")[1] == [(1,)]
    )
    with pytest.raises(SourceError, match="cannot be told from its name or content"):
        ours(tmp_path / "four")
    assert ours(tmp_path / "four", "csv")[0] == [("just text", "VARCHAR")]


def test_folders_and_globs(tmp_path: Path) -> None:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "_delta").mkdir()
    for number, where in enumerate(("b.parquet", "a.parquet", "deep/c.parquet", "_delta/x.parquet", ".hidden.parquet")):
        pq.write_table(pa.table({"n": [number]}), tmp_path / "data" / where)
    (tmp_path / "data" / "_SUCCESS").write_text("")
    assert ours(tmp_path / "data")[1] == [(1,), (0,), (2,)]
    assert ours(str(tmp_path / "data" / "*.parquet"))[1] == [(1,), (0,)]
    assert sorted(ours(str(tmp_path / "data" / "**" / "[bc].parquet"))[1]) == [(0,), (2,)]
    assert ours([tmp_path / "data" / "b.parquet", tmp_path / "data" / "a.parquet"])[1] == [(0,), (1,)]


def test_a_name_with_glob_characters_that_is_a_file(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a[1].parquet")
    assert ours(tmp_path / "a[1].parquet")[1] == ROWS


@pytest.mark.parametrize(
    ("name", "kind", "options", "message"),
    [
        ("nope.parquet", None, {}, "nope.parquet: no such file"),
        ("nope*.parquet", None, {}, "nope*.parquet: no file matches this pattern"),
        ("empty", None, {}, "the folder holds no data files"),
        ("empty", "csv", {}, "the folder holds no csv files"),
        ("mixed", None, {}, "the folder holds files of several kinds"),
        ("text.txt", "parquet", {}, "not a Parquet file"),
        ("text.txt", "ipc", {}, "cannot be read as an Arrow IPC file or stream"),
        ("text.txt", "json", {}, "malformed JSON"),
        ("text.txt", "xls", {}, "unknown kind of file xls"),
        ("text.txt", "parquet", {"hive": True}, "unknown option hive"),
    ],
)
def test_what_is_not_there_is_named(
    tmp_path: Path, name: str, kind: str | None, options: dict[str, Any], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "a.csv").write_text("a\n1\n")
    (tmp_path / "mixed" / "b.json").write_text('{"a":1}')
    (tmp_path / "text.txt").write_text("hello there, this is text")
    with pytest.raises(SourceError) as error:
        table_of(open_source(str(tmp_path / name), kind, options))
    assert message in str(error.value)


@pytest.mark.parametrize("path", ["http://example.invalid/x.parquet", "ftp://host/x.parquet"])
def test_urls_are_not_fetched(path: str) -> None:
    with pytest.raises(SourceError, match="only local files are read"):
        open_source(path, "parquet")


@pytest.mark.parametrize("path", ["", [], "a\0b.parquet"])
def test_names_that_are_no_names(path: Any) -> None:
    with pytest.raises(SourceError):
        open_source(path)


def test_a_list_of_several_kinds(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="several kinds"):
        open_source(["a.csv", "b.parquet"])
    with pytest.raises(SourceError, match="not the description of a source"):
        from_description({"kind": "csv"})


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("nested", [True, False])
def test_a_column_name_that_is_no_text_is_one_clear_error(tmp_path: Path, stream: bool, nested: bool) -> None:
    inner = pa.array([{"abcdefgh": 1}]) if nested else pa.array([1])
    table = pa.table({"outer" if nested else "abcdefgh": inner})
    path = tmp_path / "t.arrow"
    with (
        pa.OSFile(str(path), "wb") as file,
        (pa.ipc.new_stream if stream else pa.ipc.new_file)(file, table.schema) as writer,
    ):
        writer.write_table(table)
    path.write_bytes(path.read_bytes().replace(b"abcdefgh", b"abcd\xff\xfegh"))
    with pytest.raises(SourceError, match=r"t\.arrow: the name of a column is not UTF-8: b'abcd\\xff\\xfegh'"):
        open_source(path)
    pq.write_table(table, tmp_path / "t.parquet")
    damaged = tmp_path / "t.parquet"
    damaged.write_bytes(damaged.read_bytes().replace(b"abcdefgh", b"abcd\xff\xfegh"))
    with pytest.raises(SourceError, match=r"t\.parquet: "):
        open_source(damaged)
