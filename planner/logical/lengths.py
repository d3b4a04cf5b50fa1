"""How long lifetimes are, read off a plan: whether one column of times is a constant time after another one."""

from __future__ import annotations

from tsql.kernels.expr.nodes import Call, Column, Expr, Literal
from tsql.planner.logical.nodes import Distinct, Filter, Join, Limit, Node, Project, SetOperation, Sort, Window

DAY_US = 86_400_000_000


def length(plan: Node, start: str, end: str) -> int | None:
    """How many microseconds `end` is after `start` in each row of a plan, infinite times apart; None if that is not
    known to be constant."""
    while True:
        match plan:
            case Filter() | Sort() | Limit() | Distinct():
                plan = plan.input
            case Project():
                columns = dict(plan.columns)
                (first, us), (last, later_us) = after(columns[start]), after(columns[end])
                if first == last:
                    return later_us - us
                if not (isinstance(first, Column) and isinstance(last, Column)):
                    return None
                below = length(plan.input, first.name, last.name)
                return None if below is None else below + later_us - us
            case Window() if start in plan.input.schema and end in plan.input.schema:
                plan = plan.input
            case Join("inner" | "left" | "semi" | "anti"):
                inside = [side for side in (plan.left, plan.right) if start in side.schema and end in side.schema]
                if len(inside) != 1 or (inside[0] is plan.right and plan.kind != "inner"):
                    return None
                plan = inside[0]
            case SetOperation("union", True):
                places = [plan.schema.names.index(name) for name in (start, end)]
                lengths = {length(side, *(side.schema.names[at] for at in places)) for side in (plan.left, plan.right)}
                return lengths.pop() if len(lengths) == 1 else None
            case _:
                return None


def after(expr: Expr) -> tuple[Expr, int]:
    """A time as another one and how many microseconds it is after it."""
    length = 0
    while True:
        match expr:
            case Call("+" | "-" as sign, (time, Literal((0, days, us)))) if expr.type == time.type:
                length += (days * DAY_US + us) * (1 if sign == "+" else -1)
                expr = time
            case _:
                return expr, length
