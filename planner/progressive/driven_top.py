"""Which sort with a limit makes the progress: the one at whose first rows the pipeline of the scan ends.

rows  = scan clicks ..                                   the scan
some  = progressive rows every=5 unit=percent
kept  = filter some where=(price > 1)                    rows pass these one by one
first = sort kept phase=partial by=(price desc) limit=8  the first rows of each shard
one   = gather first
top   = sort one by=(price desc) limit=8                 the first rows
skip  = limit top offset=3                               steps that look at one row at a time, or cut

On one shard, `first` and `top` are one step."""

from __future__ import annotations

from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.progression import Progression
from tsql.planner.physical.movement import Gather
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.limit import Limit
from tsql.planner.physical.operators.progressive import Progressive
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.recursive import Recursive
from tsql.planner.physical.operators.sort import Sort
from tsql.planner.physical.step import Step
from tsql.planner.progressive.driven import passes


@dataclass(frozen=True)
class DrivenTop:
    """The parts of a plan that make and show progress. partial: the sort that the scan's pipeline ends in; final: the
    sort with the first rows of all shards, perhaps the same. above: the steps over it, the lowest one first."""

    spec: Progression
    scan: Step
    partial: Sort
    final: Sort
    above: tuple[Step, ...]

    @property
    def keeps_places(self) -> bool:
        """Whether the rows of the result are in the order of the first rows."""
        return not any(isinstance(step, Sort) for step in self.above)


def driven_top(root: Step) -> DrivenTop | None:
    """The sort of a plan that makes progress; None if there is none, or if what is above it sees several rows at a
    time."""
    start = next((one for one in root.walk() if isinstance(one, Progressive)), None)
    if start is None or any(isinstance(step, Recursive) for step in root.walk()):
        return None
    path = _path(root, start)
    place = next((place for place, step in enumerate(path) if isinstance(step, Sort)), None)
    if place is None or not all(_streams(user, below) for below, user in zip(path, path[1:place], strict=False)):
        return None
    partial = path[place]
    assert isinstance(partial, Sort)
    if partial.phase == "partial":
        place = next((n for n in range(place + 1, len(path)) if not isinstance(path[n], Gather)), place)
    final, above = path[place], tuple(path[place + 1 :])
    if not isinstance(final, Sort) or final.phase == "partial" or final.limit is None:
        return None
    if (final.keys, final.limit) != (partial.keys, partial.limit) or path[-1] is not root:
        return None
    if not all(isinstance(step, Project | Filter | Limit | Sort | Gather) for step in above):
        return None
    return DrivenTop(start.spec, start.inputs[0], partial, final, above)


def _path(root: Step, start: Step) -> list[Step]:
    """The steps from one up to the root, or to the first one whose rows several steps read."""
    users: dict[int, list[Step]] = {}
    for user in root.walk():
        for below in user.inputs:
            users.setdefault(id(below), []).append(user)
    path = [start]
    while len(mine := users.get(id(path[-1]), [])) == 1:
        path += mine
    return path


def _streams(user: Step, below: Step) -> bool:
    return not isinstance(user, Aggregate) and passes(user, below)
