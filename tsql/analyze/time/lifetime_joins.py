"""Plans of joins of temporal relations. A pair is alive while both rows are. An outer join also keeps the parts of a
row that no partner covers.

`from_.py` calls `join` where one side has a lifetime, `subquery.py` uses `pieces` for EXISTS. A plain relation beside a
temporal one is always alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tsql.analyze.scope import Life
from tsql.analyze.time.cut import covered, intersection, uncovered
from tsql.analyze.time.lifetimes import always, bounds, every, kept, new_life, overlap
from tsql.analyze.time.matches import matched
from tsql.kernels.expr.nodes import Column, Expr, Literal
from tsql.kernels.expr.schema import Field
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical import nodes as logical


@dataclass(frozen=True)
class TemporalSide:
    """One side of a join."""

    plan: logical.Node
    life: Life | None

    def timed(self, taken: Iterable[str]) -> TemporalSide:
        """The side with a lifetime: its own, or that of what is alive always."""
        return self if self.life is not None else TemporalSide(*always(self.plan, taken))


def join(
    kind: str, left: TemporalSide, right: TemporalSide, condition: Expr | None, is_lateral: bool, taken: Iterable[str]
) -> TemporalSide:
    """A join of SQL's kind (inner, left, right, full, semi, anti) of sides of which one has a lifetime at least."""
    if kind == "right":
        kind, left, right = "left", right, left
    node = logical.Apply if is_lateral else logical.Join
    if right.life is None and kind != "full":
        return TemporalSide(node(kind, left.plan, right.plan, condition), left.life)
    taken = (*taken, *left.plan.schema.names, *right.plan.schema.names)
    if kind == "inner":
        return _pairs(node, left, right, condition, taken)
    left = left.timed(taken)
    right = right.timed((*taken, *left.plan.schema.names))
    taken = (*taken, *left.plan.schema.names, *right.plan.schema.names)
    if kind in ("semi", "anti"):
        return pieces(kind, left, right, condition, taken)
    parts = [_pairs(node, left, right, condition, taken), pieces("anti", left, right, condition, taken)]
    if kind == "full":
        parts.append(pieces("anti", right, left, condition, taken))
    return _together(parts, (*left.plan.schema, *right.plan.schema), taken)


def pieces(
    kind: str, left: TemporalSide, right: TemporalSide, condition: Expr | None, taken: Iterable[str]
) -> TemporalSide:
    """The maximal parts of the left rows in which something on the right matches (semi), or nothing (anti)."""
    found = matched(left.plan, left.life, right.plan, right.life, condition, taken)
    if kind == "semi":
        return TemporalSide(*covered(left.plan, found.plan, found.keys, left.life, found.life, taken))
    return TemporalSide(*uncovered(left.plan, found.domain, found.plan, found.keys, left.life, found.life, taken))


def _pairs(
    node: type[logical.Join], left: TemporalSide, right: TemporalSide, condition: Expr | None, taken: Iterable[str]
) -> TemporalSide:
    if left.life is None or right.life is None:
        return TemporalSide(node("inner", left.plan, right.plan, condition), left.life or right.life)
    both = every([*([] if condition is None else [condition]), *overlap(left.life, right.life)])
    plan = node("inner", left.plan, right.plan, both)
    life = new_life((*taken, *plan.schema.names))
    return TemporalSide(logical.Project(plan, (*kept(plan), *intersection(life, left.life, right.life))), life)


def _together(parts: Sequence[TemporalSide], fields: Iterable[Field], taken: Iterable[str]) -> TemporalSide:
    """The rows of all parts, with NULLs for the columns that one has not."""
    life = new_life(taken)
    fields = list(fields)
    plan: logical.Node | None = None
    for part in parts:
        own = part.plan.schema
        columns = [(f.name, Column(f.name, f.type) if f.name in own else Literal(None, f.type)) for f in fields]
        start, end = bounds(part.life)
        padded = logical.Project(part.plan, (*columns, (life.start, start), (life.end, end)))
        plan = padded if plan is None else logical.SetOperation("union", True, plan, padded)
    return TemporalSide(plan, life)
