"""Refuses temporal SQL that is parsed but has no plan, and functions of time outside of FROM.

`tsql/analyze/statements.py` calls `check_time` for each statement with temporal syntax. When a construct gets a plan,
remove it from `WITHOUT_PLAN`."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from tsql.grammar.time.nodes import FUNCTIONS
from tsql.grammar.time.parameters import USAGE
from tsql.kernels.expr.errors import BindError
from tsql.kernels.functions.registry import SCALARS
from tsql.planner.bind.query_text import position_of
from tsql.planner.bind.syntax_nodes import CallNode

WITHOUT_PLAN: dict[type[exp.Expr], str] = {}
"""The refused constructs, with their names in the error."""


def refuse(construct: str, node: exp.Expr | None) -> BindError:
    """The error for a construct that has no plan."""
    return BindError(f"there is no plan for {construct}", position=position_of(node))


def check_time(node: exp.Expr) -> None:
    """Refuse the first thing of a statement that has no plan, or that stands where it has no meaning."""
    if not node.meta.get("time"):
        return
    wrong = _refused(node)
    if wrong:
        raise min(wrong, key=lambda found: found[0])[1]()


def _refused(node: exp.Expr) -> list[tuple[int, Callable[[], BindError]]]:
    """What is wrong with a statement, each with its position, and the error for it."""
    wrong: list[tuple[int, Callable[[], BindError]]] = []
    for inner in node.walk():
        name = WITHOUT_PLAN.get(type(inner))
        if name is not None:
            wrong.append((position_of(inner) or 0, lambda name=name, inner=inner: refuse(name, inner)))
        elif isinstance(inner, CallNode) and inner.name.upper() in FUNCTIONS and not SCALARS.overloads.get(inner.name):
            wrong.append((position_of(inner) or 0, lambda inner=inner: _misplaced(inner)))
    return wrong


def _misplaced(call: CallNode) -> BindError:
    name = call.name.upper()
    return BindError(
        f"{name} is a table function: it stands in FROM",
        position=position_of(call),
        hint=f"FROM {USAGE[FUNCTIONS[name]]}",
    )
