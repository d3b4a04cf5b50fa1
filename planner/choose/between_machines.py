"""How the rows of a join meet where shards are on several machines: `between_machines` chooses by cost.

The built side is broadcast, or both sides are placed by their keys. A broadcast side is computed by each machine for
itself (read: it costs the time of one core over all its rows, and nothing moves), or by all machines together and sent
to each (collect: it costs a job)."""

from __future__ import annotations

from dataclasses import replace

from tsql.planner.choose.choice import Choice
from tsql.planner.choose.join_methods import ranged
from tsql.planner.choose.join_placement import placed
from tsql.planner.cost import constants as cost
from tsql.planner.cost import stats
from tsql.planner.cost.columns import distinct
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.predicates import conjunction
from tsql.planner.logical.sources import is_portable
from tsql.planner.physical.enforce import enforce
from tsql.planner.physical.estimate import width
from tsql.planner.physical.movement import Broadcast, Gather
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.step import Step


def between_machines(choice: Choice, joined: HashJoin, left: logical.Node, right: logical.Node) -> Step:
    """How the rows of a join meet: the built side is broadcast, computed by each machine or collected, or both sides
    are placed by their keys."""
    probed = joined.inputs[1 if joined.build == "left" else 0]
    if choice.properties(enforce(probed, choice.shards, choice.scope, gathers=False)).shards == 1:
        return joined
    options: dict[str, Step] = {}
    for build in dict.fromkeys((joined.build, "right" if joined.kind in ("semi", "anti", "left") else joined.build)):
        this = _built(joined, build)
        built = left if build == "left" else right
        fits = stats.rows(built) * width(built.schema) <= choice.estimator.machine.broadcast_bytes
        if not this.marks and (fits or not joined.keys or joined.is_open):
            options |= broadcast_options(choice, this, built)
    if joined.keys and not joined.is_open:
        options["placed"] = _moved(joined, choice.shards, choice.scope, _split_side(joined, left, right))
    if options:
        return choice.cheapest(options) if len(options) > 1 else next(iter(options.values()))
    return joined.with_inputs(tuple(Gather((i,)) for i in joined.inputs)) if joined.marks else joined


def _built(joined: HashJoin, build: str) -> HashJoin:
    """The join with this side built. What bounds a number of one side may bound one of the other; comparisons that do
    not are a condition."""
    if build == joined.build:
        return joined
    parts = (*joined.times, *(() if joined.condition is None else (joined.condition,)))
    turned = replace(joined, build=build, range=(), overlap=None, condition=conjunction(parts))
    return ranged(turned) if joined.range else turned


def broadcast_options(choice: Choice, joined: HashJoin, built: logical.Node) -> dict[str, Step]:
    """The join with its built side in every shard."""
    at = 0 if joined.build == "left" else 1
    found: dict[str, Step] = {}
    has_files = any(isinstance(part, logical.Scan) and is_portable(part.source) for part in built.walk())
    alone = "read" if has_files else "send"
    for how, rows in ((alone, choice.alone(built)), ("collect", joined.inputs[at])):
        if rows is not None:
            inputs = list(joined.inputs)
            inputs[at] = Broadcast((rows,), scope=choice.scope, shards=choice.shards, how=how)
            found[f"{how} {joined.build}"] = joined.with_inputs(tuple(inputs))
    return found


def _split_side(joined: HashJoin, left: logical.Node, right: logical.Node) -> int | None:
    """The side of a large join whose heavy keys stay spread over the shards: the larger one, if that may be. A key that
    has no value twice is not heavy."""
    sizes = [stats.rows(side) * width(side.schema) for side in (left, right)]
    at = 0 if sizes[0] >= sizes[1] or joined.kind != "inner" else 1
    if joined.kind == "full" or sizes[at] < cost.SKEW_BYTES or (at == 0 and sizes[0] < sizes[1]):
        return None
    keys = [key.left if at == 0 else key.right for key in joined.keys]
    side = (left, right)[at]
    known = [distinct(key, side) for key in keys]
    is_unique = any(values is not None and values >= cost.UNIQUE * stats.rows(side) for values in known)
    same = all(key.left.type == key.right.type for key in joined.keys)
    return None if is_unique or not same else at


def _moved(joined: HashJoin, shards: int, scope: str, split: int | None) -> Step:
    """Moves both sides by one key of each left and each right expression. With `x = a AND x = b`, placing the left side
    by (x, x) would not show in the plan that its rows meet those placed by (a, b); x alone spreads the rows as well."""
    last = {str(key.left): key for key in joined.keys}
    last = {str(key.right): key for key in last.values()}
    others = tuple(key for key in joined.keys if key is not last.get(str(key.right)))
    found = placed(replace(joined, keys=tuple(last.values())), shards, scope, None if others else split)
    if not others:
        return found
    # The placement key comes last: of several keys over one column, the last one tells where the rows meet.
    below = found if isinstance(found, HashJoin) else found.inputs[0]
    assert isinstance(below, HashJoin)
    wide = replace(below, keys=(*others, *below.keys))
    return wide if isinstance(found, HashJoin) else found.with_inputs((wide,))
