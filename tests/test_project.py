"""The project itself: who may import what, that the package list is whole, and that the wheel works on its own."""

from __future__ import annotations

import ast
import functools
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests import typecheck

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "tsql": "tsql",
    "planner": "tsql.planner",
    "kernels": "tsql.kernels",
    "backends": "tsql.backends",
    "tpch": "tsql.tpch",
}
"""Folders at the root and the packages that they install as."""

ONLY_IN = {
    "sqlglot": ("tsql/*", "planner/bind/*", "tests/*"),
    "llvmlite": ("kernels/codegen/llvm.py", "tests/*"),
    "numba": ("tests/*",),
    "pyspark": ("backends/spark/*", "tests/*", "bench/*"),
    "confluent_kafka": ("backends/live/*", "tests/*"),
    "psycopg": ("backends/live/*", "tests/*"),
    "duckdb": ("tests/*", "tpch/*", "bench/*"),
    "datafusion": ("tpch/peers.py",),
    "tableauhyperapi": ("tpch/peers.py",),
}
"""Libraries and the files that may import them, as patterns of paths. numba is for functions of the user's own (the
extra `functions`), which are not there yet: no file of the package imports it."""

LOWER = {"kernels": ("kernels",), "planner": ("planner", "kernels"), "backends": ("backends", "planner", "kernels")}
"""What each folder may import of tsql. The front end has no package of its own, so import-linter cannot name it as a
layer."""


def sources() -> list[Path]:
    """Every Python file of the project, relative to its root."""
    folders = [*PACKAGES, "tests", "bench", "examples"]
    return [path.relative_to(ROOT) for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@functools.cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """(line, module) of every import in a file, wherever in it, relative ones as they are written."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in _statements(ast.parse((ROOT / path).read_text(encoding="utf-8"), filename=str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            if module == "tsql":
                yield from ((node.lineno, f"tsql.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, module


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements inside of a node. (`ast.walk` would also visit every expression, which takes ten times as
    long.)"""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in inside if isinstance(inside := getattr(node, part, ()), list) else ():
            yield child
            yield from _statements(child)


def test_imports_are_found(tmp_path: Path) -> None:
    text = """
import a
try:
    from b import c
except ImportError:
    if x: import d
    else:
        for y in z:
            with open(w) as v, u: import e
finally:
    class F:
        async def g(self):
            match h:
                case 1:
                    import f
                case _:
                    while True:
                        import g
"""
    (tmp_path / "m.py").write_text(text)
    assert sorted(module for _, module in _imports(tmp_path / "m.py")) == list("abdefg")


def test_imports_by_package_name() -> None:
    """`import kernels` works only where the current folder is the project's root, and hits another package
    elsewhere."""
    wrong = [
        f"{path}:{line}: import {module}"
        for path in sources()
        for line, module in imports(path)
        if module.split(".")[0] in PACKAGES.keys() - {"tsql"} or module.startswith(".")
    ]
    assert not wrong, "write tsql.<package>:\n" + "\n".join(wrong)


@pytest.mark.parametrize("library", ONLY_IN)
def test_imports_of_library(library: str) -> None:
    wrong = [
        f"{path}:{line}"
        for path in sources()
        for line, module in imports(path)
        if module.split(".")[0] == library
        and not any(fnmatch(path.as_posix(), pattern) for pattern in ONLY_IN[library])
    ]
    assert not wrong, f"{library} belongs in {', '.join(ONLY_IN[library])} only:\n" + "\n".join(wrong)
    named = [path.as_posix() for path in sources()]
    assert [pattern for pattern in ONLY_IN[library] if not any(fnmatch(name, pattern) for name in named)] == []


@pytest.mark.parametrize("folder", LOWER)
def test_layer_below_front_end(folder: str) -> None:
    """Nothing below the front end imports the front end."""
    wrong = [
        f"{path}:{line}: {module}"
        for path in sources()
        if path.parts[0] == folder
        for line, module in imports(path)
        if module.split(".")[0] == "tsql" and (module.split(".") + [""])[1] not in LOWER[folder]
    ]
    assert not wrong, f"{folder} imports what is above it:\n" + "\n".join(wrong)


def test_layer_contracts(tmp_path: Path) -> None:
    """import-linter's contracts (pyproject.toml) hold. It looks for modules on disk, so it gets them laid out as in the
    wheel."""
    for folder, package in PACKAGES.items():
        shutil.copytree(
            ROOT / folder,
            tmp_path / package.replace(".", "/"),
            ignore=shutil.ignore_patterns("__pycache__"),
            dirs_exist_ok=True,
        )
    # The current folder comes first on the path of `python -c`, so it is the copy that is read, not the editable
    # install.
    code = (
        "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(sys.argv[1], "
        "no_cache=True, no_logo=True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "pyproject.toml")], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout, done.stdout


def test_package_list() -> None:
    """Every folder with an __init__.py is in the wheel, and nothing else is."""
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"])
    found = set()
    for folder, package in PACKAGES.items():
        for path in (ROOT / folder).rglob("__init__.py"):
            found.add(".".join([package, *path.parent.relative_to(ROOT / folder).parts]))
    assert listed == found


def test_style() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=concise", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_types() -> None:
    """mypy has nothing to say, strictly about the planner and expressions, except about the modules that pyproject.toml
    lists; one of those that passes is to leave the list."""
    wrong = typecheck.check().wrong()
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("errors", "lax", "wrong"),
    [
        ({}, (), []),
        ({"planner/enforce.py": ["planner/enforce.py:1: error: x"]}, (), ["planner/enforce.py:1: error: x"]),
        ({"planner/enforce.py": ["planner/enforce.py:1: error: x"]}, ("tsql.planner.enforce",), []),
        ({}, ("tsql.values",), ["pyproject.toml: error: tsql.values passes now: take it off the list of lax modules"]),
        ({}, ("tsql.no",), ["pyproject.toml: error: tsql.no does not exist: take it off the list of lax modules"]),
        ({}, ("tsql.*",), ["pyproject.toml: error: tsql.* does not exist: take it off the list of lax modules"]),
    ],
)
def test_types_of_lax_modules(errors: dict[str, list[str]], lax: tuple[str, ...], wrong: list[str]) -> None:
    assert typecheck.Found(errors, frozenset(lax)).wrong() == wrong


def test_types_by_module_name() -> None:
    """A file and the name that its module has in an override."""
    for path in sources():
        if path.parts[0] in PACKAGES:
            assert typecheck.path_of(typecheck.module_of(str(path))) == ROOT / path


QUERY = '''
import sys
class Absent:
    """What a plain installation does not bring must not be needed."""
    def find_spec(name, path=None, target=None):
        if name in ("datafusion", "duckdb", "pandas", "polars", "pyspark", "hypothesis", "pytest", "tableauhyperapi"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent)
import pyarrow as pa
import tsql
assert tsql.__file__.startswith(sys.prefix), tsql.__file__
for name in ("kernels", "planner", "backends", "tpch"):
    __import__("tsql." + name)
    assert sys.modules["tsql." + name].__file__.startswith(sys.prefix), name
from tsql.tpch.queries import queries
assert len(queries()) == 22
db = tsql.connect()
db.register("clicks", pa.table({"ad": [1, 2, 1, None], "price": [1.5, 2.0, 2.5, 4.0]}))
query = "SELECT ad, count(*) AS n, sum(price) AS total FROM clicks WHERE price < 3 GROUP BY ad ORDER BY ad"
rows = db.sql(query).fetchall()
assert rows == [(1, 2, 4.0), (2, 1, 2.0)], rows
'''


def test_wheel(tmp_path: Path) -> None:
    """The wheel, installed in a clean environment, runs a query from Python and from the command line in another
    folder."""
    source = tmp_path / "source"
    shutil.copytree(
        ROOT,
        source,
        ignore=lambda folder, names: (
            {n for n in names if n not in _shipped()} if Path(folder) == ROOT else {"__pycache__"} & set(names)
        ),
    )
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    _run(
        [
            *pip,
            "wheel",
            "--no-build-isolation",
            "--no-deps",
            "--no-index",
            "--quiet",
            "--wheel-dir",
            str(tmp_path),
            str(source),
        ],
        tmp_path,
    )
    (wheel,) = tmp_path.glob("tsql-*.whl")
    # Without the mark, type checkers take nothing of an installed package.
    assert "tsql/py.typed" in zipfile.ZipFile(wheel).namelist()

    place = tmp_path / "env"
    venv.create(place, with_pip=False, symlinks=True)
    python = place / "bin" / "python"
    site = Path(_run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], tmp_path).strip())
    _run([*pip, "--python", str(python), "install", "--no-deps", "--no-index", "--quiet", str(wheel)], tmp_path)
    # What tsql depends on comes from this environment. A folder in a .pth file is searched after the environment's own
    # and its .pth files are not read, so the editable tsql stays unseen.
    (site / "dependencies.pth").write_text(
        "\n".join(dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]))
    )

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    _run([str(python), "-c", QUERY], elsewhere)
    shown = _run([str(place / "bin" / "tsql"), "run", "SELECT 40 + 2 AS answer", "-f", "csv"], elsewhere)
    assert shown.split() == ["answer", "42"]
    listed = _run([str(place / "bin" / "tsql"), "bench"], elsewhere)
    assert listed.startswith("tpch ") and listed.endswith("are in the repository only, in its folder bench/\n")
    assert "lineitem" in _run([str(python), "-m", "tsql.tpch", "query", "1"], elsewhere)
    assert "--modes" in _run([str(place / "bin" / "tsql"), "bench", "tpch", "--help"], elsewhere)


def _shipped() -> set[str]:
    return {*PACKAGES, "pyproject.toml", "README.md", "LICENSE"}


def _run(command: list[str], folder: Path) -> str:
    """The output of a command that must succeed, run without this process's Python settings and in a home of its
    own."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "COVERAGE")) and name != "VIRTUAL_ENV"
    }
    environment |= {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout
