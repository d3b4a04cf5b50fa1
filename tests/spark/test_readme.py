"""What README.md shows of Spark works as it is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_readme import blocks, write_events

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]


def test_spark(spark: Any, tmp_path: Path) -> None:
    """`connect` takes the session that is there. Its executors have folders of their own, so the path is whole here."""
    write_events(tmp_path)
    _, code = blocks("python")
    names: dict[str, Any] = {}
    exec(code.replace("'events/", f"'{tmp_path}/events/"), names)
    assert sorted(names["counts"].fetchall()) == [(1, 3), (2, 2), (3, 1)]
    assert names["frame"].columns == ["ad_id", "n"]
    names["db"].close()
