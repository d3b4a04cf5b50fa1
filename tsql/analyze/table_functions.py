"""Table functions that generate rows: range, generate_series, repeat, repeat_row and UNNEST of a list in FROM.

Arguments may name columns of preceding relations (LATERAL) and contain subqueries. A list is either a literal or the
result of range or generate_series; `lists.py` defines both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tsql.analyze.lists import Literals, Ranged, read_list, series_arguments
from tsql.analyze.scope import AnalyzedRelation, Names, ScopeField
from tsql.analyze.subquery import Level, computed_rows
from tsql.kernels.expr.constant import evaluate
from tsql.kernels.expr.nodes import Column, Expr, Literal, Outer
from tsql.kernels.expr.schema import Field as SchemaField
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT, INTEGER, NULL, VARCHAR
from tsql.kernels.windows.call import WindowCall
from tsql.planner.bind.syntax_nodes import CallNode
from tsql.planner.bind.types import coerce, settle
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.generating import Series

if TYPE_CHECKING:
    from tsql.analyze.query import QueryAnalyzer

SERIES = ("range", "generate_series")
TABLE_FUNCTIONS = (*SERIES, "repeat", "repeat_row", "unnest")
ORDINALITY = "ordinality"
"""The column that WITH ORDINALITY adds."""
ONE_ROW = logical.Values(((),), Schema(()))


class TableFunctions:
    """The table functions of one FROM clause."""

    def __init__(self, queries: QueryAnalyzer, environment: Any):
        self.queries = queries
        self.level = Level(queries, environment, ())
        self.binder = queries._constant_binder("a table function", self.level)

    def relation(self, node: CallNode, ordinality: bool = False) -> AnalyzedRelation:
        """The relation of a call [WITH ORDINALITY]."""
        match node.name:
            case "range" | "generate_series":
                listed = Ranged(*series_arguments(self.binder, node), node.name == "generate_series")
                return self._listed(listed, node.name, ordinality)
            case "repeat":
                relation = self._repeat(node)
            case "repeat_row":
                relation = self._repeat_row(node)
            case _:
                return self.unnest(node.expressions, node, ordinality)
        return self._numbered(relation) if ordinality else relation

    def _series(self, name: str, start: Expr, stop: Expr, step: Expr, inclusive: bool) -> AnalyzedRelation:
        plan = self.level.attach(ONE_ROW, (start, stop, step))
        start, stop, step = map(self.level.settle, (start, stop, step))
        column = Names((*self.queries.taken, *plan.schema.names)).unique(name)
        return AnalyzedRelation(
            Series(plan, column, start, stop, step, inclusive), (ScopeField(name, column, start.type, False),)
        )

    def unnest(self, arguments: list[exp.Expr], node: exp.Expr, ordinality: bool = False) -> AnalyzedRelation:
        """UNNEST(list) [WITH ORDINALITY] in FROM."""
        if len(arguments) != 1:
            raise self.queries.error(
                f"UNNEST in FROM takes one list, not {len(arguments)}: the select list can unnest several side by side",
                node,
            )
        listed = read_list(self.binder, arguments[0])
        if listed is None or isinstance(listed, Literals) and listed.is_null:
            raise self.queries.error("UNNEST requires a single list or array as input", arguments[0])
        if ordinality and isinstance(listed, Literals):
            dtype = INTEGER if listed.type == NULL else listed.type
            return self._rows(
                [(coerce(v, dtype), Literal(i, BIGINT)) for i, v in enumerate(listed.values, 1)],
                [("unnest", dtype), (ORDINALITY, BIGINT)],
            )
        if isinstance(listed, Literals):
            return self._rows(
                [(value,) for value in listed.values], [("unnest", INTEGER if listed.type == NULL else listed.type)]
            )
        return self._listed(listed, "unnest", ordinality)

    def _listed(self, listed: Ranged, name: str, ordinality: bool) -> AnalyzedRelation:
        if ordinality and listed.is_numeric:
            return self._counted(listed, name)
        relation = self._series(name, listed.start, listed.stop, listed.step, listed.inclusive)
        return self._numbered(relation) if ordinality else relation

    def _counted(self, listed: Ranged, name: str) -> AnalyzedRelation:
        """Numbers with their places, from which they are computed."""
        names = Names((*self.queries.taken, name))
        place = names.unique(ORDINALITY)
        plan = self.level.attach(ONE_ROW, listed.expressions())
        series = Series(plan, place, Literal(1, BIGINT), self.level.settle(listed.count()), Literal(1, BIGINT), True)
        value = self.level.settle(listed.at(Column(place, BIGINT, False)))
        column = names.unique(name)
        project = logical.Project(series, ((column, value), (place, Column(place, BIGINT, False))))
        return AnalyzedRelation(
            project, (ScopeField(name, column, BIGINT, False), ScopeField(ORDINALITY, place, BIGINT, False))
        )

    def _numbered(self, relation: AnalyzedRelation) -> AnalyzedRelation:
        """The rows of a function with their places, from 1."""
        place = Names((*self.queries.taken, *relation.plan.schema.names)).unique(ORDINALITY)
        plan = logical.Window(relation.plan, (), (), ((place, WindowCall("row_number", (), BIGINT)),))
        return AnalyzedRelation(plan, (*relation.fields, ScopeField(ORDINALITY, place, BIGINT, False)))

    def _rows(self, rows: list[tuple[Expr, ...]], columns: list[tuple[str, Any]]) -> AnalyzedRelation:
        """Literal rows; those that are no constants are computed one by one."""
        names = Names(self.queries.taken)
        fields = tuple(ScopeField(name, names.unique(name), dtype) for name, dtype in columns)
        cast = tuple(tuple(coerce(value, f.type) for value, f in zip(row, fields, strict=True)) for row in rows)
        if any(isinstance(part, (Outer, Column)) for row in cast for value in row for part in value.walk()):
            return AnalyzedRelation(computed_rows(self.level, cast, [f.column for f in fields]), fields)
        return AnalyzedRelation(
            logical.Values(cast, Schema(tuple(SchemaField(f.column, f.type) for f in fields))), fields
        )

    def _repeat(self, node: CallNode) -> AnalyzedRelation:
        """repeat(value, count): the value `count` times."""
        if len(node.expressions) != 2:
            raise self.queries.error(f"repeat takes a value and a count, not {len(node.expressions)} arguments", node)
        value = settle(self.binder.operand(node.expressions[0]))
        return self._repeated([(_shown(value), value)], self.binder.bind_as(node.expressions[1], BIGINT))

    def _repeat_row(self, node: CallNode) -> AnalyzedRelation:
        """repeat_row(value, .., num_rows = count)."""
        values = [e for e in node.expressions if not _is_option(e)]
        options = [e for e in node.expressions if _is_option(e)]
        if len(options) != 1 or not values:
            raise self.queries.error("repeat_row takes values and num_rows = count", node)
        columns = [(f"column{i}", settle(self.binder.operand(value))) for i, value in enumerate(values)]
        return self._repeated(columns, self.binder.bind_as(options[0].expression, BIGINT))

    def _repeated(self, columns: list[tuple[str, Expr]], count: Expr) -> AnalyzedRelation:
        plan = self.level.attach(ONE_ROW, [count, *(e for _, e in columns)])
        names = Names((*self.queries.taken, *plan.schema.names))
        series = Series(plan, names.unique("number"), Literal(0, BIGINT), self.level.settle(count), Literal(1, BIGINT))
        fields, computed = [], []
        for name, expr in columns:
            expr = coerce(expr, INTEGER) if expr.type == NULL else expr
            column = names.unique(name)
            fields.append(ScopeField(name, column, expr.type))
            computed.append((column, self.level.settle(expr)))
        return AnalyzedRelation(logical.Project(series, tuple(computed)), tuple(fields))


def _shown(value: Expr) -> str:
    """The text of a constant, which is the name of its column in `repeat`."""
    text = coerce(value, VARCHAR)
    known = text if isinstance(text, Literal) else None if value.columns() else evaluate(text)
    return value.sql() if known is None else "NULL" if known.value is None else known.value


def _is_option(node: exp.Expr) -> bool:
    named = isinstance(node, (exp.EQ, exp.PropertyEQ, exp.Kwarg)) and isinstance(
        node.this, (exp.Column, exp.Identifier, exp.Var)
    )
    return named and node.this.name.lower() == "num_rows"


def call_of(node: exp.Expr) -> tuple[CallNode | None, list[exp.Expr], bool]:
    """The parts of a table function as FROM has it: the call, or for UNNEST its arguments, and whether places are
    wanted."""
    match node:
        case exp.Unnest():
            return None, node.expressions, bool(node.args.get("offset"))
        case exp.Lateral() if isinstance(node.this, CallNode):
            return node.this, [], bool(node.args.get("ordinality"))
        case exp.Lateral() if isinstance(node.this, exp.Unnest):
            return None, node.this.expressions, bool(node.this.args.get("offset"))
        case exp.Table() if isinstance(node.this, CallNode):
            return node.this, [], bool(node.args.get("ordinality"))
    return None, [], False
