"""Windows, joins in time and lifetimes on a real cluster: the rows are those of the references."""

from __future__ import annotations

from typing import Any

import pytest

import tsql
from tests.temporal.constructs import tables
from tests.temporal.data import to_rows
from tests.temporal.test_constructs import CONSTRUCTS, assert_answers, expected_of

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]
NAMES = (
    "tumble",
    "hop",
    "cumulate",
    "session",
    "session with a largest size",
    "count windows per key",
    "ASOF LEFT JOIN >= TOLERANCE INTERVAL '2 seconds'",
    "snapshot aggregates",
    "temporal left join",
)
"""One of each; `tests/temporal/test_configurations.py` runs all of them through the same tasks in this process."""


@pytest.mark.parametrize("name", NAMES)
def test_construct(spark: Any, name: str) -> None:
    construct = next((c for c in CONSTRUCTS if c.name == name), None)
    if construct is None:
        pytest.fail(f"there is no construct {name}: there are {', '.join(c.name for c in CONSTRUCTS)}")
    data = tables("unsorted", seed=12)
    with tsql.connect(spark=spark) as db:
        for table, rows in data.items():
            db.register(table, rows)
        for statement in construct.setup:
            db.sql(statement)
        assert_answers(construct, to_rows(db.sql(construct.sql).arrow()), expected_of(construct, data))
