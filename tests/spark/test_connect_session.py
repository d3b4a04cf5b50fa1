"""Sources, sinks, hints, changes, settings and plans over Spark Connect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.suites import session

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]


@pytest.mark.parametrize("kind", session.SOURCES)
def test_source(remote: Any, kind: str, tmp_path: Path) -> None:
    session.check_source(remote, kind, tmp_path)


@pytest.mark.parametrize("kind", session.SINKS)
def test_sink(remote: Any, kind: str, tmp_path: Path) -> None:
    session.check_sink(remote, kind, tmp_path)


def test_saved_table(remote: Any, tmp_path: Path) -> None:
    session.check_saved_table(remote, tmp_path)


def test_changes(remote: Any, tmp_path: Path) -> None:
    session.check_changes(remote, tmp_path)


@pytest.mark.parametrize("hint", session.HINTS)
def test_hint(remote: Any, hint: str, tmp_path: Path) -> None:
    session.check_hint(remote, hint, tmp_path)


@pytest.mark.parametrize("name", session.SETTINGS)
def test_settings(remote: Any, name: str, tmp_path: Path) -> None:
    session.check_settings(remote, name, tmp_path)


def test_plans(remote: Any, tmp_path: Path) -> None:
    session.check_plans(remote, tmp_path)
