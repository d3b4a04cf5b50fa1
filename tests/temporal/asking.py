"""Asks DuckDB and our engine the same over Arrow tables; used by the tests of whole temporal queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

import tsql
from tests.duck import empty_duckdb
from tsql.tpch.measure import difference

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
    with empty_duckdb() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(sql).to_arrow_table()


def ask_engine(sql: str, tables: Mapping[str, pa.Table], setup: Sequence[str] = ()) -> pa.Table:
    """Our answer after the statements of `setup`."""
    with tsql.connect(threads=2) as session:
        for name, table in tables.items():
            session.register(name, table)
        for statement in setup:
            session.sql(statement)
        return session.sql(sql).arrow()


def check_engine(sql: str, oracle: str, tables: Mapping[str, pa.Table]) -> None:
    """Our engine gives DuckDB's rows and types."""
    why = difference(ask_duckdb(oracle, tables), ask_engine(sql, tables), ordered=False)
    assert why is None, why
