"""Held rows that `memory_limit` has no room for: chunks whose columns are in a file, which is mapped into memory.

Kernels read them where they are, and the system brings in the pages that they touch. Files are in `temp_directory`;
they have no name from the beginning on, so nobody else opens them and nothing is left of them."""

from __future__ import annotations

import os
import tempfile

import pyarrow as pa

from tsql.backends.local.run.host import Chunk
from tsql.backends.settings import Settings
from tsql.kernels.expr.errors import ExecutionError

LEAST_BYTES = 64 << 10
"""Smaller chunks stay: a file for each would take more than it gives."""


class MappedFile:
    """What keeps a chunk in a file readable: the file lives as long as this."""

    def __init__(self, map: pa.MemoryMappedFile):
        self.map = map


def is_in_file(chunk: Chunk) -> bool:
    return isinstance(chunk.owner, MappedFile)


def bytes_in_memory(chunk: Chunk) -> int:
    return 0 if is_in_file(chunk) else sum(array.nbytes for array in chunk.arrays)


def in_file(chunk: Chunk, settings: Settings) -> Chunk:
    """The same rows, in a file."""
    folder = settings.temp_directory or tempfile.gettempdir()
    batch = pa.RecordBatch.from_arrays(chunk.arrays, [str(place) for place in range(len(chunk.arrays))])
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        descriptor, path = tempfile.mkstemp(prefix="tsql-", dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
                writer.write_batch(batch)
            mapped = pa.memory_map(path)
        finally:
            os.unlink(path)
    except OSError as error:
        raise ExecutionError(
            f"the query holds more rows than memory_limit allows, and cannot write to the temporary directory "
            f"{folder}: {(error.strerror or str(error)).lower()}",
            hint="raise memory_limit, or set temp_directory to a folder with more space",
        ) from error
    found = pa.ipc.open_file(mapped).get_batch(0)
    return Chunk(chunk.order, chunk.rows, list(found.columns), 0, MappedFile(mapped))
