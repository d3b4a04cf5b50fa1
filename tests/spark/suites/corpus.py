"""The corpus on a Spark session: a sample of its records by default, and all of them with `--all-configurations`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.slt import records as slt
from tests.slt.sampling import CORPUS, each
from tests.slt_runner import corpus_files, run_file
from tests.spark.engine import SparkTsql

MOST_STATEMENTS = 20
"""A file whose records build on more statements than this runs with `--all-configurations` only: statements cannot be
left out, and each of them may be a job."""


def files(every: int, turn: int = 0) -> pytest.MarkDecorator:
    """Parametrizes a test with all files as `path`. By default those run that have one of the records of which one in
    `every` is chosen, by a hash of their text; `turn` chooses others."""
    return pytest.mark.parametrize("path", [_param(path, every, turn) for path in corpus_files()])


def _param(path: Path, every: int, turn: int) -> Any:
    chosen = each(slt.read(path), every, turn)
    statements = sum(record.kind == "statement" and record.error is None for record in chosen)
    marks = () if chosen and statements <= MOST_STATEMENTS else pytest.mark.all_configurations
    return pytest.param(path, marks=marks, id=str(path.relative_to(CORPUS).with_suffix("")))


def check(spark: Any, path: Path, config: str, every: int, turn: int = 0) -> None:
    """The records of a file give DuckDB's rows."""
    with closing(SparkTsql(spark)) as engine:
        failures = run_file(path, engine, config, every=every, turn=turn)
    assert not failures, f"one record in {every}, turn {turn}:\n" + "\n".join(map(str, failures))


def every_of(request: pytest.FixtureRequest, every: int) -> int:
    """One record in how many runs."""
    return 1 if request.config.getoption("--all-configurations") else every
