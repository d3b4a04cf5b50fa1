"""Three related tables without data, and the golden plans of queries over them."""

from __future__ import annotations

from pathlib import Path

from tests.frontend.support import FakeCatalog, FakeSource
from tsql.analyze import kinds as statements
from tsql.analyze.outer_columns import bound_names, nodes, outers, own_outers
from tsql.analyze.statements import analyze
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import parse_type
from tsql.planner.logical import nodes as logical

GOLDEN = Path(__file__).parent / "golden"
TABLES = {
    "a": [("k", "INTEGER"), ("x", "INTEGER")],
    "b": [("k", "BIGINT"), ("y", "INTEGER")],
    "d": [("k", "INTEGER"), ("x", "INTEGER"), ("y", "INTEGER")],
}


def catalog() -> FakeCatalog:
    return FakeCatalog(
        {name: FakeSource(Schema.of(*((c, parse_type(t)) for c, t in columns))) for name, columns in TABLES.items()}
    )


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
    return [
        f"{'apply ' if isinstance(n, logical.Apply) else ''}{n.kind}"
        for n in plan.walk()
        if isinstance(n, logical.Join)
    ]


def wrong_names(plan: logical.Node) -> str | None:
    """What is wrong with the names of a plan: one that repeats, or an outer column that could mean two, or none."""
    for node in nodes(plan):
        names = {name.lower() for name in node.schema.names}
        if len(names) != len(node.schema.names):
            return f"{node.describe()}: names repeat"
        if isinstance(node, logical.Apply):
            left = {name.lower() for name in node.left.schema.names}
            for inner in nodes(node.right):
                if any(outer.name.lower() in left for outer in outers(inner)) and left & {
                    name.lower() for name in inner.schema.names
                }:
                    return f"{inner.describe()}: a name of the relation around it"
    return _unknown_outer(plan, frozenset())


def _unknown_outer(node: logical.Node, around: frozenset[str]) -> str | None:
    for outer in own_outers(node):
        if outer.name not in around:
            return f"{node.describe()}: {outer} is no column around it"
    for index, inner in enumerate(node.inputs):
        problem = _unknown_outer(inner, around.union(bound_names(node, index)))
        if problem is not None:
            return problem
    return None
