"""`LineContext`: reads the parts of a plan file's line. Steps read names, expressions, calls and tables through it, so
that every error has the line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from tsql.kernels.expr.errors import PlanError, TsqlError
from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Expr, SortKey, rewrite
from tsql.kernels.expr.schema import Schema
from tsql.kernels.windows.call import WindowCall
from tsql.planner.physical.text import SIMPLE, dotted, quoted, scan_text, split, split_assignment

_PART = r'(?:[A-Za-z_]\w*|"(?:[^"]|"")*")'
"""A part of a qualified name."""


def unplaced(expr: Expr) -> Expr:
    """The expression without positions: positions in a plan file's line are not positions in the query."""
    return rewrite(expr, _without_position)


def _without_position(expr: Any) -> Expr:
    # Not every kind of expression has a position.
    found: Expr = replace(expr, position=None) if getattr(expr, "position", None) is not None else expr
    return found


class LineContext:
    """The context of a line: the catalog, the line's number and its text."""

    def __init__(self, catalog: Any, parameters: dict[str, Any] | None, text: str, origin: str | None):
        self.catalog, self.parameters, self.full_text, self.origin = catalog, parameters, text, origin
        self.number = 1

    def error(self, message: str, hint: str | None = None, at: str | None = None) -> PlanError:
        """An error on this line; `at` is the attribute that it is about."""
        lines = self.full_text.split("\n")
        position = sum(len(t) + 1 for t in lines[: self.number - 1])
        found = None if at is None else re.search(rf"(?<=\s){re.escape(at)}=", lines[self.number - 1])
        position += 0 if found is None else found.start()
        return PlanError(message, position=position, text=self.full_text, origin=self.origin, hint=hint)

    def split(self, text: str) -> list[str]:
        try:
            return split(text)
        except ValueError as error:
            raise self.error(str(error)) from None

    def name(self, text: str) -> str:
        text = text.strip()
        if text.startswith('"') and text.endswith('"') and len(text) >= 2:
            return text[1:-1].replace('""', '"')
        if not SIMPLE.match(text):
            raise self.error(f"{text!r} is not a name")
        return text

    def split_name(self, item: str) -> tuple[str, str]:
        """`name rest`, the name possibly quoted."""
        match = re.match(r'\s*([A-Za-z_]\w*|"(?:[^"]|"")*")\s+(.+)$', item, re.S)
        if match is None:
            raise self.error(f"{item!r} is not a name and a type")
        return self.name(match.group(1)), match.group(2)

    def assignments(self, items: list[str]) -> list[tuple[str, str]]:
        """`a` or `b=expression`."""
        result = []
        for item in items:
            parts = split_assignment(item)
            result.append(
                (self.name(item), quoted(self.name(item))) if parts is None else (self.name(parts[0]), parts[1])
            )
        return result

    def expression(self, text: str, schema: Schema) -> Expr:
        from tsql.planner.bind.binder import parse_expression

        try:
            return unplaced(parse_expression(text, schema, self.parameters))
        except TsqlError as error:
            raise self.error(error.message, error.hint) from None

    def aggregate(self, text: str, schema: Schema) -> AggregateCall:
        from tsql.planner.bind.binder import parse_aggregate

        try:
            call = parse_aggregate(_unwrap(text), schema, self.parameters)
        except TsqlError as error:
            raise self.error(error.message, error.hint) from None
        order = tuple(SortKey(unplaced(k.expr), k.descending, k.nulls_first) for k in call.order)
        condition = None if call.filter is None else unplaced(call.filter)
        return replace(call, args=tuple(map(unplaced, call.args)), filter=condition, order=order, position=None)

    def window(self, text: str, schema: Schema, order: tuple[SortKey, ...]) -> WindowCall:
        from tsql.planner.bind.binder import parse_window

        try:
            call = parse_window(_unwrap(text), schema, order, self.parameters)
        except TsqlError as error:
            raise self.error(error.message, error.hint) from None
        return replace(call.changed(unplaced), position=None)

    def condition(self, text: str, schema: Schema, names: tuple[str, ...], own: str | None) -> Expr:
        """A condition or measure over the rows of a match; `names` are the variables of the pattern, `own` its own."""
        from tsql.planner.bind.match import parse_condition

        try:
            return unplaced(parse_condition(text, schema, names, own, self.parameters))
        except TsqlError as error:
            raise self.error(error.message, error.hint) from None

    def constant(self, text: str) -> Expr:
        value = self.expression(text, Schema(()))
        if value.columns():
            raise self.error(f"{text} is not a constant")
        return value

    def sort_key(self, item: str, schema: Schema) -> SortKey:
        match = re.match(r"(.*\S)\s+(asc|desc)\s+nulls\s+(first|last)\s*$", item, re.S | re.I)
        if match is None:
            raise self.error(f"{item!r} is not of the form `expression asc|desc nulls first|last`")
        return SortKey(
            self.expression(match.group(1), schema), match.group(2).lower() == "desc", match.group(3).lower() == "first"
        )

    def _described(self, text: str) -> Any:
        """A file source from its description."""
        try:
            about = json.loads(text)
            return self.catalog.open_file(list(about["paths"]), about["kind"], dict(about.get("options") or {}))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self.error("this is not the description of a file source") from None

    def table(self, text: str) -> tuple[str, Any]:
        """The source that a scan names."""
        try:
            if text.startswith("'"):
                path = text[1:-1].replace("''", "'")
                return (path, self._described(path)) if path.startswith("{") else (path, self.catalog.open_file(path))
            parts = re.findall(_PART, text) if re.fullmatch(rf"{_PART}(\.{_PART})+", text) else []
            if parts:
                name = dotted(tuple(map(self.name, parts)))
                source = self.catalog.lookup_outer(tuple(map(self.name, parts)))
            else:
                name = self.name(text)
                source = self.catalog.lookup(name)
        except TsqlError as error:
            raise self.error(error.message, error.hint) from None
        if source is None or not hasattr(source, "schema"):
            raise self.error(f"there is no table {name}")
        return name, source


def _unwrap(text: str) -> str:
    """Without the parentheses that the printer puts around a text with spaces."""
    if text.startswith("(") and text.endswith(")"):
        inside = text[1:-1]
        if all(depth >= 0 for _, depth, quoted in _scan_loose(inside) if not quoted):
            return inside
    return text


def _scan_loose(text: str) -> list[tuple[str, int, bool]]:
    try:
        return scan_text(text)
    except ValueError:
        return [("", -1, False)]
