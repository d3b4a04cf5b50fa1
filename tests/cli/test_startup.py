"""What a process imports before its first rows: little, if an earlier process has left plan and code on disk.

How long it takes is measured by `python -m bench.startup`; here is what it depends on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

NOT_NEEDED = (
    "email",
    "importlib.metadata",
    "pandas",
    "prompt_toolkit",
    "pyarrow.compute",
    "pyspark",
    "rich",
    "sqlglot",
    "tomllib",
    "tsql.analyze.kinds",
    "tsql.analyze.statements",
    "tsql.backends.io.csv",
    "tsql.backends.live.query",
    "tsql.backends.spark",
    "tsql.grammar.dialect",
    "tsql.loaded",
    "tsql.planner.bind.binder",
    "tsql.planner.choose",
    "tsql.planner.physical.planfile",
    "tsql.planner.rules",
    "tsql.planner.unnest",
    "tsql.statements.perform",
)
"""Packages and modules that take a process long to import, and that a query whose plan is on disk does without."""

LIBRARY = "import tsql; tsql.connect(threads=2).sql(sys.argv[1]).fetchall()"
COMMAND = """
sys.argv = ["tsql", "run", "--threads", "2", sys.argv[1]]
from tsql.__main__ import script
try:
    script()
except SystemExit as leave:
    assert not leave.code
"""
LIST = "\nprint('modules:', *sorted(sys.modules))"


def modules(code: str, query: str, folder: Path) -> set[str]:
    """The modules of a fresh process after it has run a query whose plan and code are on disk."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TSQL_", "COVERAGE"))}
    environment |= {"XDG_CACHE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", f"import sys\n{code}{LIST}", query], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("modules:")[2].split())


@pytest.mark.parametrize("code", [LIBRARY, COMMAND], ids=["library", "command"])
def test_a_query_without_tables(code: str, tmp_path: Path) -> None:
    found = modules(code, "SELECT 1", tmp_path)
    assert "tsql.backends.local" in found
    assert not found.intersection((*NOT_NEEDED, "pyarrow.parquet"))


@pytest.mark.parametrize("code", [LIBRARY, COMMAND], ids=["library", "command"])
def test_a_query_over_a_file(code: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"g": [1, 2, 1], "x": [1.5, 2.5, 3.5], "s": ["a", "b", "c"]}), path)
    query = f"SELECT g, sum(x) AS total FROM '{path}' WHERE s <> 'b' GROUP BY g ORDER BY g"
    code = f"import tsql.catalog.catalog as c; c.SETTLED_NS = 0\n{code}"
    found = modules(code, query, tmp_path)
    assert "tsql.backends.io.parquet.source" in found
    assert not found.intersection(NOT_NEEDED)


def test_the_names_of_the_package_load_nothing() -> None:
    code = "import sys, tsql; dir(tsql); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "tsql" in found and "pyarrow" not in found and "tsql.session" not in found
