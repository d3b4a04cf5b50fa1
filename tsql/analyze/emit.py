"""EMIT behind a query over bounded input: it says when results leave, never what they are, so all that is left to do is
to check it.

A table or a file is complete when it has been read, and no row of it is late: FINAL, CHANGES and EVERY all give the
rows of the query, once, when they are final. A view is no result that leaves, so it has no EMIT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from tsql.analyze.time.streams import constant_length
from tsql.grammar.time.nodes import Emit

if TYPE_CHECKING:
    from tsql.analyze.statements import Analyzer


def check_emit(analyzer: Analyzer, statement: exp.Expr) -> None:
    """Refuse an EMIT whose intervals are no lengths of time, and one in a view."""
    if not statement.meta.get("time"):
        return
    for node in statement.find_all(Emit):
        for name in ("every", "within"):
            if constant_length(analyzer, node.args.get(name), name.upper()) == 0:
                raise analyzer.error(f"{name.upper()} must be more than zero", node.args[name])
        if isinstance(statement, exp.Create) and (statement.args.get("kind") or "").upper() == "VIEW":
            raise analyzer.error("EMIT says when a result leaves: it belongs to the query that reads the view", node)
