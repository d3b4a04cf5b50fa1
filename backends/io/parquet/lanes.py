"""Batches of Parquet columns in reused memory, without Arrow arrays in between.

A `LaneReader` belongs to one worker of one scan. It has a lane for each column that our decoder reads: the bytes of the
chunk, and a kernel record (`kernels/runtime/parquet/fetch.py`) with all other memory. A batch of some columns is one
kernel call. What a lane does not support, or finds damaged, is read by `LateSplit` instead, as Arrow arrays; it also
reports what is wrong."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tsql.backends.io import Split, remote
from tsql.backends.io.files import reading
from tsql.backends.io.parquet.decoder import decoder
from tsql.backends.io.parquet.footer import ColumnChunk
from tsql.backends.io.parquet.forms import CODECS, SNAPPY, UNCOMPRESSED, ColumnForm, is_ours
from tsql.backends.io.parquet.pages import Selection, free
from tsql.backends.io.parquet.picked_columns import LateSplit, keep
from tsql.kernels.emit.batch import Morsels
from tsql.kernels.runtime.parquet import headers, operations, reader
from tsql.kernels.runtime.parquet.bits import PADDING
from tsql.kernels.runtime.parquet.strings import ADDRESS, ROOM, USED
from tsql.kernels.runtime.parquet.values import BIG, CODES, TEXT

if TYPE_CHECKING:
    from tsql.backends.io.parquet.source import ParquetSource

MOST_TEXT = 1 << 26
"""Row groups with more bytes of text are read in smaller batches, which lanes do not support."""

_WORK_AT = reader.READER_WORDS
_HEADERS_AT = _WORK_AT + reader.WORK_BYTES // 8 + 1
_SUMMARY_AT = _HEADERS_AT + headers.SCRATCH_WORDS
_Words = ctypes.c_int64 * (_SUMMARY_AT + headers.SUMMARY_WORDS)
_OWNED = (
    reader.OUT,
    reader.BITMAP,
    reader.SCRATCH,
    reader.PAGES,
    reader.PAGE_BYTES,
    reader.OFFSETS,
    reader.TEXT_RECORD + ADDRESS,
    reader.STRINGS_RECORD + ADDRESS,
)

_ROOMS = (
    reader.OUT_ROOM,
    reader.BITMAP_ROOM,
    reader.SCRATCH_ROOM,
    reader.PAGE_ROOM,
    reader.OFFSETS_ROOM,
    reader.TEXT_RECORD + ROOM,
    reader.STRINGS_RECORD + ROOM,
)


class Lane:
    """The reader of one column. `place` is the next row of the row group."""

    def __init__(self, form: ColumnForm, coded: bool):
        self.form, self.place = form, 0
        self.words = words = _Words()
        self.address = ctypes.addressof(words)
        words[reader.WIDTH], words[reader.WORK] = form.width, self.address + 8 * _WORK_AT
        words[reader.HEADERS], words[reader.SUMMARY] = self.address + 8 * _HEADERS_AT, self.address + 8 * _SUMMARY_AT
        words[reader.NULLABLE], words[reader.WANTS_CODES], words[reader.CHECKS_TEXT] = (
            form.nullable,
            coded,
            form.arrow == pa.string(),
        )
        self.codes = pa.dictionary(pa.int32(), form.arrow) if form.form == TEXT else None
        self.room, self.data, self.base = 0, memoryview(b""), 0

    def open(self, file: int, chunk: ColumnChunk) -> bool:
        """Read the bytes of a chunk, and return whether all are there."""
        size = chunk.stored_bytes
        if size > self.room:
            buffer = pa.allocate_buffer(size + size // 4 + PADDING, memory_pool=pa.system_memory_pool())
            self.room, self.data, self.base = size + size // 4, memoryview(buffer).cast("B"), buffer.address
        done = 0
        while done < size:
            count = os.preadv(file, [self.data[done:size]], chunk.start + done)
            if count <= 0:
                return False
            done += count
        words = self.words
        words[reader.CHUNK], words[reader.CODEC], words[reader.FORM] = self.base, CODECS[chunk.codec], self.form.form
        words[reader.CHUNK_BYTES : reader.CHUNK_BYTES + 3] = [size, chunk.values, chunk.plain_bytes]
        words[reader.OPENED] = self.place = 0
        return True

    @property
    def arrow(self) -> pa.DataType:
        """The type of the fetched values."""
        return self.codes if self.words[reader.FORM] == CODES else self.form.arrow

    def column(self, ones: int) -> tuple[int, int, int, int]:
        """The words of a morsel's column. `ones` is the bitmap of a column without NULLs."""
        words = self.words
        form, validity = words[reader.FORM], words[reader.VALIDITY] or ones
        aux = (
            self.address + 8 * reader.DICTIONARY
            if form == CODES
            else words[reader.TEXT_RECORD + ADDRESS]
            if form == TEXT
            else 0
        )
        return words[reader.OUT], aux, validity, 0

    @property
    def bytes(self) -> int:
        """The memory of the lane."""
        words = self.words
        return self.room + sum(words[number] for number in _ROOMS)

    def check_text(self, rows: int) -> None:
        """Refuse text that is not UTF-8."""
        words = self.words
        dictionary = reader.STRINGS_RECORD if words[reader.DICTIONARY] else None
        if dictionary is not None:
            _validate(
                words[reader.DICTIONARY],
                words[dictionary + ADDRESS],
                words[dictionary + USED],
                words[reader.DICTIONARY_VALUES],
            )
        if words[reader.FORM] == TEXT:
            _validate(words[reader.OUT], words[reader.TEXT_RECORD + ADDRESS], words[reader.TEXT_RECORD + USED], rows)

    def __del__(self) -> None:
        for number in _OWNED:
            free(self.words[number])


def _validate(offsets: int, text: int, size: int, rows: int) -> None:
    buffers = [
        None,
        pa.foreign_buffer(offsets, 4 * rows + 4),
        pa.foreign_buffer(text, size) if text else pa.py_buffer(b""),
    ]
    pa.Array.from_buffers(pa.string(), rows, buffers, 0).validate(full=True)


class LaneReader:
    """Reads one split after another: `open`, then `advance` to each batch, `get` its columns, `keep` some of its
    rows."""

    def __init__(self, source: ParquetSource):
        self.source = source
        self.lanes: dict[str, Lane | None] = {}
        self.arrays: dict[str, pa.Array] = {}

    def open(self, split: Split) -> None:
        self.split, self.late, self.opened = split, LateSplit(self.source, split), set[str]()
        self.file = self.late.file

    def advance(self) -> int:
        """Go to the next batch, and return its number of rows; 0 at the end."""
        self.arrays.clear()
        return self.late.advance()

    def get(self, names: tuple[str, ...], selection: Selection | None = None) -> None:
        """Decode columns of the batch, or their selected rows."""
        late, lanes, others = self.late, [], []
        if not names:
            return
        with reading(self.split.file, "a Parquet file"):
            for name in names:
                lane = self._lane(name)
                if lane is None:
                    others.append(name)
                    continue
                if lane.place < late.start:
                    self._call(operations.FETCH, [lane], late.start - lane.place, Selection.of(()))
                lane.place = late.start + late.rows
                lanes.append((name, lane))
            if lanes and self._call(operations.FETCH, [lane for _, lane in lanes], late.rows, selection):
                others += self._odd(lanes, late.rows if selection is None else selection.count)
        if others:
            self.arrays |= dict(zip(others, late.get(tuple(others), selection), strict=True))

    def _odd(self, lanes: list[tuple[str, Lane]], rows: int) -> list[str]:
        """The columns that need another reader from this batch on. Text that is not ASCII is checked."""
        others = []
        for name, lane in lanes:
            if lane.words[reader.STATUS]:
                others.append(name)
                self.opened.discard(name)
                self.lanes[name] = None
            elif lane.words[reader.ODD_TEXT]:
                lane.check_text(rows)
        return others

    def keep(self, names: list[str], selection: Selection) -> None:
        """Keep only the selected rows of decoded columns."""
        lanes = [self._there(name) for name in names if name not in self.arrays]
        if lanes:
            self._call(operations.KEEP, lanes, 0, selection)
        self.arrays = keep({name: array for name, array in self.arrays.items() if name in names}, selection)

    def _there(self, name: str) -> Lane:
        lane = self.lanes[name]
        assert lane is not None, f"{name} has not been fetched"
        return lane

    def type_of(self, name: str) -> pa.DataType:
        """The Arrow type of a decoded column."""
        found = self.arrays.get(name)
        return self._there(name).arrow if found is None else found.type

    def column(self, name: str, morsels: Morsels, ones: int) -> tuple[int, int, int, int]:
        """The words of a decoded column."""
        found = self.arrays.get(name)
        return self._there(name).column(ones) if found is None else morsels.column(found)

    @property
    def bytes(self) -> int:
        """The memory of the decoded columns."""
        return sum(lane.bytes for lane in self.lanes.values() if lane is not None) + sum(
            array.nbytes for array in self.arrays.values()
        )

    def _call(self, operation: int, lanes: list[Lane], rows: int, selection: Selection | None) -> int:
        address, selected = (0, 0) if selection is None else (selection.address, selection.count)
        record = (ctypes.c_int64 * (len(lanes) + 4))(
            rows, address, selected, len(lanes), *[lane.address for lane in lanes]
        )
        out = ctypes.c_int64(0)
        decoder(rows).long(ctypes.addressof(record), ctypes.addressof(out), operation)
        return out.value

    def _lane(self, name: str) -> Lane | None:
        """The lane of a column, with its chunk of this split; None if it has no lane."""
        if name in self.opened:
            return self.lanes[name]
        position = self.late._position(name)
        if position is None or remote.is_remote(self.split.file):
            return None
        chunk, form = self.file.footer.chunks[self.split.detail][position], self.file.form(position)
        if form is None or not self._is_plain(name, position, chunk, form):
            return None
        lane = self.lanes.get(name)
        if lane is None or lane.form != form:
            lane = self.lanes[name] = Lane(form, position in self.file.dictionaries)
        if not lane.open(self.source._descriptor(self.file), chunk):
            return None
        self.opened.add(name)
        return lane

    def _is_plain(self, name: str, position: int, chunk: ColumnChunk, form: ColumnForm) -> bool:
        """Whether a lane can read a chunk: its values need no conversion, and the footer's claims about it are
        possible."""
        file = self.file
        return (
            chunk.codec in (UNCOMPRESSED, SNAPPY)
            and is_ours(chunk)
            and form.form != BIG
            and not form.is_cast
            and file.types[position] == self.source.schema[name].type
            and self._arrives_as(file.types[position]) == form.arrow
            and not pa.types.is_time(form.arrow)
            and chunk.physical == form.physical
            and chunk.values == self.split.rows
            and chunk.start >= 4
            and 0 <= chunk.stored_bytes <= file.footer.size - 8 - chunk.start
            and 0 <= chunk.plain_bytes
            and not (form.form == TEXT and chunk.plain_bytes > MOST_TEXT)
        )

    @staticmethod
    def _arrives_as(kind: Any) -> pa.DataType:
        """The type in which a column reaches the pipeline."""
        return pa.int64() if kind.is_decimal and kind.width <= 18 else kind.to_arrow()
