"""examples/pipeline.py: it runs, and compares its answers itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tsql

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]


def test_pipeline(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import pipeline

    try:
        with tsql.connect(spark=spark) as db:
            assert pipeline.run(db, spark, tmp_path, rows=2000)
    finally:
        spark.sql("DROP DATABASE IF EXISTS web CASCADE")
        spark.catalog.dropTempView("pages")
    shown = capsys.readouterr().out
    assert "second run: the same rows, and no more" in shown
    assert all(f"\n{step}: " in shown and f"\n{step}: 0 " not in shown for step in pipeline.STEPS)
