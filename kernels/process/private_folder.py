"""Opens folders that only this user can write to, so that their content can be trusted as the user's own.

The compile cache calls `open_private`, since it executes what it finds. The walk starts at `/` and goes from descriptor
to descriptor, so what was checked is what is used: replacing a folder or link later changes nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
MOST_LINKS = 40
"""Symbolic links on one path, as in Linux itself."""

_WALK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class NotPrivate(Exception):
    """Another user could put something into the folder, or replace it by another folder."""


def open_private(path: str) -> int:
    """A descriptor of a folder that belongs to the effective user and that others cannot write to. Missing folders on
    the path are made with mode 0700.

    Each folder and link on the path must belong to the user or to root. Folders on the path that others can write to
    must have the sticky bit, as /tmp does: others cannot replace our entries there. Raises NotPrivate with the reason,
    or OSError."""
    parts = _parts(path if path.startswith("/") else f"{os.getcwd()}/{path}")
    at, shown, links = os.open("/", _WALK), "/", 0
    try:
        known = _checked(at, shown)
        while parts:
            part = parts.pop()
            child = _child(at, part)
            shown = os.path.join(shown, part)
            try:
                known = _checked(child, shown)
                if stat.S_ISLNK(known.st_mode):
                    links += 1
                    if links > MOST_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                    target = os.readlink("", dir_fd=child)
                    parts += _parts(target)
                    os.close(child)
                    child = os.open("/", _WALK) if target.startswith("/") else os.dup(at)
                    shown = "/" if target.startswith("/") else os.path.dirname(shown)
                elif not stat.S_ISDIR(known.st_mode):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), shown)
            except BaseException:
                os.close(child)
                raise
            os.close(at)
            at = child
        _check_own(os.fstat(at), shown)
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
    finally:
        os.close(at)


def make_folders(path: Path) -> None:
    """Make a folder and its missing parents for this user only. `Path.mkdir` leaves the parents' mode to the umask, and
    the cache refuses a folder below one that others can write to."""
    for folder in reversed((path, *path.parents)):
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)


def _parts(path: str) -> list[str]:
    """The names of a path, the first one last."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _child(folder: int, name: str) -> int:
    try:
        return os.open(name, _WALK, dir_fd=folder)
    except FileNotFoundError:
        try:
            os.mkdir(name, 0o700, dir_fd=folder)
        except FileExistsError:  # another process was quicker
            pass
        return os.open(name, _WALK, dir_fd=folder)


def _checked(descriptor: int, shown: str) -> os.stat_result:
    """The status of a folder or link on the path; NotPrivate if another user can replace what is behind it."""
    known = os.fstat(descriptor)
    if known.st_uid not in (0, os.geteuid()):
        raise NotPrivate(f"{shown} belongs to another user")
    if stat.S_ISDIR(known.st_mode) and known.st_mode & OTHERS_WRITE and not known.st_mode & stat.S_ISVTX:
        raise NotPrivate(f"other users can write to {shown}")
    return known


def _check_own(known: os.stat_result, shown: str) -> None:
    if known.st_uid != os.geteuid():
        raise NotPrivate(f"{shown} belongs to another user")
    if known.st_mode & OTHERS_WRITE:
        raise NotPrivate(f"other users can write to {shown}")
