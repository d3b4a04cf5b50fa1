"""What is in a cache folder, read and written as the compile cache does."""

from __future__ import annotations

from pathlib import Path

from tsql.kernels.codegen.object_cache import flush, read_entry, write_later
from tsql.kernels.codegen.sealed import KEY_FILE


def entries(folder: Path) -> list[Path]:
    """The files of a folder that are entries, and not its key."""
    return sorted(path for path in folder.iterdir() if path.name != KEY_FILE)


def read_code(key: str) -> bytes | None:
    """The content of an entry that holds code, whoever made it."""
    return read_entry("code", key)


def write_code(key: str, code: bytes) -> None:
    """Make or replace an entry now."""
    write_later("code", key, lambda: code)
    flush()
