"""PROGRESSIVE behind a query: what it asks for. It never changes the final result; it says when earlier ones are shown,
so it stands behind queries whose result somebody looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from tsql.analyze.time.streams import constant_length
from tsql.grammar.parser import statements as parser
from tsql.grammar.time.nodes import Progressive, Sequenced
from tsql.planner.logical.progression import Progression

if TYPE_CHECKING:
    from tsql.analyze.statements import Analyzer

SHOWN = (exp.Query, Sequenced, parser.Explain, parser.CompilePlan, parser.DescribeQuery)


def check_progressive(analyzer: Analyzer, statement: exp.Expr) -> None:
    """Refuse PROGRESSIVE where nobody looks at the result: in a view, a table, a file."""
    if not statement.meta.get("time") or isinstance(statement, SHOWN):
        return
    for node in statement.find_all(Progressive):
        raise analyzer.error("PROGRESSIVE belongs to a query whose result is shown, not to one that is stored", node)


def progression(analyzer: Analyzer, query: exp.Expr) -> Progression | None:
    """What PROGRESSIVE behind a query asks for; None if it does not stand there."""
    node = query.args.get("progressive")
    if node is None:
        return None
    found = Progression()
    every, unit = node.args.get("every"), node.args.get("unit")
    given: dict[str, object] = {}
    if every is not None and unit is not None:
        given |= {"every": float(every.name), "unit": unit.name.lower()}
    elif every is not None:
        given |= {"every": float(_length(analyzer, every, "EVERY")), "unit": "us"}
    if (within := node.args.get("within")) is not None:
        given["within_us"] = _length(analyzer, within, "WITHIN")
    for name, key, kind in (("until_error", "until_error", float), ("confidence", "confidence", float),
                            ("seed", "seed", int)):  # fmt: skip
        if (value := node.args.get(name)) is not None:
            given[key] = kind(value.name)
    return Progression(**{**found.__dict__, **given})


def _length(analyzer: Analyzer, node: exp.Expr, what: str) -> int:
    length = constant_length(analyzer, node, what)
    if not length:
        raise analyzer.error(f"{what} must be more than zero", node)
    return length
