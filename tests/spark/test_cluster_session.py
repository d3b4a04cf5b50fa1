"""Sources, sinks, hints, changes, settings and plans on a real cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.suites import session

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]


@pytest.mark.parametrize("kind", session.SOURCES)
def test_source(spark: Any, kind: str, tmp_path: Path) -> None:
    session.check_source(spark, kind, tmp_path)


@pytest.mark.parametrize("kind", session.SINKS)
def test_sink(spark: Any, kind: str, tmp_path: Path) -> None:
    session.check_sink(spark, kind, tmp_path)


def test_saved_table(spark: Any, tmp_path: Path) -> None:
    session.check_saved_table(spark, tmp_path)


def test_changes(spark: Any, tmp_path: Path) -> None:
    session.check_changes(spark, tmp_path)


@pytest.mark.parametrize("hint", session.HINTS)
def test_hint(spark: Any, hint: str, tmp_path: Path) -> None:
    session.check_hint(spark, hint, tmp_path)


@pytest.mark.parametrize("name", session.SETTINGS)
def test_settings(spark: Any, name: str, tmp_path: Path) -> None:
    session.check_settings(spark, name, tmp_path)


def test_plans(spark: Any, tmp_path: Path) -> None:
    session.check_plans(spark, tmp_path)
