"""Spares the command the import of pandas, which takes a third of a second: pyarrow looks for it when it makes its
first array, and remembers whether there is one. No command gives data to pandas or takes any from it; a program that
uses tsql as a library may, and is left alone."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any

import pyarrow as pa


class _Absent(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not looked for here", name=name)


def tell_pyarrow() -> None:
    """Have pyarrow find that there is no pandas, unless it is imported already. Others find it as before."""
    if "pandas" in sys.modules:
        return
    finder = _Absent()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
