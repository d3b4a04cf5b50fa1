"""Asks DuckDB and our engine the same over Arrow tables; used by the tests of whole temporal queries.

While the engine learns the dialect's temporal part, it refuses some texts. `ask_engine` tells a refusal from a wrong answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import tsql
from tsql.tpch.measure import difference

REFUSALS = (tsql.BindError,)
WITHOUT_PLAN = "there is no plan for "
"""How the engine refuses a construct that is parsed and has no plan yet (tsql/temporal/refuse.py). Any other error is a bug."""


def skip_without_plan(refusal: tsql.BindError) -> None:
    """Skip the test of a construct that has no plan yet; raise whatever else went wrong."""
    if not refusal.message.startswith(WITHOUT_PLAN):
        raise refusal
    pytest.skip(f"not in the engine yet: {refusal.message}")
QUERIES = Path(__file__).parent / "queries"


def text_of(name: str) -> str:
    """The query `name` in our dialect."""
    return (QUERIES / f"{name}.sql").read_text(encoding="utf-8")


def oracle_of(name: str) -> str:
    """What DuckDB is asked instead: a text of its own, or the same."""
    path = QUERIES / f"{name}.oracle.sql"
    return path.read_text(encoding="utf-8") if path.exists() else text_of(name)


def ask_duckdb(sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """DuckDB's answer."""
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(sql).to_arrow_table()


def ask_engine(sql: str, tables: Mapping[str, pa.Table], setup: Sequence[str] = ()) -> pa.Table:
    """Our answer after the statements of `setup`, or one of REFUSALS."""
    with tsql.connect(threads=2) as session:
        for name, table in tables.items():
            session.register(name, table)
        for statement in setup:
            session.sql(statement)
        return session.sql(sql).arrow()


def check_engine(sql: str, oracle: str, tables: Mapping[str, pa.Table], may_be_refused: bool) -> None:
    """Our engine gives DuckDB's rows and types. A test of a text that the engine may not know yet is skipped with its message."""
    try:
        ours = ask_engine(sql, tables)
    except REFUSALS as refusal:
        if not may_be_refused:
            raise
        skip_without_plan(refusal)
    why = difference(ask_duckdb(oracle, tables), ours, ordered=False)
    assert why is None, why
