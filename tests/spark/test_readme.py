"""What README.md and docs/spark.md show of Spark works as it is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_readme import ROOT, blocks, write_events

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]


def test_spark(spark: Any, tmp_path: Path) -> None:
    """`connect` takes the session that is there. Its executors have folders of their own, so the path is whole here."""
    write_events(tmp_path)
    *_, code = blocks("python")
    names: dict[str, Any] = {}
    exec(code.replace("'events/", f"'{tmp_path}/events/"), names)
    assert sorted(names["counts"].fetchall()) == [(1, 3), (2, 2), (3, 1)]
    assert names["frame"].columns == ["ad_id", "n"]
    names["db"].close()


def test_ten_lines(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a table of Spark's catalog to a DataFrame."""
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    code = page.split("```python\n")[1].split("```")[0]
    spark.sql(f"CREATE DATABASE shop LOCATION '{tmp_path.as_uri()}'")
    try:
        orders = spark.createDataFrame([("ann", 90.0), ("bob", 5.0), ("ann", 30.0)], "customer string, price double")
        orders.write.saveAsTable("shop.orders")
        people = spark.createDataFrame([("ann", "DE"), ("bob", "FR")], "customer string, country string")
        people.write.saveAsTable("shop.customers")
        names: dict[str, Any] = {}
        exec(code, names)
        assert sorted(names["spent"].fetchall()) == [("ann", 120.0), ("bob", 5.0)]
        assert "|     ann|120.0|     DE|" in capsys.readouterr().out
        names["db"].close()
    finally:
        spark.sql("DROP DATABASE shop CASCADE")
