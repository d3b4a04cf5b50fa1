"""What the tests of rules, plans and the planner share: small tables, a session, the oracle and the comparison of
rows."""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa

import tsql
from tests.duck import empty_duckdb
from tsql.analyze.statements import analyze
from tsql.backends import Run, Settings
from tsql.planner import PhysicalPlan, make_plan
from tsql.planner.logical import nodes as logical


def _clicks() -> pa.Table:
    """Ad clicks: 300 rows, 7 ads, NULLs in price and country."""
    number = range(300)
    start = datetime.datetime(2024, 3, 1)
    return pa.table(
        {
            "ad_id": pa.array([(i * i) % 7 for i in number], pa.int64()),
            "user_id": pa.array([i % 50 for i in number], pa.int32()),
            "price": pa.array([None if i % 11 == 0 else i % 23 for i in number], pa.int32()),
            "country": pa.array([None if i % 13 == 0 else ("DE", "FR", "NZ", "US")[i % 4] for i in number]),
            "code": pa.array([str(i % 9) if i % 10 else "none" for i in number]),
            "day": pa.array([start.date() + datetime.timedelta(days=i % 31) for i in number], pa.date32()),
            "ts": pa.array([start + datetime.timedelta(minutes=37 * i) for i in number], pa.timestamp("us")),
            "cost": pa.array([i / 8 for i in number], pa.float64()),
        }
    )


TABLES = {"clicks": _clicks(), "nothing": _clicks().slice(0, 0)}


def session(**settings: Any) -> Any:
    """A session with the tables; three shards unless told otherwise."""
    db = tsql.connect(**{"threads": 2, "shards": 3, **settings})
    for name, table in TABLES.items():
        db.register(name, table)
    return db


def oracle() -> duckdb.DuckDBPyConnection:
    """DuckDB with the same tables; one thread, so that rows keep the order of the table."""
    db = empty_duckdb()
    for name, table in TABLES.items():
        db.register(f"{name}_arrow", table)
        db.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_arrow")
    return db


def logical_plan(db: Any, sql: str) -> logical.Output:
    """What the front end makes of a query."""
    (statement,) = analyze(sql, db.catalog)
    return statement.plan


def physical_plan(db: Any, sql: str, *, shards: int = 3, target: str = "local", optimizer: bool = True) -> PhysicalPlan:
    """The plan of a query, without its text."""
    (statement,) = analyze(sql, db.catalog)
    return make_plan(statement.plan, Settings(optimizer=optimizer), "", target, shards, statement.hints)


def run_plan(db: Any, plan: PhysicalPlan) -> pa.Table:
    """The rows of a physical plan."""
    return pa.Table.from_batches(list(db.backend.run(plan, Run(settings=db.settings))), plan.schema)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return (
        list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        if table.num_columns
        else [()] * table.num_rows
    )


def assert_same_rows(ours: pa.Table, expected: pa.Table, *, ordered: bool = False) -> None:
    """The same bag of rows, or the same list where the query orders them; floats up to rounding."""
    left, right = rows_of(ours), rows_of(expected)
    if not ordered:
        left, right = sorted(left, key=_sort_key), sorted(right, key=_sort_key)
    assert len(left) == len(right), f"{len(left)} rows, expected {len(right)}"
    for row, wanted in zip(left, right, strict=True):
        assert all(map(_equal, row, wanted)), f"{row}, expected {wanted}"


def _sort_key(row: tuple[Any, ...]) -> list[str]:
    return [f"{value:.9g}" if isinstance(value, float) else repr(value) for value in row]


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9) or (math.isnan(a) and math.isnan(b))
    return a == b


def is_ordered(sql: str) -> bool:
    """Whether the query's result has an order: ORDER BY behind its last parenthesis."""
    return "ORDER BY" in sql[sql.rfind(")") + 1 :].upper() or sql.upper().rstrip().endswith(("ORDER BY ALL",))


def blocks_of(text: str) -> Iterator[str]:
    """The parts of a fixture file between lines of `====`."""
    part: list[str] = []
    for line in text.split("\n"):
        if line.startswith("===="):
            yield "\n".join(part).strip("\n")
            part = []
        else:
            part.append(line)
    if any(line.strip() for line in part):
        yield "\n".join(part).strip("\n")


def golden(path: os.PathLike[str], text: str, regen: bool) -> None:
    """Compare a text with a golden file, or write the file."""
    if regen:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    assert os.path.exists(path), f"{path} is missing: run pytest --regen, and read what it writes"
    with open(path, encoding="utf-8") as file:
        assert text == file.read(), f"differs from {path}; if the change is meant, pytest --regen rewrites it"
