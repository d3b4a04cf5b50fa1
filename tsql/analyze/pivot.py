"""PIVOT and UNPIVOT, as DuckDB's statements and as SQL's clauses after a relation. Both become a SELECT over the
relation.

PIVOT is an aggregation with one filtered aggregate per value of the ON columns. If the values are not listed, a first
query finds them. UNPIVOT turns columns into rows with UNNEST and drops rows without a value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tsql.analyze.names.columns import display_name
from tsql.analyze.scope import AnalyzedRelation
from tsql.analyze.star import star_pattern
from tsql.kernels.aggregates.registry import AGGREGATES
from tsql.kernels.expr.constant import evaluate
from tsql.kernels.expr.nodes import Call, Literal, Parameter
from tsql.kernels.expr.types import BOOLEAN, VARCHAR
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.bind.query_text import position_of
from tsql.planner.bind.syntax_nodes import CallNode
from tsql.planner.bind.types import coerce
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.tree import nodes

if TYPE_CHECKING:
    from tsql.analyze.query import QueryAnalyzer

MOST_COLUMNS = 5_000
_SOURCE = "\0pivoted"


@dataclass(frozen=True)
class PivotChoice:
    """One value of the ON columns: its part of a column's name, and the condition that selects its rows."""

    name: str
    condition: exp.Expr


class Pivots:
    """Pivots one relation, which has the name `alias`."""

    def __init__(self, queries: QueryAnalyzer, environment: Any, alias: str | None, relation: AnalyzedRelation):
        self.queries = queries
        self.relation = relation
        self.alias = alias
        self.environment = {**environment, _SOURCE: lambda: relation}

    def pivot(
        self,
        aggregates: list[exp.Expr],
        columns: list[list[PivotChoice]],
        group: exp.Group | None,
        used: list[exp.Expr],
    ) -> AnalyzedRelation:
        """The relation with a column for each combination of choices and each aggregate. `used` names the columns that
        are hidden if `group` is not given."""
        calls = [
            (call.alias if isinstance(call, exp.Alias) else None, call.this if isinstance(call, exp.Alias) else call)
            for call in aggregates
        ]
        for _, call in calls:
            self._check_aggregate(call)
        if group is not None:
            keys = [self._group_key(key) for key in group.expressions]
        else:
            hidden = self._named([*used, *(call for _, call in calls)])
            keys = [_column(f.name, None) for f in self.relation.fields if f.name.lower() not in hidden]
        items: list[exp.Expr] = list(keys)
        count = len(calls)
        for choices in columns:
            count *= len(choices)
        if count > MOST_COLUMNS:
            message = f"PIVOT would give {count:,} columns, and at most {MOST_COLUMNS:,} are possible"
            raise self.queries.error(
                message, calls[0][1], "GROUP BY gives a row for each value; IN (..) says which values to take"
            )
        for chosen in product(*columns):
            condition = exp.and_(*(choice.condition.copy() for choice in chosen), copy=False)
            name = "_".join(choice.name for choice in chosen)
            for alias, call in calls:
                shown = (
                    name
                    if len(calls) == 1 and alias is None
                    else f"{name}_{alias or display_name(call, self.queries.source.text)}"
                )
                items.append(
                    exp.Alias(this=_filtered(call.copy(), condition), alias=exp.to_identifier(shown, quoted=True))
                )
        select = exp.Select(expressions=items, from_=self._from())
        if keys:
            select.set("group", exp.Group(expressions=[key.copy() for key in keys]))
            if len(items) == len(keys):
                select.set("distinct", exp.Distinct())
                select.set("group", None)
        elif not items:
            raise self.queries.error(
                "PIVOT gives no columns: there are no values, and no column to group by", calls[0][1]
            )
        return self.queries.query(select, self.environment)

    def _group_key(self, node: exp.Expr) -> exp.Expr:
        while isinstance(node, exp.Paren):
            node = node.this
        if not isinstance(node, exp.Column):
            raise self.queries.error("GROUP BY of a PIVOT takes columns", node)
        return node

    def _check_aggregate(self, node: exp.Expr) -> None:
        found = [part for part in node.walk() if _is_aggregate(part)]
        if len(found) != 1:
            raise self.queries.error(
                f"Pivot expression must contain exactly one aggregate, but {len(found)} were found", node
            )
        whole = found[0].parent if isinstance(found[0].parent, exp.Filter) else found[0]
        for part in node.find_all(exp.Column):
            if not any(parent is whole for parent in _around(part)):
                raise self.queries.error(
                    "Columns can only be referenced within the aggregate of a PIVOT expression", part
                )

    def _from(self) -> exp.From:
        alias = exp.TableAlias(this=exp.to_identifier(self.alias, quoted=True)) if self.alias is not None else None
        return exp.From(this=exp.Table(this=exp.to_identifier(_SOURCE, quoted=True), alias=alias))

    def _named(self, parts: list[exp.Expr]) -> set[str]:
        """The columns of the relation that expressions name, in small letters."""
        return {column.name.lower() for part in parts for column in part.find_all(exp.Column)}

    def listed(self, targets: list[exp.Expr], values: list[exp.Expr]) -> list[PivotChoice]:
        """The values of an IN list; each is a row where several columns are compared."""
        choices = []
        for value in values:
            alias, value = (
                (value.args["alias"].name, value.this) if isinstance(value, exp.PivotAlias) else (None, value)
            )
            parts = value.expressions if isinstance(value, exp.Tuple) else [value]
            if len(parts) != len(targets):
                raise self.queries.error(
                    f"PIVOT IN list - inconsistent amount of rows - expected {len(targets)} but got {len(parts)}", value
                )
            parts = [_as_value(part) for part in parts]
            names = [self._text_of(part) for part in parts]
            tests = [
                exp.NullSafeEQ(this=target.copy(), expression=part.copy())
                for target, part in zip(targets, parts, strict=True)
            ]
            choices.append(PivotChoice(alias if alias is not None else "_".join(names), exp.and_(*tests, copy=False)))
        return choices

    def _text_of(self, node: exp.Expr) -> str:
        """A constant as text."""
        bound = coerce(self.queries._constant_binder("the IN list of PIVOT").bind(node), VARCHAR)
        value = bound if isinstance(bound, Literal) else evaluate(bound)
        if value is None:
            raise self.queries.error("the IN list of PIVOT takes constants", node)
        return "NULL" if value.value is None else value.value

    def discovered(self, target: exp.Expr) -> list[PivotChoice]:
        """The values that an expression has, as text, in order."""
        if target.find(exp.Column) is None:
            raise self.queries.error("Cannot pivot on a constant value", target)
        text = exp.Cast(this=target.copy(), to=exp.DataType.build("VARCHAR"))
        found = exp.Select(
            expressions=[exp.Alias(this=text, alias=exp.to_identifier("value"))],
            from_=self._from(),
            distinct=exp.Distinct(),
        )
        relation = self.queries.query(found, self.environment)
        if any(
            isinstance(part, Parameter)
            for node in nodes(relation.plan)
            for expr in node.expressions()
            for part in expr.walk()
        ):
            raise self.queries.error("PIVOT over a query with parameters needs its values: ON column IN (..)", target)
        values = self.queries.catalog.fetch(logical.Output(relation.plan, (relation.fields[0].column,), ("value",)))
        # The values of a temporal relation are distinct at each instant only.
        names = sorted({v for v in values if v is not None}, key=lambda v: v.encode())
        return [PivotChoice(name, exp.EQ(this=text.copy(), expression=exp.Literal.string(name))) for name in names]

    def unpivot(
        self, columns: list[exp.Expr], name: str, values: list[str], include_nulls: bool, position: exp.Expr
    ) -> AnalyzedRelation:
        """The relation with the given columns, or rows of columns, under each other."""
        rows = [row for column in columns for row in self._expanded(column)]
        for label, parts in rows:
            if len(parts) != len(values):
                raise self.queries.error(
                    f'UNPIVOT of "{label}": {len(parts)} columns for {len(values)} names', position
                )
        hidden = self._named([part for _, parts in rows for part in parts])
        items: list[exp.Expr] = [_column(f.name, None) for f in self.relation.fields if f.name.lower() not in hidden]
        lists = [
            [exp.Literal.string(label) for label, _ in rows],
            *([parts[i] for _, parts in rows] for i in range(len(values))),
        ]
        for parts in lists[1:]:
            self._check_types(parts)
        for label, parts in zip((name, *values), lists, strict=True):
            unnest = CallNode(this="unnest", expressions=[exp.Array(expressions=[p.copy() for p in parts])])
            items.append(exp.Alias(this=unnest, alias=exp.to_identifier(label, quoted=True)))
        relation = self.queries.query(exp.Select(expressions=items, from_=self._from()), self.environment)
        if include_nulls:
            return relation
        plan = relation.plan
        for field in relation.fields[-len(values) :]:
            plan = logical.Filter(plan, Call("is_not_null", (field.to_column(),), BOOLEAN))
        return replace(relation, plan=plan)

    def _expanded(self, node: exp.Expr) -> Iterator[tuple[str, list[exp.Expr]]]:
        """(label, columns) of an element: `a`, `a AS x`, `(a, b)`, `*`, `COLUMNS(..)`."""
        alias = None
        if isinstance(node, (exp.Alias, exp.PivotAlias)):
            alias, node = node.args["alias"].name, node.this
        while isinstance(node, exp.Paren):
            node = node.this
        if (
            isinstance(node, exp.Star)
            or star_pattern(node) is not None
            or (isinstance(node, CallNode) and node.name == "columns")
        ):
            shown = self.queries.query(exp.Select(expressions=[node.copy()], from_=self._from()), self.environment)
            for field in shown.fields:
                yield field.name, [_column(field.name, position_of(node))]
            return
        parts = node.expressions if isinstance(node, exp.Tuple) else [node]
        known = {f.name.lower() for f in self.relation.fields}
        for part in parts:
            for column in part.find_all(exp.Column):
                if column.name.lower() not in known:
                    raise self.queries.error(
                        f'Column "{column.name}" referenced in UNPIVOT but no matching entry was found in the table',
                        column,
                    )
        yield (
            alias
            if alias is not None
            else "_".join(
                p.name if isinstance(p, exp.Column) else display_name(p, self.queries.source.text) for p in parts
            ),
            parts,
        )

    def _check_types(self, parts: list[exp.Expr]) -> None:
        """Refuse a mix of numbers and texts: they are not cast to a common type implicitly."""
        items = [exp.Alias(this=p.copy(), alias=exp.to_identifier(f"c{i}")) for i, p in enumerate(parts)]
        types = [
            f.type
            for f in self.queries.query(exp.Select(expressions=items, from_=self._from()), self.environment).fields
        ]
        for dtype, part in zip(types[1:], parts[1:], strict=True):
            if (dtype == VARCHAR) != (types[0] == VARCHAR):
                raise self.queries.error(
                    f"Cannot unpivot columns of types {types[0]} and {dtype} - an explicit cast is required", part
                )


def pivot_clause(pivots: Pivots, node: exp.Pivot) -> AnalyzedRelation:
    """`PIVOT (sum(v) FOR c IN (..) GROUP BY g)` or `UNPIVOT (v FOR n IN (..))` behind a relation."""
    queries = pivots.queries
    if node.args.get("default_on_null"):
        raise queries.error("DEFAULT ON NULL is not supported", node)
    fields = node.args.get("fields") or []
    if node.args.get("unpivot"):
        (targets,) = node.expressions if len(node.expressions) == 1 else [exp.Tuple(expressions=node.expressions)]
        values = [v.name for v in (targets.expressions if isinstance(targets, exp.Tuple) else [targets])]
        (field,) = fields
        return pivots.unpivot(field.expressions, field.this.name, values, bool(node.args.get("include_nulls")), node)
    choices, used = [], []
    for field in fields:
        if field.args.get("field") is not None or any(
            isinstance(e, (exp.PivotAny, exp.Query)) for e in field.expressions
        ):
            raise queries.error("PIVOT takes a list of values in IN", field.this)
        targets = field.this.expressions if isinstance(field.this, exp.Tuple) else [field.this]
        used += targets
        choices.append(pivots.listed(targets, field.expressions))
    return pivots.pivot(node.expressions, choices, node.args.get("group"), used)


def pivot_statement(pivots: Pivots, node: exp.Pivot) -> AnalyzedRelation:
    """`PIVOT t ON c [IN (..)] USING sum(v) GROUP BY g` or `UNPIVOT t ON a, b INTO NAME n VALUE v`."""
    if node.args.get("unpivot"):
        into = node.args.get("into")
        name = into.this.name if into is not None else "name"
        values = [v.name for v in into.expressions] if into is not None else ["value"]
        return pivots.unpivot(node.expressions, name, values, bool(node.args.get("include_nulls")), node.expressions[0])
    choices, used = [], []
    for on in node.expressions:
        target = on.this if isinstance(on, exp.In) else on
        used.append(target)
        choices.append(pivots.listed([target], on.expressions) if isinstance(on, exp.In) else pivots.discovered(target))
    aggregates = node.args.get("using") or [CallNode(this="count", expressions=[exp.Star()])]
    return pivots.pivot(aggregates, choices, node.args.get("group"), used)


def _column(name: str, position: int | None) -> exp.Column:
    identifier = exp.to_identifier(name, quoted=True)
    if position is not None:
        identifier.meta["at"] = position
    return exp.Column(this=identifier)


def _as_value(node: exp.Expr) -> exp.Expr:
    """A bare name in an IN list is its text."""
    if isinstance(node, exp.Column) and len(node.parts) == 1:
        literal = exp.Literal.string(node.name)
        literal.meta["at"] = position_of(node)
        return literal
    return node


def _is_aggregate(node: exp.Expr) -> bool:
    return isinstance(node, CallNode) and node.name in AGGREGATES.overloads


def _around(node: exp.Expr) -> Iterator[exp.Expr]:
    parent = node.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def _filtered(node: exp.Expr, condition: exp.Expr) -> exp.Expr:
    """The expression with its aggregate over the rows of the condition alone."""

    def put(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.Filter) and _is_aggregate(part.this):
            both = exp.and_(part.expression.this.copy(), condition.copy(), copy=False)
            return exp.Filter(this=part.this.copy(), expression=exp.Where(this=both))
        if _is_aggregate(part) and not isinstance(part.parent, exp.Filter):
            return exp.Filter(this=part.copy(), expression=exp.Where(this=condition.copy()))
        return part

    changed = put(node)
    if changed is not node:
        return changed
    for part in list(node.walk()):
        replacement = put(part)
        if replacement is not part:
            part.replace(replacement)
            break
    return node
