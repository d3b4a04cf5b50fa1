"""Three related tables without data, and the golden plans of queries over them."""

from __future__ import annotations

from pathlib import Path

from tests.frontend.support import FakeCatalog, FakeSource
from tsql import statements
from tsql.analyze import analyze
from tsql.kernels.schema import Schema
from tsql.kernels.types import parse_type
from tsql.planner import logical

GOLDEN = Path(__file__).parent / "golden"
TABLES = {
    "a": [("k", "INTEGER"), ("x", "INTEGER")],
    "b": [("k", "BIGINT"), ("y", "INTEGER")],
    "d": [("k", "INTEGER"), ("x", "INTEGER"), ("y", "INTEGER")],
}


def catalog() -> FakeCatalog:
    return FakeCatalog({name: FakeSource(Schema.of(*((c, parse_type(t)) for c, t in columns))) for name, columns in TABLES.items()})


def plan_of(text: str) -> logical.Node:
    """The logical plan of one query."""
    (statement,) = analyze(text, catalog())
    assert isinstance(statement, statements.Query)
    return statement.plan


def read_golden(name: str) -> dict[str, str]:
    """Plans by query: `-- query`, the plan, a blank line."""
    found = {}
    for block in (GOLDEN / f"{name}.txt").read_text(encoding="utf-8").strip().split("\n\n"):
        query, _, plan = block.partition("\n")
        found[query.removeprefix("-- ")] = plan.strip("\n")
    return found


def write_golden(name: str, queries: list[str]) -> None:
    blocks = [f"-- {query}\n{logical.show(plan_of(query))}\n" for query in queries]
    (GOLDEN / f"{name}.txt").write_text("\n".join(blocks), encoding="utf-8")


def kinds(plan: logical.Node) -> list[str]:
    """The joins and applies of a plan, from the root."""
    return [f"{'apply ' if isinstance(n, logical.Apply) else ''}{n.kind}" for n in plan.walk() if isinstance(n, logical.Join)]
