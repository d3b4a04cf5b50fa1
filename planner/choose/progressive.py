"""Gives the plan of a PROGRESSIVE query its step `progressive`, above the scan with the most rows whose pipeline ends
in an aggregate with mergeable states or in the first rows of an order, or above such a scan for each input of a
union; or above a join of two large sides, groups that are grouped again, or windows over the rows of a key. A plan
without one has a single snapshot, the last; its notes say why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tsql.planner.choose.few_keys import few_keys, rows_tell_more
from tsql.planner.choose.large_joins import large_join
from tsql.planner.choose.regrouped import is_outermost, regrouped
from tsql.planner.choose.windowed import windowed
from tsql.planner.logical.progression import Progression
from tsql.planner.physical.estimator import Estimator
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.progressive import Progressive
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.step import Step, rebuild
from tsql.planner.progressive.driven import driven
from tsql.planner.progressive.driven_keys import DrivenKeys, driven_keys
from tsql.planner.progressive.kinds import progress_of
from tsql.planner.progressive.on_driver import too_much
from tsql.planner.progressive.reasons import FINAL_ONLY, reason


def with_progressive(root: Step, spec: Progression, estimator: Estimator, scope: str) -> tuple[Step, str | None]:
    """The plan that makes progress, and what is to say of it; or the plan as it is, and why it makes none."""
    scans = sorted((one for one in root.walk() if isinstance(one, Scan)), key=lambda one: -estimator.of(one).rows)
    if scope != "local" and scans:
        scans = [scan for scan in scans if not getattr(scan.source, "in_cluster", False)]
        if not scans:
            return root, f"{FINAL_ONLY}: the rows are in the cluster already, in an order that Spark decides"
    # Waves of tasks give groups to the driver, and nothing else.
    find = progress_of if scope == "local" else driven
    plans = (_above(root, some, spec) for some in _candidates(root, scans))
    found = next((plan for plan in plans if find(plan) is not None), None)
    note = None
    if scope == "local":
        by_keys, note = _by_keys(root, found, spec, estimator)
        if by_keys is not None:
            return by_keys, note
    why = None if found is None or scope == "local" else too_much(found, estimator)
    if found is not None:
        return (found, note) if why is None else (root, f"{FINAL_ONLY}: {why}")
    return root, f"{FINAL_ONLY}: {reason(root, list(scans), scope)}"


def _by_keys(root: Step, found: Step | None, spec: Progression, estimator: Estimator) -> tuple[Step | None, str | None]:
    """The plan that makes better progress by keys than `found` by the rows of a scan, if there is one; and what is to
    say of keys that are few."""
    few: list[tuple[Step, DrivenKeys, int]] = []
    for plan, made in _plans_by_keys(root, found, spec, estimator):
        keys = few_keys(made, estimator)
        if keys is None:
            return plan, None
        few.append((plan, made, keys))
    for plan, made, keys in few:
        if found is None:
            return plan, f"PROGRESSIVE goes by the keys, since no scan can make progress: some {keys} keys are few"
        if not rows_tell_more(made, keys, estimator):
            return plan, f"PROGRESSIVE goes by the keys, since part of the rows says less: some {keys} keys are few"
    return None, f"PROGRESSIVE goes by the rows of a scan: some {few[0][2]} keys are few" if few else None


def _plans_by_keys(
    root: Step, found: Step | None, spec: Progression, estimator: Estimator
) -> Iterator[tuple[Step, DrivenKeys]]:
    """The plans that make progress by keys, the best one first. Groups that are not the last ones tell less."""
    steps = windowed(root) if found is None else regrouped(root, found)
    made = [(plan, keys) for plan in (_above(root, [one], spec) for one in steps) if (keys := driven_keys(plan))]
    yield from (one for one in made if is_outermost(*one))
    if found is None:
        yield from (one for one in made if not is_outermost(*one))
    join = large_join(root, found, estimator)
    by_join = root if join is None else _above(root, [join], spec)
    if (keys := driven_keys(by_join)) is not None:
        yield by_join, keys


def _candidates(root: Step, scans: list[Scan]) -> Iterator[Sequence[Step]]:
    """The scans that may make the progress."""
    yield from ([scan] for scan in scans)
    yield from _of_unions(root, scans)


def _of_unions(root: Step, scans: list[Scan]) -> Iterator[list[Scan]]:
    """For each union of partial groups, the largest scan below each of them."""
    for union in (one for one in root.walk() if isinstance(one, Union)):
        if all(isinstance(part, Aggregate) for part in union.inputs):
            below = [[scan for scan in scans if any(one is scan for one in part.walk())] for part in union.inputs]
            if all(below):
                yield [mine[0] for mine in below]


def _above(root: Step, below: Sequence[Step], spec: Progression) -> Step:
    """The plan with the step above some others."""
    chosen = {id(step) for step in below}
    return rebuild(root, lambda old, new: Progressive((new,), spec=spec) if id(old) in chosen else new)
