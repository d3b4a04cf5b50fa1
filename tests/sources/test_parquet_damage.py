"""Damaged Parquet files: cut anywhere, bytes flipped anywhere. Each gives a SourceError naming the file, or rows; never
anything else."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tsql.backends.io.open import open_source
from tsql.backends.io.parquet.footer import read_footer
from tsql.kernels.expr.errors import SourceError


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("parquet") / "t.parquet"
    rows = 300
    table = pa.table(
        {
            "i": range(rows),
            "s": [f"text {i % 9}" for i in range(rows)],
            "d": pa.array([Decimal(i).scaleb(-2) for i in range(rows)], pa.decimal128(15, 2)),
            "f": [i / 3 for i in range(rows)],
        }
    )
    pq.write_table(table, path, row_group_size=100, store_decimal_as_integer=True)
    return path.read_bytes()


def read_or_error(path: Path) -> str | None:
    try:
        source = open_source(path)
        source.statistics().columns.items()
        for split in source.splits(source.schema.names, None):
            for batch in source.read(split, source.schema.names):
                batch.validate(full=True)
    except SourceError as error:
        assert str(path) in str(error)
        assert "Traceback" not in str(error) and len(str(error)) < 500
        return str(error)
    return None


def test_cut_at_many_offsets(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "cut.parquet"
    for length in [*range(0, len(whole), max(1, len(whole) // 150)), *range(len(whole) - 40, len(whole))]:
        path.write_bytes(whole[:length])
        assert read_or_error(path) is not None, length


def test_flipped_bytes_in_the_footer(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "flip.parquet"
    length = int.from_bytes(whole[-8:-4], "little")
    choose = random.Random(11)
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(choose.randint(1, 3)):
            damaged[len(whole) - choose.randint(1, length + 8)] ^= 1 << choose.randrange(8)
        path.write_bytes(damaged)
        read_or_error(path)


def test_flipped_bytes_in_the_pages(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "flip.parquet"
    length = int.from_bytes(whole[-8:-4], "little")
    choose = random.Random(12)
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(choose.randint(1, 3)):
            damaged[choose.randrange(4, len(whole) - length - 8)] = choose.randrange(256)
        path.write_bytes(damaged)
        read_or_error(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a Parquet file"),
        (b"hello, this is some text and no Parquet\n", "not a Parquet file"),
        (b"PAR1" + b"\0" * 20, "cut off or damaged"),
        (b"PAR1" + b"\0" * 20 + b"\xff\xff\xff\x7fPAR1", "footer of this Parquet file is damaged"),
        (b"PAR1" + b"\0" * 20 + b"\x04\0\0\0PAR1", "footer of this Parquet file is damaged"),
        (b"PAR1" + b"\0" * 20 + b"\x04\0\0\0PARE", "encrypted"),
    ],
)
def test_what_is_no_parquet_file(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(content)
    assert message in (read_or_error(path) or "")


def test_the_footer_is_only_changed_where_decimals_stand(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(whole)
    footer, plain = read_footer(str(path)), pq.read_metadata(path)
    assert footer.unscaled == {"d": (15, 2)}
    assert footer.schema.field("d").type == pa.int64()
    assert footer.schema.remove(2).equals(plain.schema.to_arrow_schema().remove(2))
    assert [footer.metadata.row_group(i).num_rows for i in range(3)] == [plain.row_group(i).num_rows for i in range(3)]


def test_invalid_utf8_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"s": pa.array([b"ok", b"\xff\xfe"]).view(pa.string())}), path, use_dictionary=False)
    assert read_or_error(path) is not None
