"""`Progression`: what PROGRESSIVE behind a query asks for: how often a snapshot is shown, when to stop, and the chance
that bounds hold."""

from __future__ import annotations

from tsql.kernels.process.quick_dataclass import dataclass

UNITS = ("percent", "rows", "us")
"""The units of `every`: of the input, or microseconds of time."""


@dataclass(frozen=True)
class Progression:
    """every: a snapshot after so many percent of the input, rows or microseconds (`unit`). until_error: stop when the
    relative error of all values is at most this. within_us: stop after this time. confidence: the chance that the
    bounds of a value hold. seed: of the order in which the input is read."""

    every: float = 5.0
    unit: str = "percent"
    until_error: float | None = None
    within_us: int | None = None
    confidence: float = 0.95
    seed: int = 0

    @property
    def may_stop(self) -> bool:
        """Whether the query may end before all of its input has been read."""
        return self.until_error is not None or self.within_us is not None
