"""Which code this is: part of the key of whatever one process keeps for the next that the code decides and the key does not show."""

from __future__ import annotations

import hashlib
import os
import sys
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec

PACKAGES = ("tsql", "tsql.backends", "tsql.planner", "tsql.kernels")


@cache
def code_identity() -> str:
    """A digest of the names, sizes and times of this package's files, of Python's version and that of sqlglot; computed once in a process."""
    files: list[tuple[str, int, int]] = []
    for package in PACKAGES:
        for folder in find_spec(package).submodule_search_locations:
            _add_files(folder, files)
    return hashlib.sha256(repr((sys.version_info, version("sqlglot"), sorted(files))).encode()).hexdigest()


def _add_files(folder: str, files: list[tuple[str, int, int]]) -> None:
    """The modules in a folder and in those below it."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                known = entry.stat()
                files.append((entry.path, known.st_mtime_ns, known.st_size))
            elif not entry.name.startswith(("_", ".")) and entry.is_dir():
                _add_files(entry.path, files)
