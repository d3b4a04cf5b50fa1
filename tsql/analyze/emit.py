"""EMIT behind a query: when results leave, never what they are. Live jobs do as it says.

A table or a file is complete once it has been read, and none of its rows is late. FINAL, CHANGES and EVERY therefore
all give the final rows of a bounded query, once. A view emits no result, so it has no EMIT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from tsql.analyze.time.streams import constant_length
from tsql.grammar.time.nodes import Emit
from tsql.planner.logical.emission import CHANGES, FINAL, Emission

if TYPE_CHECKING:
    from tsql.analyze.statements import Analyzer


def check_emit(analyzer: Analyzer, statement: exp.Expr) -> None:
    """Refuse an EMIT in a view, or one whose intervals are not lengths of time."""
    if not statement.meta.get("time"):
        return
    for node in statement.find_all(Emit):
        for name in ("every", "within"):
            if constant_length(analyzer, node.args.get(name), name.upper()) == 0:
                raise analyzer.error(f"{name.upper()} must be more than zero", node.args[name])
        is_view = isinstance(statement, exp.Create) and (statement.args.get("kind") or "").upper() == "VIEW"
        if is_view and statement.find(exp.MaterializedProperty) is None:
            raise analyzer.error("EMIT says when a result leaves: it belongs to the query that reads the view", node)


def emission(analyzer: Analyzer, query: exp.Expr) -> Emission | None:
    """What EMIT behind a query asks for; None if it does not stand there."""
    node = query.args.get("emit")
    if node is None:
        return None
    return Emission(
        CHANGES if node.name == "CHANGES" else FINAL,
        constant_length(analyzer, node.args.get("every"), "EVERY"),
        bool(node.args.get("before_watermark")),
        bool(node.args.get("changes_after_watermark")),
        constant_length(analyzer, node.args.get("within"), "WITHIN"),
    )
