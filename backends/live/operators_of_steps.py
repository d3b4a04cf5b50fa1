"""Chooses the live operator of each step. Steps that are not listed here hold their rows until their input has
ended."""

from __future__ import annotations

from tsql.backends.live.asof import AsofJoins
from tsql.backends.live.count_windows import CountWindows
from tsql.backends.live.fragments import Engine
from tsql.backends.live.full_joins import FullJoins
from tsql.backends.live.groups import Groups
from tsql.backends.live.held_joins import KINDS, Joins, OpenJoins
from tsql.backends.live.limits import Limits
from tsql.backends.live.match_rows import undecidable
from tsql.backends.live.matches import Matches
from tsql.backends.live.operator import Hold, LiveOperator
from tsql.backends.live.panes import Panes, Sessions
from tsql.backends.live.session_rows import SessionRows, has_sessions
from tsql.backends.live.snapshots import Snapshots
from tsql.backends.live.sorts import FirstOfBatch, Sorts
from tsql.backends.live.windows import Windows
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.asof_join import AsofJoin
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.limit import Limit
from tsql.planner.physical.operators.match import Match
from tsql.planner.physical.operators.snapshot import Snapshot
from tsql.planner.physical.operators.sort import Sort
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.step import Step


def operator_of(step: Step, engine: Engine) -> LiveOperator:
    """A new operator for a step that holds rows."""
    match step:
        case Aggregate():
            return Groups(step, engine)
        case Combine() if step.windows.kind in ("hop", "cumulate"):
            return Panes(step, engine)
        case Combine() if step.windows.kind == "session":
            return Sessions(step, engine)
        case Combine():
            return CountWindows(step, engine)
        case Window() if has_sessions(step):
            return SessionRows(step, engine)
        case Window():
            return Windows(step, engine)
        case AsofJoin() if step.kind in ("inner", "left"):
            return AsofJoins(step, engine)
        case HashJoin() if step.kind in KINDS and not isinstance(step, AsofJoin):
            return Joins(step, engine)
        case HashJoin() if step.kind == "full":
            return FullJoins(step, engine)
        case HashJoin() if step.kind in ("mark", "single") and not isinstance(step, AsofJoin):
            return OpenJoins(step, engine)
        case Sort():
            return FirstOfBatch(step, engine) if step.phase == "partial" else Sorts(step, engine)
        case Limit() if not step.is_percentage:
            return Limits(step, engine)
        case Match():
            reason = undecidable(step.spec)
            return Hold(step, engine, reason) if reason else Matches(step, engine)
        case Snapshot():
            return Snapshots(step, engine)
    return Hold(step, engine)
