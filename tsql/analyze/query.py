"""Queries: WITH, FROM, set operations, VALUES, LIMIT. A single SELECT is in `select.py`.

`QueryAnalyzer.query` gives a `Relation`. WITH names shadow those of the catalog.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from tsql.analyze.files import look_up, open_function, open_path
from tsql.analyze.from_ import FromAnalyzer, Joined
from tsql.analyze.limit import limited
from tsql.analyze.names.qualified import check_qualified, database_of, outer_parts
from tsql.analyze.recursive import names_itself, recursive
from tsql.analyze.sample import sampled
from tsql.analyze.scope import (
    TARGET,
    AnalyzedRelation,
    Names,
    Scope,
    ScopeField,
    ScopeTable,
    integer_of,
    unread_field,
    unread_star,
)
from tsql.analyze.select import SelectAnalyzer, project
from tsql.analyze.subquery import Level, OuterClause, computed_rows
from tsql.analyze.table_functions import SERIES, TABLE_FUNCTIONS, TableFunctions, call_of
from tsql.analyze.time.joins_in_time import as_of, without_period
from tsql.analyze.time.lifetime_functions import LifetimeFunctions, by_entry
from tsql.analyze.time.lifetimes import kept, without_lifetime
from tsql.analyze.time.match import matched
from tsql.analyze.time.misplaced import cut_short
from tsql.analyze.time.qualify import first_rows
from tsql.analyze.time.sequenced import sequenced
from tsql.analyze.time.sets import combined
from tsql.analyze.time.windows import window_function
from tsql.backends.io.kinds import FILE_FUNCTIONS
from tsql.grammar.time.check_parameters import check_parameters
from tsql.grammar.time.match_nodes import RowMatch
from tsql.grammar.time.nodes import FUNCTIONS as TIME_FUNCTIONS
from tsql.grammar.time.nodes import LifetimeFunction, Sequenced, WindowFunction
from tsql.kernels.expr.errors import BindError, TsqlError, UnknownTableError
from tsql.kernels.expr.nodes import Column, Expr, Literal, Outer, SortKey
from tsql.kernels.expr.schema import Field as SchemaField
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import NULL, Type
from tsql.planner.bind.binder import Binder, nearest
from tsql.planner.bind.forms import current_database
from tsql.planner.bind.query_text import QueryText, is_all, position_of
from tsql.planner.bind.strings import collated
from tsql.planner.bind.syntax_nodes import CallNode
from tsql.planner.bind.types import castable, coerce, force_type, unify
from tsql.planner.logical import nodes as logical
from tsql.planner.physical.text import dotted

MAX_VIEWS = 50
_BEHIND = ("order", "limit", "offset", "with_")
"""Clauses that may stand before or after a query in parentheses."""
Environment = dict[str, Callable[[], AnalyzedRelation]]


class QueryAnalyzer:
    """Analyzes queries against a catalog. views: the names of the enclosing views. outer: the enclosing clause, for
    subqueries. sequenced: whether tables with a time are temporal relations (SEQUENCED VALIDTIME)."""

    def __init__(
        self,
        source: QueryText,
        catalog: Any,
        parameters: dict[str, Type] | None,
        views: tuple[str, ...] = (),
        outer: OuterClause | None = None,
        sequenced: bool = False,
    ):
        self.source = source
        self.catalog = catalog
        self.parameters = parameters
        self.views = views
        self.outer = outer
        self.sequenced = sequenced

    def inside(self, frame: OuterClause) -> QueryAnalyzer:
        """An analyzer for the queries inside of a clause."""
        return QueryAnalyzer(self.source, self.catalog, self.parameters, self.views, frame, self.sequenced)

    @property
    def taken(self) -> frozenset[str]:
        """Names that the plans of these queries must not use, because enclosing queries have columns of these names."""
        return self.outer.taken if self.outer is not None else frozenset()

    def error(self, message: str, node: exp.Expr | None, hint: str | None = None) -> BindError:
        return BindError(message, position=position_of(node), text=self.source.text, hint=hint)

    def query(self, node: exp.Expr, environment: Environment | None = None, top: bool = False) -> AnalyzedRelation:
        """The relation of any query: SELECT, VALUES, a set operation, a parenthesized query. top: it is the query of a
        statement, in no other one."""
        environment = self._with(node, environment or {})
        match node:
            case exp.Select():
                relation = self._select(node, environment)
            case exp.SetOperation():
                relation = self._ordered(node, self._set_operation(node, environment), environment)
            case exp.Values():
                if node.args.get("alias") is not None:
                    raise self.error("VALUES has no alias here", node.args["alias"])
                relation = self._ordered(node, self._values(node, environment), environment)
            case exp.Subquery():
                if node.args.get("alias") is not None:
                    raise self.error("a query in parentheses has no alias here", node)
                relation = self._ordered(node, self.query(node.this, environment, top), environment)
            case exp.Table():
                relation = self.table(node, environment).relation
            case Sequenced():
                relation = sequenced(self, node, environment, top)
            case _:
                raise self.error(f"{type(node).key.upper()} is not supported here", node)
        level = Level(self, environment, ())
        cut = limited(node, relation, level, lambda clause: self._constant_binder(clause, level, outside=False))
        if top or relation.life is None or cut is relation:
            return cut
        found = first_rows(relation, cut.plan, self.taken) if isinstance(cut.plan, logical.Limit) else None
        if found is None:
            raise cut_short(self, node)
        return found

    def _with(self, node: exp.Expr, environment: Environment) -> Environment:
        clause = node.args.get("with_")
        if clause is None:
            return environment
        environment = dict(environment)
        seen: set[str] = set()
        for cte in clause.expressions:
            name = cte.alias.lower()
            if name in seen:
                raise self.error(f'WITH defines "{cte.alias}" twice', cte.args["alias"])
            seen.add(name)
            environment[name] = self._lazy(cte, dict(environment), bool(clause.args.get("recursive")))
        return environment

    def _lazy(self, cte: exp.CTE, environment: Environment, may_recurse: bool) -> Callable[[], AnalyzedRelation]:
        """A query of WITH, analyzed when it is first used and once."""
        done: list[AnalyzedRelation] = []

        def analyze() -> AnalyzedRelation:
            if not done and may_recurse and names_itself(cte):
                done.append(recursive(self, cte, environment))
            elif not done:
                relation = self.query(cte.this, environment)
                done.append(self._aliased(relation, cte.args["alias"], cte.alias))
            return done[0]

        return analyze

    def _aliased(self, relation: AnalyzedRelation, alias: exp.TableAlias | None, name: str | None) -> AnalyzedRelation:
        relation = without_lifetime(relation)
        columns = [column.name for column in alias.args.get("columns") or ()] if alias is not None else []
        if len(columns) > len(relation.fields):
            raise self.error(f'"{name}" has {len(relation.fields)} columns, but {len(columns)} names are given', alias)
        return relation.as_table().renamed(columns).as_table()

    def _select(self, node: exp.Select, environment: Environment) -> AnalyzedRelation:
        from_clause = node.args.get("from_")
        if from_clause is None:
            if node.args.get("joins"):
                raise self.error("a join needs FROM before its first relation", node.args["joins"][0].this)
            joined = Joined(logical.Values(((),), Schema(())), Scope((), self.source))
        else:
            joined = FromAnalyzer(self, environment).analyze(from_clause.this, node.args.get("joins") or ())
        plan = joined.plan if node.args.get("sample") is None else sampled(self, joined.plan, node.args["sample"])
        return SelectAnalyzer(node, joined.scope, plan, self, environment).analyze()

    def joined_as(self, joined: Joined, alias: exp.TableAlias) -> ScopeTable:
        """A join in parentheses with an alias."""
        return ScopeTable(
            alias.name,
            self._aliased(
                AnalyzedRelation(joined.plan, tuple(joined.scope.all_fields(position_of(alias))), joined.scope.life),
                alias,
                alias.name,
            ),
        )

    def table(self, node: exp.Expr, environment: Environment) -> ScopeTable:
        """One relation of FROM."""
        alias = node.args.get("alias")
        name = alias.name if alias is not None and alias.name else None
        if node.args.get("ordinality") and not isinstance(node.this, (CallNode, exp.Unnest)):
            raise self.error(
                "WITH ORDINALITY stands behind a table function", node, "row_number() OVER () numbers rows"
            )
        if node.args.get("version") and not isinstance(node.this, exp.Identifier):
            raise without_period(self, "a table function", node.args["version"])
        match node:
            case exp.Subquery() if isinstance(node.this, exp.Pivot):
                relation = self._pivot_statement(node.this, environment)
            case exp.Subquery() if _has_name_inside(node):
                named = self.table(node.this, environment)
                relation, name = named.relation, name or named.alias
            case exp.Subquery():
                inner = exp.Subquery(this=node.this, **{k: v for k, v in node.args.items() if k in _BEHIND})
                inner._meta = node._meta
                relation = self.query(inner, environment)
            case exp.Lateral() if isinstance(node.this, (exp.Subquery, exp.Values)):
                relation = self.query(node.this, environment)
            case exp.Values():
                relation = self._values(node, environment)
            case exp.Unnest() | exp.Lateral() if isinstance(node, exp.Unnest) or isinstance(
                node.this, (exp.Unnest, CallNode)
            ):
                relation = self._generated(node, environment, name)
                name = name or (node.this.name if isinstance(node.this, CallNode) else "unnest")
            case exp.Table() if isinstance(node.this, WindowFunction):
                windowed = window_function(self, check_parameters(self, node.this), environment)
                relation, name = windowed.relation, name or windowed.alias
            case exp.Table() if isinstance(node.this, CallNode):
                relation = self._generated(node, environment, name)
                name = name or node.this.name
            case exp.Table() if isinstance(node.this, LifetimeFunction):
                table = LifetimeFunctions(self, environment).table(check_parameters(self, node.this))
                name, relation = name or table.alias, table.relation
            case exp.Table() if isinstance(node.this, RowMatch):
                relation = matched(self, node.this, environment)
            case exp.Table():
                relation = self._named(node, environment)
                if node.args.get("version"):
                    is_local = node.args.get("db") is None and node.name.lower() in environment
                    is_outer = outer_parts(self.catalog, node) is not None
                    entry = None if is_local or is_outer else self.catalog.entry(node.name)
                    relation = as_of(self, relation, getattr(entry, "period", None), node, environment)
                name = name or node.name
            case _:
                raise self.error(f"{type(node).key.upper()} in FROM is not supported yet", node)
        relation = self._aliased(relation, alias, name)
        for pivot in node.args.get("pivots") or ():
            name, relation = self._pivoted(pivot, name, relation, environment)
            alias = pivot.args.get("alias") or alias
        relation = relation.apart(self.taken, alias.name if alias is not None else None)
        if node.args.get("sample") is not None:
            relation = replace(relation, plan=sampled(self, relation.plan, node.args["sample"]))
        stored = isinstance(node, exp.Table) and isinstance(node.this, (exp.Identifier, exp.Dot))
        own_name = stored and (
            alias is None
            and (node.args.get("db") is not None or node.name.lower() not in environment)
            or node.name == TARGET
        )
        outer = outer_parts(self.catalog, node) if own_name else None
        if outer is not None:
            return ScopeTable(name, relation, before=tuple(part.lower() for part in outer[:-1]))
        return ScopeTable(name, relation, database_of(self.catalog) if own_name else None)

    def _pivoted(
        self, node: exp.Pivot, name: str | None, relation: AnalyzedRelation, environment: Environment
    ) -> tuple[str | None, AnalyzedRelation]:
        """A relation with PIVOT or UNPIVOT behind it, and its name."""
        from tsql.analyze.pivot import Pivots, pivot_clause

        alias = node.args.get("alias")
        name, own = (alias.name, name) if alias is not None and alias.name else (name, name)
        return name, self._aliased(pivot_clause(Pivots(self, environment, own, relation), node), alias, name)

    def _pivot_statement(self, node: exp.Pivot, environment: Environment) -> AnalyzedRelation:
        from tsql.analyze.pivot import Pivots, pivot_statement

        table = self.table(node.this, environment)
        return pivot_statement(Pivots(self, environment, table.alias, table.relation), node)

    def _generated(self, node: exp.Expr, environment: Environment, alias: str | None) -> AnalyzedRelation:
        """A table function that makes rows. The alias of a series or of UNNEST is also the name of its column."""
        call, arguments, ordinality = call_of(node)
        functions = TableFunctions(self, environment)
        if call is not None and call.name not in ("unnest", *TABLE_FUNCTIONS):
            if ordinality:
                raise self.error(
                    f"WITH ORDINALITY of {call.name} is not supported", call, "row_number() OVER () numbers rows"
                )
            return self._table_function(call, alias)
        if call is not None and call.name != "unnest":
            relation = functions.relation(call, ordinality)
        else:
            relation = functions.unnest(arguments if call is None else call.expressions, node, ordinality)
        place = node.args.get("offset")
        if isinstance(place, exp.Identifier):
            relation = relation.renamed([relation.fields[0].name, place.name])
        renames = alias is not None and (call is None or call.name in SERIES)
        if not renames:
            return relation
        first, *others = relation.fields
        return AnalyzedRelation(relation.plan, (replace(first, name=alias, also=first.name), *others))

    def _named(self, node: exp.Table, environment: Environment) -> AnalyzedRelation:
        name = node.name
        position = position_of(node.this)
        schema = node.args.get("db")
        qualified = schema is not None
        parts = outer_parts(self.catalog, node)
        if parts is None:
            check_qualified(self.catalog, node, self.error)
        if not qualified and name.lower() in environment:
            return environment[name.lower()]()
        found = look_up(self.catalog, name, position, self.source.text, parts)
        if parts is not None:
            name = dotted(parts)
        if found is None and parts is None and node.this.args.get("quoted") and any(c in name for c in "./*\\"):
            return _scan(name, open_path(self.catalog, name, position, self.source.text), node.alias)
        if found is None and not qualified and not self.views:
            found = self._variable(name, position)
        if found is None:
            names = [*environment, *self.catalog.names(), *getattr(self.catalog, "outer_names", list)()]
            error = UnknownTableError(
                f'table "{name}" does not exist',
                position=position,
                text=self.source.text,
                hint=nearest(name, names) or (f"a file is named in quotes: '{name}'" if "." in name else None),
            )
            error.table = name
            raise error
        if hasattr(found, "text"):
            return self._view(name, found.text, node)
        relation = _scan(name, found, node.alias)
        return (by_entry(self, name, relation) if self.sequenced and parts is None else None) or relation

    def _variable(self, name: str, position: int | None) -> Any:
        """The table in a Python variable of the caller."""
        try:
            return getattr(self.catalog, "variable", lambda name: None)(name)
        except TsqlError as error:
            error.position = position if error.position is None else error.position
            raise error.locate(self.source.text) from None

    def _view(self, name: str, text: str, node: exp.Table) -> AnalyzedRelation:
        from tsql.analyze.macros import expand_macros
        from tsql.grammar.parser.statements import parse

        if name.lower() in self.views or len(self.views) > MAX_VIEWS:
            raise self.error(f'view "{name}" is defined by itself', node)
        try:
            (statement,) = (expand_macros(found, self.catalog) for found in parse(text))
            inner = QueryAnalyzer(
                statement.source, self.catalog, self.parameters, (*self.views, name.lower()), sequenced=self.sequenced
            )
            return inner.query(statement.node)
        except TsqlError as error:
            raise error.locate(text, f'view "{name}"') from None

    def _table_function(self, node: CallNode, alias: str | None) -> AnalyzedRelation:
        if node.name not in FILE_FUNCTIONS:
            raise self.error(
                f"table function {node.name} does not exist",
                node,
                nearest(node.name, (*FILE_FUNCTIONS, *TABLE_FUNCTIONS, *map(str.lower, TIME_FUNCTIONS))),
            )
        path, found = open_function(self.catalog, node, self.source)
        return _scan(path, found, alias)

    def _values(self, node: exp.Values, environment: Environment) -> AnalyzedRelation:
        rows = [
            row.expressions if isinstance(row, exp.Tuple) else [row.this if isinstance(row, exp.Paren) else row]
            for row in node.expressions
        ]
        width = len(rows[0])
        if width == 0:
            raise self.error("a row of VALUES needs at least one value", node)
        level = Level(self, environment, ())
        binder = self._constant_binder("VALUES", level)
        bound = []
        for row in rows:
            if len(row) != width:
                raise self.error(
                    f"all rows of VALUES need the same number of columns: {width}, not {len(row)}",
                    row[0] if row else node,
                )
            if any(isinstance(value, exp.Var) and value.name.upper() == "DEFAULT" for value in row):
                at = next((token.start for token in self.source.tokens if token.token_type == TokenType.DEFAULT), None)
                raise BindError(
                    "DEFAULT is not allowed here: only the rows of an INSERT have defaults",
                    position=at,
                    text=self.source.text,
                )
            bound.append([binder.operand(value) for value in row])
        types = []
        for index in range(width):
            dtype = unify([row[index] for row in bound])
            if dtype is None:
                raise self.error(
                    (
                        f"column {index + 1} of VALUES mixes types that do not fit: "
                        f"{', '.join(dict.fromkeys(str(r[index].type) for r in bound))}"
                    ),
                    rows[0][index],
                )
            types.append(dtype)
        names = Names(self.taken)
        columns = [names.unique(f"col{i}") for i in range(width)]
        cast = tuple(tuple(coerce(value, dtype) for value, dtype in zip(row, types, strict=True)) for row in bound)
        fields = tuple(
            ScopeField(f"col{i}", column, dtype) for i, (column, dtype) in enumerate(zip(columns, types, strict=True))
        )
        if any(isinstance(part, (Outer, Column)) for row in cast for value in row for part in value.walk()):
            return AnalyzedRelation(computed_rows(level, cast, columns), fields)
        return AnalyzedRelation(
            logical.Values(cast, Schema(tuple(SchemaField(f.column, f.type) for f in fields))), fields
        )

    def _constant_binder(
        self, clause: str, level: Level | None = None, outside: bool = True, hint: str | None = None
    ) -> Binder:
        """A binder for constants. With a level it also allows subqueries and, unless `outside` is false, columns of
        enclosing queries, which are constant for the inner query. hint: for columns that it cannot name."""

        def resolve(node: exp.Column) -> Expr:
            found = level.outside(node) if level is not None and outside else None
            if found is None and level is not None and outside and level.outer is not None:
                raise self.error(
                    (
                        f'column "{node.name}" does not exist: {clause} takes constants and columns of the '
                        "relations around it"
                    ),
                    node,
                    hint,
                )
            if found is None:
                raise self.error(f'{clause} takes constants: column "{node.name}" is not allowed', node, hint)
            return found

        subquery = level.binder(lambda node: None, None, clause) if level is not None else None
        special = {"current_database": current_database(getattr(self.catalog, "database", "memory"))}
        return Binder(
            self.source, resolve, clause=clause, parameters=self.parameters, special=special, subquery=subquery
        )

    def _set_operation(self, node: exp.SetOperation, environment: Environment) -> AnalyzedRelation:
        """Walks a left-deep chain `a UNION b UNION c ..` in a loop."""
        spine: list[exp.SetOperation] = []
        current: exp.Expr = node
        while isinstance(current, exp.SetOperation):
            if current is not node and any(current.args.get(k) for k in ("order", "limit", "offset")):
                break
            spine.append(current)
            current = current.this
            if isinstance(current, exp.SetOperation) and current.args.get("with_") is not None:
                environment = self._with(current, environment)
        result = self.query(current, environment)
        steps = [(step, self.query(step.expression, environment)) for step in reversed(spine)]
        while steps:
            run = 1
            while run < len(steps) and _same_union(steps[0][0], steps[run][0]):
                run += 1
            result = self._combine(steps[0][0], [result, *(right for _, right in steps[:run])])
            steps = steps[run:]
        return result

    def _combine(self, node: exp.SetOperation, sides: list[AnalyzedRelation]) -> AnalyzedRelation:
        """Combines two relations, or any number for a run of UNIONs."""
        kind = {exp.Union: "union", exp.Intersect: "intersect", exp.Except: "except"}[type(node)]
        keep_all = not node.args.get("distinct")
        for side in sides:
            if len(side.readable) != len(side.fields):
                raise unread_star(side.fields, position_of(node))
        if node.args.get("by_name"):
            if kind != "union":
                raise self.error(f"{kind.upper()} BY NAME is not supported", node.expression)
            sides = list(_by_name(*map(without_lifetime, sides), self.taken))
        sides = list(map(without_lifetime, sides))
        first = sides[0]
        types = [f.type for f in first.fields]
        for side in sides[1:]:
            if len(side.fields) != len(types):
                raise self.error(
                    (
                        f"{kind.upper()} needs the same number of columns on both sides: {len(types)} and "
                        f"{len(side.fields)}"
                    ),
                    node.expression,
                )
            types = [force_type(dtype, f.type) for dtype, f in zip(types, side.fields, strict=True)]
        names = Names(self.taken)
        columns = [names.unique(f.column) for f in first.fields]
        plans = []
        for side in sides:
            for field, dtype in zip(side.fields, types, strict=True):
                if not castable(field.type, dtype):
                    raise self.error(
                        f'{kind.upper()} of column "{field.name}": there is no cast from {field.type} to {dtype}',
                        node.expression,
                    )
            plans.append(_recast(side, columns, types))
        if any(side.life is not None for side in sides):
            plan, life = combined(kind, keep_all, sides, columns, types, self.taken)
            return AnalyzedRelation(
                plan,
                tuple(ScopeField(f.name, c, t) for f, c, t in zip(first.fields, columns, types, strict=True)),
                life,
            )
        while len(plans) > 1:
            # A run of UNIONs becomes a flat tree, in order: rows of a union come left side first.
            pairs = [plans[i : i + 2] for i in range(0, len(plans), 2)]
            plans = [
                logical.SetOperation(kind, keep_all or kind == "union", *pair) if len(pair) == 2 else pair[0]
                for pair in pairs
            ]
        plan = logical.Distinct(plans[0]) if kind == "union" and not keep_all else plans[0]
        return AnalyzedRelation(
            plan, tuple(ScopeField(f.name, c, t) for f, c, t in zip(first.fields, columns, types, strict=True))
        )

    def _ordered(self, node: exp.Expr, relation: AnalyzedRelation, environment: Environment) -> AnalyzedRelation:
        """ORDER BY of a set operation or VALUES: positions, output names, expressions over them."""
        order = node.args.get("order")
        if order is None:
            return relation
        scope = Scope((ScopeTable(None, relation.as_table()),), self.source, life=relation.life)
        others = _other_names(node) if isinstance(node, exp.SetOperation) else {}

        def resolve(column: exp.Column) -> Expr:
            found = find(column) or level.outside(column)
            if found is None:
                raise scope.unknown(column)
            return found

        def find(column: exp.Column) -> Expr | None:
            found = scope.find(column)
            if found is None and len(column.parts) == 1 and column.name.lower() in others:
                return relation.fields[others[column.name.lower()]].to_column(position_of(column))
            return found

        level = Level(self, environment, relation.plan.schema.names)
        subquery = level.binder(find, None, "ORDER BY")
        binder = Binder(self.source, resolve, clause="ORDER BY", parameters=self.parameters, subquery=subquery)
        keys: list[SortKey] = []
        for ordered in order.expressions:
            flags = bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first"))
            if is_all(ordered.this):
                keys += [SortKey(f.to_column(), *flags) for f in relation.fields]
                continue
            keys.append(SortKey(self._sort_expression(ordered.this, relation, binder), *flags))
        plan = level.attach(relation.plan, [key.expr for key in keys])
        keys = [SortKey(level.settle(key.expr), key.descending, key.nulls_first) for key in keys]
        return sort(replace(relation, plan=plan), keys, self.taken)

    def _sort_expression(self, node: exp.Expr, relation: AnalyzedRelation, binder: Binder) -> Expr:
        ordinal = integer_of(node)
        if ordinal is not None:
            if not 1 <= ordinal <= len(relation.fields):
                raise self.error(
                    f"ORDER BY position {ordinal} is out of range: it is between 1 and {len(relation.fields)}", node
                )
            return relation.fields[ordinal - 1].to_column(position_of(node))
        if isinstance(node, (exp.Literal, exp.Null)):
            raise self.error(
                "a constant in ORDER BY has no effect: give the position of a column, or an expression", node
            )
        return collated(binder, node)


def _has_name_inside(node: exp.Subquery) -> bool:
    """Whether it is `((SELECT ..) q)`: parentheses around a relation that has a name, and not around a query."""
    while isinstance(node.this, exp.Subquery) and not any(map(node.args.get, _BEHIND)):
        node = node.this
        if node.args.get("alias") is not None:
            return True
    return False


def _same_union(a: exp.SetOperation, b: exp.SetOperation) -> bool:
    """Whether two steps of a chain are UNIONs of one kind, which can be done as one."""
    plain = all(isinstance(step, exp.Union) and not step.args.get("by_name") for step in (a, b))
    return plain and bool(a.args.get("distinct")) == bool(b.args.get("distinct"))


def sort(relation: AnalyzedRelation, keys: list[SortKey], taken: frozenset[str]) -> AnalyzedRelation:
    """The relation in order. Sort keys that are not columns are carried along as hidden columns."""
    names = Names((*relation.plan.schema.names, *taken))
    columns: list[tuple[str, Expr]] = [(f.name, Column(f.name, f.type, f.nullable)) for f in relation.plan.schema]
    over = []
    for key in keys:
        expr = key.expr
        if not isinstance(expr, Column):
            name = names.unique("order_key")
            columns.append((name, expr))
            expr = Column(name, expr.type)
        over.append(SortKey(expr, key.descending, key.nulls_first))
    return replace(relation, plan=logical.Sort(project(relation.plan, columns), tuple(over)))


def _scan(name: str, source: Any, alias: str | None) -> AnalyzedRelation:
    fields = tuple(
        ScopeField(f.name, f.name, f.type, f.nullable) if f.type.is_readable else unread_field(f.name, f.type)
        for f in source.schema
    )
    return AnalyzedRelation(logical.Scan(name, source, source.schema.readable, alias=alias or None), fields)


def _recast(relation: AnalyzedRelation, names: list[str], types: list[Type]) -> logical.Node:
    """The shown columns under other names and as other types; the casts of a projection's constants are folded."""
    plan = relation.plan
    if isinstance(plan, logical.Project):
        known = dict(plan.columns)
        return project(
            plan.input,
            [
                (name, coerce(known[f.column], dtype))
                for name, f, dtype in zip(names, relation.fields, types, strict=True)
            ],
        )
    return project(
        plan,
        [(name, coerce(f.to_column(), dtype)) for name, f, dtype in zip(names, relation.fields, types, strict=True)],
    )


def _by_name(
    left: AnalyzedRelation, right: AnalyzedRelation, taken: frozenset[str]
) -> tuple[AnalyzedRelation, AnalyzedRelation]:
    """Both sides with the columns of both: those of the left side first, then the others of the right. Missing ones are
    NULL."""
    names = list(dict.fromkeys(f.name.lower() for f in (*left.fields, *right.fields)))
    shown = {f.name.lower(): f.name for f in (*right.fields, *left.fields)}
    sides = []
    for side in (left, right):
        own = {f.name.lower(): f for f in side.fields}
        unique = Names((*taken, *(() if side.life is None else side.life.columns)))
        columns: list[tuple[str, Expr]] = []
        fields = []
        for name in names:
            column = unique.unique(own[name].column if name in own else shown[name])
            expr = own[name].to_column() if name in own else Literal(None, NULL)
            columns.append((column, expr))
            fields.append(ScopeField(shown[name], column, expr.type))
        if side.life is not None:
            columns += kept(side.plan, side.life.columns)
        sides.append(AnalyzedRelation(project(side.plan, columns), tuple(fields), side.life))
    return sides[0], sides[1]


def _other_names(node: exp.SetOperation) -> dict[str, int]:
    """Output names of the later queries of a set operation, by which ORDER BY may also refer to a column."""
    names: dict[str, int] = {}
    current: exp.Expr = node
    while isinstance(current, exp.SetOperation):
        right = current.expression
        if isinstance(right, exp.Select):
            for index, item in enumerate(right.expressions):
                if item.alias_or_name:
                    names.setdefault(item.alias_or_name.lower(), index)
        current = current.this
    return names
