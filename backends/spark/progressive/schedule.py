"""How many units a wave of tasks reads. Each core has a unit at least, and after each wave there is a snapshot.

The first wave is small, so that the first answer comes soon. The others follow EVERY; where that is an interval, or
where WITHIN ends the query, by how long a unit has taken so far."""

from __future__ import annotations

import time

from tsql.backends.local.progressive.confidence import LEAST_BATCHES
from tsql.backends.local.progressive.units import Units
from tsql.planner.logical.progression import Progression

SOON = 0.5
"""The first wave is an extra one if it has at most so large a part of the units that EVERY asks for."""

GROWTH = 4
"""By time, a wave has at most so many times the units of the one before: the first ones take longer for each unit."""


class Schedule:
    """Of the units of one run, on a cluster with so many cores."""

    def __init__(self, spec: Progression, units: Units, cores: int, begun: float):
        self.spec, self.units, self.least, self.begun = spec, units, max(1, cores), begun
        self.last = self.before = 0
        self.size = 0

    def next(self) -> int:
        """How many units have been read after the next wave."""
        units, before = self.units, self.last
        size = self._first() if before == 0 else max(self.least, min(self._asked(), self._in_time()))
        self.size = size
        self.last = min(units.length, before + size)
        if units.length - self.last < self.least:
            # A wave of what little is left would leave cores idle.
            self.last = units.length
        return self.last

    def _first(self) -> int:
        units = self.units
        soon = max(self.least, LEAST_BATCHES)
        if self.spec.unit != "us":
            due = round(self._share * units.length)
            soon = soon if soon <= SOON * due else max(self.least, due)
        return units.certain + soon

    @property
    def _share(self) -> float:
        spec = self.spec
        return spec.every / 100 if spec.unit == "percent" else spec.every / max(1, self.units.all_rows)

    def _asked(self) -> int:
        """The units until the next snapshot is due."""
        if self.spec.unit == "us":
            return min(GROWTH * self.size, int(self.spec.every / 1e6 * self._speed))
        step = max(self.least, self._share * self.units.length)
        number = int((self.last + 0.5) // step) + 1
        return round(number * step) - self.last

    def _in_time(self) -> int:
        """The units that can be read before the query stops."""
        if self.spec.within_us is None:
            return self.units.length
        left = self.spec.within_us / 1e6 - (time.perf_counter() - self.begun)
        return max(0, min(GROWTH * self.size, int(left * self._speed)))

    @property
    def _speed(self) -> float:
        """Units in a second, so far."""
        return self.last / max(1e-6, time.perf_counter() - self.begun)
