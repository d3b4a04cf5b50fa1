"""Which rows of a plan make the progress, where the states of an aggregate cannot be merged: those of the random scan,
behind the steps that they pass one by one. They are collected, and each snapshot is computed from some of them.

rows     = scan clicks ..                       the scan
some     = progressive rows every=5 unit=percent
kept     = filter some where=(price > 1)        these rows are collected
keyed    = rekey kept key=(ad)                  they go on from here in the end,
placed   = redistribute keyed scope=local       and a sample of them for each snapshot
groups   = aggregate placed by=(ad) m=median(price)"""

from __future__ import annotations

from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.progression import Progression
from tsql.planner.physical.movement import Gather, Redistribute, Rekey, Reshard
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.step import Step
from tsql.planner.progressive.driven import Groups, driven, groups_of, passes, starts_of, users_of
from tsql.planner.progressive.sampled_calls import needs_rows


@dataclass(frozen=True)
class DrivenRows:
    """The parts of a plan that make and show progress."""

    spec: Progression
    scan: Step
    rows: Step
    """The last step that rows of the scan pass one by one; or the partial aggregate that they end in."""

    between: tuple[Step, ...]
    """What is between these rows and the aggregate: movement, projections, filters."""

    aggregate: Aggregate

    @property
    def are_states(self) -> bool:
        """Whether the rows are states of groups, of which each batch of the sample has some."""
        return isinstance(self.rows, Aggregate)

    @property
    def source(self) -> Step:
        """The step whose rows are aggregated."""
        return self.rows.inputs[0] if isinstance(self.rows, Aggregate) else self.aggregate.inputs[0]

    @property
    def groups(self) -> Groups:
        return groups_of(self.aggregate)


def driven_rows(root: Step) -> DrivenRows | None:
    """The driven rows of a plan; None if the plan has no step that makes progress, or if its rows end elsewhere."""
    starts = starts_of(root)
    if len(starts) != 1 or not isinstance(starts[0].inputs[0], Scan):
        return None
    (start,), users = starts, users_of(root)
    rows: Step = start
    user: Step | None = _only_user(rows, users)
    while user is not None and not isinstance(user, Aggregate) and not _is_between(user) and passes(user, rows):
        rows, user = user, _only_user(user, users)
    between: list[Step] = []
    while user is not None and (_is_between(user) or isinstance(user, Project | Filter)):
        between.append(user)
        user = _only_user(user, users)
    if not isinstance(user, Aggregate) or user.phase != "complete":
        return None
    return DrivenRows(start.spec, start.inputs[0], rows, tuple(between), user)


def driven_states(root: Step) -> DrivenRows | None:
    """The states that merge and have no measures that would tell their error (a correlation)."""
    found = driven(root)
    if found is None or len(found.branches) > 1 or not isinstance(found.final, Aggregate):
        return None
    if found.final.phase != "final" or not any(needs_rows(name, call) for name, call in found.final.calls):
        return None
    between: list[Step] = []
    step = found.final.inputs[0]
    while step is not found.partial:
        between.append(step)
        step = step.inputs[0]
    return DrivenRows(found.spec, found.scan, found.partial, tuple(reversed(between)), found.final)


def _is_between(step: Step) -> bool:
    """Whether a step moves rows and leaves each what it is."""
    return isinstance(step, Rekey | Redistribute | Reshard | Gather)


def _only_user(step: Step, users: dict[int, list[Step]]) -> Step | None:
    found = users.get(id(step), [])
    return found[0] if len(found) == 1 else None
