"""Steps that put rows in order and that take the first of them."""

from __future__ import annotations

from tsql.kernels.expr.nodes import Call, Column, Expr, Literal, SortKey
from tsql.kernels.expr.types import BIGINT, BOOLEAN
from tsql.kernels.windows.call import WindowCall
from tsql.planner.choose.choice import Choice
from tsql.planner.cost import constants as cost
from tsql.planner.logical import nodes as logical
from tsql.planner.physical.enforce import enforce
from tsql.planner.physical.estimate import width
from tsql.planner.physical.movement import Arrange
from tsql.planner.physical.operators.limit import Limit
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.sort import Sort
from tsql.planner.physical.step import Step


def sort_step(choice: Choice, node: logical.Sort) -> Step:
    source = choice.step(node.input)
    gathered = Sort((source,), keys=node.keys)
    if choice.scope == "local" or choice.shards == 1 or any(k.expr.type.name == "INTERVAL" for k in node.keys):
        return gathered
    if choice.properties(enforce(source, choice.shards, choice.scope, gathers=False)).shards == 1:
        return gathered
    arranged = _arranged(choice, source, node.keys)
    if choice.estimator.of(source).rows * width(source.schema) > cost.DRIVER_BYTES:
        return arranged
    return choice.cheapest({"gathered": gathered, "arranged": arranged})


def _arranged(choice: Choice, source: Step, keys: tuple[SortKey, ...]) -> Step:
    """A sort of shards that have ranges of the keys. Computed keys become columns first and are dropped again."""
    columns = [(f.name, Column(f.name, f.type, f.nullable)) for f in source.schema]
    added = [(f"sort_key_{number}", key.expr) for number, key in enumerate(keys) if not isinstance(key.expr, Column)]
    if added:
        names = {str(expr): name for name, expr in added}
        source = Project((source,), columns=(*columns, *added))
        keys = tuple(
            key
            if isinstance(key.expr, Column)
            else SortKey(Column(names[str(key.expr)], key.expr.type), key.descending, key.nulls_first)
            for key in keys
        )
    spread = Arrange((source,), scope=choice.scope, shards=choice.shards, keys=keys)
    found = Sort((spread,), keys=keys)
    return Project((found,), columns=tuple(columns)) if added else found


def limit_step(choice: Choice, node: logical.Limit) -> Step:
    below = node.input
    projections: list[logical.Project] = []
    while isinstance(below, logical.Project):
        projections.append(below)
        below = below.input
    if not isinstance(below, logical.Sort) or node.count is None or node.count.type.is_float:
        return Limit((choice.step(node.input),), count=node.count, offset=node.offset)
    wanted = _rows_wanted(node.count, node.offset)
    source = choice.step(below.input)
    if choice.shards > 1:
        source = Sort((source,), keys=below.keys, limit=wanted, phase="partial")
    top: Step = Sort((source,), keys=below.keys, limit=wanted)
    for project in reversed(projections):
        top = Project((top,), columns=project.columns)
    return Limit((top,), count=node.count, offset=node.offset) if node.offset is not None else top


def limit_by_step(choice: Choice, node: logical.LimitBy) -> Step:
    return choice.step(_numbered(node))


def _rows_wanted(count: Expr, offset: Expr | None) -> Expr:
    """LIMIT + OFFSET: as many rows as a top-k must keep."""
    if offset is None:
        return count
    if isinstance(count, Literal) and isinstance(offset, Literal):
        if count.value is None or offset.value is None:
            return count
        return Literal(min(count.value + offset.value, 2**63 - 1), BIGINT)
    return Call("+", (count, offset), BIGINT)


def _numbered(node: logical.LimitBy) -> logical.Node:
    """A limit for each key, as a filter on the number of the row among those of its key."""
    schema = node.input.schema
    name = "row_of_key"
    while name in schema:
        name += "_"
    keys = tuple(Column(n, schema[n].type, schema[n].nullable) for n in node.by)
    numbered: logical.Node = logical.Window(
        node.input, keys, node.order, ((name, WindowCall("row_number", (), BIGINT)),)
    )
    number = Column(name, BIGINT)
    skipped = node.offset if node.offset is not None else Literal(0, BIGINT)
    if node.offset is not None:
        numbered = logical.Filter(numbered, Call(">", (number, skipped), BOOLEAN))
    if node.count is not None:
        # The number among those that are left, since a count and an offset together may be too large for BIGINT.
        place: Expr = number if node.offset is None else Call("-", (number, skipped), BIGINT)
        numbered = logical.Filter(numbered, Call("<=", (place, node.count), BOOLEAN))
    return logical.Project(numbered, tuple((f.name, Column(f.name, f.type, f.nullable)) for f in schema))
