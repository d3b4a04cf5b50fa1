"""Queries that mutation found (tests/robustness/mutations): each was a traceback, and is refused with its place."""

import pyarrow as pa
import pytest

import tsql
from tests.duck import empty_duckdb
from tsql.kernels.expr.errors import BindError

REFUSED = {
    "SELECT sum(a) OVER (ORDER BY a ROWS DATE '2020-01-01' PRECEDING) FROM t": (37, "DATE cannot be cast to BIGINT"),
    "SELECT sum(a) OVER (ORDER BY a GROUPS BETWEEN TIMESTAMP '2020-01-01' PRECEDING AND 1 FOLLOWING) FROM t": (
        47,
        "TIMESTAMP cannot be cast to BIGINT",
    ),
    "SELECT * FROM repeat(1, DATE '2020-01-01')": (25, "DATE cannot be cast to BIGINT"),
    "SELECT * FROM t LEFT JOIN LATERAL nothing(a) r(b) ON b > 0": (35, "table function nothing does not exist"),
    "SELECT count(*) AS n, sum(n) FROM t": (23, "aggregates cannot be nested"),
    "SELECT count(*) AS n, count(*) FILTER (WHERE n > 1) FROM t": (23, "aggregates cannot be nested"),
    "SELECT count(*) AS n, string_agg(s, ',' ORDER BY n) FROM t": (23, "aggregates cannot be nested"),
}


@pytest.mark.parametrize("sql", REFUSED)
def test_is_refused_with_its_place(sql: str) -> None:
    column, message = REFUSED[sql]
    with tsql.connect() as db:
        db.register("t", pa.table({"a": [1, 2], "s": ["x", "y"]}))
        with pytest.raises(BindError, match=message) as caught:
            db.sql(sql).arrow()
    assert caught.value.line_column == (1, column)


@pytest.mark.parametrize("sql", [sql for sql in REFUSED if "nested" in REFUSED[sql][1] or "repeat" in sql])
def test_the_oracle_refuses_it_too(sql: str) -> None:
    import duckdb

    with empty_duckdb() as duck:
        duck.execute("CREATE TABLE t (a BIGINT, s VARCHAR)")
        with pytest.raises(duckdb.Error):
            duck.sql(sql).fetchall()
