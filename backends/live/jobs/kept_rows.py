"""Rows on disk that must come back as they were: Arrow files with the checksum of their bytes. Checkpoints and
the table sink keep rows this way. Arrow itself does not notice a bit that has changed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from tsql.backends.io.durable import sync_file


def write_rows(path: Path, batches: Sequence[pa.RecordBatch], schema: pa.Schema, compression: str | None = None) -> int:
    """Write a file and make it durable. Returns its checksum."""
    kept = pa.BufferOutputStream()
    with pa.ipc.new_file(kept, schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as file:
        for batch in batches:
            file.write_batch(batch)
    data = kept.getvalue()
    with open(path, "wb") as sink:
        sink.write(data)
    sync_file(path)
    return zlib.crc32(data)


def read_rows(path: Path, checksum: int) -> list[pa.RecordBatch]:
    """The batches of such a file. Raises OSError or ValueError if they are not what was written."""
    data = path.read_bytes()
    if zlib.crc32(data) != checksum:
        raise ValueError(f"{path.name} is not what was written")
    with pa.ipc.open_file(pa.BufferReader(data)) as file:
        return [file.get_batch(number) for number in range(file.num_record_batches)]
