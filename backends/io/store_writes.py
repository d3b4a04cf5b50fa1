"""Files and folders in a store (`remote.py`) that appear whole or not at all: what `whole_files` does on this machine.
`writers` writes single files through it, and `folders` those of a cluster's tasks.

A store of objects renames nothing, and has no step that changes two objects. So files wait under a hidden name and are
copied by the store when all of them are there: files of a folder into it, where no two runs share a name. If that
fails, the copies are removed. Files that they replace go last, so no moment has fewer rows than before. `_SUCCESS`
stands for a folder that is complete: it is removed before the first change and written after the last.

A store with folders (`RENAMES`) renames the whole folder instead."""

from __future__ import annotations

import datetime as dt
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, BinaryIO

import pyarrow as pa

from tsql.backends.io import remote
from tsql.backends.io.whole_files import TOKEN, new_token
from tsql.kernels.expr.errors import SourceError

RENAMES = {"hdfs"}
"""Schemes of stores that rename a folder in one step."""

SUCCESS = "_SUCCESS"
WHOLE, PREVIOUS = "whole", "previous"
"""The new folder and the old one below a staged folder, while one takes the place of the other."""

AT_A_TIME = 16
"""Requests to the store at a time: a copy takes some 50 ms, most of it waiting."""

COPIED_BYTES = 5_000_000_000
"""S3 copies no larger file in one request. A larger one goes through this process."""

LEFT_DAYS = 7
"""After so many days without a change, the files of an unfinished run are those of a dead one. A store has no locks."""

_PARTIAL = re.compile(rf"(^|/)\.[^/]*\.{TOKEN}\.partial(/|$)")


@contextmanager
def _writing(path: str) -> Iterator[None]:
    """Errors of the store as one message, without credentials."""
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        raise SourceError(f"cannot write {remote.redacted(path)}: {remote.redacted(lines[0])}") from None


def _scheme(path: str) -> str:
    return remote.scheme_of(path) or ""


def _info(path: str) -> Any:
    system, inside = remote.filesystem(path)
    return system.get_file_info(inside.rstrip("/"))


def _below(path: str) -> list[Any]:
    """The files below a folder, with those of unfinished runs."""
    from pyarrow.fs import FileSelector, FileType

    system, inside = remote.filesystem(path)
    found = system.get_file_info(FileSelector(inside.rstrip("/"), allow_not_found=True, recursive=True))
    return [one for one in found if one.type == FileType.File]


def files_below(path: str) -> dict[str, int]:
    """The files of a folder by their names below it, with their bytes. Files of unfinished runs are none of it."""
    with _writing(path):
        start = len(remote.filesystem(path)[1].rstrip("/")) + 1
        found = {one.path[start:]: int(one.size) for one in _below(path)}
    return {name: size for name, size in found.items() if not _PARTIAL.search(name)}


def is_folder(path: str) -> bool:
    """Whether there are files below a name."""
    from pyarrow.fs import FileType

    with _writing(path):
        return bool(_info(path).type == FileType.Directory)


def _make_parent(path: str) -> None:
    """Folders are there by the names of files, unless the store has real ones."""
    if _scheme(path) in RENAMES:
        system, inside = remote.filesystem(path)
        system.create_dir(posixpath.dirname(inside), recursive=True)


def write_file(path: str, fill: Callable[[BinaryIO], None]) -> int:
    """Have `fill` write a file. Returns its bytes. If it fails, what is there then is not the file."""
    with _writing(path):
        _make_parent(path)
        system, inside = remote.filesystem(path)
        with system.open_output_stream(inside, compression=None) as stream:
            fill(stream)
        return int(system.get_file_info(inside).size)  # a stream that packs has closed this one


def write_whole(path: str, fill: Callable[[BinaryIO], None]) -> None:
    """Have `fill` write a file, which then appears at `path`. If it fails, the old file is unchanged."""
    if path.endswith("/") or is_folder(path):
        raise SourceError(f"cannot write {remote.redacted(path)}: it is a folder, not a file")
    folder, _, name = path.rpartition("/")
    partial = f"{folder}/.{name}.{new_token()}.partial"
    try:
        size = write_file(partial, fill)
        with _writing(path):
            _move(partial, path, size)
    except BaseException:
        with _quietly():
            _remove([partial])
        raise


def _move(source: str, target: str, size: int) -> None:
    system, inside = remote.filesystem(source)
    _, new = remote.filesystem(target)
    if size <= COPIED_BYTES or _scheme(source) in RENAMES:
        system.move(inside, new)
        return
    with system.open_input_stream(inside) as given, system.open_output_stream(new) as taken:
        while piece := given.read(16 << 20):
            taken.write(piece)
    system.delete_file(inside)


def _remove(paths: Iterable[str]) -> None:
    def remove(path: str) -> None:
        system, inside = remote.filesystem(path)
        with suppress(FileNotFoundError):
            system.delete_file(inside)

    _each(remove, paths)


def _quietly() -> AbstractContextManager[None]:
    """Drops errors of the store: those of tidying up, after an error that is more important than what it leaves."""
    return suppress(OSError, ValueError, pa.ArrowException, SourceError)


def _remove_folder(path: str) -> None:
    system, inside = remote.filesystem(path)
    with suppress(FileNotFoundError):
        system.delete_dir(inside)


def _each(work: Callable[[Any], None], items: Iterable[Any]) -> None:
    """Requests side by side. All have ended when the first error is raised."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        ended = [pool.submit(work, item) for item in items]
    for one in ended:
        one.result()


@contextmanager
def staged_folder(path: str) -> Iterator[str]:
    """A hidden folder for the files of attempts. It is gone at the end. An attempt that still runs may write there
    once more; nobody reads it."""
    folder, start = _place_of_staged(path.rstrip("/"))
    staged = f"{folder}/{start}{new_token()}.partial"
    with _quietly():
        _remove_leftovers(folder, start)
    try:
        yield staged
    finally:
        with _quietly():
            _remove_staged(staged)


def _place_of_staged(target: str) -> tuple[str, str]:
    """The folder that has the hidden folders of a target, and how their names begin."""
    if _scheme(target) in RENAMES:
        folder, _, name = target.rpartition("/")
        return folder, f".{name}."
    return target, ".copy."  # inside, since who may write to a folder of a bucket may not write beside it


def _remove_leftovers(folder: str, start: str) -> None:
    """Remove the hidden folders of runs whose drivers are dead."""
    from pyarrow.fs import FileSelector, FileType

    oldest = dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=LEFT_DAYS)
    is_staged = re.compile(rf"{re.escape(start)}{TOKEN}\.partial")
    system, inside = remote.filesystem(f"{folder}/")
    for one in system.get_file_info(FileSelector(inside.rstrip("/") or inside, allow_not_found=True)):
        if one.type == FileType.Directory and is_staged.fullmatch(one.base_name):
            left = f"{folder}/{one.base_name}"
            # A folder without files tells its own time, if the store has any for folders.
            times = [file.mtime for file in _below(left)] or [one.mtime]
            if all(time is not None and time < oldest for time in times):
                _remove_staged(left)


def _remove_staged(staged: str) -> None:
    """Remove a hidden folder, unless a driver has died between the two renames of `_rename_whole`, or could not take
    back the first one: the old folder is nowhere else then."""
    from pyarrow.fs import FileType

    there = (_info(f"{staged}/{name}").type == FileType.Directory for name in (WHOLE, PREVIOUS))
    if _scheme(staged) not in RENAMES or not all(there):
        _remove_folder(staged)


def commit(
    path: str,
    staged: str,
    moves: Mapping[str, str],
    sizes: Mapping[str, int],
    existing: str,
    earlier: Callable[[str], bool],
) -> None:
    """Put files into a folder. moves: from the place below `staged` to the name below `path`. existing: as in
    `FolderTarget`. earlier: whether "replace" removes a file."""
    target = path.rstrip("/")
    with _writing(path):
        if _scheme(path) in RENAMES and existing in ("refuse", "overwrite"):
            _rename_whole(target, staged, moves, sizes)
            return
        there = files_below(target)
        old = [name for name in there if existing == "overwrite" or (existing == "replace" and earlier(name))]
        _remove([f"{target}/{SUCCESS}"] if SUCCESS in there else [])
        try:
            _each(lambda one: _place(staged, one, target, moves[one], sizes[one]), moves)
        except BaseException:
            with _quietly():
                _remove(f"{target}/{name}" for name in moves.values())
                if SUCCESS in there:  # not if a copy has stayed
                    write_file(f"{target}/{SUCCESS}", lambda _: None)
            raise
        _remove(f"{target}/{name}" for name in old if name != SUCCESS)
        write_file(f"{target}/{SUCCESS}", lambda _: None)


def _place(staged: str, place: str, target: str, name: str, size: int) -> None:
    _make_parent(f"{target}/{name}")
    _move(f"{staged}/{place}", f"{target}/{name}", size)


def _rename_whole(target: str, staged: str, moves: Mapping[str, str], sizes: Mapping[str, int]) -> None:
    """Put a folder in the place of another, or of none. For a moment there is none."""
    from pyarrow.fs import FileType

    for place, name in moves.items():
        _place(staged, place, f"{staged}/{WHOLE}", name, sizes[place])
    system, new = remote.filesystem(f"{staged}/{WHOLE}")
    _, old = remote.filesystem(target)
    _, aside = remote.filesystem(f"{staged}/{PREVIOUS}")
    has_old = _info(target).type == FileType.Directory
    if has_old:
        system.move(old, aside)
    try:
        system.move(new, old)
    except BaseException:
        if has_old:
            with _quietly():
                system.move(aside, old)
        raise
