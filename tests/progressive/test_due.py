"""When snapshots are due."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tsql.backends.local.progressive.due import due
from tsql.planner.logical.progression import Progression


def test_snapshots_by_time_are_due_after_what_was_read_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes on only while units are read."""
    now = 0.0
    monkeypatch.setattr("tsql.backends.local.progressive.due.time", SimpleNamespace(perf_counter=lambda: now))
    units: Any = SimpleNamespace(length=1000, all_rows=10**6, certain=0)
    shown = []
    for place, is_shown in due(Progression(3.0 * 10**6, "us"), units, 0.0):
        now = place / 100
        if is_shown:
            shown.append(place)
    assert shown == [300, 600, 900] and place == 990


@pytest.mark.parametrize(
    ("every", "unit", "places"), [(20.0, "percent", [20, 40, 60, 80]), (250, "rows", [25, 50, 75])]
)
def test_snapshots_by_share(every: float, unit: str, places: list[int]) -> None:
    units: Any = SimpleNamespace(length=100, all_rows=1000, certain=0)
    assert list(due(Progression(every, unit), units, 0.0)) == [(place, True) for place in places]


def test_the_clock_is_read_between_snapshots() -> None:
    """A query that stops after a time does not read on to the next snapshot."""
    units: Any = SimpleNamespace(length=1000, all_rows=10**6, certain=0)
    places = list(due(Progression(20.0, "percent", within_us=1), units, 0.0))
    assert [place for place, is_shown in places if is_shown] == [200, 400, 600, 800]
    assert [place for place, is_shown in places if is_shown is None] == [
        place for place in range(10, 1000, 10) if place not in (200, 400, 600, 800)
    ]
