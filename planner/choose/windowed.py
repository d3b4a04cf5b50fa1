"""Windows over the rows of a key: sessions, windows of so many rows, window functions over partitions. None of them is
known before all rows of its key are, so no scan makes progress. A part of the keys has all of its windows."""

from __future__ import annotations

from collections.abc import Iterator

from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.step import Step
from tsql.planner.progressive.driven_keys import Grouped, can_be_parted, dealing_of
from tsql.planner.progressive.part_filters import counts_rows, is_at_scans, limited


def windowed(root: Step) -> Iterator[Grouped]:
    """The steps over windows whose keys can make progress, the topmost ones first."""
    for step in reversed(list(root.walk())):
        if isinstance(step, Grouped) and can_be_parted(step) and _has_windows(step):
            rows = limited(step, dealing_of(step))
            if is_at_scans(rows) or not counts_rows(rows):
                yield step


def _has_windows(step: Step) -> bool:
    return any(isinstance(one, Combine | Window) for one in step.walk())
