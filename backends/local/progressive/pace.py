"""Which snapshots are left out: those that would take more than half as long as the rest of the rows.

The cost of a snapshot follows the number of groups. A query with millions of groups may be over before its first
snapshot would be, and what comes later than the exact result is of no use. The time of the rest is that of the rows so
far, by their share. Since that only falls, there are no further snapshots once one is left out."""

from __future__ import annotations

GROUP_SECONDS = 0.3e-6
"""What a group of a snapshot takes, before there was one."""

LEFT_OUT = "snapshots that would take longer than the rest of the query are left out"

FEW_GROUPS = 10_000
"""A snapshot of no more groups is never left out: it takes a few milliseconds, whatever they are."""


class Pace:
    """Of one run."""

    def __init__(self) -> None:
        self.reading = 0.0
        self.per_group = GROUP_SECONDS
        self.shown = self.left_out = 0

    def read(self, seconds: float) -> None:
        """Rows were read for so long."""
        self.reading += seconds

    def showed(self, seconds: float, groups: int) -> None:
        """A snapshot has taken so long. The first one made the kernels for all."""
        self.shown += 1
        if self.shown > 1:
            self.per_group = seconds / max(1, groups)

    def allows(self, groups: int, share: float) -> bool:
        """Whether a snapshot is shown now, where this share of the rows was read."""
        rest = self.reading * (1.0 - share) / share
        found = groups <= FEW_GROUPS or self.per_group * groups <= rest / 2
        self.left_out += not found
        return found
