"""Fixtures of the tests of live sources and sinks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live.postgres import Server, programs, server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """A PostgreSQL server for all tests of this process. A test that kills it starts it again."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed: run .ci/postgres")
    with server() as running:
        yield running


@pytest.fixture
def postgres(postgres_server: Server) -> str:
    """The address of a new, empty database."""
    return postgres_server.database()
