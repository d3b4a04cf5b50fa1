"""Runs one SQL text on our engine and on DuckDB and reports how they differ; holds the settings of all fuzz tests.

`TSQL_FUZZ_EXAMPLES` raises the number of examples per test (15 by default, 30 under --all-configurations),
`TSQL_FUZZ_SEED` sets the seed. The seed is fixed by default, so that a run of the test suite is repeatable; it is
printed with every failure."""

from __future__ import annotations

import functools
import os
from typing import Any

import duckdb
import hypothesis

from tests.fuzz.amount import examples
from tests.slt.engines import CONFIGS, DuckDB, Tsql
from tests.slt.render import Result, differing_row, render

EXAMPLES = int(os.environ.get("TSQL_FUZZ_EXAMPLES") or examples(30))
SEED = int(os.environ.get("TSQL_FUZZ_SEED", "20240229"))
DATASETS = ("mixed", "all_types")


def fuzz(test: Any, count: int = EXAMPLES) -> Any:
    """A property test with the shared settings."""
    settings = hypothesis.settings(
        max_examples=count,
        deadline=None,
        database=None,
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    return hypothesis.seed(SEED)(settings(test))


@functools.cache
def oracle() -> DuckDB:
    return _loaded(DuckDB())


@functools.cache
def engine(config: str) -> Any:
    """Our engine, kept for all examples: a query must not disturb the ones after it."""
    return _loaded(Tsql(CONFIGS[config]))


def _loaded(side: Any) -> Any:
    for name in DATASETS:
        side.load(name)
    return side


def expected(sql: str) -> Result | None:
    """DuckDB's result, or None if it fails while running. A text that it cannot bind is a fault of the strategies."""
    try:
        return render(oracle().query(sql))
    except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as problem:
        raise AssertionError(f"the strategies made a text that DuckDB does not bind\n{sql}\n{problem}") from problem
    except duckdb.Error:
        return None


def assert_same(sql: str, config: str = "default", *, ordered: bool = False) -> None:
    """Both engines give the same rows and types, or both fail."""
    wanted = expected(sql)
    side = engine(config)
    note = f"seed {SEED}, configuration {config}\n{sql}"
    try:
        given = render(side.query(sql))
    except side.error as problem:
        assert wanted is None, f"only our engine fails: {problem}\n{note}"
        return
    except Exception as problem:
        raise AssertionError(f"{type(problem).__name__}: {problem}\n{note}") from problem
    assert wanted is not None, f"only DuckDB fails\n{note}"
    assert given.types == wanted.types, f"types {given.types} instead of {wanted.types}\n{note}"
    mode = "nosort" if ordered else "rowsort"
    difference = differing_row(given.sorted(mode), wanted.sorted(mode), wanted.types)
    assert difference is None, f"{difference}\n{note}"
