"""The kinds of progress that a plan can make. The first one that fits is taken."""

from __future__ import annotations

from collections.abc import Callable

from tsql.planner.physical.step import Step
from tsql.planner.progressive.driven import Driven, driven
from tsql.planner.progressive.driven_keys import DrivenKeys, driven_keys
from tsql.planner.progressive.driven_rows import DrivenRows, driven_rows, driven_states
from tsql.planner.progressive.driven_top import DrivenTop, driven_top

Found = Driven | DrivenRows | DrivenTop | DrivenKeys
"""What makes the progress of a plan."""

FINDERS: tuple[Callable[[Step], Found | None], ...] = (
    driven_states,
    driven,
    driven_rows,
    driven_top,
    driven_keys,
)


def progress_of(root: Step) -> Found | None:
    """What makes the progress of a plan; None if it has no step that makes progress, or none that can show it."""
    return next((found for find in FINDERS if (found := find(root)) is not None), None)
