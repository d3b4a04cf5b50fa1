"""The sqllogictest corpus: every file under every configuration, our engine against a live DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.slt.engines import CONFIGS, DuckDB, Tsql
from tests.slt_runner import complete_file, count_queries, run_file


def test_file(slt_path: Path, slt_config: str, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> None:
    if request.config.getoption("--complete"):
        failures = complete_file(slt_path)
    else:
        engine = DuckDB() if request.config.getoption("--engine") == "duckdb" else Tsql(CONFIGS[slt_config])
        with closing(engine):
            failures = run_file(slt_path, engine, slt_config, strict_names=request.config.getoption("--strict-names"))
    if failures:
        record_property("slt_failures", [failure.kind for failure in failures])
        shown = "\n".join(f"{slt_path.name}: {failure}" for failure in failures)
        pytest.fail(f"{len(failures)} failures in {slt_path.name} under {slt_config}\n{shown}", pytrace=False)


def test_corpus_size() -> None:
    """The corpus is large enough to stand for the dialect."""
    assert count_queries() >= 1500
