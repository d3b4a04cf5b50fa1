"""The sqllogictest corpus: every file under every configuration, our engine against a live DuckDB.

Configurations other than `default` run a part of the records (`tests/slt/sampling.py`) unless one is asked for with
`--config` or all with `--all-configurations`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.slt.engines import CONFIGS, DuckDB, Tsql
from tests.slt_runner import complete_file, count_queries, run_file


def test_file(
    slt_path: Path, slt_config: str, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    options = request.config.getoption
    if options("--complete"):
        failures = complete_file(slt_path)
    else:
        engine = DuckDB() if options("--engine") == "duckdb" else Tsql(CONFIGS[slt_config])
        sampled = not (options("--all-configurations") or options("--config"))
        with closing(engine):
            failures = run_file(slt_path, engine, slt_config, strict_names=options("--strict-names"), sampled=sampled)
    if failures:
        record_property("slt_failures", [failure.kind for failure in failures])
        shown = "\n".join(f"{slt_path.name}: {failure}" for failure in failures)
        pytest.fail(f"{len(failures)} failures in {slt_path.name} under {slt_config}\n{shown}", pytrace=False)


def test_corpus_size() -> None:
    """The corpus is large enough to stand for the dialect."""
    assert count_queries() >= 1500
