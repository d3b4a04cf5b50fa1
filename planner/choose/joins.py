"""Turns logical joins into steps: chooses the built side, how rows of both sides meet, and obeys hints."""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr.nodes import Column
from tsql.planner.choose.bands import banded
from tsql.planner.choose.between_machines import between_machines, broadcast_options
from tsql.planner.choose.choice import Choice
from tsql.planner.choose.join_methods import METHODS, CannotJoin, by_merge
from tsql.planner.choose.ranges import is_in_order
from tsql.planner.cost import constants as cost
from tsql.planner.cost import stats
from tsql.planner.cost.columns import column_statistics
from tsql.planner.cost.stats import equalities, matching
from tsql.planner.hints.constraints import Constraints
from tsql.planner.hints.join_hints import Broadcasting, Demand, Method
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.positional_join import PositionalJoin
from tsql.planner.logical.predicates import conjunction
from tsql.planner.logical.sources import is_live
from tsql.planner.physical.movement import Broadcast
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.merge_join import MergeJoin, refusal
from tsql.planner.physical.operators.positional_join import PositionalJoin as PositionalJoinStep
from tsql.planner.physical.step import Step

NO_DEMAND = Demand()


def build_side(node: logical.Join) -> str:
    """The side that is built into the table: the smaller one, where the kind leaves a choice."""
    left, right = stats.rows(node.left), stats.rows(node.right)
    match node.kind:
        case "inner" | "full":
            return "left" if left < right else "right"
        case "semi" | "anti":
            return "left" if left * cost.MARKING_WORTH < right else "right"
        case "left":
            return "left" if left * cost.OUTER_MARKING_WORTH < right else "right"
    return "right"


BUILT_FOR_PROGRESS, BUILT_SHARE = 8, 0.2
"""For the sake of progress, the built side may have so many times the rows of the other one, or so large a share of
those of the scan that makes the progress."""


def progressive_side(node: logical.Join) -> str:
    """The same where snapshots are wanted: rows of the largest scan should pass one by one, while the other side is
    built first. A built side whose rows are marked holds all of them until the end."""
    side = build_side(node)
    choices = {"inner": ("left", "right"), "semi": ("right",), "anti": ("right",), "left": ("right",)}
    widest = {"left": _widest(node.right), "right": _widest(node.left)}
    rows = {"left": stats.rows(node.left), "right": stats.rows(node.right)}
    best = max(choices.get(node.kind, (side,)), key=lambda one: (widest[one], one == side))
    if best == side or (node.kind == "inner" and widest[best] <= widest[side]):
        return side
    worth = max(BUILT_FOR_PROGRESS * rows[side], BUILT_SHARE * widest[best])
    return best if rows[best] <= worth else side


def live_side(node: logical.Join) -> str:
    """The same where rows arrive: a side without such rows is built, if the kind of the join allows it."""
    left, right = _is_live(node.left), _is_live(node.right)
    if left and not right and node.kind != "full":
        return "right"
    return "left" if right and not left and node.kind == "inner" else build_side(node)


def _is_live(node: logical.Node) -> bool:
    return any(isinstance(one, logical.Scan) and is_live(one.source) for one in node.walk())


def _widest(node: logical.Node) -> float:
    """The rows of the largest scan below a node."""
    return max((stats.rows(one) for one in node.walk() if isinstance(one, logical.Scan)), default=0.0)


def join_step(choice: Choice, node: logical.Join) -> Step:
    """The step of a join, as hints demand it."""
    shards, scope, wanted = choice.shards, choice.scope, choice.wanted
    demand = wanted.demands.get(id(node), NO_DEMAND)
    keys, rest = equalities(node)
    side = progressive_side if choice.progressive else live_side if choice.live else build_side
    inputs, build = (choice.step(node.left), choice.step(node.right)), demand.build or side(node)
    joined = HashJoin(
        inputs,
        node.kind,
        tuple(keys),
        conjunction(rest),
        build,
        node.mark,
        position=_position(node),
        rows=stats.rows(node),
    )
    if demand.method is not None:
        found = _as_demanded(joined, demand.method, wanted)
        if not isinstance(found, HashJoin):
            if demand.broadcasting is not None:
                raise demand.broadcasting.hint.refuse(f"{demand.method.hint} asks for a join that builds no side")
            return found
        joined = found
    elif rest and node.kind != "mark":
        joined = banded(joined, node, demand.build is not None)
    if demand.method is None and scope == "local" and not joined.range and _is_better_merged(joined, node):
        joined = by_merge(joined)
    if (
        joined.keys
        and not joined.range
        and not isinstance(joined, MergeJoin)
        and joined.probe_kind in ("inner", "semi", "touch")
    ):
        probed = stats.rows(node.right if joined.build == "left" else node.left)
        joined = replace(joined, early=matching(node, joined.build) <= cost.EARLY_WORTH * probed)
    if demand.broadcasting is not None:
        return _broadcast(choice, joined, node, demand.broadcasting)
    if scope == "local" or shards == 1:
        return joined
    return between_machines(choice, joined, node.left, node.right)


def _is_better_merged(joined: HashJoin, node: logical.Join) -> bool:
    """Whether both sides are sorted by a key whose table would be large and could not be an array."""
    built = node.left if joined.build == "left" else node.right
    if refusal(joined) is not None or stats.rows(built) < cost.MERGED_ROWS:
        return False
    (key,) = joined.keys
    left, right = key.left, key.right
    assert isinstance(left, Column) and isinstance(right, Column)
    known = column_statistics(built, left.name if joined.build == "left" else right.name)
    if known is None or not (isinstance(known.minimum, int) and isinstance(known.maximum, int)):
        return False
    far_apart = known.maximum - known.minimum > cost.MERGED_DISTANCE * stats.rows(built)
    return far_apart and is_in_order(joined.inputs[0], left.name) and is_in_order(joined.inputs[1], right.name)


def _as_demanded(joined: HashJoin, method: Method, wanted: Constraints) -> Step:
    """The join done in the way that a hint demands."""
    try:
        found = METHODS[method.how](joined)
    except CannotJoin as reason:
        raise method.hint.refuse(str(reason)) from None
    wanted.apply(method.hint, _place(found))
    return found


def _broadcast(choice: Choice, joined: HashJoin, node: logical.Join, demand: Broadcasting) -> Step:
    """The join with its whole built side in every shard."""
    scope = choice.scope
    name, wide = demand.relation.name, demand.scope or scope
    if joined.build == "left" and joined.kind in ("mark", "single"):
        raise demand.hint.refuse(f"{name} is the outer relation of a subquery, whose join builds the other side")
    if wide == "local" and scope == "global":
        raise demand.hint.refuse(
            "a local broadcast does not reach the shards of other machines", "use scope => 'global'"
        )
    if joined.marks and wide == "global":
        raise demand.hint.refuse(
            (
                f"a {joined.kind} join that builds {name} marks its rows, and copies on several machines would "
                "each have marks of their own"
            ),
            _other_side(joined),
        )
    choice.wanted.apply(demand.hint, f"{name} is built and broadcast {_place(joined)}")
    if scope == "global" and choice.shards > 1:
        options = broadcast_options(choice, joined, node.left if joined.build == "left" else node.right)
        return choice.cheapest(options) if len(options) > 1 else next(iter(options.values()))
    at = 0 if joined.build == "left" else 1
    inputs = list(joined.inputs)
    inputs[at] = Broadcast((inputs[at],), scope=wide, shards=choice.shards)
    return joined.with_inputs(tuple(inputs))


def _other_side(joined: HashJoin) -> str | None:
    return "broadcast the other side" if joined.kind != "full" else None


def _place(step: Step) -> str:
    return f"at {step.op} {' '.join(f'{name}={text}' for name, text in step.attributes())}"


def _position(node: logical.Join) -> int | None:
    return getattr(node.condition, "position", None)


def positional_join_step(choice: Choice, node: PositionalJoin) -> Step:
    return PositionalJoinStep((choice.step(node.left), choice.step(node.right)))
