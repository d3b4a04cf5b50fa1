"""Units of few rows, so that small tables have many of them."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsql.backends.local.progressive.units.LEAST_ROWS", 32)
    monkeypatch.setattr("tsql.backends.local.progressive.units.MOST_ROWS", 64)
