"""Finds the groups of steps of a plan that one operator runs, and what they are: `regions_of`.

A region has a last step, the steps whose rows it takes, and everything between them. Nothing outside may read a step
between; where it does, or where the plan has another form, the steps run one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tsql.backends.live.fragments import Engine
from tsql.backends.live.lifetimes.clips import find_clip
from tsql.backends.live.lifetimes.merges import find_merge
from tsql.backends.live.lifetimes.pieces import find_pieces
from tsql.backends.live.lifetimes.slices import find_slices
from tsql.backends.live.operator import LiveOperator, origin
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.operators.values import Values
from tsql.planner.physical.step import Step

Users = dict[int, list[Step]]
FINDERS = (find_pieces, find_clip, find_slices, find_merge)
"""In this order: pieces of rows contain merges."""


@dataclass(frozen=True)
class FoundRegion:
    """`inside`: the steps (by id) that the operator of `top` runs, without `top`."""

    top: Step
    make: Callable[[Engine], LiveOperator]
    inside: frozenset[int]


def regions_of(root: Step) -> dict[int, FoundRegion]:
    """The regions of a plan, by the id of their last step."""
    users: Users = {}
    for step in root.walk():
        if not step.is_movement:
            for below in map(origin, step.inputs):
                users.setdefault(id(below), []).append(step)
    found: dict[int, FoundRegion] = {}
    for finder in FINDERS:
        for step in root.walk():
            taken = {one for region in found.values() for one in (id(region.top), *region.inside)}
            region = finder(step, users) if id(step) not in taken else None
            if region is not None:
                between = list(_between(step, {id(below) for below in (*region.below, *region.unread)}))
                inside = frozenset(map(id, between))
                if not inside & taken and all(one.inputs or isinstance(one, Values) for one in between):
                    found[id(step)] = FoundRegion(step, region.make, inside)
    return _closed(found, users)


def _between(top: Step, below: set[int]) -> Iterator[Step]:
    stack, seen = list(top.inputs), set()
    while stack:
        step = stack.pop()
        if id(step) in below or id(step) in seen:
            continue
        seen.add(id(step))
        yield step
        stack.extend(step.inputs)


def _closed(found: dict[int, FoundRegion], users: Users) -> dict[int, FoundRegion]:
    """Only regions of which nothing else reads a step between."""
    while True:
        inner = {one for region in found.values() for one in (id(region.top), *region.inside)}
        open_ones = [
            key
            for key, region in found.items()
            if any(id(user) not in inner for one in region.inside for user in users.get(one, ()))
        ]
        if not open_ones:
            return found
        for key in open_ones:
            del found[key]
