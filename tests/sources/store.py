"""A store of files for tests: a file system in Python, through which pyarrow asks another one. It counts reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs


class CountingStore(fs.FSSpecHandler):
    """A handler over another file system. `fails`: the error of every later call. `given`: the options it was opened
    with."""

    folder: Path
    fails: Exception | None = None
    given: Any = None
    reads = 0

    def __init__(self, inner: Any):
        self.inner = inner

    def opened(self, storage: Any) -> Any:
        self.given = dict(storage)
        return fs.PyFileSystem(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def get_type_name(self) -> str:
        return "mock"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> Any:
        self._check()
        return self.inner.get_file_info(paths)

    def get_file_info_selector(self, selector: Any) -> Any:
        self._check()
        return self.inner.get_file_info(selector)

    def open_input_stream(self, path: str) -> Any:
        self._check()
        return self.inner.open_input_stream(path, compression=None)

    def open_input_file(self, path: str) -> Any:
        self._check()
        return pa.PythonFile(_Counted(self.inner.open_input_file(path), self), "r")

    def _check(self) -> None:
        if self.fails is not None:
            raise self.fails


class _Counted:
    """A file that counts the reads of its bytes."""

    closed = False

    def __init__(self, file: Any, store: CountingStore):
        self.file, self.store = file, store

    def read(self, size: int = -1) -> bytes:
        self.store.reads += 1
        return bytes(self.file.read(None if size < 0 else size))

    def seek(self, *place: Any) -> Any:
        return self.file.seek(*place)

    def tell(self) -> int:
        return int(self.file.tell())

    def size(self) -> int:
        return int(self.file.size())

    def close(self) -> None:
        self.closed = True
        self.file.close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False
