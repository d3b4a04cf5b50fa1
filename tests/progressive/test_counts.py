"""Rows are read once, whatever makes the progress: what a filter counts is counted once, and a stop has read a part."""

from __future__ import annotations

from typing import Any

import pytest

import tsql

ROWS, WITHOUT = 50_000, 5_000
TABLE = f"""CREATE TABLE t AS SELECT
CASE WHEN i % 10 = 0 THEN NULL ELSE TIMESTAMP '2024-01-01' + i * INTERVAL '1 second' END AS ts,
(hash(i) % 500)::BIGINT AS v FROM range({ROWS}) AS r(i)"""
VALUES = ("count(v)", "median(v)", "count(DISTINCT v)", "corr(v, v * v)")


def asked(value: str) -> str:
    return f"SELECT window_start, {value} AS m FROM TUMBLE(t, ts, INTERVAL '1 hour') GROUP BY window_start PROGRESSIVE"


@pytest.fixture
def db() -> Any:
    with tsql.connect(threads=2) as opened:
        opened.execute(TABLE)
        yield opened


@pytest.mark.parametrize("value", VALUES)
def test_rows_without_a_time(db: Any, value: str) -> None:
    relation = db.sql(asked(value))
    *_, last = relation.snapshots()
    assert last.is_final and relation.counts == {"rows without a time": WITHOUT}


@pytest.mark.parametrize("value", VALUES)
def test_a_stop_has_read_a_part(db: Any, value: str) -> None:
    relation = db.sql(asked(value))
    with relation.snapshots() as snapshots:
        assert not next(snapshots).is_final
    counted = relation.counts.get("rows without a time", 0)
    # By keys, all rows without one are in the first ripple.
    assert counted < WITHOUT or "= progressive total" in relation.explain()
