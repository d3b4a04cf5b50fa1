"""Which files of a stream are there: paths and patterns → files with their size and time. Used by `files`.

Left out are names that say that a file is not finished (`is_hidden`); Parquet and Arrow files tell by their last bytes
whether they are whole (`is_whole`)."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence

from tsql.backends.io import remote
from tsql.backends.io.files import compression_of, kind_of
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.process.quick_dataclass import dataclass

UNFINISHED_ENDINGS = (".tmp", ".partial", ".staged", ".inprogress")
_PARQUET_MAGIC = (b"PAR1", b"PARE")
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


@dataclass(frozen=True)
class FoundFile:
    """A file as a look at the folder saw it. Of files elsewhere (`remote`) the time is 0: it would take a request for
    each of them, and they appear whole."""

    path: str
    changed_ns: int
    bytes: int


def found_files(patterns: Sequence[str], kind: str) -> Iterator[FoundFile]:
    """The files of a kind that paths, folders and patterns name, in no order; none if there are none yet."""
    seen: set[str] = set()
    for pattern in patterns:
        for file in _remote_files(pattern, kind) if remote.is_remote(pattern) else _local_files(pattern, kind):
            if file.path not in seen:
                seen.add(file.path)
                yield file


def file_at(path: str) -> FoundFile | None:
    """A file as it is now; None if it is not there."""
    if remote.is_remote(path):
        size = remote.size_of(path)
        return None if size is None else FoundFile(path, 0, size)
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return FoundFile(path, status.st_mtime_ns, status.st_size)


def is_hidden(path: str) -> bool:
    """Whether the name, or that of a folder on the way, says that a file is metadata or not finished. Partitions
    (`_key=1`) are not hidden."""
    *folders, name = path.strip("/").split("/")
    return (
        name.startswith((".", "_"))
        or name.endswith(UNFINISHED_ENDINGS)
        or any(one.startswith(".") or (one.startswith("_") and "=" not in one) for one in folders)
    )


def _remote_files(pattern: str, kind: str) -> Iterator[FoundFile]:
    found, is_folder = remote.listed(pattern, lambda name: not is_hidden(name) and kind_of(name) == kind)
    for path, size in found.items():
        if is_folder or not is_hidden(path.rsplit("/", 1)[-1]):
            yield FoundFile(path, 0, size)


def _local_files(pattern: str, kind: str) -> Iterator[FoundFile]:
    # A job that is started again from another folder must know its files by the same names.
    place = os.path.abspath(pattern)
    if os.path.isdir(place):
        yield from _files_below(place, "", kind)
        return
    named = [place] if os.path.exists(place) else glob.iglob(place, recursive=True)
    for path in named:
        found = None if path != place and is_hidden(os.path.basename(path)) else file_at(path)
        if found is not None and os.path.isfile(path):
            yield found


def _files_below(folder: str, inside: str, kind: str) -> Iterator[FoundFile]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = f"{inside}{entry.name}"
                if entry.is_dir():
                    if not is_hidden(f"{entry.name}/x"):
                        yield from _files_below(entry.path, f"{name}/", kind)
                elif not is_hidden(entry.name) and kind_of(entry.name) == kind:
                    found = file_at(entry.path)
                    if found is not None:
                        yield found
    except PermissionError:
        raise SourceError(f"{folder}: permission denied") from None
    except FileNotFoundError:
        return  # a folder that went away between two looks has no files


def is_whole(path: str, kind: str, size: int) -> bool:
    """Whether a file is not being written any more, as far as its bytes tell: Parquet has its footer at the end, Arrow
    files their magic bytes, Arrow streams a mark of their end. Text files say nothing, but an empty one has just been
    made. FileNotFoundError if it is not there."""
    if remote.is_remote(path):
        return True
    if size == 0:
        return False
    if kind not in ("parquet", "ipc") or compression_of(path) is not None:
        return True
    with open(path, "rb") as file:
        head = file.read(6)
        file.seek(max(0, size - 8))
        tail = file.read(8)
    if kind == "parquet":
        return size >= 12 and tail.endswith(_PARQUET_MAGIC)
    return size > 12 and (tail.endswith(b"ARROW1") if head == b"ARROW1" else tail == _END_OF_STREAM)
