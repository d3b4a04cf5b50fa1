"""Columns that are called as attributes of steps are, or as words of SQL: plan files round-trip."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tsql
from tsql.planner.physical.planfile import parse_plan

NAMES = (
    "id",
    "by",
    "phase",
    "size",
    "start",
    "kind",
    "over",
    "first",
    "where",
    "order",
    "offset",
    "on",
    "lifetime",
    "ends",
)
QUERIES = (
    'SELECT k, count(*) AS "{0}" FROM HOP(t, ts, INTERVAL 1 SECOND, INTERVAL 3 SECONDS) GROUP BY k, window_start',
    'SELECT k, count(*) AS "{0}" FROM t GROUP BY k',
    'SELECT k, sum(v) OVER (PARTITION BY k) AS "{0}" FROM t',
    'SELECT k, count(*) AS "{0}" FROM SLIDE(t, ts, INTERVAL 1 SECOND) GROUP BY k',
    'SELECT "{0}" FROM (SELECT k + 1 AS "{0}", count(*) AS c FROM t GROUP BY 1)',
    'SELECT k + v AS "{0}" FROM t',
)


@pytest.mark.parametrize("name", NAMES)
def test_columns_with_names_of_attributes(name: str) -> None:
    with tsql.connect(shards=3) as session:
        session.register("t", pa.table({"k": [1, 2], "v": [1, 2], "ts": pa.array([1, 2], pa.timestamp("us"))}))
        for query in QUERIES:
            text = session.sql(query.format(name)).plan()
            assert parse_plan(text, session.catalog).text() == text


def test_a_quoted_name_is_no_attribute() -> None:
    with tsql.connect(shards=1) as session:
        session.register("t", pa.table({"k": [1, 2]}))
        text = session.sql("SELECT k FROM t WHERE k > 1").plan()
        with pytest.raises(tsql.PlanError, match=r"where=\.\. is missing|unknown attribute where"):
            parse_plan(text.replace("filter t where=", 'filter t "where"='), session.catalog)
