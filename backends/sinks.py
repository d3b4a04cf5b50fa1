"""`Sinks`: what the tasks of a cluster write by themselves, so that no rows pass through the driver. `Backend.sinks`
gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tsql.backends.io.folders import FolderTarget
from tsql.backends.run import Run

if TYPE_CHECKING:
    from tsql.planner.physical.step import PhysicalPlan


class Sinks(Protocol):
    """Where the result of a plan can go from the tasks that compute it."""

    def write_folder(self, plan: PhysicalPlan, run: Run, target: FolderTarget) -> int:
        """Write a folder of files, all of them or none. Returns the number of rows."""
        ...
