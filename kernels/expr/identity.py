"""The identity of this code: part of the key of whatever one process stores for the next and depends on the code."""

from __future__ import annotations

import hashlib
import os
import sys
from functools import cache
from importlib.util import find_spec

PACKAGES = ("tsql", "tsql.backends", "tsql.planner", "tsql.kernels")


@cache
def code_identity() -> str:
    """A digest of the names, sizes and times of this package's files, of Python's version and of where and when sqlglot
    was installed; computed once per process. (Reading sqlglot's version from its metadata takes ten times as long.)"""
    files: list[tuple[str, int, int]] = []
    for package in PACKAGES:
        for folder in _folders(package):
            _add_files(folder, files)
    for folder in _folders("sqlglot"):
        _add_files(folder, files, deep=False)
    return hashlib.sha256(repr((sys.version_info, sorted(files))).encode()).hexdigest()


def _folders(package: str) -> list[str]:
    spec = find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"{package} is not installed as a package", name=package)
    return spec.submodule_search_locations


def _add_files(folder: str, files: list[tuple[str, int, int]], deep: bool = True) -> None:
    """The modules in a folder and, if `deep`, in those below it. In a zip file (`backends/spark/travel`) the folder is
    none: the name of that file stands for its content."""
    if not os.path.isdir(folder):
        files.append((_archive(folder), 0, 0))
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                known = entry.stat()
                files.append((entry.path, known.st_mtime_ns, known.st_size))
            elif deep and not entry.name.startswith(("_", ".")) and entry.is_dir():
                _add_files(entry.path, files)


def _archive(folder: str) -> str:
    """The name of the file that a folder is inside of."""
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return os.path.basename(folder)
