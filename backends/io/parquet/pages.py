"""The pages of one Parquet column chunk as Arrow arrays, decoded by a compiled kernel
(`kernels/runtime/parquet/reader.py`).

`ParquetSource` makes a `ChunkReader` per column of a row group and requests some rows at a time. The bytes of a chunk
are read at once. The kernel handles headers, Snappy, levels and values, with the GIL released. Sizes are checked
against the footer before memory is allocated, and every buffer that a kernel reads is followed by `PADDING` bytes."""

from __future__ import annotations

import ctypes
import os
import zlib
from typing import Any

import numpy as np
import pyarrow as pa

from tsql.backends.io.parquet.decoder import Call, Decoder, decoder
from tsql.backends.io.parquet.footer import ColumnChunk
from tsql.backends.io.parquet.forms import CODECS, GZIP, SNAPPY, UNCOMPRESSED, ColumnForm
from tsql.kernels.codegen import memory
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.runtime.parquet import headers, operations, reader
from tsql.kernels.runtime.parquet.bits import MESSAGES, NEED_PAGE, PADDING
from tsql.kernels.runtime.parquet.strings import ADDRESS, ROOM, TEXT_WORDS, USED
from tsql.kernels.runtime.parquet.values import BIG, BITS, CODES, FORMS, TEXT

MAX_TEXT = 1 << 30
"""The most bytes of text in a batch. Batches with more text have fewer rows."""

_WIDTHS = tuple({"i32": 4, "i64": 8}.get(form.delivered, 0) for form in FORMS)
_DATA_PAGES = (headers.DATA_PAGE, headers.DATA_PAGE_V2)
_DICTIONARY_BITS = 1 << reader.PLAIN_DICTIONARY | 1 << reader.RLE_DICTIONARY
_VALUE_BITS = 1 << reader.PLAIN | _DICTIONARY_BITS
_BOOLEAN_BITS = 1 << reader.PLAIN | 1 << reader.RLE
_INT32, _STRING = pa.int32(), pa.string()
_POOL = pa.system_memory_pool()

SHORT_WORK = 4096
"""Work on fewer bytes than this is done with the GIL held."""

LAST_ROW = (1 << 31) - 1
"""The sentinel after the last row number of a selection."""

PAGE_TABLE = 64
"""Initial capacity of a reader for pages."""

_WORK_AT = reader.READER_WORDS
_SCRATCH_AT = _WORK_AT + reader.WORK_BYTES // 8 + 1
_SUMMARY_AT = _SCRATCH_AT + headers.SCRATCH_WORDS
_JOB_AT = _SUMMARY_AT + headers.SUMMARY_WORDS
_JOB_WORDS = 8
_PAGES_AT = _JOB_AT + _JOB_WORDS
_Words = ctypes.c_int64 * (_PAGES_AT + PAGE_TABLE * headers.PAGE_WORDS)
"""All memory shared by a reader and its kernel, in one piece."""

_TEXT_ADDRESS, _TEXT_ROOM, _TEXT_USED = (reader.TEXT_RECORD + number for number in (ADDRESS, ROOM, USED))
free = memory.free


class UnknownPages(Exception):
    """A column chunk has pages that the footer did not announce. They are left to pyarrow."""


class _Text:
    """Owns text memory that a kernel has filled."""

    def __init__(self, address: int):
        self.address = address

    def __del__(self) -> None:
        memory.free(self.address)


def _text_buffer(address: int, size: int) -> pa.Buffer:
    return pa.foreign_buffer(address, size, _Text(address)) if address else pa.py_buffer(b"")


def _memory(size: int) -> pa.Buffer:
    return pa.allocate_buffer(size, memory_pool=_POOL)


def _read_bytes(file: int, start: int, size: int) -> pa.Buffer | None:
    """`size` bytes of a file, padded; None if the file ends before."""
    buffer = _memory(size + PADDING)
    view, done = memoryview(buffer)[:size], 0
    while done < size:
        count = os.preadv(file, [view[done:] if done else view], start + done)
        if count <= 0:
            return None
        done += count
    return buffer


class Selection:
    """Which of the next rows are wanted: their numbers in order, as int32, followed by a sentinel greater than all."""

    def __init__(self, rows: np.ndarray):
        self.rows, self.count = rows, len(rows) - 1
        self.address = rows.ctypes.data

    @classmethod
    def of(cls, numbers: Any) -> Selection:
        """A selection of row numbers."""
        rows = np.empty(len(numbers) + 1, np.int32)
        rows[:-1], rows[-1] = numbers, LAST_ROW
        return cls(rows)


class ChunkReader:
    """Reads one column chunk. `origin` starts its error messages. `codes`: return strings as a dictionary if all pages
    have one."""

    words: Any = None

    def __init__(
        self,
        file: int,
        file_size: int,
        chunk: ColumnChunk,
        column: ColumnForm,
        rows: int,
        codes: bool,
        origin: str,
        kernel: Decoder | None = None,
    ):
        self.chunk, self.column, self.form, self.origin = chunk, column, column.form, origin
        self.kernel = kernel or decoder(chunk.values)
        size = chunk.stored_bytes
        if (
            chunk.physical != column.physical
            or chunk.values != rows
            or chunk.start < 4
            or not 0 <= size <= file_size - 8 - chunk.start
            or chunk.plain_bytes < 0
        ):
            raise SourceError(f"{origin}: what the footer says of it is impossible: the file is damaged")
        data = _read_bytes(file, chunk.start, size)
        if data is None:
            raise SourceError(f"{origin}: the file is cut off")
        self.data, self.base = data, data.address
        self.words = _Words()
        self.address = ctypes.addressof(self.words)
        self._scan()
        self.dictionary: pa.Array | None = None
        self.expected_text = 0
        words, encodings = self.words, self.words[_SUMMARY_AT + headers.ENCODINGS]
        if self.words[_SUMMARY_AT + headers.KINDS] >> headers.DICTIONARY_PAGE & 1:
            self._read_dictionary()
        all_encoded = encodings & ~_DICTIONARY_BITS == 0
        self.checks = pa.types.is_time(column.arrow) or (
            self.form == TEXT and column.arrow == _STRING and not all_encoded
        )
        if self.form == TEXT and codes and self.dictionary is not None and all_encoded:
            self.form = CODES
        words[reader.FORM], words[reader.WIDTH], words[reader.CODEC] = self.form, column.width, CODECS[chunk.codec]
        words[reader.CHUNK], words[reader.WORK] = self.base, self.address + 8 * _WORK_AT
        if chunk.codec != UNCOMPRESSED:
            self.scratch = _memory(words[_SUMMARY_AT + headers.LARGEST] + PADDING)
            words[reader.SCRATCH] = self.scratch.address

    def _scan(self) -> None:
        """List the pages, and check their headers."""
        words, chunk = self.words, self.chunk
        pages, limit = self.address + 8 * _PAGES_AT, PAGE_TABLE
        while True:
            words[_JOB_AT : _JOB_AT + 6] = (
                self.base,
                chunk.stored_bytes,
                chunk.values,
                pages,
                limit,
                self.address + 8 * _SCRATCH_AT,
            )
            self.kernel.short(self.address + 8 * _JOB_AT, self.address + 8 * _SUMMARY_AT, operations.SCAN)
            count, values, largest, kinds, encodings, levels, checksums = words[
                _SUMMARY_AT : _SUMMARY_AT + headers.SUMMARY_WORDS
            ]
            if count != headers.TOO_MANY_PAGES:
                break
            limit *= 8
            self.table = _memory(limit * headers.PAGE_WORDS * 8)
            pages = self.table.address
        words[reader.PAGES], words[reader.PAGE_COUNT] = pages, count
        if count < 0:
            if count == headers.STRANGE_HEADER:
                raise UnknownPages
            raise SourceError(f"{self.origin}: the header of a page is damaged")
        if values != chunk.values:
            raise SourceError(
                f"{self.origin}: its pages hold {values} values, the footer says {chunk.values}: the file is damaged"
            )
        if largest > chunk.plain_bytes:
            raise SourceError(
                f"{self.origin}: a page claims {largest} bytes, all of the column chunk has "
                f"{chunk.plain_bytes}: the file is damaged"
            )
        if checksums:
            for number in range(count):
                page = self._page(number)
                if (
                    page[headers.CHECKSUM] != headers.NO_CHECKSUM
                    and zlib.crc32(self._stored(page)) != page[headers.CHECKSUM] & 0xFFFFFFFF
                ):
                    raise self._damage(number, "its checksum is not that of its bytes")
        known = _BOOLEAN_BITS if self.form == BITS else _VALUE_BITS
        if encodings & ~known or (self.column.nullable and levels & ~(1 << reader.RLE)):
            raise UnknownPages
        if kinds >> headers.LATE_DICTIONARY & 1:
            raise SourceError(f"{self.origin}: a dictionary page is not the first one: the file is damaged")

    def _call(self, size: int) -> Call:
        """The kernel, for work on this many bytes."""
        return self.kernel.short if size < SHORT_WORK else self.kernel.long

    def _page(self, number: int) -> list[int]:
        """A page, as the words that `parquet_headers` names."""
        return list(
            (ctypes.c_int64 * headers.PAGE_WORDS).from_address(
                self.words[reader.PAGES] + number * headers.PAGE_WORDS * 8
            )
        )

    def _damage(self, number: int, what: str) -> SourceError:
        return SourceError(f"{self.origin}, page {number + 1}: {what}: the file is damaged")

    def _stored(self, page: list[int]) -> memoryview:
        return memoryview(self.data)[page[headers.START] : page[headers.START] + page[headers.STORED_BYTES]]

    def _plain(self, number: int, page: list[int], target: pa.Buffer) -> None:
        """Decompress a page into `target`, except for the levels of a version 2 page, which are not compressed."""
        skip = page[headers.LEVELS] if page[headers.KIND] == headers.DATA_PAGE_V2 else 0
        size = page[headers.BYTES] - skip
        if self.chunk.codec == SNAPPY:
            words = self.words
            words[_JOB_AT : _JOB_AT + 4] = (
                self.base + page[headers.START] + skip,
                page[headers.STORED_BYTES] - skip,
                target.address,
                size,
            )
            self._call(size)(self.address + 8 * _JOB_AT, self.address + 8 * (_JOB_AT + 4), operations.DECOMPRESS)
            if words[_JOB_AT + 4]:
                raise self._damage(number, MESSAGES[words[_JOB_AT + 4]])
            return
        stored = self._stored(page)[skip:]
        try:
            # At most one byte more than expected.
            plain = (
                zlib.decompressobj(47).decompress(stored, size + 1)
                if self.chunk.codec == GZIP
                else pa.Codec("zstd").decompress(stored, size)
            )
        except (zlib.error, pa.ArrowException, OSError, ValueError):
            raise self._damage(number, "its compressed bytes are malformed") from None
        if len(plain) != size:
            raise self._damage(number, "its size is not what its header says")
        memoryview(target).cast("B")[:size] = memoryview(plain).cast("B")

    def _read_dictionary(self) -> None:
        page, words, width = self._page(0), self.words, self.column.width
        size, count = page[headers.BYTES], page[headers.VALUES]
        if page[headers.ENCODING] not in (reader.PLAIN, reader.PLAIN_DICTIONARY):
            raise UnknownPages
        if self.form == BITS or count * width > size:
            raise self._damage(0, "it ends before its last value")
        if self.chunk.codec == UNCOMPRESSED:
            if size != page[headers.STORED_BYTES]:
                raise self._damage(0, "its size is not what its header says")
            address = self.base + page[headers.START]
        else:
            self.dictionary_bytes = _memory(size + PADDING)
            self._plain(0, page, self.dictionary_bytes)
            address = self.dictionary_bytes.address
        if self.form == TEXT:
            address = self._read_strings(address, size, count)
        elif self.form == BIG:
            self.numbers = _big_numbers(pa.foreign_buffer(address, count * width), width)
            address = self.numbers.ctypes.data
        words[reader.DICTIONARY], words[reader.DICTIONARY_VALUES] = address, count

    def _read_strings(self, address: int, size: int, count: int) -> int:
        """Read the dictionary of a string column, and return the address of its offsets."""
        words, offsets = self.words, _memory(4 * count + 4)
        words[_JOB_AT : _JOB_AT + 8] = address, address + size, count, offsets.address, 0, 0, 0, 0
        text = _JOB_AT + 4
        self._call(size)(self.address + 8 * _JOB_AT, self.address + 8 * text, operations.STRINGS)
        self.text = _text_buffer(words[text + ADDRESS], words[text + USED])
        if words[text + TEXT_WORDS]:
            raise self._damage(0, MESSAGES[words[text + TEXT_WORDS]])
        self.dictionary = pa.Array.from_buffers(self.column.arrow, count, [None, offsets, self.text], 0)
        self._check(self.dictionary)
        words[reader.DICTIONARY_TEXT] = self.text.address
        return offsets.address

    def _check(self, array: pa.Array) -> None:
        """Refuse text that is not UTF-8, and invalid times."""
        if self.form == TEXT:
            words, text = self.words, array.buffers()[2]
            words[_JOB_AT : _JOB_AT + 2] = text.address, text.size
            self._call(text.size)(self.address + 8 * _JOB_AT, self.address + 8 * (_JOB_AT + 2), operations.NOT_ASCII)
            if not words[_JOB_AT + 2]:
                return
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise SourceError(f"{self.origin}: {str(error).splitlines()[0]}") from None

    def batch_rows(self, most: int) -> int:
        """How many rows a batch may have, so that its text stays within the limit however it is spread over the
        pages."""
        if self.form != TEXT:
            return most
        if self.dictionary is not None and self.text.size > MAX_TEXT // most:
            longest = int(np.diff(np.frombuffer(self.dictionary.buffers()[1], np.int32)).max())
            most = min(most, MAX_TEXT // longest)
        if self.chunk.plain_bytes > MAX_TEXT:
            pages = [self._page(number) for number in range(self.words[reader.PAGE_COUNT])]
            sizes = [
                (page[headers.BYTES], page[headers.VALUES])
                for page in pages
                if page[headers.KIND] in _DATA_PAGES and page[headers.VALUES]
            ]
            # This many rows span at most two partial pages, with whole pages between them.
            left = MAX_TEXT - 2 * max((size for size, _ in sizes), default=0)
            most = min(most, int(left / max((size / values for size, values in sizes), default=1)))
        return max(1, most)

    def read(self, rows: int) -> pa.Array:
        """The next rows."""
        return read_all([self], rows)[0]

    def prepare(self, rows: int, selection: Selection | None = None) -> None:
        """Allocate memory for the next rows, or for the selected ones of them."""
        words, form = self.words, self.form
        words[reader.ROWS], words[reader.FILLED], words[reader.NULLS] = rows, 0, 0
        if selection is not None:
            rows = selection.count
            words[reader.SELECTION], words[reader.SELECTED], words[reader.TAKEN] = selection.address, rows, 0
        self.rows, self.operation, bitmap = (
            rows,
            operations.DECODE if selection is None else operations.PICK,
            (rows >> 3) + reader.BITMAP_PADDING,
        )
        self.validity = _memory(bitmap) if self.column.nullable else None
        self.values = _memory(bitmap if form == BITS else 4 * rows + 4 if form == TEXT else rows * _WIDTHS[form])
        words[reader.OUT] = self.values.address
        words[reader.VALIDITY] = 0 if self.validity is None else self.validity.address
        if form == TEXT and self.expected_text:
            words[_TEXT_ADDRESS] = memory.allocate(self.expected_text)
            words[_TEXT_ROOM] = self.expected_text if words[_TEXT_ADDRESS] else 0

    def finish(self) -> pa.Array:
        """The rows that the kernel has decoded. It may have stopped at a page that it cannot decompress."""
        words, column, form, values = self.words, self.column, self.form, self.values
        while status := words[reader.STATUS]:
            number = words[reader.PAGE]
            if status != NEED_PAGE:
                raise self._damage(max(0, number - 1), MESSAGES[status])
            self._plain(number, self._page(number), self.scratch)
            words[reader.READY] = number + 1
            _decode([self])
        rows, nulls = self.rows, words[reader.NULLS]
        buffers = [self.validity if nulls else None, values]
        self.validity = self.values = None
        if form == CODES:
            return pa.DictionaryArray.from_arrays(
                pa.Array.from_buffers(_INT32, rows, buffers, nulls), self.dictionary, safe=False
            )
        if form == TEXT:
            buffers.append(self._take_text())
        array = pa.Array.from_buffers(column.decoded, rows, buffers, nulls)
        if column.is_cast:
            array = array.cast(column.arrow, safe=False)
        if self.checks:
            self._check(array)
        return array

    def _take_text(self) -> pa.Buffer:
        """The bytes of the strings that the kernel has decoded."""
        words = self.words
        text = _text_buffer(words[_TEXT_ADDRESS], words[_TEXT_USED])
        words[_TEXT_ADDRESS] = words[_TEXT_ROOM] = words[_TEXT_USED] = 0
        self.expected_text = text.size + text.size // 8 + PADDING
        return text

    def __del__(self) -> None:
        # Nobody took this text if another column of the batch was damaged.
        if self.words is not None and self.words[_TEXT_ADDRESS]:
            memory.free(self.words[_TEXT_ADDRESS])


def read_all(readers: list[ChunkReader], rows: int, selection: Selection | None = None) -> list[pa.Array]:
    """The next rows of each reader, or the selected ones, by one kernel call: for small batches, threads that wait for
    the GIL between calls cost more than the work."""
    for one in readers:
        one.prepare(rows, selection)
    if readers:
        _decode(readers)
    return [one.finish() for one in readers]


def _decode(readers: list[ChunkReader]) -> None:
    addresses, count = (ctypes.c_int64 * len(readers))(*[one.address for one in readers]), ctypes.c_int64(len(readers))
    readers[0].kernel.long(ctypes.addressof(addresses), ctypes.addressof(count), readers[0].operation)


def _big_numbers(data: pa.Buffer, width: int) -> np.ndarray:
    """Big-endian numbers of `width` bytes as int64."""
    stored = np.frombuffer(data, np.uint8).reshape(-1, width)
    wide = np.empty((len(stored), 8), np.uint8)
    wide[:, : 8 - width] = np.where(stored[:, :1] >= 128, 255, 0)
    wide[:, 8 - width :] = stored
    return wide.view(">i8").astype(np.int64).ravel()
