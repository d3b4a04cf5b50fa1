"""Calls of host functions in expressions: functions that a library computes per batch, outside of the kernel. Lowering
finds them, and the run replaces them by columns."""

from __future__ import annotations

from typing import TypeGuard

from tsql.kernels.expr.nodes import Call, Column, Expr, rewrite
from tsql.kernels.functions.registry import SCALARS


def is_host_call(expr: Expr) -> TypeGuard[Call]:
    """Whether an expression is a call of a host function."""
    return isinstance(expr, Call) and SCALARS.find(expr.name, tuple(a.type for a in expr.args)).host is not None


def innermost(expressions: tuple[Expr, ...]) -> list[Call]:
    """Host calls whose arguments hold no host call; each distinct call once."""
    found: dict[Call, None] = {}
    for expression in expressions:
        # Most expressions have none: the result is cached, so each is searched once and not in every run.
        if expression.__dict__.get("_has_no_host_call"):
            continue
        before = len(found)
        for node in expression.walk():
            if is_host_call(node) and not any(is_host_call(below) for arg in node.args for below in arg.walk()):
                found[node] = None
        if len(found) == before and not any(is_host_call(node) for node in expression.walk()):
            expression.__dict__["_has_no_host_call"] = True
    return list(found)


def replace_calls(expr: Expr, names: dict[Call, str]) -> Expr:
    """The expression with columns in the place of the calls."""
    return rewrite(expr, lambda e: Column(names[e], e.type) if isinstance(e, Call) and e in names else e)
