"""Which aggregate of a plan makes the progress: the one that the pipeline of the random scan ends in.

rows = scan clicks ..                         the scan
some = progressive rows every=5 unit=percent
kept = filter some where=(price > 1)          rows pass these one by one
both = hash_join kept ads ..                  (the other side is built first)
part = aggregate both phase=partial ..        the driven aggregate
one  = gather part
all  = aggregate one phase=final ..           its groups, merged"""

from __future__ import annotations

from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Column, Expr
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.progression import Progression
from tsql.planner.physical.movement import Gather, Movement, Rekey
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.input import Input
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.progressive import Progressive
from tsql.planner.physical.operators.recursive import Recursive
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.step import Step


@dataclass(frozen=True)
class Groups:
    """The groups of a result: their keys, the aggregates over them, and the columns that they have."""

    by: tuple[tuple[str, Expr], ...]
    calls: tuple[tuple[str, AggregateCall], ...]
    schema: Schema


@dataclass(frozen=True)
class Branch:
    """A scan whose rows come in random order, and the aggregate that its pipeline ends in."""

    spec: Progression
    scan: Step
    partial: Aggregate


@dataclass(frozen=True)
class Driven:
    """The parts of a plan that make and show progress: one branch, or one for each input of a union."""

    branches: tuple[Branch, ...]
    states: Schema
    """The columns of the partial groups of all branches."""

    final: Aggregate | Combine
    """What merges these groups, or makes windows of panes."""

    @property
    def spec(self) -> Progression:
        return self.branches[0].spec

    @property
    def scan(self) -> Step:
        return self.branches[0].scan

    @property
    def partial(self) -> Aggregate:
        return self.branches[0].partial

    @property
    def groups(self) -> Groups:
        return groups_of(self.final)


def groups_of(final: Aggregate | Combine) -> Groups:
    """The groups of a result, by what merges them."""
    if isinstance(final, Aggregate):
        return Groups(final.by, final.calls, final.schema)
    names = {name for name, _ in final.calls}
    keys = tuple((f.name, Column(f.name, f.type, f.nullable)) for f in final.schema if f.name not in names)
    return Groups(keys, final.calls, final.schema)


def driven(root: Step) -> Driven | None:
    """What makes the progress of a plan; None if the plan has no step that makes progress, or none that can show it."""
    starts = starts_of(root)
    if not starts or not all(isinstance(one.inputs[0], Scan | Input) for one in starts):
        return None
    users = users_of(root)
    branches = [branch_of(start, users) for start in starts]
    found = [one for one in branches if one is not None]
    if len(found) < len(branches):
        return None
    ends = [end_of(one.partial, users) for one in found]
    final, union = ends[0]
    if final is None or any(other is not final for other, _ in ends):
        return None
    if len(found) != (1 if union is None else len(union.inputs)):
        return None
    return Driven(tuple(found), (union or found[0].partial).schema, final)


def starts_of(root: Step) -> list[Progressive]:
    """The steps of a plan that make progress. The rounds of a recursion would have to run again for each snapshot."""
    if any(isinstance(step, Recursive) for step in root.walk()):
        return []
    return [one for one in root.walk() if isinstance(one, Progressive)]


def users_of(root: Step) -> dict[int, list[Step]]:
    """The steps that read each step, by its id."""
    found: dict[int, list[Step]] = {}
    for user in root.walk():
        for below in user.inputs:
            found.setdefault(id(below), []).append(user)
    return found


def branch_of(start: Progressive, users: dict[int, list[Step]]) -> Branch | None:
    """The rows of a step on their way to their groups; None if they do not come one by one."""
    step: Step = start
    while not isinstance(step, Aggregate):
        mine = users.get(id(step), [])
        if len(mine) != 1 or not passes(mine[0], step):
            return None
        step = mine[0]
    return Branch(start.spec, start.inputs[0], step) if step.phase == "partial" else None


def end_of(partial: Step, users: dict[int, list[Step]]) -> tuple[Aggregate | Combine | None, Union | None]:
    """What merges partial groups, and the union of them that it merges."""
    union = None
    above = users.get(id(partial), [])
    while len(above) == 1 and isinstance(above[0], Gather | Movement | Rekey | Union):
        if isinstance(above[0], Union):
            union = above[0]
        above = users.get(id(above[0]), [])
    if len(above) != 1 or not _merges(above[0]):
        return None, union
    assert isinstance(above[0], Aggregate | Combine)
    return above[0], union


def _merges(step: Step) -> bool:
    """Whether a step makes results of groups that may come in parts. Of sessions and count windows, a part of the rows
    says little."""
    if isinstance(step, Combine):
        return step.windows.over == "states" and step.windows.kind in ("hop", "cumulate")
    return isinstance(step, Aggregate)


def passes(user: Step, below: Step) -> bool:
    """Whether the rows of a step reach its user's output one by one, or end in its groups."""
    if isinstance(user, Aggregate):
        return not user.absorbs
    if isinstance(user, HashJoin) and user.marks:
        # Whether a row of the table has a partner is known at the end.
        return False
    return user.streamed is not None and user.inputs[user.streamed] is below
