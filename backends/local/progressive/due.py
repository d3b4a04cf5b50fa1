"""When snapshots are due: after how many units of the sample, in the order in which they are read.

A query that stops when its error is small looks at growing intervals besides, and shows what it sees only if it stops.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from tsql.backends.local.progressive.units import Units
from tsql.planner.logical.progression import Progression

SLICE = 100
"""Where snapshots are due by time, the clock is read after so many parts of the input."""

FIRST_LOOK, LOOK_GROWTH = 16, 1.5
"""A query that stops when its error is small looks after so many units, and each time when there are so many times as
many as at the last look."""


def due(spec: Progression, units: Units, begun: float) -> Iterator[tuple[int, bool | None]]:
    """After how many units a snapshot is due, and whether it is shown; None: it is not due, the clock is read then.
    `begun`: when the run began."""
    looks = _looks(units) if spec.until_error is not None else iter(())
    look = next(looks, None)
    places = _shown(spec, units, begun)
    for place, is_shown in places if spec.within_us is None else _clocked(places, units):
        while look is not None and look < place:
            yield look, False
            look = next(looks, None)
        yield place, is_shown


def _clocked(places: Iterator[tuple[int, bool | None]], units: Units) -> Iterator[tuple[int, bool | None]]:
    """These places, with others between them where the clock is read."""
    step, last = max(1, units.length // SLICE), 0
    for place, is_shown in places:
        yield from ((between, None) for between in range(last + step, place, step))
        yield place, is_shown
        last = place
    yield from ((between, None) for between in range(last + step, units.length, step))


def _looks(units: Units) -> Iterator[int]:
    read = float(FIRST_LOOK)
    while units.certain + read < units.length:
        yield units.certain + round(read)
        read *= LOOK_GROWTH


def _shown(spec: Progression, units: Units, begun: float) -> Iterator[tuple[int, bool | None]]:
    length = units.length
    if spec.unit == "us":
        step, next_at = max(1, length // SLICE), spec.every / 1e6
        for last in range(step, length, step):
            yield last, None
            if time.perf_counter() - begun >= next_at:
                yield last, True
                next_at = time.perf_counter() - begun + spec.every / 1e6
        return
    share = spec.every / 100 if spec.unit == "percent" else spec.every / max(1, units.all_rows)
    number, last = 1, 0
    while number * share < 1:
        place = max(last + 1, round(number * share * length))
        if place >= length:
            return
        yield place, True
        number, last = number + 1, place
