"""Reads and writes entries of a cache folder as the compile cache does."""

from __future__ import annotations

from pathlib import Path

from tsql.kernels.codegen.llvm import compiler
from tsql.kernels.codegen.object_cache import FORMAT, flush, read_entry, write_later
from tsql.kernels.codegen.sealed import KEY_FILE, seal, unseal
from tsql.kernels.expr.identity import code_identity

KINDS = ("code", "pool", "program", "plan")


def entries(folder: Path) -> list[Path]:
    """The files of a folder that are entries: neither its key nor foreign files."""
    return sorted(path for path in folder.iterdir() if path.name != KEY_FILE and not path.suffix == ".parquet")


def read_code(key: str) -> bytes | None:
    """The content of an entry with code, whoever made it."""
    return read_entry("code", key)


def write_code(key: str, code: bytes) -> None:
    """Make or replace an entry now."""
    write_later("code", key, lambda: code)
    flush()


def label_of(path: Path) -> tuple[str, ...]:
    """The label under which an entry was sealed: its format, kind, name and producer."""
    key = (path.parent / KEY_FILE).read_bytes()
    for kind in KINDS:
        label = (FORMAT, kind, path.name, compiler()._made_by if kind in ("code", "pool") else code_identity())
        if unseal(key, label, path.read_bytes()) is not None:
            return label
    raise AssertionError(f"{path.name} is no entry of its folder")


def content_of(path: Path) -> bytes:
    """What an entry holds."""
    content = unseal((path.parent / KEY_FILE).read_bytes(), label_of(path), path.read_bytes())
    assert content is not None
    return content


def replace(path: Path, content: bytes) -> None:
    """Replace an entry's content and compute the right tag, as only the user can."""
    path.write_bytes(seal((path.parent / KEY_FILE).read_bytes(), label_of(path), content))
