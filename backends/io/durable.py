"""Makes files and folders survive a crash of the machine: what was written is on disk when these return."""

from __future__ import annotations

import os
from pathlib import Path


def sync_file(path: str | os.PathLike[str]) -> None:
    """The content of a file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: str | os.PathLike[str]) -> None:
    """The names in a folder: files that were made, renamed or removed there."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_text(path: Path, text: str) -> None:
    """Put a text in the place of a file, all of it or nothing."""
    staged = path.with_name(f".{path.name}.staged")
    staged.write_text(text, encoding="utf-8")
    sync_file(staged)
    os.replace(staged, path)
    sync_folder(path.parent)
