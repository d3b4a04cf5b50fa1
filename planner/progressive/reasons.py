"""Why a plan has one snapshot, the last: the first step above its largest scan that makes no progress."""

from __future__ import annotations

from tsql.kernels.operators.aggregate.combine import Windows
from tsql.planner.logical.aggregate_states import can_split
from tsql.planner.physical.movement import Gather, Movement, Rekey
from tsql.planner.physical.operators.aggregate import Aggregate, partial_of
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.limit import Limit
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.recursive import Recursive
from tsql.planner.physical.operators.sort import Sort
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.step import Step
from tsql.planner.progressive.driven import passes
from tsql.planner.progressive.driven_keys import REPEATED, can_be_parted, dealing_of
from tsql.planner.progressive.part_filters import counts_rows, is_at_scans, limited

FINAL_ONLY = "PROGRESSIVE shows the final result only"


def reason(root: Step, scans: list[Step], scope: str) -> str:
    """Why a plan without progress has none. `scans`: those that could make it, the best one first. scope: global on a
    cluster."""
    if not scans:
        return "the query reads no table"
    if any(isinstance(step, Recursive) for step in root.walk()):
        return "a recursion reads its rows in rounds"
    scan = scans[0]
    table, step = scan.name or scan.suggested_name(), scan
    moved = False
    while step is not root:
        users = [user for user in root.walk() if any(below is step for below in user.inputs)]
        if len(users) > 1:
            return f"several steps read the rows of {table}"
        (user,) = users
        if isinstance(user, Gather | Movement | Rekey):
            moved = True
        elif isinstance(user, Aggregate) or not passes(user, step):
            if scope == "global" and isinstance(user, Sort) and user.limit is not None:
                return "on a cluster, only groups show progress"
            return _blocked(root, user, table, moved)
        step = user
    return f"the rows of {table} are shown as they are, without groups or ORDER BY .. LIMIT"


def _blocked(root: Step, user: Step, table: str, moved: bool) -> str:
    for step in root.walk():
        if isinstance(step, Combine) and partial_of(step.inputs[0]) is user:
            user = step
    match user:
        case Window() | Combine(windows=Windows(kind="session" | "rows")):
            return _about_windows(root, user, table)
        case Aggregate():
            whole = [str(call) for _, call in user.calls if not can_split(call)]
            if whole:
                return f"{whole[0]} has no state that is known before all rows are (as counts, sums and averages have)"
            how = (
                "moved before they are grouped" if moved else "grouped in one phase, or by several users of the groups"
            )
            return f"the rows of {table} are {how}"
        case Sort(limit=None):
            return f"ORDER BY without LIMIT needs all rows of {table}"
        case Sort():
            kept = Project | Filter | Limit | Sort | Gather
            above = next((s for s in root.walk() if _is_above(s, user) and not isinstance(s, kept)), None)
            if above is None:
                return f"the first rows of {table} are not made by one sort on each shard and one on all"
            return f"the first rows of {table} are read by {above.op}, which sees several rows at a time"
        case Limit():
            return f"LIMIT without ORDER BY takes any rows of {table}"
        case _ if user.streamed is not None:
            return f"{user.op} collects the rows of {table} before it begins"
    return f"{user.op} needs all rows of {table}"


def _about_windows(root: Step, user: Window | Combine, table: str) -> str:
    what = "window functions"
    if isinstance(user, Combine):
        what = "sessions" if user.windows.kind == "session" else "windows of so many rows"
    if not user.by:
        return f"{what} without PARTITION BY see all rows of {table}"
    if not can_be_parted(user):
        step = next((step for step in user.walk() if type(step) not in REPEATED), None)
        below = "windows below are of other keys" if step is None else f"{step.op} below may have others for some keys"
        return f"{what} see all rows of {table}, and {below}"
    groups = [step for step in root.walk() if _is_above(step, user) and isinstance(step, Aggregate)]
    if not groups:
        return f"{what} see all rows of {table}, and no groups stand above them"
    if counts_rows(user) and not is_at_scans(limited(user, dealing_of(user))):
        return f"{what} see all rows of {table}, and rows that are left out would be counted several times"
    return f"{what} see all rows of {table}, and the groups above them are not a sample for a part of the keys"


def _is_above(step: Step, below: Step) -> bool:
    return step is not below and any(one is below for one in step.walk())
