"""Keys that most rows share: `redistribute .. heavy=split|copy`.

Rows of one key go to one shard, so a heavy key makes a heavy task. In a join there is a way around it: the rows of
heavy keys on one side stay spread over all shards (split), and their partners on the other side go to all shards
(copy). Each pair still meets once: a row that is split is in one shard, and all its partners are there too. Which keys
are heavy is found from a sample of the side that is split."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tsql.backends.local.run.arranging import Boundary
from tsql.kernels.expr.errors import PlanError
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BOOLEAN
from tsql.planner.physical.movement import Redistribute
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.properties import Properties
from tsql.planner.physical.step import Step

HEAVY = 2.0
"""A key is heavy if it has more than this many times the rows of a shard of equal size."""
LEAST_SEEN = 8
"""and if the sample has it at least so often."""
MOST_KEYS = 32


def heavy_keys(sample: list[Boundary], shards: int) -> list[Boundary]:
    """The heavy keys of a sample."""
    least = max(LEAST_SEEN, HEAVY * len(sample) / max(1, shards))
    return [key for key, rows in Counter(sample).most_common(MOST_KEYS) if rows > least]


def is_heavy(schema: Schema, names: list[str], keys: list[Boundary]) -> Expr:
    """Whether a row has one of these keys. Never NULL."""
    found: Expr | None = None
    for key in keys:
        same: Expr | None = None
        for name, value in zip(names, key, strict=True):
            column = Column(name, schema[name].type, schema[name].nullable)
            equal = Call("is_not_distinct_from", (column, Literal(value, column.type)), BOOLEAN)
            same = equal if same is None else Call("and", (same, equal), BOOLEAN)
        assert same is not None
        found = same if found is None else Call("or", (found, same), BOOLEAN)
    return Literal(False, BOOLEAN) if found is None else found


def split_side(root: Step, step: Redistribute) -> Redistribute:
    """The side whose sample says which keys of `step` are heavy: its own, or that of its partner."""
    if step.heavy == "split":
        return step
    (join,) = (user for user in root.walk() if any(below is step for below in user.inputs))
    left, right = join.inputs
    other = right if left is step else left
    assert isinstance(other, Redistribute)
    return other


def check_heavy(root: Step, properties: dict[int, Properties]) -> None:
    """Refuse heavy=.. where the two sides of a join do not belong together."""
    users: dict[int, list[Step]] = {}
    for step in root.walk():
        for below in step.inputs:
            users.setdefault(id(below), []).append(step)
    for step in root.walk():
        if isinstance(step, Redistribute) and step.heavy is not None:
            mine = users.get(id(step), [])
            if len(mine) != 1 or not isinstance(mine[0], HashJoin) or not _fits(mine[0], properties):
                raise PlanError(
                    f"step {step.name}: heavy={step.heavy} is for one of two sides of a join by the same keys, one of "
                    "them heavy=split and the other heavy=copy",
                    hint="leave heavy out",
                )


def _fits(join: HashJoin, properties: dict[int, Properties]) -> bool:
    left, right = join.inputs
    if not (isinstance(left, Redistribute) and isinstance(right, Redistribute)):
        return False
    if {left.heavy, right.heavy} != {"split", "copy"} or (right.heavy == "split" and join.kind != "inner"):
        return False
    pairs: dict[Any, Any] = {
        k.left.name: k.right.name for k in join.keys if isinstance(k.left, Column) and isinstance(k.right, Column)
    }
    keys = [properties[id(side.inputs[0])].key or () for side in (left, right)]
    same = all(left.schema[a].type == right.schema[b].type for a, b in zip(*keys, strict=False))
    return join.kind != "full" and same and tuple(pairs.get(name) for name in keys[0]) == tuple(keys[1])
