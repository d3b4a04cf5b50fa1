"""Sessions on the cluster of the folder above."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tsql


@pytest.fixture
def db(spark: Any) -> Iterator[tsql.Session]:
    """A session whose micro-batches have a file each."""
    spark.conf.set("spark.tsql.maxFilesPerTrigger", "1")
    with tsql.connect(spark=spark) as session:
        yield session
    spark.conf.unset("spark.tsql.maxFilesPerTrigger")
