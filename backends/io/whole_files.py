"""Atomic writes: files and folders are written under a temporary name beside their target, then renamed.

Used by `writers`, COPY with PARTITION_BY, and everything that writes plans and results. An existing target keeps some
properties: a symbolic link stays a link (its file is replaced), the mode is kept, and so is the owner where the system
allows it.

During the write a file is called `.name.0123456789abcdef.partial`, and its writer holds a lock on it. So a later
writer to the same place can tell which files a dead process left behind (they are not locked), and removes them."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tsql.backends.io.descriptors import descriptor_of, open_to_write

TOKEN = "(?:[0-9a-f]{8}){1,2}"
"""The pattern of `new_token`, and of the shorter ones of earlier versions."""

_LONGEST_NAME = 200
_RENAME_EXCHANGE, _HERE = 2, -100


def new_token() -> str:
    """What tells the files of a run from those of all others. It is in the names of files that stay (`folders`), and a
    run with the token of another one would replace them. With 32 bits, every second folder would have such a pair
    after 77,000 runs."""
    return secrets.token_hex(8)


def write_whole(path: str | os.PathLike[str], fill: Callable[[BinaryIO], None]) -> None:
    """Have `fill` write a file, which then appears at `path`. If it fails, the old file is unchanged. A target that is
    no regular file, such as a pipe, or that is already open (`descriptors`), is written directly. Raises OSError."""
    descriptor = descriptor_of(path)
    if descriptor is not None:
        with open_to_write(descriptor) as stream:
            fill(stream)
        return
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as stream:  # a device, or a pipe
            fill(stream)
        return
    target = real_path(path)
    with _beside(target, _new_file) as (partial, descriptor):
        _take_over(descriptor, target)
        with open(descriptor, "wb", closefd=False) as stream:
            fill(stream)
        os.replace(partial, target)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically."""

    def fill(stream: BinaryIO) -> None:
        stream.write(text.encode("utf-8"))

    write_whole(path, fill)


@contextmanager
def whole_folder(path: str | os.PathLike[str], overwrite: bool) -> Iterator[Path]:
    """A new folder to write into, which appears at `path` at the end. With `overwrite` the old folder is removed;
    otherwise only files that are also in the new folder are replaced, one by one."""
    if descriptor_of(path) is not None:
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    target = real_path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _beside(target, _new_folder) as (partial, _):
        yield partial
        if not target.is_dir():
            os.replace(partial, target)
        elif overwrite:
            shutil.copymode(target, partial)
            _exchange(partial, target)
        elif any(target.iterdir()) or not _takes_place(partial, target):
            _move_files(partial, target)


@contextmanager
def shared_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder beside `path` that other processes write into for a while. It is gone at the end. They may still be
    writing: their paths lead nowhere then, so nothing new appears."""
    if descriptor_of(path) is not None:
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    target = real_path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _beside(target, _new_folder) as (partial, _):
        try:
            yield partial
        finally:
            away = target.with_name(f".{_stem(target)}.{new_token()}.partial")
            with suppress(OSError):
                os.rename(partial, away)
                _remove(away)


def real_path(path: str | os.PathLike[str]) -> Path:
    """The path behind symbolic links."""
    found = Path(os.path.realpath(path))
    if found.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return found


@contextmanager
def _beside(target: Path, make: Callable[[Path], int]) -> Iterator[tuple[Path, int]]:
    """A locked file or folder beside the target, under its own name. It is removed at the end in any case."""
    remove_leftovers(target)
    partial, descriptor = _locked(target, make)
    try:
        yield partial, descriptor
    finally:
        _remove(partial)
        os.close(descriptor)


def _locked(target: Path, make: Callable[[Path], int]) -> tuple[Path, int]:
    while True:
        partial = target.with_name(f".{_stem(target)}.{new_token()}.partial")
        descriptor = make(partial)
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Another writer may have removed it as a leftover before it was locked.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(partial), os.fstat(descriptor)):
                return partial, descriptor
        os.close(descriptor)


def _new_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _new_folder(path: Path) -> int:
    path.mkdir()
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def remove_leftovers(target: Path) -> None:
    """Remove the files that dead writers to this target have left."""
    pattern = re.compile(re.escape(f".{_stem(target)}.") + rf"{TOKEN}\.partial")
    with suppress(OSError), os.scandir(target.parent) as entries:
        left = [Path(entry.path) for entry in entries if pattern.fullmatch(entry.name) and not entry.is_symlink()]
        for path in left:
            with suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(path)
                finally:
                    os.close(descriptor)


def _stem(target: Path) -> str:
    """The name of the target, or a substitute if the longer name would be too long."""
    raw = os.fsencode(target.name)
    return (
        target.name if len(raw) <= _LONGEST_NAME else f"{os.fsdecode(raw[:64])}-{hashlib.sha256(raw).hexdigest()[:16]}"
    )


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _take_over(descriptor: int, target: Path) -> None:
    """Give a new file the owner and mode of the file it will replace, before anything is written."""
    try:
        known = os.stat(target)
    except FileNotFoundError:
        return
    mine = os.fstat(descriptor)
    os.fchmod(descriptor, stat.S_IRUSR | stat.S_IWUSR)
    if (known.st_uid, known.st_gid) != (mine.st_uid, mine.st_gid):
        try:
            os.fchown(descriptor, known.st_uid, known.st_gid)
        except PermissionError:
            with suppress(PermissionError):
                os.fchown(descriptor, -1, known.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(known.st_mode))


def _takes_place(new: Path, empty: Path) -> bool:
    """Put a folder in the place of an empty one, in one step; False if the system cannot."""
    shutil.copymode(empty, new)
    try:
        os.replace(new, empty)
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.EINVAL):  # a mount
            raise
        return False
    return True


def _exchange(new: Path, old: Path) -> None:
    """Swap two folders, atomically if the system can. The old folder is then at `new`."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is not None and rename(_HERE, os.fsencode(new), _HERE, os.fsencode(old), _RENAME_EXCHANGE) == 0:
        return
    away = old.with_name(f".{_stem(old)}.{new_token()}.previous")
    os.rename(old, away)
    os.rename(new, old)
    shutil.rmtree(away)


def _move_files(source: Path, target: Path) -> None:
    for folder, _, names in os.walk(source):
        below = target / os.path.relpath(folder, source)
        below.mkdir(parents=True, exist_ok=True)
        for name in names:
            os.replace(os.path.join(folder, name), below / name)
