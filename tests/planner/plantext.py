"""Reads logical plans as `show` prints them, so that tests of rules can write a plan without SQL.

`outer.x` is a column of the left side of an enclosing `apply`. A literal relation is written `values (x BIGINT, y
BIGINT): (1, 2), (3, NULL)`. A scan that lists no columns reads all. The caller gives the tables by name. A line `name:`
before a node names it, and a line `@name` stands for the same object again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tsql.kernels.expr.nodes import Column, Expr, Outer, SortKey, rewrite
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import parse_type
from tsql.planner.bind.binder import parse_aggregate, parse_expression
from tsql.planner.logical.calls import map_call
from tsql.planner.logical.nodes import (
    Aggregate,
    Apply,
    Distinct,
    Filter,
    Join,
    Limit,
    LimitBy,
    Node,
    Output,
    Project,
    Scan,
    SetOperation,
    Sort,
    Values,
)
from tsql.planner.physical.line import unplaced
from tsql.planner.physical.text import split

_JOIN = re.compile(r"(apply )?(inner|left|full|semi|anti|mark|single) join(?: on (.*)| (\w+)=(.*))?$")
_OUTER = re.compile(r"\bouter\.(\w+)")
_HIDDEN = "outer__"


def read_plan(text: str, tables: Mapping[str, Any]) -> Node:
    """The plan of a text, one node per line, inputs indented by two."""
    lines = [line for line in text.split("\n") if line.strip()]
    reader = _Reader(lines, tables)
    plan = reader.node(0, ())
    assert reader.at == len(lines), f"a second root: {lines[reader.at]}"
    return plan


class _Reader:
    def __init__(self, lines: list[str], tables: Mapping[str, Any]):
        self.lines, self.tables, self.at = lines, tables, 0
        self.named: dict[str, Node] = {}

    def node(self, depth: int, scope: tuple[Field, ...]) -> Node:
        """The node at the current line; `scope` are the outer columns that it may name."""
        line = self.lines[self.at]
        assert line.startswith("  " * depth) and not line[2 * depth :].startswith(" "), f"wrong indentation: {line}"
        self.at += 1
        text = line.strip()
        if text.startswith("@"):
            return self.named[text[1:]]
        if re.match(r"\w+:$", text):
            self.named[text[:-1]] = node = self.node(depth, scope)
            return node
        word, _, rest = text.partition(" ")
        join = _JOIN.match(text)
        if join is not None:
            return self._join(join, depth, scope)
        if word in ("union", "intersect", "except"):
            return SetOperation(word, rest == "all", self.node(depth + 1, scope), self.node(depth + 1, scope))
        if word == "scan":
            return self._scan(rest)
        if word == "values":
            return self._values(rest, scope)
        return self._unary(word, rest, self.node(depth + 1, scope), scope)

    def _join(self, match: re.Match[str], depth: int, scope: tuple[Field, ...]) -> Node:
        applied, kind, on, mark, marked = match.groups()
        left = self.node(depth + 1, scope)
        right = self.node(depth + 1, (*scope, *left.schema) if applied else scope)
        condition = on if mark is None else marked if marked != "true" else None
        both = Schema((*left.schema, *right.schema))
        parsed = None if condition is None else self._expression(condition, both, scope)
        return (Apply if applied else Join)(kind, left, right, parsed, mark)

    def _scan(self, text: str) -> Node:
        match = re.match(r"(\w+)(?: \((.*?)\))?(?: where (.*))?$", text)
        name, columns, where = match.groups()
        source = self.tables[name]
        scan = Scan(name, source, source.schema.names if columns is None else tuple(split(columns)))
        return scan if where is None else Scan(name, source, scan.columns, self._expression(where, scan.schema, ()))

    def _values(self, text: str, scope: tuple[Field, ...]) -> Node:
        match = re.match(r"\((.*?)\): (.*)$", text)
        fields = tuple(Field(n, parse_type(t)) for n, t in (item.split(" ", 1) for item in split(match.group(1))))
        rows = []
        for row in split(match.group(2)):
            texts = split(row[1:-1])
            rows.append(
                tuple(
                    self._expression(f"CAST({t} AS {f.type})" if "outer" not in t else t, Schema(()), scope)
                    for f, t in zip(fields, texts, strict=True)
                )
            )
        return Values(tuple(rows), Schema(fields))

    def _unary(self, word: str, rest: str, below: Node, scope: tuple[Field, ...]) -> Node:
        schema = below.schema
        match word:
            case "filter":
                return Filter(below, self._expression(rest, schema, scope))
            case "project":
                return Project(below, self._assignments(split(rest), schema, scope))
            case "aggregate":
                return self._aggregate(rest, below, scope)
            case "distinct":
                return Distinct(below, tuple(split(rest[4:-1])) if rest else None)
            case "sort":
                return Sort(below, self._order(rest, schema, scope))
            case "limit":
                match = re.match(r"(.*?)(?: offset (.*?))?(?: by \((.*?)\)(?: order (.*))?)?$", rest)
                count, offset = (
                    None
                    if t in (None, "None")
                    else self._expression(f"CAST({t} AS BIGINT)" if t.isdigit() else t, Schema(()), ())
                    for t in match.groups()[:2]
                )
                if match.group(3) is None:
                    return Limit(below, count, offset)
                return LimitBy(
                    below, tuple(split(match.group(3))), count, offset, self._order(match.group(4) or "", schema, scope)
                )
            case "output":
                columns = [item.split(" as ") for item in split(rest[1:-1])]
                return Output(below, tuple(c[0] for c in columns), tuple(c[-1] for c in columns))
        raise AssertionError(f"no node {word}")

    def _aggregate(self, text: str, below: Node, scope: tuple[Field, ...]) -> Node:
        items: list[str] = []
        for item in split(text, " "):
            if re.match(r"\w+=", item):
                items.append(item)
            else:
                items[-1] += f" {item}"
        values = dict(item.split("=", 1) for item in items)
        keys = self._assignments(split(values.pop("by")[1:-1]), below.schema, scope)
        sets = values.pop("sets", None)
        if sets is not None:
            names = [n for n, _ in keys]
            sets = tuple(tuple(names.index(n) for n in split(part[1:-1])) for part in split(sets[1:-1]))
        wide = self._with_outers(below.schema, scope)
        calls = []
        for name, call in values.items():
            parsed = parse_aggregate(_OUTER.sub(rf"{_HIDDEN}\1", call), wide)
            calls.append((name, map_call(parsed, lambda e: unplaced(_revealed(e, scope)))))
        return Aggregate(below, keys, tuple(calls), sets)

    def _assignments(self, items: list[str], schema: Schema, scope: tuple[Field, ...]) -> tuple[tuple[str, Expr], ...]:
        made = []
        for item in items:
            match = re.match(r"(\w+)=(.*)$", item)
            name, text = match.groups() if match else (item.strip('"'), item)
            made.append((name, self._expression(text, schema, scope)))
        return tuple(made)

    def _order(self, text: str, schema: Schema, scope: tuple[Field, ...]) -> tuple[SortKey, ...]:
        keys = []
        for item in split(text):
            match = re.match(r"(.*?)(?: (asc|desc) nulls (first|last))?$", item)
            keys.append(
                SortKey(
                    self._expression(match.group(1), schema, scope), match.group(2) == "desc", match.group(3) == "first"
                )
            )
        return tuple(keys)

    def _with_outers(self, schema: Schema, scope: tuple[Field, ...]) -> Schema:
        """Inner relations hide outer ones, so the last of a name counts."""
        hidden = {_HIDDEN + f.name: Field(_HIDDEN + f.name, f.type, f.nullable) for f in scope}
        return Schema((*schema, *hidden.values()))

    def _expression(self, text: str, schema: Schema, scope: tuple[Field, ...]) -> Expr:
        parsed = parse_expression(_OUTER.sub(rf"{_HIDDEN}\1", text), self._with_outers(schema, scope))
        return unplaced(_revealed(parsed, scope))


def _revealed(expr: Expr, scope: tuple[Field, ...]) -> Expr:
    fields = {_HIDDEN + f.name: f for f in scope}

    def reveal(e: Expr) -> Expr:
        f = fields.get(e.name) if isinstance(e, Column) else None
        return e if f is None else Outer(f.name, f.type, f.nullable)

    return rewrite(expr, reveal)
