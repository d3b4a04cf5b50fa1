"""Asks our engine about lifetimes under any configuration; answers are rows with times as integers, so that infinite
ones are values too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

import tsql
from tests.temporal.reference.rows import Rows

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    **{f"shards_{shards}": {"shards": shards, "threads": 2} for shards in (1, 2, 3, 8)},
    "batch_rows_1": {"batch_rows": 1},
    "equal_hashes": {"equal_hashes": True},
    "no_optimizer": {"optimizer": False},
    "spill": {"spill_after": 1},
    "interp": {"backend": "interp"},
    "plan_text": {},
}
"""The settings of a session; `plan_text` prints the plan, reads it and runs that."""


def ask(sql: str, tables: Mapping[str, pa.Table], setup: Sequence[str] = (), configuration: str = "shards_2") -> Rows:
    """What the engine says under a configuration."""
    with tsql.connect(**CONFIGURATIONS[configuration]) as session:
        for name, table in tables.items():
            session.register(name, table)
        for statement in setup:
            session.sql(statement)
        relation = session.sql(sql)
        if configuration == "plan_text":
            text = relation.plan()
            answer = tsql.load_plan_text(text).run(session).arrow()
        else:
            answer = relation.arrow()
        return rows_of(answer)


def rows_of(table: pa.Table) -> Rows:
    """The rows of an answer; times are microseconds since 1970."""
    columns = {}
    for name, column in zip(table.schema.names, table.columns, strict=True):
        columns[name] = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
