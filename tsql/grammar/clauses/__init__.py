"""The known arguments of each syntax node of a statement; `planner/bind/clauses.py` checks statements against them.

There is a table for each family of nodes: `queries.py`, `relations.py` (FROM), `changes.py` (INSERT, UPDATE, ..),
`definitions.py` (CREATE, DROP, ..), `own.py` (nodes of this dialect). A class that is in no table is refused by its
name."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp
from sqlglot.tokens import Token

from tsql.grammar.clauses.changes import CHANGES
from tsql.grammar.clauses.definitions import DEFINITIONS
from tsql.grammar.clauses.own import OWN
from tsql.grammar.clauses.queries import QUERIES
from tsql.grammar.clauses.relations import RELATIONS
from tsql.planner.bind.clauses import Table, check_clauses
from tsql.planner.bind.expression_clauses import EXPRESSIONS

FAMILIES: dict[str, Table] = {
    "expressions": EXPRESSIONS,
    "queries": QUERIES,
    "relations": RELATIONS,
    "changes": CHANGES,
    "definitions": DEFINITIONS,
    "own": OWN,
}
NODES: Table = {kind: clauses for family in FAMILIES.values() for kind, clauses in family.items()}


def check_statement(node: exp.Expr, tokens: Sequence[Token], text: str) -> None:
    """Refuse a statement with a clause that nothing reads; the error points to the clause."""
    check_clauses(node, tokens, text, NODES)
