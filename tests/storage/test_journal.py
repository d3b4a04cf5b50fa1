"""The journal as bytes: a last write that stopped anywhere is cut off, and damage anywhere is refused, never taken for
one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tsql.kernels.expr.errors import StorageError
from tsql.storage.journal import JournalWriter, encode_record, read_journal

RECORDS = [
    ({"put": ["a" * 40]}, []),
    ({"append": {"t": 0}}, [b"x\0y" * 30, b"\0" * 700]),
    ({"drop": ["done"]}, [b"done" * 50]),
]
HEAD_BYTES = 12


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    writer = JournalWriter(tmp_path / "journal-000001")
    for data, blobs in RECORDS:
        writer.append(encode_record(data, blobs))
    writer.close()
    return writer.path


def starts() -> list[int]:
    """Where each record begins, and where the last one ends."""
    found = [HEAD_BYTES]
    for data, blobs in RECORDS:
        found.append(found[-1] + len(encode_record(data, blobs)))
    return found


def read(journal: Path, content: bytes) -> tuple[list, int]:
    journal.write_bytes(content)
    return read_journal(journal)


def assert_damaged(journal: Path, content: bytes) -> None:
    with pytest.raises(StorageError, match="is damaged|is no journal|newer version"):
        read(journal, content)


@pytest.mark.parametrize("zeros", [0, 1, 13, 100, 4096])
def test_any_damaged_byte_is_refused(journal: Path, zeros: int) -> None:
    """In the lengths too, which no checksum covers; with zeros behind the records a length that is too large stays in
    the file."""
    whole = journal.read_bytes()
    for at in range(len(whole)):
        damages = [whole[at] ^ 1, whole[at] ^ 0x10, whole[at] ^ 0x80, 0]
        for damaged in set(damages if zeros == 0 else [damages[(at + zeros) % 4]]) - {whole[at]}:
            assert_damaged(journal, whole[:at] + bytes([damaged]) + whole[at + 1 :] + bytes(zeros))


@pytest.mark.parametrize("damage", [b"\xff", b"\0", b"\x41", bytes(range(1, 25))])
def test_a_damaged_head_of_a_record_is_refused(journal: Path, damage: bytes) -> None:
    """Several fields at once: the length, the checksum, and the lengths of the parts."""
    whole = journal.read_bytes()
    for start in starts()[:-1]:
        for length in range(1, 25):
            there = (damage * length)[:length]
            assert_damaged(journal, whole[:start] + there + whole[start + length :])


def test_a_damaged_length_before_a_write_that_stopped_is_refused(journal: Path) -> None:
    whole = journal.read_bytes()
    for start in starts()[:-2]:
        assert_damaged(journal, whole[: start + 2] + b"\x7f" + whole[start + 3 : -9])


@pytest.mark.parametrize("zeros", [0, 1, 3, 4, 13, 100, 1000, 4096])
def test_a_write_that_stopped_anywhere_is_cut_off(journal: Path, zeros: int) -> None:
    """What was written may be followed by zeros, up to the length of the record or any other."""
    whole = journal.read_bytes()
    begins = starts()
    for number, (start, end) in enumerate(zip(begins[:-1], begins[1:], strict=True)):
        for stopped in range(start, end - 3, 1 if zeros in (0, 13) else 4):
            records, size = read(journal, whole[:stopped] + bytes(zeros))
            assert (len(records), size) == (number, start)
    for stopped in range(begins[-2], begins[-1] - 3):
        assert read(journal, whole[:stopped] + bytes(begins[-1] - stopped))[1] == begins[-2]


@pytest.mark.parametrize("zeros", [1, 11, 12, 13, 100, 4096])
def test_zeros_behind_the_last_commit_are_cut_off(journal: Path, zeros: int) -> None:
    records, size = read(journal, journal.read_bytes() + bytes(zeros))
    assert (records, size) == (RECORDS, starts()[-1])


def test_zeros_from_a_sector_on_are_cut_off_and_a_single_zero_is_refused(tmp_path: Path) -> None:
    """The last byte of a record is all that a sector boundary may leave out; anywhere else a lone zero is damage."""
    path = tmp_path / "journal-000001"
    for length in range(400, 520):
        writer = JournalWriter(path)
        writer.append(encode_record({"t": "x" * length}, []))
        writer.close()
        content = path.read_bytes()[:-1] + b"\0"
        if len(content) % 512 == 1:
            assert read(path, content) == ([], HEAD_BYTES)
        else:
            assert_damaged(path, content)
