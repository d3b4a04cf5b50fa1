"""PROGRESSIVE queries over Spark Connect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tsql
from tests.spark.test_progressive_cluster import assert_final, duck, fill, path

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]

__all__ = ["duck", "path"]


def test_spark_connect(remote: Any, path: Path, duck: Any) -> None:
    with tsql.connect(spark=remote) as db:
        fill(db, "parquet", path)
        assert_final(db, duck, least=3)
