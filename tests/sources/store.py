"""Stores of files for tests: a file system in Python, through which pyarrow asks another one (it counts reads, and
questions about files), and a server that speaks S3."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs


class CountingStore(fs.FSSpecHandler):
    """A handler over another file system, which counts reads. `fails`: the error of every later call. `given`: the
    options it was opened with. `at_move`: called before a move, with its place among all of them."""

    folder: Path
    fails: Exception | None = None
    given: Any = None
    reads = asked = 0
    moves = 0
    at_move: Any = None

    def __init__(self, inner: Any):
        self.inner = inner
        self.lock = threading.Lock()

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
        self.asked += 1
        return self.inner.get_file_info(paths)

    def get_file_info_selector(self, selector: Any) -> Any:
        self._check()
        self.asked += 1
        return self.inner.get_file_info(selector)

    def open_input_stream(self, path: str) -> Any:
        self._check()
        return self.inner.open_input_stream(path, compression=None)

    def open_input_file(self, path: str) -> Any:
        self._check()
        return pa.PythonFile(_Counted(self.inner.open_input_file(path), self), "r")

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        self._check()
        self._make_parent(path)
        return self.inner.open_output_stream(path, compression=None)

    def move(self, source: str, target: str) -> None:
        with self.lock:
            self.moves += 1
            if self.at_move is not None:
                self.at_move(self.moves)
        self._make_parent(target)
        self.inner.move(source, target)

    def create_dir(self, path: str, recursive: bool) -> None:
        self.inner.create_dir(path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        self.inner.delete_dir(path)

    def delete_file(self, path: str) -> None:
        self.inner.delete_file(path)

    def _make_parent(self, path: str) -> None:
        """A store of objects has no folders that must be made."""
        self.inner.create_dir(path.rpartition("/")[0], recursive=True)

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


@contextmanager
def s3_server() -> Iterator[str]:
    """The address of a server that speaks S3, in this process."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield "{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()
