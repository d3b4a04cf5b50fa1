"""GROUP BY and aggregates of one SELECT: its keys and grouping sets, the aggregates that other clauses use, and those
clauses over the result of the aggregation.

Clauses are first bound over the input, with a placeholder column for each aggregate. `Grouping.over_result` then
replaces keys and placeholders by the columns of the Aggregate node, and finds columns that are neither."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations, product

from sqlglot import exp

from tsql.analyze.outer_columns import map_value
from tsql.analyze.scope import Names, plan_name
from tsql.analyze.subquery import Inner, Pending, columns_read
from tsql.analyze.unnest import PLACEHOLDER
from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.nodes import Aggregate, Call, Case, Cast, Column, Expr, InList, Literal
from tsql.kernels.expr.types import BIGINT
from tsql.planner.bind.binder import Binder
from tsql.planner.bind.query_text import QueryText, position_of
from tsql.planner.bind.syntax_nodes import CallNode
from tsql.planner.logical import nodes as logical

MAX_SETS = 4096
_PLACEHOLDER = "\0aggregate"
_KEY = "\0key"
_GROUPING_ID = "\0grouping_id"
WINDOW_PLACEHOLDER = "\0window"
"""The prefix of columns that stand for window functions (windows.py); a number follows. Window functions are computed
over the groups."""


class GroupClause:
    """The keys, sets and aggregates of one SELECT."""

    def __init__(self, source: QueryText):
        self.source = source
        self.keys: list[Expr] = []
        self.key_names: list[str] = []
        self.sets: list[tuple[int, ...]] | None = None
        self.aggregates: list[Aggregate] = []
        self._places: dict[Aggregate, int] = {}
        self.aggregate_names: list[str | None] = []
        self.explicit = False
        self.item_keys: dict[int, int] = {}
        self._references: dict[str, int] = {}
        self.shown: dict[str, str] = {}
        """The user's name of a plan column, for messages."""
        self.lifetime: dict[str, Column] = {}
        """Maps the lifetime columns of the input, by name, to those of the result. Set once the plan is built."""

    @property
    def used(self) -> bool:
        """Whether the SELECT aggregates at all."""
        return self.explicit or bool(self.aggregates)

    def add_key(self, key: Expr, name: str | None = None, reference: str | None = None) -> int:
        """The index of a key. Equal keys are one key. With `reference` they must also be written alike: ROLLUP(1, 2)
        over `SELECT g, g AS h` has two keys, and h is NULL where only the first is in the set."""
        if reference is not None and reference in self._references:
            return self._references[reference]
        if reference is not None:
            self._references[reference] = len(self.keys)
        elif key in self.keys:
            return self.keys.index(key)
        self.keys.append(key)
        self.key_names.append(name or (key.name if isinstance(key, Column) else plan_name(key.sql())))
        return len(self.keys) - 1

    def item_key(self, item: int) -> Expr | None:
        """The column for a select item that GROUP BY names by position or alias, if another key has the same
        expression. (Any other use of that expression means the last of these keys.)"""
        index = self.item_keys.get(item)
        if index is None or self.keys.count(self.keys[index]) == 1:
            return None
        return Column(f"{_KEY}{index}", self.keys[index].type)

    def shown_key(self, expr: Expr) -> Expr | None:
        """The first select item with an `item_key` whose expression is `expr`. ORDER BY means this one."""
        return next(
            (self.item_key(item) for item, index in sorted(self.item_keys.items()) if self.keys[index] == expr), None
        )

    def placeholder(self, call: Aggregate, node: exp.Expr) -> Expr:
        """The column that stands for an aggregate until the plan is built; equal aggregates are one."""
        index = self._places.setdefault(call, len(self.aggregates))
        if index == len(self.aggregates):
            self.aggregates.append(call)
            self.aggregate_names.append(None)
        return Column(f"{_PLACEHOLDER}{index}", call.type, position=call.position)

    def name_result(self, expr: Expr, name: str) -> None:
        """Names a key or an aggregate in the plan after the select item that consists of it."""
        if isinstance(expr, Column) and expr.name.startswith(_PLACEHOLDER):
            index = int(expr.name.removeprefix(_PLACEHOLDER))
            self.aggregate_names[index] = self.aggregate_names[index] or name
        elif expr in self.keys and not isinstance(expr, Column):
            self.key_names[self.keys.index(expr)] = name

    def add_elements(self, elements: list[exp.Expr], key: Callable[[exp.Expr], int]) -> None:
        """The elements of GROUP BY: expressions, ROLLUP, CUBE, GROUPING SETS; sets multiply."""
        self.explicit = True
        choices = [self._element_sets(element, key) for element in elements]
        count = 1
        for choice in choices:
            count *= len(choice)
        if count > MAX_SETS:
            raise BindError(
                f"more than {MAX_SETS} grouping sets", position=position_of(elements[0]), text=self.source.text
            )
        if all(len(choice) == 1 for choice in choices) and not any(isinstance(e, exp.GroupingSets) for e in elements):
            return
        self.sets = [tuple(dict.fromkeys(index for part in parts for index in part)) for parts in product(*choices)]

    def _element_sets(self, element: exp.Expr, key: Callable[[exp.Expr], int]) -> list[list[int]]:
        match element:
            case exp.Rollup():
                groups = [self._indexes(part, key) for part in element.expressions]
                return [[i for group in groups[:length] for i in group] for length in range(len(groups), -1, -1)]
            case exp.Cube():
                groups = [self._indexes(part, key) for part in element.expressions]
                if len(groups) > 12:
                    raise BindError(
                        f"more than {MAX_SETS} grouping sets", position=position_of(element), text=self.source.text
                    )
                return [
                    [i for group in chosen for i in group]
                    for length in range(len(groups), -1, -1)
                    for chosen in combinations(groups, length)
                ]
            case exp.GroupingSets():
                return [one for part in element.expressions for one in self._element_sets(part, key)]
        return [self._indexes(element, key)]

    def _indexes(self, part: exp.Expr, key: Callable[[exp.Expr], int]) -> list[int]:
        if isinstance(part, exp.Tuple):
            return [index for inner in part.expressions for index in self._indexes(inner, key)]
        if isinstance(part, exp.Paren):
            return self._indexes(part.this, key)
        return [key(part)]

    def grouping_call(self, binder: Binder, node: CallNode) -> Expr:
        """GROUPING(a, b): a bit for each argument, 1 where it is not in the set; the last argument is the lowest
        bit."""
        if not self.explicit:
            raise binder.error("GROUPING cannot be used without GROUP BY", node)
        args = [binder.bind(arg) for arg in node.expressions] or list(self.keys)
        position = position_of(node)
        result: Expr = Literal(0, BIGINT, position)
        for arg, child in zip(args, node.expressions or [node] * len(args), strict=True):
            if self._last_key(arg) is None:
                raise binder.error("an argument of GROUPING must be one of the GROUP BY expressions", child)
            if self.sets is None:
                continue
            shifted = Call(">>", (Column(_GROUPING_ID, BIGINT), Literal(self._last_key(arg), BIGINT)), BIGINT, position)
            bit = Call("&", (shifted, Literal(1, BIGINT)), BIGINT, position)
            doubled = Call("*", (result, Literal(2, BIGINT)), BIGINT, position)
            result = bit if isinstance(result, Literal) else Call("+", (doubled, bit), BIGINT, position)
        return result

    def _last_key(self, expr: Expr) -> int | None:
        if isinstance(expr, Column) and expr.name.startswith(_KEY):
            return int(expr.name.removeprefix(_KEY))
        return max((index for index, key in enumerate(self.keys) if key == expr), default=None)

    def expressions(self) -> list[Expr]:
        """All that the Aggregate node computes over its input."""
        return [*self.keys, *(expr for call in self.aggregates for expr in call.expressions())]

    def build(self, plan: logical.Node, settle: Callable[[Expr], Expr], taken: Iterable[str]) -> logical.Node:
        """The Aggregate node. Also chooses the names of its columns, none of which is in `taken`. `settle` replaces
        subqueries by their columns."""
        names = Names([*taken, *(["grouping_id"] if self.sets is not None else [])])
        self.key_names = [names.unique(name) for name in self.key_names]
        settled = [map_value(call, settle) for call in self.aggregates]
        self.aggregate_names = [
            names.unique(name or plan_name(call.sql()))
            for name, call in zip(self.aggregate_names, settled, strict=True)
        ]
        keys = tuple((name, settle(key)) for name, key in zip(self.key_names, self.keys, strict=True))
        calls = tuple(zip(self.aggregate_names, settled, strict=True))
        return logical.Aggregate(plan, keys, calls, None if self.sets is None else tuple(self.sets))

    def over_result(self, expr: Expr) -> Expr:
        """An expression over the input, as one over the columns of the Aggregate node."""
        index = self._last_key(expr)
        if index is not None:
            return Column(self.key_names[index], self.keys[index].type)
        match expr:
            case Pending():
                return expr.over(self.over_result)
            case Inner():
                return expr
            case Column() if expr.name.startswith(_PLACEHOLDER):
                index = int(expr.name.removeprefix(_PLACEHOLDER))
                return Column(self.aggregate_names[index], expr.dtype, position=expr.position)
            case Column() if expr.name.startswith((WINDOW_PLACEHOLDER, PLACEHOLDER)):
                return expr
            case Column() if expr.name in self.lifetime:
                return self.lifetime[expr.name]
            case Column() if expr.name == _GROUPING_ID:
                return Column("grouping_id", BIGINT)
            case Column():
                name = self.shown.get(expr.name, expr.name)
                raise BindError(
                    f'column "{name}" must appear in the GROUP BY clause or must be part of an aggregate function',
                    position=expr.position,
                    text=self.source.text,
                    hint=f"add it to GROUP BY, or take any of its values: any_value({name})",
                )
            case Call() | Case() | Cast() | InList():
                return expr.with_children(tuple(self.over_result(child) for child in expr.children))
        return expr


def mentions_aggregate(expr: Expr) -> bool:
    """Whether a bound clause uses an aggregate, even in a subquery."""
    return any(column.name.startswith(_PLACEHOLDER) for column in columns_read(expr))
