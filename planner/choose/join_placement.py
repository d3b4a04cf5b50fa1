"""Joins whose sides are moved so that rows with equal keys meet in one shard."""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr.nodes import Column
from tsql.planner.logical.predicates import JoinKey
from tsql.planner.physical.movement import Redistribute, Rekey
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.step import Step


def placed(joined: HashJoin, shards: int, scope: str, split: int | None = None) -> Step:
    """Moves both sides so that equal keys meet. Computed keys become columns first and are dropped again after the
    join. `split`: the side whose heavy keys stay spread."""
    sides = []
    keys = list(joined.keys)
    for at, source in enumerate(joined.inputs):
        names, added = [], []
        for number, key in enumerate(keys):
            expr = key.left if at == 0 else key.right
            name = expr.name if isinstance(expr, Column) else f"join_key_{at}_{number}"
            if not isinstance(expr, Column):
                added.append((name, expr))
                column = Column(name, expr.type)
                keys[number] = (
                    JoinKey(column, key.right, key.null_safe) if at == 0 else JoinKey(key.left, column, key.null_safe)
                )
            names.append(name)
        if added:
            kept = tuple((f.name, Column(f.name, f.type, f.nullable)) for f in source.schema)
            source = Project((source,), columns=(*kept, *added))
        heavy = None if split is None else "split" if at == split else "copy"
        sides.append(Redistribute((Rekey((source,), key=tuple(names)),), scope=scope, shards=shards, heavy=heavy))
    wide = replace(joined, inputs=tuple(sides), keys=tuple(keys))
    if wide.schema.names == joined.schema.names:
        return wide
    return Project((wide,), columns=tuple((f.name, Column(f.name, f.type, f.nullable)) for f in joined.schema))
