"""`tsql bench`: finds the benchmarks of the checkout that this package runs from, lists them and runs one.

They are no part of the wheel: only TPC-H is, as `tsql.tpch`. They import the engines that they compare with.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import tsql
from tsql.kernels.expr.errors import TsqlError

TPCH = "TPC-H beside DuckDB, Hyper, Polars and DataFusion"
MISSING = "all benchmarks but tpch are in the repository only, in its folder bench/"
HINT = "clone the repository, install it with `pip install -e '.[dev]'`, and run `tsql bench` from there"


def folder() -> Path | None:
    """The folder `bench` beside the package; None: the package does not run from a checkout."""
    root = Path(tsql.__file__).resolve().parent.parent
    # A package called bench may be installed beside ours.
    is_checkout = (root / "pyproject.toml").is_file() and (root / "bench" / "__init__.py").is_file()
    return root / "bench" if is_checkout else None


def benchmarks() -> dict[str, str]:
    """The names of the benchmarks (modules with a `main`, such as `single_table` or `micro.bandwidth`), and what each
    measures; none in an installed package."""
    found: dict[str, str] = {}
    root = folder()
    for path in sorted(root.rglob("*.py")) if root else ():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            found[name] = " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split())
    return found


def run(name: str, arguments: Sequence[str]) -> int:
    """Run a benchmark with its own arguments, in a process of its own; its exit code. Results go where it writes
    them."""
    root = folder()
    if root is None:
        raise TsqlError(MISSING, hint=HINT)
    paths = [str(root.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", f"bench.{name}", *arguments]
    return subprocess.run(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}, check=False).returncode
