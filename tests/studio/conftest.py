"""A studio over small tables, whose queries nevertheless have many snapshots."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import tsql
from tests.studio.page import GatedBackend, Page, opened
from tsql.backends import Settings
from tsql.session import Session
from tsql.studio import Studio, serve

ROWS = 9_000


def table() -> pa.Table:
    rng = np.random.default_rng(3)
    return pa.table({
        "g": [f"g{i % 4}" for i in range(ROWS)],
        "k": pa.array(rng.integers(0, 50, ROWS)),
        "x": pa.array(rng.integers(0, 400, ROWS) / 4),  # sums are exact in any order
    })  # fmt: skip


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsql.backends.local.progressive.units.LEAST_ROWS", 32)
    monkeypatch.setattr("tsql.backends.local.progressive.units.MOST_ROWS", 64)


@pytest.fixture
def db() -> Iterator[tsql.Session]:
    with tsql.connect(threads=2) as session:
        session.register("t", table())
        yield session


@pytest.fixture
def studio(db: tsql.Session) -> Iterator[Studio]:
    with db.studio() as found:
        yield found


@pytest.fixture
def page(studio: Studio) -> Iterator[Page]:
    with opened(studio) as found:
        yield found


@pytest.fixture
def backend() -> GatedBackend:
    return GatedBackend()


@pytest.fixture
def gated(backend: GatedBackend) -> Iterator[Studio]:
    """A studio whose snapshots wait for the gate of `backend`."""
    with Session(backend, Settings(threads=2)) as session:
        session.register("t", table())
        with serve(session) as found:
            yield found
