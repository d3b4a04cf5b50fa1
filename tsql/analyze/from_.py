"""FROM: any number of relations, joined, to a plan and the names that it gives.

Commas bind weaker than JOIN. A relation may name columns of those before it (LATERAL, said or not): it is then the
right side of an `Apply`. Both sides of a join have different column names in the plan (`Relation.apart`), and none of a
relation around the query. RIGHT JOIN is a left join with its sides exchanged; the scope keeps the order of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tsql.analyze.outer_columns import names_in
from tsql.analyze.scope import Names, Scope, ScopeField, ScopeTable
from tsql.analyze.subquery import Level, OuterClause, pendings
from tsql.analyze.time.clip_join import ClipJoins
from tsql.analyze.time.joins_in_time import asof_join
from tsql.analyze.time.lifetime_joins import TemporalSide
from tsql.analyze.time.lifetime_joins import join as temporal_join
from tsql.grammar.time.nodes import AsofJoin, ClipJoin
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal, Outer, rewrite
from tsql.kernels.expr.types import BOOLEAN
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.bind.binder import Binder
from tsql.planner.bind.operators import compare, to_boolean
from tsql.planner.bind.query_text import position_of
from tsql.planner.bind.types import coerce, force_type
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.positional_join import PositionalJoin

if TYPE_CHECKING:
    from tsql.analyze.query import QueryAnalyzer


@dataclass(frozen=True)
class Joined:
    """What FROM gives: a plan, and the names of its columns."""

    plan: logical.Node
    scope: Scope


class FromAnalyzer:
    """Analyzes a FROM clause, or a part of one."""

    def __init__(self, queries: QueryAnalyzer, environment: Any):
        self.queries = queries
        self.environment = environment
        self.source = queries.source

    def analyze(self, first: exp.Expr, joins: Sequence[exp.Join]) -> Joined:
        """The relations of FROM: `first`, and the joins in the order of the text."""
        groups: list[tuple[exp.Expr, list[exp.Join]]] = [(first, [])]
        for join in joins:
            if is_comma(join):
                groups.append((join.this, []))
            else:
                groups[-1][1].append(join)
        result = self._group(*groups[0])
        for relation, more in groups[1:]:
            right, is_lateral = self._beside(result, relation, more)
            result = self.combined("inner", result, right, None, is_lateral)
        return result

    def _group(self, first: exp.Expr, joins: Sequence[exp.Join]) -> Joined:
        result = self._relation(first)
        for join in joins:
            result = self._join(result, join)
        return result

    def _relation(self, node: exp.Expr) -> Joined:
        """One relation, or a join in parentheses."""
        nested = node.args.get("joins")
        if nested:
            bare = node.copy()
            bare.set("joins", None)
            return self._group(bare, nested)
        inner = node.this if isinstance(node, exp.Subquery) else None
        if isinstance(inner, (exp.Table, exp.Subquery, exp.Lateral)) and (
            inner.args.get("joins") or isinstance(inner, exp.Table)
        ):
            joined = self._parenthesized(inner)
            alias = node.args.get("alias")
            if alias is None:
                return joined
            return self._alone(self.queries.joined_as(joined, alias))
        return self._alone(self.queries.table(node, self.environment))

    def _alone(self, table: ScopeTable) -> Joined:
        return Joined(table.relation.plan, Scope((table,), self.source, life=table.relation.life))

    def _parenthesized(self, node: exp.Expr) -> Joined:
        joins = node.args.get("joins") or []
        bare = node.copy()
        bare.set("joins", None)
        return self.analyze(bare, joins)

    def _beside(self, left: Joined, node: exp.Expr, joins: Sequence[exp.Join] = ()) -> tuple[Joined, bool]:
        """The relation to the right of `left`, and whether it names columns of `left`."""
        level = Level(self.queries, self.environment, left.plan.schema.names)
        frame = OuterClause(level, left.scope.find)
        return FromAnalyzer(self.queries.inside(frame), self.environment)._group(node, joins), frame.used

    def combined(self, kind: str, left: Joined, right: Joined, condition: Expr | None, is_lateral: bool) -> Joined:
        """A join of SQL's kind; where a side has lifetimes, one per snapshot."""
        scope = _both(kind, left, right)
        if left.scope.life is None and right.scope.life is None:
            return Joined(combine(kind, left.plan, right.plan, condition, is_lateral), scope)
        side = temporal_join(
            kind,
            TemporalSide(left.plan, left.scope.life),
            TemporalSide(right.plan, right.scope.life),
            condition,
            is_lateral,
            self.queries.taken,
        )
        return Joined(side.plan, scope.living(side.life))

    def _join(self, left: Joined, join: exp.Join) -> Joined:
        if isinstance(join, ClipJoin):
            return ClipJoins(self, left).join(join)
        if join.args.get("method") == "POSITIONAL":
            return self._join_by_position(left, join)
        kind = self._kind(join)
        right, is_lateral = self._beside(left, join.this)
        if is_lateral and kind not in ("inner", "left"):
            raise self.queries.error("The combining JOIN type must be INNER or LEFT for a LATERAL reference", join.this)
        if isinstance(join, AsofJoin):
            return self._join_asof(left, right, join, is_lateral)
        using = self._using(join, left, right)
        if using is not None:
            return self._join_using(kind, left, right, using, is_lateral)
        on = join.args.get("on")
        if on is None:
            return self.combined(kind, left, right, None, is_lateral)
        return JoinCondition(self, kind, left, right, is_lateral).join(on)

    def _join_by_position(self, left: Joined, join: exp.Join) -> Joined:
        if any(join.args.get(word) for word in ("side", "kind", "on", "using")):
            raise self.queries.error("a POSITIONAL JOIN takes neither a kind nor ON or USING", join.this)
        right, is_lateral = self._beside(left, join.this)
        if is_lateral:
            raise self.queries.error("the right side of a POSITIONAL JOIN cannot name columns of the left", join.this)
        if left.scope.life is not None or right.scope.life is not None:
            raise self.queries.error(
                "a POSITIONAL JOIN is of plain relations: one with lifetimes is joined per snapshot",
                join.this,
                "use JOIN",
            )
        plan = PositionalJoin(left.plan, right.plan, position_of(join.this))
        return Joined(plan, _both("full", left, right))

    def _kind(self, join: exp.Join) -> str:
        method, side, kind = (join.args.get(k) or "" for k in ("method", "side", "kind"))
        if (
            kind not in ("", "INNER", "OUTER", "CROSS", "SEMI", "ANTI")
            or (side and kind in ("SEMI", "ANTI", "CROSS", "INNER"))
            or (method == "NATURAL" and kind == "CROSS")
        ):
            raise self.queries.error(
                f"{' '.join(w for w in (method, side, kind) if w)} JOIN is not supported", join.this
            )
        conditions = [k for k in ("on", "using") if join.args.get(k)]
        if (kind == "CROSS" or method == "NATURAL") and conditions:
            raise self.queries.error(f"a {kind or method} JOIN takes no {conditions[0].upper()}", join.this)
        if kind != "CROSS" and method != "NATURAL" and not conditions:
            raise self.queries.error("a JOIN needs ON or USING; CROSS JOIN takes all pairs", join.this)
        return side.lower() or (kind.lower() if kind in ("SEMI", "ANTI") else "inner")

    def _using(self, join: exp.Join, left: Joined, right: Joined) -> list[exp.Expr] | None:
        """The columns of USING, or those that NATURAL means; None for other joins."""
        if join.args.get("using"):
            return join.args["using"]
        if join.args.get("method") != "NATURAL":
            return None
        own = {f.name.lower() for f in right.scope.fields}
        shared = dict.fromkeys(f.name for f in left.scope.fields if f.name.lower() in own)
        if not shared:
            names = ("Left", left), ("Right", right)
            hint = "; ".join(
                f"{side} candidates: {', '.join(f.name for f in joined.scope.fields)}" for side, joined in names
            )
            raise self.queries.error(
                "No columns found to join on in NATURAL JOIN: use CROSS JOIN for all pairs", join.this, hint
            )
        position = position_of(join.this)
        return [_identifier(name, position) for name in shared]

    def _join_using(self, kind: str, left: Joined, right: Joined, using: list[exp.Expr], is_lateral: bool) -> Joined:
        binder = Binder(self.source, lambda node: node, clause="USING")
        equal: list[Expr] = []
        merged: dict[str, ScopeField] = {}
        pairs: dict[str, tuple[ScopeField, ScopeField]] = {}
        for name in using:
            sides = self.side_of(name, left, "left"), self.side_of(name, right, "right")
            position = position_of(name)
            equal.append(compare(binder, "=", *(side.to_column(position) for side in sides), position))
            merged[name.name.lower()] = sides[1] if kind == "right" else sides[0]
            pairs[name.name.lower()] = sides
        condition = equal[0] if len(equal) == 1 else Call("and", tuple(equal), BOOLEAN)
        joined = self.combined(kind, left, right, condition, is_lateral)
        plan, both = joined.plan, joined.scope
        if kind in ("semi", "anti"):
            return joined
        if kind == "full":
            plan, merged = self._coalesced(plan, pairs)
        return Joined(plan, self._merged(both, left, merged))

    def _join_asof(self, left: Joined, right: Joined, join: AsofJoin, is_lateral: bool) -> Joined:
        if is_lateral:
            raise self.queries.error("the right side of an ASOF JOIN cannot name columns of the left", join.this)
        if left.scope.life is not None or right.scope.life is not None:
            raise self.queries.error(
                "an ASOF JOIN is of plain relations: one with lifetimes is joined per snapshot", join.this, "use JOIN"
            )
        plan, merged = asof_join(self, left, right, join)
        both = _both(plan.kind, left, right)
        return Joined(plan, both if merged is None else self._merged(both, left, merged))

    def _merged(self, both: Scope, left: Joined, merged: dict[str, ScopeField]) -> Scope:
        """The names of a join in which USING made two columns one."""
        count = len(left.scope.fields)
        columns = [merged.get(f.name.lower(), f) for f in both.fields[:count]]
        columns += [f for f in both.fields[count:] if f.name.lower() not in merged]
        return Scope(both.tables, self.source, columns, both.life)

    def side_of(self, name: exp.Expr, joined: Joined, side: str) -> ScopeField:
        found = [f for f in joined.scope.fields if f.is_called(name.name)]
        if not found:
            raise self.queries.error(f'Column "{name.name}" does not exist on {side} side of join!', name)
        if len(found) > 1:
            raise self.queries.error(
                f'column "{name.name}" is ambiguous: it is more than once on the {side} side of the join', name
            )
        return found[0]

    def _coalesced(
        self, plan: logical.Node, pairs: dict[str, tuple[ScopeField, ScopeField]]
    ) -> tuple[logical.Node, dict[str, ScopeField]]:
        """The merged columns of a full join: the value of the side that has one."""
        names = Names((*plan.schema.names, *self.queries.taken))
        columns: list[tuple[str, Expr]] = [(f.name, Column(f.name, f.type, f.nullable)) for f in plan.schema]
        merged = {}
        for key, (a, b) in pairs.items():
            dtype = force_type(a.type, b.type)
            name = names.unique(f"{a.name}_either")
            sides = tuple(coerce(plan_column(plan, side.column), dtype) for side in (a, b))
            columns.append((name, Call("coalesce", sides, dtype)))
            merged[key] = ScopeField(a.name, name, dtype)
        return logical.Project(plan, tuple(columns)), merged


class JoinCondition:
    """The ON of one join. Without subqueries it is the condition of the join. A subquery that depends on one side is
    computed there; one that needs both is computed for each pair."""

    def __init__(self, owner: FromAnalyzer, kind: str, left: Joined, right: Joined, is_lateral: bool):
        self.kind = kind
        self.owner = owner
        self.sides = left, right
        self.left, self.right = left.plan, right.plan
        self.scope = _both("inner", left, right)
        self.is_lateral = is_lateral
        self.queries = owner.queries
        self.level = Level(owner.queries, owner.environment, (*self.left.schema.names, *self.right.schema.names))
        self.level.avoid(names_in(self.right))

    def bound(self, node: exp.Expr) -> Expr:
        """The condition; subqueries in it wait."""
        binder = Binder(
            self.queries.source,
            self._resolve,
            aggregate=self._aggregate if self.level.outer is not None else None,
            clause="JOIN conditions",
            parameters=self.queries.parameters,
            subquery=self.level.binder(self.scope.find, None, "JOIN conditions"),
        )
        return to_boolean(binder, binder.bind(node), node)

    def join(self, node: exp.Expr) -> Joined:
        """The join with this condition."""
        condition = self.bound(node)
        waiting = pendings(condition)
        if not waiting:
            return self.owner.combined(self.kind, *self.sides, condition, self.is_lateral)
        if any(side.scope.life is not None for side in self.sides) or any(
            pending.subquery.life is not None for pending in waiting
        ):
            raise self.queries.error(
                "a subquery in the condition of a join over temporal relations is not supported",
                node,
                "put it into WHERE, or join its relation",
            )
        return Joined(self._plan(condition), _both(self.kind, *self.sides))

    def _plan(self, condition: Expr) -> logical.Node:
        """A join whose condition has subqueries."""
        if self.kind == "inner":
            return self._filtered(condition)
        sides = self._sides(condition)
        if sides is not None:
            left, right = (
                self.level.attach(plan, waiting) for plan, waiting in zip((self.left, self.right), sides, strict=True)
            )
            return combine(self.kind, left, right, self.level.settle(condition), self.is_lateral)
        if self.kind == "full":
            return self._full(condition)
        if self.kind == "right":
            return self._each("left", self.right, self.left, condition)
        return self._each(self.kind, self.left, self.right, condition)

    def _resolve(self, node: exp.Column) -> Expr:
        found = self.scope.find(node) or self.level.outside(node)
        if found is None:
            raise self.scope.unknown(node)
        return found

    def _aggregate(self, call: Any, node: exp.Expr) -> Expr:
        found = self.level.outer_aggregate(call, node)
        if found is None:
            raise self.queries.error("an aggregate is not allowed in JOIN conditions", node)
        return found

    def _filtered(self, condition: Expr) -> logical.Node:
        """An inner join: pairs first, the subqueries and their conjuncts above."""
        parts = condition.args if isinstance(condition, Call) and condition.name == "and" else (condition,)
        plain = [part for part in parts if not pendings(part)]
        plan = combine("inner", self.left, self.right, conjunction(plain) if plain else None, self.is_lateral)
        waiting = [part for part in parts if pendings(part)]
        plan = self.level.attach(plan, waiting)
        return logical.Filter(plan, conjunction([self.level.settle(part) for part in waiting]))

    def _sides(self, condition: Expr) -> tuple[list[Expr], list[Expr]] | None:
        """The subqueries by the side on which each depends; None if one depends on both."""
        sides: tuple[list[Expr], list[Expr]] = ([], [])
        left, right = set(self.left.schema.names), set(self.right.schema.names)
        for pending in pendings(condition):
            read = {column.name for column in pending.columns_read()}
            if read & left and read & right:
                return None
            # The right side of a lateral join is evaluated for each left row: what does not need it goes to the left.
            on_left = bool(read & left) or (self.is_lateral and not read & right)
            sides[0 if on_left else 1].append(pending)
        return sides

    def _each(self, kind: str, left: logical.Node, right: logical.Node, condition: Expr) -> logical.Node:
        """For each left row, the right rows for which the condition holds, its subqueries computed for each of
        these."""
        own = set(left.schema.names)

        def outside(expr: Expr) -> Expr:
            is_own = isinstance(expr, Column) and expr.name in own
            return Outer(expr.name, expr.dtype, expr.nullable, expr.position) if is_own else expr

        self.level.regroup()
        inner = self.level.attach(right, [condition], outside)
        inner = logical.Filter(inner, rewrite(self.level.settle(condition), outside))
        return logical.Apply(kind, left, inner)

    def _full(self, condition: Expr) -> logical.Node:
        """The rows of the left join, and the right rows that nothing on the left matches."""
        matched = self._each("left", self.left, self.right, condition)
        alone = self._each("anti", self.right, self.left, condition)
        shown = (*self.left.schema, *self.right.schema)
        own = set(self.right.schema.names)
        kept = logical.Project(matched, tuple((f.name, Column(f.name, f.type, True)) for f in shown))
        padded = logical.Project(
            alone,
            tuple((f.name, Column(f.name, f.type, True) if f.name in own else Literal(None, f.type)) for f in shown),
        )
        return logical.SetOperation("union", True, kept, padded)


def is_comma(join: exp.Join) -> bool:
    """Whether a join of the tree is a comma of the text."""
    return bool(join.meta.get("comma"))


def combine(
    kind: str, left: logical.Node, right: logical.Node, condition: Expr | None, is_lateral: bool
) -> logical.Node:
    """A join node of SQL's kind; RIGHT exchanges the sides."""
    if kind == "right":
        kind, left, right = "left", right, left
    return (logical.Apply if is_lateral else logical.Join)(kind, left, right, condition)


def conjunction(parts: Sequence[Expr]) -> Expr:
    return parts[0] if len(parts) == 1 else Call("and", tuple(parts), BOOLEAN)


def plan_column(plan: logical.Node, name: str) -> Column:
    field = plan.schema[name]
    return Column(field.name, field.type, field.nullable)


def _both(kind: str, left: Joined, right: Joined) -> Scope:
    """The names that a join gives; what USING merged inside of one side stays merged."""
    if kind in ("semi", "anti"):
        return left.scope
    a = left.scope.padded() if kind in ("right", "full") else left.scope
    b = right.scope.padded() if kind in ("left", "full") else right.scope
    return Scope((*a.tables, *b.tables), a.source, (*a.fields, *b.fields), a.life or b.life)


def _identifier(name: str, position: int | None) -> exp.Identifier:
    node = exp.Identifier(this=name, quoted=True)
    if position is not None:
        node.meta["at"] = position
    return node
