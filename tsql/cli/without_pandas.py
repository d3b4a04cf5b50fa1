"""Avoids the import of pandas in the command, which takes a third of a second. pyarrow looks for pandas when it makes
its first array, and remembers whether it exists. No command exchanges data with pandas. A program that uses tsql as a
library may, so it is not affected."""

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
    """Let pyarrow find no pandas, unless it is imported already. Others find it as before."""
    if "pandas" in sys.modules:
        return
    finder = _Absent()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
