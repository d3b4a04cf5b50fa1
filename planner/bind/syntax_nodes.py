"""The syntax nodes of expressions that sqlglot does not have."""

from __future__ import annotations

from sqlglot import exp


class UnaryPlus(exp.Unary):
    """`+x`, which sqlglot drops; DuckDB keeps it in the name of the column."""


class Absolute(exp.Unary):
    """`@x`, the absolute value; binds less tightly than arithmetic."""


class CallNode(exp.Anonymous):
    """A function call with the user's own (lower-case) name; `quoted` tells that the name was in double quotes."""

    arg_types = {"this": True, "expressions": False, "quoted": False}
