"""Random logical plans with subqueries over tiny tables with NULLs and duplicates, for `test_unnest.py`."""

from __future__ import annotations

import random

import pyarrow as pa

from tsql.backends.io.arrow import ArrowSource
from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Call, Case, Column, Expr, InList, Literal, Outer, SortKey
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT, BOOLEAN
from tsql.planner.logical.nodes import (
    Aggregate,
    Apply,
    Distinct,
    Filter,
    Join,
    Limit,
    Node,
    Project,
    Scan,
    SetOperation,
    Sort,
    Values,
)

COMPARISONS = ("=", "=", "=", "<>", "<", ">=", "is_not_distinct_from")
KINDS = ("inner", "left", "semi", "anti", "mark", "single")


class Generator:
    """One random plan per seed. Every relation has BIGINT (and marks BOOLEAN) columns with names of their own."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.tables = {f"t{i}": self._table(i) for i in range(3)}
        self.number = 0

    def _table(self, index: int) -> ArrowSource:
        rows = self.random.choice((0, 1, 3, 4, 5))
        values = [[self.random.choice((None, 0, 1, 2)) for _ in range(rows)] for _ in range(2)]
        return ArrowSource(
            pa.table({"x": pa.array(values[0], pa.int64()), "y": pa.array(values[1], pa.int64())}), f"t{index}"
        )

    def name(self) -> str:
        self.number += 1
        return f"c{self.number}"

    def plan(self) -> Node:
        """A plan with at least one Apply at the top."""
        node = self.relation(1, ())
        for _ in range(self.random.choice((1, 1, 2))):
            node = self.apply(node, self.random.choice((1, 2, 3)), ())
        return node

    def numbers(self, node: Node) -> list[Field]:
        return [f for f in node.schema if f.type == BIGINT]

    def operand(self, node: Node, scope: tuple[Field, ...], chance: float = 0.4) -> Expr:
        fields = self.numbers(node)
        if scope and self.random.random() < chance:
            f = self.random.choice(scope)
            return Outer(f.name, f.type, f.nullable)
        if fields and self.random.random() < 0.85:
            f = self.random.choice(fields)
            return Column(f.name, f.type, f.nullable)
        return Literal(self.random.choice((0, 1, 2)), BIGINT)

    def predicate(self, node: Node, scope: tuple[Field, ...], depth: int = 1) -> Expr:
        kind = self.random.random()
        if depth and kind < 0.35:
            parts = tuple(self.predicate(node, scope, depth - 1) for _ in range(2))
            return Call(self.random.choice(("and", "and", "or")), parts, BOOLEAN)
        if depth and kind < 0.4:
            return Call("not", (self.predicate(node, scope, depth - 1),), BOOLEAN)
        marks = [f for f in node.schema if f.type == BOOLEAN]
        if marks and kind < 0.6:
            f = self.random.choice(marks)
            mark: Expr = Column(f.name, f.type)
            return mark if self.random.random() < 0.5 else Call("not", (mark,), BOOLEAN)
        if kind < 0.68:
            return Call(self.random.choice(("is_null", "is_not_null")), (self.operand(node, scope),), BOOLEAN)
        if kind < 0.74:
            return InList(self.operand(node, scope), (Literal(0, BIGINT), Literal(2, BIGINT)))
        return Call(self.random.choice(COMPARISONS), (self.operand(node, scope), self.operand(node, scope)), BOOLEAN)

    def expression(self, node: Node, scope: tuple[Field, ...]) -> Expr:
        kind = self.random.random()
        if kind < 0.5:
            return self.operand(node, scope, 0.2)
        if kind < 0.65:
            return Call("coalesce", (self.operand(node, scope), Literal(1, BIGINT)), BIGINT)
        if kind < 0.75:
            return Case(((self.predicate(node, scope, 0), self.operand(node, scope)),), self.operand(node, scope))
        return Call(
            self.random.choice(("+", "*")), (self.operand(node, scope, 0.2), self.operand(node, scope, 0.2)), BIGINT
        )

    def scan(self) -> Node:
        table = self.random.choice(list(self.tables))
        return Project(
            Scan(table, self.tables[table], ("x", "y")), tuple((self.name(), Column(c, BIGINT)) for c in ("x", "y"))
        )

    def values(self, scope: tuple[Field, ...]) -> Node:
        empty = Values((), Schema(()))
        rows = tuple(
            (self.operand(empty, scope), self.operand(empty, scope)) for _ in range(self.random.choice((1, 1, 2, 3)))
        )
        return Values(rows, Schema((Field(self.name(), BIGINT), Field(self.name(), BIGINT))))

    def relation(self, depth: int, scope: tuple[Field, ...]) -> Node:
        if depth <= 0:
            node = self.values(scope) if self.random.random() < 0.15 else self.scan()
            return Filter(node, self.predicate(node, scope)) if self.random.random() < 0.5 else node
        kinds = (
            self.filter, self.filter, self.project, self.aggregate, self.aggregate, self.total, self.total, self.sets,
            self.distinct, self.first_rows, self.operation, self.join, self.join, self.nested, self.nested,
        )  # fmt: skip
        return self.random.choice(kinds)(depth, scope)

    def filter(self, depth: int, scope: tuple[Field, ...]) -> Node:
        node = self.relation(depth - 1, scope)
        return Filter(node, self.predicate(node, scope))

    def project(self, depth: int, scope: tuple[Field, ...]) -> Node:
        node = self.relation(depth - 1, scope)
        return Project(node, tuple((self.name(), self.expression(node, scope)) for _ in range(2)))

    def calls(self, node: Node, scope: tuple[Field, ...]) -> tuple[tuple[str, AggregateCall], ...]:
        made = []
        for name in self.random.sample(("count", "count_star", "sum", "min", "max"), 2):
            args = () if name == "count_star" else (self.operand(node, scope, 0.1),)
            condition = self.predicate(node, scope, 0) if self.random.random() < 0.2 else None
            made.append(
                (self.name(), AggregateCall(name, args, BIGINT, self.random.random() < 0.1 and bool(args), condition))
            )
        return tuple(made)

    def aggregate(self, depth: int, scope: tuple[Field, ...]) -> Node:
        node = self.relation(depth - 1, scope)
        return Aggregate(node, ((self.name(), self.operand(node, scope, 0.1)),), self.calls(node, scope))

    def total(self, depth: int, scope: tuple[Field, ...]) -> Node:
        node = self.relation(depth - 1, scope)
        return Aggregate(node, (), self.calls(node, scope))

    def sets(self, depth: int, scope: tuple[Field, ...]) -> Node:
        node = self.relation(depth - 1, scope)
        keys = tuple((self.name(), self.operand(node, scope, 0.1)) for _ in range(2))
        sets = tuple(self.random.sample(((), (0,), (1,), (0, 1), ()), self.random.choice((1, 2, 3))))
        grouped = Aggregate(node, keys, self.calls(node, scope), sets)
        return Project(grouped, tuple((self.name(), Column(f.name, f.type, f.nullable)) for f in grouped.schema))

    def distinct(self, depth: int, scope: tuple[Field, ...]) -> Node:
        node = self.relation(depth - 1, scope)
        if self.random.random() < 0.5 or not node.schema.names:
            return Distinct(node)
        return Distinct(self.ordered(node), (self.random.choice(node.schema.names),))

    def ordered(self, node: Node) -> Sort:
        """By all columns, so that which rows come first is certain."""
        fields = self.random.sample(list(node.schema), len(node.schema))
        return Sort(
            node,
            tuple(
                SortKey(Column(f.name, f.type, f.nullable), self.random.random() < 0.5, self.random.random() < 0.5)
                for f in fields
            ),
        )

    def first_rows(self, depth: int, scope: tuple[Field, ...]) -> Node:
        node: Node = self.ordered(self.relation(depth - 1, scope))
        if self.random.random() < 0.3:
            node = Project(node, tuple((self.name(), Column(f.name, f.type, f.nullable)) for f in node.schema))
        count = self.random.choice((None, 0, 1, 1, 1, 2))
        offset = self.random.choice((None, None, 1))
        return Limit(
            node, None if count is None else Literal(count, BIGINT), None if offset is None else Literal(offset, BIGINT)
        )

    def two(self, node: Node) -> Node:
        """Two BIGINT columns, so that set operations fit."""
        numbers = self.numbers(node)
        columns = [Column(f.name, f.type, f.nullable) for f in numbers[:2]] + [Literal(1, BIGINT)] * (
            2 - len(numbers[:2])
        )
        return Project(node, tuple((self.name(), c) for c in columns))

    def operation(self, depth: int, scope: tuple[Field, ...]) -> Node:
        kind = self.random.choice(("union", "union", "intersect", "except"))
        left, right = (self.two(self.relation(depth - 1, scope)) for _ in range(2))
        return SetOperation(kind, kind == "union" or self.random.random() < 0.5, left, right)

    def join(self, depth: int, scope: tuple[Field, ...]) -> Node:
        kind = self.random.choice(("inner", "inner", "left", "full", "semi", "anti", "mark"))
        return self._join(Join, kind, self.relation(depth - 1, scope), self.relation(depth - 1, scope), scope)

    def nested(self, depth: int, scope: tuple[Field, ...]) -> Node:
        return self.apply(self.relation(depth - 1, scope), depth - 1, scope)

    def apply(self, left: Node, depth: int, scope: tuple[Field, ...]) -> Node:
        """The left side's columns join the scope of the right side."""
        return self._join(
            Apply,
            self.random.choice(KINDS),
            left,
            self.relation(depth, (*scope, *self.numbers(left), *self.numbers(left))),
            scope,
        )

    def _join(self, node: type[Join], kind: str, left: Node, right: Node, scope: tuple[Field, ...]) -> Node:
        if kind == "single" and self.random.random() < 0.6:
            right = Limit(self.ordered(right), Literal(1, BIGINT))
        both = Join("inner", left, right)
        condition = self.predicate(both, scope) if self.random.random() < (0.3 if kind == "single" else 0.6) else None
        if self.random.random() < 0.3 and self.numbers(left) and self.numbers(right):
            a, b = (self.random.choice(self.numbers(side)) for side in (left, right))
            condition = Call("=", (Column(a.name, a.type, a.nullable), Column(b.name, b.type, b.nullable)), BOOLEAN)
            if self.random.random() < 0.5:
                left = Filter(
                    left,
                    Call(
                        self.random.choice(("=", "<", ">=")),
                        (Column(a.name, a.type, a.nullable), Literal(1, BIGINT)),
                        BOOLEAN,
                    ),
                )
        joined = node(kind, left, right, condition, self.name() if kind == "mark" else None)
        if kind == "mark" and self.random.random() < 0.5:
            mark: Expr = Column(joined.mark, BOOLEAN)
            return Filter(joined, mark if self.random.random() < 0.5 else Call("not", (mark,), BOOLEAN))
        return joined
