"""Which class runs what the planner has found to make progress (`planner/progressive/kinds.py`)."""

from __future__ import annotations

from tsql.backends.local.progressive.group_progress import GroupProgress
from tsql.backends.local.progressive.key_progress import KeyProgress
from tsql.backends.local.progressive.progress import Progress
from tsql.backends.local.progressive.row_progress import RowProgress
from tsql.backends.local.progressive.top_progress import TopProgress
from tsql.planner.progressive.driven import Driven
from tsql.planner.progressive.driven_keys import DrivenKeys
from tsql.planner.progressive.driven_rows import DrivenRows
from tsql.planner.progressive.driven_top import DrivenTop

KINDS: dict[type, type[Progress]] = {
    Driven: GroupProgress,
    DrivenRows: RowProgress,
    DrivenTop: TopProgress,
    DrivenKeys: KeyProgress,
}
