"""Holds what tsql reads of a Spark table to what Spark itself reads."""

from __future__ import annotations

from typing import Any

import tsql


def rows(relation: Any) -> list[tuple[Any, ...]]:
    return sorted(relation.fetchall(), key=str)


def same(db: Any, spark: Any, name: str, quoted: str | None = None) -> Any:
    """The relation of a table, once its rows, names and types are those that Spark reads."""
    expected = spark.table(name)
    reference = tsql.connect()
    reference.register("expected", expected.toArrow())
    relation, other = db.sql(f"SELECT * FROM {quoted or name}"), reference.sql("SELECT * FROM expected")
    assert relation.columns == other.columns
    assert [str(t) for t in relation.sql_types] == [str(t) for t in other.sql_types]
    assert list(map(repr, rows(relation))) == list(map(repr, rows(other)))  # NaN is not equal to itself
    reference.close()
    return relation
