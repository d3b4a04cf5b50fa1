"""Subqueries in expressions: plans, names of results and errors. Rows are checked in `test_corpus.py`."""

from __future__ import annotations

import pytest

from tests.duck import empty_duckdb
from tests.frontend.relations import TABLES, catalog, kinds, plan_of, read_golden, write_golden
from tsql.analyze.statements import analyze
from tsql.catalog.catalog import Catalog
from tsql.kernels.expr.errors import BindError
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.nodes import show
from tsql.tpch import data
from tsql.tpch.queries import queries

PLANS = read_golden("subqueries")


@pytest.mark.parametrize("text", PLANS)
def test_plan(text, regen):
    if regen:
        write_golden("subqueries", list(PLANS))
    assert show(plan_of(text)) == read_golden("subqueries")[text]


ERRORS = [
    ("SELECT (SELECT k, x FROM a)", 8, "Subquery returns 2 columns - expected 1"),
    ("SELECT x IN (SELECT k, y FROM b) FROM a", 8, "Subquery returns 2 columns - expected 1"),
    ("SELECT (k, x) IN (SELECT k FROM b) FROM a", 8, "Subquery returns 1 columns - expected 2"),
    ("SELECT x IN (SELECT 'a') FROM a", 8, "Cannot compare values of type INTEGER and VARCHAR in IN/ANY/ALL clause"),
    ("SELECT x > ALL (SELECT 'a') FROM a", 8, "Cannot compare values of type INTEGER and VARCHAR in IN/ANY/ALL clause"),
    ("SELECT (k, x) < ANY (SELECT k, x FROM d) FROM a", 8, "rows are compared by = and <>, not by <"),
    ("SELECT x + ANY (SELECT 1) FROM a", 12, "ANY stands behind a comparison with a subquery"),
    ("SELECT x FROM a WHERE x = (SELECT nosuch FROM b)", 35, 'column "nosuch" does not exist'),
    ("SELECT x FROM a WHERE x = (SELECT q.k FROM b)", 35, 'there is no table "q" in FROM'),
    ("SELECT x FROM a WHERE x = (SELECT b.z FROM b)", 37, 'table "b" has no column "z"'),
    ("SELECT k, (SELECT max(y) FROM b WHERE b.k = a.x) FROM a GROUP BY k", 45,
     'column "x" must appear in the GROUP BY clause'),
    ("SELECT k + 1, (SELECT a.k + 1) FROM a GROUP BY k + 1", 23, 'column "k" must appear in the GROUP BY clause'),
    ("SELECT x, (SELECT sum(a.x)) FROM a", 8, 'column "x" must appear in the GROUP BY clause'),
    ("SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE sum(a.x) > 1)", 53, "an aggregate is not allowed in WHERE"),
    ("SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE sum(b.y) > 1)", 53, "an aggregate is not allowed in WHERE"),
    ("SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b JOIN d ON sum(a.x) > 1)", 57,
     "an aggregate is not allowed in WHERE"),
    ("SELECT x FROM a LIMIT (SELECT x)", 31, 'column "x" does not exist'),
    ("SELECT x FROM a LIMIT (SELECT 1, 2)", 23, "Subquery returns 2 columns - expected 1"),
    ("SELECT x FROM a LIMIT (SELECT DATE '2020-01-01')", 23, "LIMIT takes a number, not DATE"),
    ("SELECT x FROM a WHERE x = (VALUES (1), (2, 3))", None, "all rows of VALUES need the same number of columns"),
    ("SELECT (SELECT 1) q FROM nosuch", 26, 'table "nosuch" does not exist'),
    ("SELECT x FROM a WHERE k IN (SELECT k FROM nosuch)", 43, 'table "nosuch" does not exist'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "column", "message"), ERRORS, ids=[e[0] for e in ERRORS])
def test_error(text, column, message):
    with pytest.raises(BindError) as caught:
        analyze(text, catalog())
    assert caught.value.message.startswith(message)
    assert caught.value.line_column is not None
    if column is not None:
        assert caught.value.line_column == (1, column)


NAMES = """
SELECT (SELECT 1)
SELECT (((SELECT 1)))
SELECT (SELECT max(x) AS m FROM a) + 1
SELECT -(SELECT 1), NOT (SELECT true), (SELECT 1)::BIGINT, (SELECT 1) IS NULL
SELECT (SELECT a.x FROM b LIMIT 1), x FROM a
SELECT x IN (SELECT y FROM b), x NOT IN (SELECT y FROM b) FROM a
SELECT x = ANY (SELECT y FROM b), x > ALL (SELECT y FROM b), x <> SOME (SELECT y FROM b), x = ALL (SELECT 1) FROM a
SELECT (k, x) IN (SELECT k, y FROM b) FROM a
SELECT 1 IN (SELECT 1) AND 2 IN (VALUES (2))
SELECT EXISTS (SELECT 1), NOT EXISTS (FROM a)
SELECT EXISTS (SELECT 1 FROM a JOIN b ON a.k = b.k AND a.x > 1)
SELECT EXISTS (SELECT 1 FROM a LEFT OUTER JOIN b USING (k) NATURAL FULL JOIN d)
SELECT EXISTS (SELECT 1 FROM a SEMI JOIN b USING (k) ANTI JOIN d ON a.k = d.k)
SELECT EXISTS (SELECT 1 FROM a, b AS "A b", (b JOIN d USING (k)) CROSS JOIN a a2)
SELECT EXISTS (SELECT 1 FROM a JOIN (b JOIN d USING (k)) ON a.k = b.k), EXISTS (SELECT 1 FROM (a JOIN b USING (k)) j)
SELECT EXISTS (SELECT 1 FROM a, LATERAL (SELECT a.x) q), EXISTS (SELECT 1 FROM (VALUES (1), (2)) v(z))
SELECT EXISTS (SELECT count(*) c, sum(DISTINCT x) FROM a GROUP BY k HAVING count(*) > 1 \
ORDER BY 1, 2 DESC NULLS FIRST LIMIT 5 OFFSET 1)
SELECT EXISTS (SELECT k FROM a GROUP BY ALL), EXISTS (SELECT k FROM a GROUP BY GROUPING SETS ((k), (k, x), ())), \
EXISTS (SELECT 1 FROM a GROUP BY ROLLUP (k, x))
SELECT EXISTS (SELECT DISTINCT ON (k) * EXCLUDE (k) FROM a ORDER BY ALL), \
EXISTS (SELECT DISTINCT t.* REPLACE (1 AS x) FROM a t)
SELECT EXISTS (SELECT x FROM a UNION SELECT y FROM b EXCEPT ALL SELECT 3 ORDER BY 1), EXISTS (SELECT 1 AS q \
UNION ALL BY NAME SELECT 2 AS q)
SELECT EXISTS (WITH c AS (SELECT 1), e(q) AS MATERIALIZED (SELECT 2) SELECT * FROM c, e)
SELECT EXISTS (SELECT CASE WHEN k = 1 THEN 2 END, x::BIGINT, 'it''s' FROM main.a \
WHERE x BETWEEN 1 AND 2 OR k IS NOT NULL)
SELECT CASE WHEN x > 1 THEN (SELECT max(y) FROM b) ELSE (SELECT 1) END FROM a
SELECT sum((SELECT y FROM b WHERE b.k = a.k)) FROM a
SELECT count(*) FILTER (WHERE k IN (SELECT k FROM b)) FROM a
SELECT coalesce((SELECT 1), 2), (SELECT 1) BETWEEN 0 AND 2
"""


@pytest.fixture(scope="module")
def duck():
    connection = empty_duckdb()
    for name, columns in TABLES.items():
        connection.execute(f"CREATE TABLE {name} ({', '.join(f'{c} {t}' for c, t in columns)})")
    return connection


@pytest.mark.parametrize("text", NAMES.strip().splitlines())
def test_names_are_those_of_duckdb(duck, text):
    assert list(plan_of(text).names) == duck.sql(text).columns


def test_equal_subqueries_are_one():
    text = (
        "SELECT (SELECT max(y) FROM b WHERE b.k = a.k), count(*) FROM a GROUP BY (SELECT max(y) FROM b WHERE b.k = a.k)"
    )
    assert kinds(plan_of(text)) == ["apply single"]
    assert kinds(plan_of("SELECT k IN (SELECT k FROM b) FROM a WHERE k IN (SELECT k FROM b)")) == ["apply mark"]


def test_a_shared_cte_stays_shared_in_subqueries():
    plan = plan_of(
        "WITH c AS (SELECT k, max(y) AS m FROM b GROUP BY k) SELECT (SELECT m FROM c WHERE c.k = a.k) FROM "
        "a WHERE k IN (SELECT k FROM c)"
    )
    assert len({id(n) for n in plan.walk() if isinstance(n, logical.Aggregate)}) == 1


def test_a_correlated_cte_stays_shared_when_its_query_groups():
    text = (
        "SELECT k, (WITH c AS (SELECT y FROM b WHERE b.k = a.k AND y > sum(a.x)) SELECT max(p.y + q.y) FROM "
        "c p, c q) FROM a GROUP BY k"
    )
    plan = plan_of(text)
    assert sum(isinstance(n, logical.Filter) for n in plan.walk()) == 1
    assert logical.show(plan).count("filter") == 2


def test_subqueries_of_a_cte_mean_their_own_outer_columns():
    """`outer.k` inside of the CTE is a column of the CTE's table, though the query around has a `k` that it must not
    use."""
    text = (
        "WITH c AS (SELECT k FROM a z WHERE EXISTS (SELECT 1 FROM b WHERE b.k = z.k)) SELECT sum(x), (SELECT "
        "count(*) FROM c) FROM a"
    )
    assert kinds(plan_of(text)) == ["apply single", "apply mark"]


def test_deep_nesting():
    depth = 30
    text = (
        "SELECT x FROM a t0 WHERE "
        + "".join(f"EXISTS (SELECT 1 FROM a t{i} WHERE t{i}.k = t{i - 1}.k AND " for i in range(1, depth))
        + "true"
        + ")" * (depth - 1)
    )
    assert kinds(plan_of(text)) == ["apply mark"] * (depth - 1)


def test_tpch_queries_are_understood():
    tables = Catalog()
    for name, path in data.tables(0.01).items():
        tables.add(name, tables.open_file(str(path)))
    found = {}
    for number, text in queries().items():
        plan = analyze(text, tables)[-1].plan
        found[number] = (len([k for k in kinds(plan) if "apply" not in k]), [k for k in kinds(plan) if "apply" in k])
    assert len(found) == 22
    assert found[2] == (7, ["apply single"])
    assert found[21] == (3, ["apply mark", "apply mark"])
    assert found[13] == (1, [])
