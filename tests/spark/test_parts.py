"""The corpus of queries, joins, windows, changes of tables and whatever else has parts through the Spark backend's
cutting, wire and tasks, in this process and in three shards."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.slt_runner import CORPUS, corpus_files, run_file
from tests.spark.cluster import InProcess
from tests.spark.engine import SparkTsql

FOLDERS = (
    "aggregates",
    "dml",
    "joins",
    "patterns",
    "pivot",
    "queries",
    "recursive",
    "regressions",
    "subqueries",
    "tables",
    "temporal",
    "windows",
)
EVERY = 40
"""Functions and types are kernels of a single part: they are the same whoever calls them. One query in 40 keeps this
short; `--all-configurations` runs all."""
FILES = [path for path in corpus_files() if path.parent.name in FOLDERS]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(CORPUS).with_suffix("")))
def test_corpus(path: Path, request: pytest.FixtureRequest) -> None:
    every = 1 if request.config.getoption("--all-configurations") else EVERY
    # Every other file in tasks of several threads (`spark.task.cpus`).
    cpus = 1 + 2 * (FILES.index(path) % 2)
    with closing(SparkTsql(InProcess(cpus=cpus))) as engine:
        failures = run_file(path, engine, "spark", every=every)
    assert not failures, "\n".join(map(str, failures))
