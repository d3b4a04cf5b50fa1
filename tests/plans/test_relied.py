"""Plans that hold only while columns have no NULLs say so, and are refused once they have some: a kept plan never gives
another answer than its query."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.duck import empty_duckdb
from tsql.kernels.expr.errors import PlanError

TABLES = (
    "CREATE TABLE t AS SELECT * FROM (VALUES (1, 1), (2, 1), (3, 2)) v(a, c)",
    "CREATE TABLE u AS SELECT * FROM (VALUES (1, 1), (5, 2)) v(b, c)",
)
QUERIES = {
    "not in": "SELECT a FROM t WHERE a NOT IN (SELECT b FROM u)",
    "not in, correlated": "SELECT a FROM t WHERE a NOT IN (SELECT b FROM u WHERE u.c = t.c)",
    "not any": "SELECT a FROM t WHERE NOT a = ANY (SELECT b FROM u)",
    "all": "SELECT a FROM t WHERE a < ALL (SELECT b FROM u WHERE u.c = t.c)",
    "in, shown": "SELECT a, a IN (SELECT b FROM u) AS e FROM t",
    "in, unknown": "SELECT a FROM t WHERE (a IN (SELECT b FROM u WHERE u.c = t.c)) IS NULL",
    "exists, shown": "SELECT a, EXISTS (SELECT 1 FROM u WHERE u.b = t.a) AS e FROM t",
    "not exists": "SELECT a FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.b = t.a)",
    "scalar": "SELECT a, (SELECT count(*) FROM u WHERE u.b = t.a) AS n FROM t",
    "in a case": "SELECT a, CASE WHEN a NOT IN (SELECT b FROM u WHERE u.c = t.c) THEN 1 ELSE 0 END AS e FROM t",
    "lateral": "SELECT t.a, x.m FROM t, LATERAL (SELECT max(b) AS m FROM u WHERE u.c = t.c) x",
    "except": "SELECT a FROM t EXCEPT SELECT b FROM u",
    "no subquery": "SELECT t.a, u.b FROM t LEFT JOIN u ON t.c = u.c",
}
CHANGES = (
    "INSERT INTO u VALUES (NULL, 1)",
    "INSERT INTO t VALUES (NULL, 1)",
    "INSERT INTO u VALUES (3, NULL)",
    "INSERT INTO t VALUES (7, NULL)",
)


@pytest.mark.parametrize("optimizer", [True, False], ids=["", "no optimizer"])
@pytest.mark.parametrize("name", QUERIES)
def test_a_kept_plan_is_right_or_refused(name: str, optimizer: bool) -> None:
    sql = QUERIES[name]
    for change in CHANGES:
        with tsql.connect(optimizer=optimizer) as db, empty_duckdb() as duck:
            for statement in TABLES:
                db.execute(statement)
                duck.execute(statement)
            kept = tsql.load_plan_text(db.sql(sql).plan())
            assert sorted(map(repr, kept.run(db).fetchall())) == sorted(map(repr, duck.sql(sql).fetchall()))
            db.execute(change)
            duck.execute(change)
            expected = sorted(map(repr, duck.sql(sql).fetchall()))
            assert sorted(map(repr, db.sql(sql).fetchall())) == expected, "a query is planned again"
            try:
                found = sorted(map(repr, kept.run(db).fetchall()))
            except PlanError:
                continue
            assert found == expected, change


def test_the_refusal_names_the_column_and_the_line() -> None:
    with tsql.connect() as db:
        for statement in TABLES:
            db.execute(statement)
        text = db.sql(QUERIES["not in"]).plan()
        assert "filled=(a)" in text and "filled=(b)" in text
        assert tsql.load_plan_text(text).run(db).plan() == text
        db.execute(CHANGES[0])
        with pytest.raises(PlanError, match="relies on b of u to hold no NULL") as caught:
            tsql.load_plan_text(text).run(db)
        assert caught.value.line_column is not None
        with pytest.raises(PlanError, match="filled: the scan has no column z"):
            tsql.load_plan_text(text.replace("filled=(a)", "filled=(z)")).run(db)


def test_plans_without_such_a_condition_say_nothing() -> None:
    with tsql.connect() as db:
        for statement in TABLES:
            db.execute(statement)
        assert "filled" not in db.sql(QUERIES["no subquery"]).plan()


def test_statistics_of_files_count_too(tmp_path: Path) -> None:
    """The schema of a file allows NULLs, its footer says that there are none; another file takes its place."""
    pq.write_table(pa.table({"b": pa.array([1, 5])}), tmp_path / "u.parquet")
    with tsql.connect() as db:
        db.execute(TABLES[0])
        sql = f"SELECT a FROM t WHERE a NOT IN (SELECT b FROM '{tmp_path}/u.parquet')"
        kept = tsql.load_plan_text(db.sql(sql).plan())
        assert sorted(kept.run(db).fetchall()) == [(2,), (3,)]
        pq.write_table(pa.table({"b": pa.array([1, None])}), tmp_path / "u.parquet")
        assert db.sql(sql).fetchall() == []
        with pytest.raises(PlanError, match="to hold no NULL"):
            kept.run(db).fetchall()
