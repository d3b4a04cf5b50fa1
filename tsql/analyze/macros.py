"""Scalar macros: a call of one is replaced by its expression before a statement is analyzed.

CREATE MACRO area(w, h := 1) AS w * h;   SELECT area(x) FROM t   ->   SELECT x * 1 AS "area(x)" FROM t
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from tsql.analyze.names.columns import display_name
from tsql.catalog.definition import Macro
from tsql.grammar.parser.statements import Parsed
from tsql.kernels.expr.errors import BindError
from tsql.kernels.process import stopping
from tsql.planner.bind.query_text import position_of
from tsql.planner.bind.syntax import parse_scalar
from tsql.planner.bind.syntax_nodes import CallNode

MAX_DEPTH = 50
"""The maximum nesting of macros. A deeper one is recursive."""

MAX_PARTS = 50_000
"""The maximum number of expression parts (operators, columns, constants) that the macros of a statement may expand to.
A macro that calls another one twice doubles them."""


def expand_macros(parsed: Parsed, catalog: Any) -> Parsed:
    """The statement without calls of macros; the same object if there are none."""
    find = getattr(catalog, "macro", None)
    if find is None or not any(find(call.name) for call in parsed.node.find_all(CallNode)):
        return parsed
    for select in parsed.node.find_all(exp.Select):
        for item in select.expressions:
            if not isinstance(item, (exp.Alias, exp.Star)) and any(find(call.name) for call in item.find_all(CallNode)):
                name = display_name(item, parsed.source.text)
                item.replace(exp.Alias(this=item.copy(), alias=exp.Identifier(this=name, quoted=True)))
    return replace(parsed, node=_expanded(parsed.node, find, Parts(), 0))


class Parts:
    """Counts what macros expand to."""

    def __init__(self) -> None:
        self.number = 0

    def add(self, number: int, macro: Macro, call: CallNode) -> None:
        self.number += number
        if self.number > MAX_PARTS:
            raise BindError(
                f'macro "{macro.name}" expands to more than {MAX_PARTS:,} parts of expressions',
                position=position_of(call),
                hint="compute what it repeats in a subquery",
            )


def _expanded(node: exp.Expr, find: Any, parts: Parts, depth: int) -> exp.Expr:
    def change(found: exp.Expr) -> exp.Expr:
        macro = find(found.name) if isinstance(found, CallNode) else None
        if macro is None:
            return found
        if depth >= MAX_DEPTH:
            raise BindError(f'macro "{macro.name}" is defined by itself', position=position_of(found))
        stopping.check()
        return _expanded(_body(macro, found, parts), find, parts, depth + 1)

    return node.transform(change, copy=False)


def _body(macro: Macro, call: CallNode, parts: Parts) -> exp.Expr:
    """The macro's expression with the arguments of a call in the place of its parameters; errors in it point to the
    call."""
    at = position_of(call)
    values = _arguments(macro, call)
    body = parse_scalar(macro.text)[0]
    for inner in body.walk():
        inner._meta = None if at is None else {"at": at}
        parts.add(1, macro, call)
    sizes = {name: sum(1 for _ in value.walk()) for name, value in values.items()}

    def fill(node: exp.Expr) -> exp.Expr:
        value = values.get(node.name.lower()) if isinstance(node, exp.Column) and len(node.parts) == 1 else None
        if value is None:
            return node
        parts.add(sizes[node.name.lower()], macro, call)
        return value.copy()

    return exp.Paren(this=body.transform(fill, copy=False))


def _arguments(macro: Macro, call: CallNode) -> dict[str, exp.Expr]:
    lowered = [parameter.lower() for parameter in macro.parameters]
    values: dict[str, exp.Expr] = {}
    for place, argument in enumerate(call.expressions):
        if isinstance(argument, (exp.PropertyEQ, exp.Kwarg)):
            name, argument = argument.this.name.lower(), argument.expression
        else:
            name = lowered[place] if place < len(lowered) else ""
        if name not in lowered or name in values:
            raise _mismatch(macro, call)
        values[name] = argument
    optional = lowered[len(lowered) - len(macro.defaults) :]
    for name, text in zip(optional, macro.defaults, strict=True):
        values.setdefault(name, parse_scalar(text)[0])
    if len(values) < len(lowered):
        raise _mismatch(macro, call)
    return values


def _mismatch(macro: Macro, call: CallNode) -> BindError:
    required = len(macro.parameters) - len(macro.defaults)
    shown = [
        *macro.parameters[:required],
        *(f"{p} := {d}" for p, d in zip(macro.parameters[required:], macro.defaults, strict=True)),
    ]
    return BindError(
        f"Macro {macro.name}() does not support the supplied arguments",
        position=position_of(call),
        hint=f"it is {macro.name}({', '.join(shown)})",
    )
