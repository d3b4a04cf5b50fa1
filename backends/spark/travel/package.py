"""This package as a zip file that executors can import. It has byte code, so that nobody there compiles 600 modules."""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import marshal
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

ROOTS = ("tsql", "tsql.kernels", "tsql.planner", "tsql.backends")
"""The folders of the package. (In a clone they are not inside of each other.)"""

UNCHECKED = 1
"""Byte code that is used without a look at its source (PEP 552)."""


@cache
def zipped() -> str:
    """The path of the zip file, which is there until this process ends. Its name depends on its content, so that
    workers that have it already import nothing twice."""
    files = sorted(_files())
    digest = hashlib.blake2b(digest_size=8)
    for name, path in files:
        digest.update(f"{name}\0".encode() + path.read_bytes())
    folder = Path(tempfile.mkdtemp(prefix="tsql-package-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = folder / f"tsql-{digest.hexdigest()}.zip"
    with ZipFile(target, "w", ZIP_DEFLATED, compresslevel=1) as archive:
        for name, path in files:
            archive.writestr(ZipInfo(name), path.read_bytes(), ZIP_DEFLATED)
            if name.endswith(".py"):
                archive.writestr(ZipInfo(f"{name}c"), _byte_code(name, path), ZIP_DEFLATED)
        archive.writestr(*_metadata())
    return str(target)


def _files() -> Iterator[tuple[str, Path]]:
    """(name in the zip, path) of each file of the package."""
    for package in ROOTS:
        spec = importlib.util.find_spec(package)
        assert spec is not None and spec.submodule_search_locations is not None
        for folder in map(Path, spec.submodule_search_locations):
            for path in folder.rglob("*"):
                if path.suffix in (".py", ".sql", ".txt") and "__pycache__" not in path.parts:
                    yield f"{package.replace('.', '/')}/{path.relative_to(folder).as_posix()}", path


def _byte_code(name: str, path: Path) -> bytes:
    """The content of a .pyc file. Python keeps the code of modules that it has compiled before."""
    module = name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    code = SourceFileLoader(module, str(path)).get_code(module)
    source_hash = importlib.util.source_hash(path.read_bytes())
    return importlib.util.MAGIC_NUMBER + UNCHECKED.to_bytes(4, "little") + source_hash + marshal.dumps(code)


def _metadata() -> tuple[str, str]:
    """What tells `importlib.metadata` the version."""
    try:
        number = version("tsql")
    except PackageNotFoundError:
        number = "0"
    return f"tsql-{number}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: tsql\nVersion: {number}\n"
