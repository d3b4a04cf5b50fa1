"""The corpus of queries, joins, subqueries, aggregates, windows and recursion through the Spark backend's cutting, wire
and tasks, in this process and in three shards."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.slt_runner import CORPUS, corpus_files, run_file
from tests.spark.cluster import InProcess
from tests.spark.engine import SparkTsql

FOLDERS = ("aggregates", "joins", "queries", "recursive", "subqueries", "windows")
EVERY = 40
"""Functions and types are kernels of a single part: they are the same whoever calls them. One query in 40 keeps this
short; `--all-configurations` runs all."""


@pytest.mark.parametrize(
    "path",
    [p for p in corpus_files() if p.parent.name in FOLDERS],
    ids=lambda p: str(p.relative_to(CORPUS).with_suffix("")),
)
def test_corpus(path: Path, request: pytest.FixtureRequest) -> None:
    every = 1 if request.config.getoption("--all-configurations") else EVERY
    with closing(SparkTsql(InProcess())) as engine:
        failures = run_file(path, engine, "spark", every=every)
    assert not failures, "\n".join(map(str, failures))
