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

REFUSALS = (tsql.ParseError, tsql.BindError, tsql.PlanError)
"""What the engine raises for a text that it does not know. A query that it takes and then fails at is a bug."""
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
        pytest.skip(f"not in the engine yet: {str(refusal).splitlines()[0]}")
    why = difference(ask_duckdb(oracle, tables), ours, ordered=False)
    assert why is None, why
