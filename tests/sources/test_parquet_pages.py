"""Our decoder of Parquet pages: random tables in every shape that writers make, against pyarrow's reading of the same
files."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.duck import empty_duckdb
from tests.sources.support import table_of
from tsql.backends.io.open import open_source
from tsql.backends.io.parquet import pages as parquet_pages
from tsql.backends.io.parquet import source as parquet
from tsql.backends.io.parquet.decoder import Decoder
from tsql.backends.io.parquet.footer import read_footer
from tsql.backends.io.parquet.forms import column_form
from tsql.backends.io.parquet.pages import ChunkReader
from tsql.kernels.codegen.interp import Interpreter
from tsql.kernels.codegen.kir import parse
from tsql.kernels.codegen.spec import verify
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.runtime.parquet import headers
from tsql.kernels.runtime.parquet.operations import decoder_module

WORDS = ("", "a", "brown", "straße", "日本語", "a rather long piece of text that needs more than one word", "x" * 300)


def random_table(seed: int, rows: int) -> pa.Table:
    """A column of each type that the decoder reads, some with few values, some with many, with runs and NULLs."""
    choose = random.Random(seed)
    nulls = choose.choice((0.0, 0.0, 0.05, 0.5, 0.97))

    def column(value: Any, kind: pa.DataType) -> pa.Array:
        values: list[Any] = []
        while len(values) < rows:
            values += [None if choose.random() < nulls else value()] * choose.choice((1, 1, 1, 2, 40))
        return pa.array(values[:rows], kind)

    def bits(count: int) -> Any:
        return lambda: choose.getrandbits(count) - (1 << (count - 1))

    few = [choose.getrandbits(40) for _ in range(choose.choice((1, 2, 7, 300)))]
    return pa.table(
        {
            "i8": column(bits(8), pa.int8()), "u8": column(lambda: choose.getrandbits(8), pa.uint8()),
            "i16": column(bits(16), pa.int16()), "u16": column(lambda: choose.getrandbits(16), pa.uint16()),
            "i32": column(bits(32), pa.int32()), "u32": column(lambda: choose.getrandbits(32), pa.uint32()),
            "i64": column(bits(64), pa.int64()), "u64": column(lambda: choose.getrandbits(64), pa.uint64()),
            "few": column(lambda: choose.choice(few), pa.int64()),
            "f": column(lambda: choose.choice((0.5, -2.0, choose.randrange(1000) / 8)), pa.float32()),
            "d": column(choose.random, pa.float64()), "b": column(lambda: choose.random() < 0.3, pa.bool_()),
            "s": column(lambda: choose.choice(WORDS), pa.string()),
            "many": column(lambda: f"{choose.choice(WORDS)}{choose.getrandbits(16)}", pa.string()),
            "bin": column(lambda: choose.randbytes(choose.randrange(20)), pa.binary()),
            "date": column(lambda: dt.date(1990, 1, 1) + dt.timedelta(choose.randrange(9000)), pa.date32()),
            "ts": column(lambda: choose.getrandbits(50), pa.timestamp("us")),
            "ms": column(lambda: choose.getrandbits(40), pa.timestamp("ms")),
            "time": column(lambda: choose.randrange(86_400_000_000), pa.time64("us")),
            "t32": column(lambda: choose.randrange(86_400_000), pa.time32("ms")),
            "dec4": column(lambda: Decimal(choose.randrange(-9999, 9999)).scaleb(-2), pa.decimal128(4, 2)),
            "dec9": column(lambda: Decimal(choose.randrange(10**9)).scaleb(-1), pa.decimal128(9, 1)),
            "dec15": column(lambda: Decimal(choose.randrange(-(10**14), 10**14)).scaleb(-2), pa.decimal128(15, 2)),
            "dec18": column(lambda: Decimal(choose.randrange(10**18)), pa.decimal128(18, 0)),
            "none": pa.nulls(rows, pa.int32()), "text_none": pa.nulls(rows, pa.string()),
        }
    )  # fmt: skip


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[ChunkReader]:
    """The readers that the decoder was made for."""
    made: list[ChunkReader] = []

    class Watched(ChunkReader):
        def __init__(self, *arguments: Any, **named: Any):
            super().__init__(*arguments, **named)
            made.append(self)

    monkeypatch.setattr(parquet, "ChunkReader", Watched)
    return made


def by_pyarrow(path: Path) -> pa.Table:
    """All rows of a file, no column chunk of which is ours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "is_ours", lambda chunk: False)
        return table_of(open_source(path))


def compare(path: Path) -> None:
    found, expected = table_of(open_source(path)), by_pyarrow(path)
    assert found.schema == expected.schema and found.num_rows == expected.num_rows
    for name in expected.column_names:
        if pa.types.is_floating(expected[name].type):
            # NaN is itself here, and 0.0 is not -0.0.
            assert repr(found[name].to_pylist()) == repr(expected[name].to_pylist()), name
        else:
            assert found[name].equals(expected[name]), name


SETTINGS: list[dict[str, Any]] = [
    {}, {"data_page_version": "2.0"}, {"compression": "none"}, {"compression": "none", "data_page_version": "2.0"},
    {"compression": "gzip"}, {"compression": "zstd", "data_page_version": "2.0"}, {"use_dictionary": False},
    {"use_dictionary": False, "compression": "none", "data_page_version": "2.0"}, {"data_page_size": 64},
    {"data_page_size": 300, "data_page_version": "2.0", "compression": "zstd"},
    {"dictionary_pagesize_limit": 200, "data_page_size": 500},
    {"dictionary_pagesize_limit": 200, "data_page_size": 200, "compression": "none"},
    {"store_decimal_as_integer": True},
    {"store_decimal_as_integer": True, "use_dictionary": False, "data_page_size": 100}, {"write_page_checksum": True},
    {"write_page_checksum": True, "data_page_version": "2.0", "compression": "gzip"}, {"version": "1.0"},
    {"row_group_size": 333, "compression": "snappy"},
    {"write_batch_size": 17, "data_page_size": 50, "compression": "gzip"},
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_random_tables_as_pyarrow_reads_them(tmp_path: Path, readers: list[ChunkReader], number: int) -> None:
    path = tmp_path / "t.parquet"
    for seed in (number, number + 100):
        table = random_table(seed, 1500)
        pq.write_table(table, path, **SETTINGS[number])
        readers.clear()
        compare(path)
        assert len(readers) >= table.num_columns, f"seed {seed}: a column was left to pyarrow"


@pytest.mark.parametrize(
    "settings",
    [
        {"compression": "brotli"},
        {"compression": "lz4"},
        {
            "use_dictionary": False,
            "column_encoding": {"i64": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY", "d": "BYTE_STREAM_SPLIT"},
        },
    ],
)
def test_what_is_left_to_pyarrow_is_read_beside_ours(
    tmp_path: Path, readers: list[ChunkReader], settings: dict[str, Any]
) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(random_table(5, 700), path, **settings)
    compare(path)
    assert {reader.origin.split()[2] for reader in readers}.isdisjoint({"i64", "s", "d"})
    assert bool(readers) == ("column_encoding" in settings)


def test_batches_of_long_row_groups(tmp_path: Path, readers: list[ChunkReader]) -> None:
    rows = 2 * parquet.BATCH_ROWS + 77
    choose = random.Random(3)
    table = pa.table(
        {
            "n": [choose.randrange(5000) if choose.random() < 0.9 else None for _ in range(rows)],
            "s": [choose.choice(WORDS[:4]) for _ in range(rows)],
            "big": [choose.getrandbits(60) for _ in range(rows)],
        }
    )
    pq.write_table(
        table, tmp_path / "t.parquet", column_encoding={"big": "DELTA_BINARY_PACKED"}, use_dictionary=["n", "s"]
    )
    compare(tmp_path / "t.parquet")
    source = open_source(tmp_path / "t.parquet")
    for names in (("n", "s"), ("n", "s", "big")):
        (split,) = source.splits(names, None)
        assert [batch.num_rows for batch in source.read(split, names)] == [parquet.BATCH_ROWS, parquet.BATCH_ROWS, 77]
    assert {reader.origin.split()[2] for reader in readers} == {"n", "s"}


def test_few_strings_come_as_a_dictionary_unless_a_page_has_none(tmp_path: Path) -> None:
    rows = 5000
    few, grown = [f"v{i % 9}" for i in range(rows)], [f"v{i if i > 4000 else i % 9}" for i in range(rows)]
    pq.write_table(
        pa.table({"few": few, "grown": grown}),
        tmp_path / "t.parquet",
        dictionary_pagesize_limit=100,
        data_page_size=1000,
        write_batch_size=100,
    )
    source = open_source(tmp_path / "t.parquet")
    (batch,) = source.read(source.splits(("few", "grown"), None)[0], ("few", "grown"))
    assert pa.types.is_dictionary(batch.column(0).type) and batch.column(1).type == pa.string()
    assert batch.column(0).to_pylist() == few and batch.column(1).to_pylist() == grown


def test_files_of_polars_and_duckdb(tmp_path: Path, readers: list[ChunkReader]) -> None:
    table = random_table(9, 3000)
    for name, settings in (
        ("a", {"compression": "snappy"}),
        ("b", {"compression": "zstd", "data_page_size": 200}),
        ("c", {"compression": "uncompressed", "row_group_size": 999}),
    ):
        pl.from_arrow(table.drop_columns(["none", "text_none", "t32"])).write_parquet(
            tmp_path / f"{name}.parquet", **settings
        )
        compare(tmp_path / f"{name}.parquet")
    with empty_duckdb() as connection:
        connection.register("t", table)
        for compression, version in product(("snappy", "zstd", "gzip", "uncompressed"), ("V1", "V2")):
            path = tmp_path / f"duck-{compression}-{version}.parquet"
            connection.execute(
                f"COPY t TO '{path}' (FORMAT parquet, COMPRESSION {compression}, PARQUET_VERSION "
                f"{version}, ROW_GROUP_SIZE 2048)"
            )
            compare(path)
    assert len(readers) > 100


def test_no_rows_and_empty_row_groups(tmp_path: Path) -> None:
    path, table = tmp_path / "t.parquet", random_table(4, 50)
    with pq.ParquetWriter(path, table.schema) as writer:
        for part in (table.slice(0, 0), table.slice(0, 20), table.slice(0, 0), table.slice(20)):
            writer.write_table(part, row_group_size=20)
    compare(path)
    pq.write_table(table.slice(0, 0), path)
    assert table_of(open_source(path)).num_rows == 0


def test_text_beyond_the_limit_of_a_batch_makes_more_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_pages, "MAX_TEXT", 20_000)
    table = pa.table(
        {
            "plain": [f"{i:0100}" for i in range(2000)],
            "many": [WORDS[6] + str(i) if i % 2 else f"{i % 1000}" for i in range(2000)],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet", use_dictionary=["many"], data_page_size=1000, write_batch_size=8)
    source = open_source(tmp_path / "t.parquet")
    for name in table.column_names:
        (split,) = source.splits((name,), None)
        batches = list(source.read(split, (name,)))
        assert len(batches) > 5 and all(batch.num_rows and batch.nbytes < 40_000 for batch in batches)
        assert [value for batch in batches for value in batch.column(0).to_pylist()] == table[name].to_pylist()


def test_the_forms_of_columns(tmp_path: Path) -> None:
    table = pa.table(
        {
            "flba": pa.array([Decimal("1.5")], pa.decimal128(15, 2)),
            "wide": pa.array([Decimal("1.5")], pa.decimal128(38, 2)),
            "fixed": pa.array([b"ab"], pa.binary(2)),
            "i": pa.array([1]),
            "half": pa.array([1.5], pa.float16()),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    footer = read_footer(str(tmp_path / "t.parquet"))
    forms = [column_form(footer, index) for index in range(5)]
    assert [None if form is None else form.arrow for form in forms] == [pa.int64(), None, None, pa.int64(), None]
    pq.write_table(
        pa.table({"t": pa.array([1], pa.timestamp("us"))}), tmp_path / "t.parquet", use_deprecated_int96_timestamps=True
    )
    assert column_form(read_footer(str(tmp_path / "t.parquet")), 0) is None


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"use_dictionary": False, "data_page_version": "2.0", "compression": "none"},
        {"data_page_size": 40, "compression": "gzip", "write_batch_size": 10},
    ],
)
def test_the_interpreter_decodes_the_same(tmp_path: Path, settings: dict[str, Any]) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(random_table(21, 90), path, **settings)
    expected, footer = by_pyarrow(path), read_footer(str(path))
    interpreter = Interpreter(decoder_module())
    interpreted = Decoder(*[lambda a, b, c: interpreter("main", a, b, c)] * 2)
    with open(path, "rb") as file:
        for index, name in enumerate(expected.column_names):
            form = column_form(footer, index)
            reader = ChunkReader(file.fileno(), footer.size, footer.chunks[0][index], form, 90, False, "t", interpreted)
            compiled = ChunkReader(file.fileno(), footer.size, footer.chunks[0][index], form, 90, False, "t")
            for rows in (1, 50, 39):
                array = reader.read(rows)
                array.validate(full=True)
                assert array.equals(compiled.read(rows)), name


def test_the_kernel_is_legal_and_prints() -> None:
    verify(decoder_module())
    text = decoder_module().text()
    assert parse(text).text() == text


def uncompressed(path: Path, values: list[Any], **settings: Any) -> tuple[bytearray, list[list[int]], int]:
    """The bytes of a file of one column, its pages, and where its chunk starts."""
    pq.write_table(pa.table({"x": values}), path, compression="none", **settings)
    footer = read_footer(str(path))
    with open(path, "rb") as file:
        reader = ChunkReader(
            file.fileno(), footer.size, footer.chunks[0][0], column_form(footer, 0), len(values), False, "t"
        )
    return bytearray(path.read_bytes()), [reader._page(number) for number in range(2)], footer.chunks[0][0].start


def error_of(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(SourceError) as caught:
        table_of(open_source(path))
    assert str(path) in str(caught.value) and "column x of row group 1" in str(caught.value)
    return str(caught.value)


def test_an_index_outside_of_the_dictionary(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    for values in ([i % 7 for i in range(64)], [f"v{i % 7}" for i in range(64)]):
        content, pages, start = uncompressed(path, values)
        end = start + pages[1][headers.START] + pages[1][headers.STORED_BYTES]
        content[end - 3] = 0xFF
        assert "page 2: an index is outside of the dictionary" in error_of(path, content)


def test_levels_that_are_cut_or_wrong(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    content, pages, start = uncompressed(path, [1, None] * 40, use_dictionary=False)
    at = start + pages[0][headers.START]
    for place, value, message in (
        (at + 2, 0x01, "its size is not what"),
        (at + 4, 0x00, "a run of values is malformed"),
        (at + 4, 0x03, "ends before its last value"),
    ):
        damaged = bytearray(content)
        damaged[place] = value
        assert message in error_of(path, damaged)
    content, pages, start = uncompressed(path, [1] * 40, use_dictionary=False)
    content[start + pages[0][headers.START] + 5] = 2
    assert "a definition level is not 0 or 1" in error_of(path, content)


def test_the_length_of_a_string_reaches_behind_its_page(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    for dictionary, length in ((True, 0x7F), (False, 0x7F), (True, 0xFF), (False, 0xFF)):
        content, pages, start = uncompressed(path, ["first", "second"], use_dictionary=dictionary)
        at = start + pages[0][headers.START] + (0 if dictionary else 6)
        assert content[at : at + 9] == b"\5\0\0\0first"
        content[at + 3 if length == 0xFF else at] = length
        assert "page 1: the length of a value" in error_of(path, content)


def test_a_checksum_that_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    for settings in ({}, {"data_page_version": "2.0"}):
        content, pages, start = uncompressed(
            path, list(range(100)), use_dictionary=False, write_page_checksum=True, **settings
        )
        content[start + pages[0][headers.START] + 300] ^= 1
        assert "page 1: its checksum" in error_of(path, content)


def test_an_error_names_its_page(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    for compression in ("snappy", "zstd", "gzip"):
        pq.write_table(
            pa.table({"x": range(3000)}),
            path,
            compression=compression,
            use_dictionary=False,
            data_page_size=4000,
            write_batch_size=100,
        )
        footer = read_footer(str(path))
        with open(path, "rb") as file:
            reader = ChunkReader(
                file.fileno(), footer.size, footer.chunks[0][0], column_form(footer, 0), 3000, False, "t"
            )
        content, third = bytearray(path.read_bytes()), reader._page(2)
        at = footer.chunks[0][0].start + third[headers.START]
        content[at : at + 60] = b"\xff" * 60
        assert "page 3: its compressed bytes are malformed" in error_of(path, content), compression


def test_a_page_that_claims_more_than_its_chunk(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    content, _, start = uncompressed(path, list(range(100)), use_dictionary=False)
    assert content[start : start + 3] == b"\x15\x00\x15", "a page header: its kind, then its size in two bytes"
    content[start + 3 : start + 5] = b"\xfe\x7f"
    assert "a page claims 8191 bytes" in error_of(path, content)


def damaged_files(seed: int, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    choose = random.Random(seed)
    path = tmp_path / "damaged.parquet"
    table = random_table(seed, 400)
    pq.write_table(table, path, **choose.choice(SETTINGS))
    whole = path.read_bytes()
    pages = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for number in range(60):
        content = bytearray(whole)
        for _ in range(choose.choice((1, 1, 2, 8))):
            at = choose.randrange(4, pages)
            content[at : at + choose.choice((1, 1, 4))] = choose.choice(
                (b"\x00", b"\xff", choose.randbytes(1), b"\xff\xff\xff\x7f")
            )
        path.write_bytes(content[: len(whole)])
        yield f"seed {seed}, file {number}", path


@pytest.mark.parametrize("seed", range(12))
def test_damaged_pages_give_one_error_or_rows(tmp_path: Path, seed: int) -> None:
    errors = 0
    for name, path in damaged_files(seed, tmp_path):
        try:
            source = open_source(path)
            for split in source.splits(source.schema.names, None):
                for batch in source.read(split, source.schema.names):
                    batch.validate(full=True)
        except SourceError as error:
            errors += 1
            assert str(path) in str(error) and len(str(error)) < 400, name
        except BaseException as error:
            raise AssertionError(f"{name}: {error!r}") from error
    assert errors > 10, "the files were hardly damaged"
