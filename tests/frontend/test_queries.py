"""Names and types of whole queries are DuckDB's, which runs beside; plans have the shape that is meant."""

from __future__ import annotations

import pytest

from tests.frontend.support import FakeView, catalog, oracle, oracle_types, plan, result_types
from tsql.analyze import kinds as statements
from tsql.analyze.statements import analyze
from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.types import BIGINT, DATE, INTEGER, VARCHAR
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.nodes import show

QUERIES = """
SELECT * FROM t
SELECT t.*, a FROM t
SELECT * EXCLUDE (a, ts) FROM t
SELECT * EXCLUDE a FROM t
SELECT * REPLACE (a + 1 AS a, s || 'x' AS s) FROM t
SELECT * RENAME (a AS z) FROM t
SELECT COLUMNS('[ab]') FROM t
SELECT COLUMNS(*) FROM t
SELECT min(COLUMNS('^[abx]$')) FROM t
SELECT COLUMNS(* EXCLUDE (a)) FROM t
SELECT COLUMNS('^a$') + 1 FROM t
SELECT A, "A b", cc FROM t
SELECT main.t.a FROM t
SELECT u.a FROM t AS u
SELECT u.* FROM t u
FROM t
FROM t SELECT s
FROM t SELECT s WHERE a > 1
SELECT 1, 'a', 1.5, NULL, true
SELECT 1 AS x, x + 1 AS y, y * 2
SELECT a + 1 AS x, x + 1 AS y FROM t WHERE y > 3
SELECT a + 1 AS a, a + 1 AS z FROM t
SELECT x: a, b FROM t
SELECT a x FROM t
SELECT count(*), count(a), sum(a), min(s), max(d) FROM t
SELECT sum(a) FILTER (WHERE b > 1) FROM t
SELECT count(DISTINCT s) FROM t
SELECT s, count(*) FROM t GROUP BY s
SELECT s, count(*) FROM t GROUP BY 1
SELECT upper(s) AS k, count(*) FROM t GROUP BY k ORDER BY k
SELECT a % 2 AS k, count(*) FROM t GROUP BY ALL HAVING k = 1
SELECT s, sum(a) AS b FROM t GROUP BY s HAVING b > 3
SELECT s FROM t GROUP BY s ORDER BY sum(a) DESC
SELECT (a + 1) * 2, count(*) FROM t GROUP BY a + 1
SELECT a + sum(b) FROM t GROUP BY a
SELECT max(a) AS top, top + 1 FROM t
SELECT 'k', count(*) FROM t GROUP BY 1
SELECT 1 AS x FROM t GROUP BY x
SELECT * FROM t GROUP BY ALL
SELECT s, a, grouping(s, a), count(*) FROM t GROUP BY CUBE (s, a) ORDER BY ALL
SELECT s, grouping_id(s), count(*) FROM t GROUP BY ROLLUP (s)
SELECT s, count(*) FROM t GROUP BY GROUPING SETS ((s), (s, a), ())
SELECT s, a, b, count(*) FROM t GROUP BY s, ROLLUP ((a, b))
SELECT count(*) FROM t HAVING count(*) > 1
SELECT DISTINCT s, a FROM t ORDER BY a
SELECT DISTINCT s FROM t ORDER BY a
SELECT DISTINCT ON (s) s, a FROM t ORDER BY a DESC
SELECT DISTINCT ON (1) s, a FROM t
SELECT a FROM t ORDER BY a + b, s DESC NULLS FIRST LIMIT 10 OFFSET 2
SELECT a FROM t ORDER BY ALL
SELECT a, b AS a FROM t ORDER BY a
SELECT a FROM t LIMIT 1 + 1
SELECT a FROM t LIMIT NULL
SELECT a FROM t FETCH FIRST 5 ROWS ONLY
VALUES (1, 'a'), (2, NULL)
VALUES (1, 2.5), (2, 3) ORDER BY 1
SELECT * FROM (VALUES (1, 2)) AS v(x, y)
SELECT * FROM (VALUES (1, 2))
SELECT * FROM (SELECT 1 AS a, 2 AS a)
SELECT a FROM (SELECT 1 AS a, 2 AS a)
SELECT * FROM (SELECT a, a, a + 1, a + 1 FROM t)
SELECT "(a + 1)" FROM (SELECT a + 1 FROM t)
SELECT * FROM (SELECT 1, 2) v(x)
SELECT x FROM (SELECT a AS x FROM t ORDER BY b LIMIT 3) q WHERE q.x > 1
WITH c(x) AS (SELECT 1, 2) SELECT * FROM c
WITH c AS (SELECT a FROM t), d AS (SELECT a + 1 AS b FROM c) SELECT * FROM d
WITH t AS (SELECT 1 AS one) SELECT * FROM t
WITH c AS (SELECT 1 AS x) SELECT x FROM c UNION ALL SELECT x + 1 FROM c
WITH unused AS (SELECT 1) SELECT 2
SELECT 1 UNION SELECT 'a'
SELECT NULL UNION ALL SELECT 'x'
SELECT 1 AS x UNION ALL SELECT 2.5 ORDER BY x + 1
SELECT a FROM t UNION ALL SELECT b FROM t ORDER BY b
SELECT a, s FROM t UNION BY NAME SELECT s, x FROM t
SELECT a FROM t EXCEPT SELECT b FROM t
SELECT a FROM t EXCEPT ALL SELECT b FROM t
SELECT a FROM t INTERSECT ALL SELECT b FROM t
SELECT a FROM t UNION SELECT b FROM t INTERSECT SELECT 1
(SELECT a FROM t) UNION (SELECT b FROM t ORDER BY b LIMIT 1) ORDER BY 1
SELECT a, d FROM t UNION ALL SELECT x, ts FROM t
(SELECT a FROM t LIMIT 3) LIMIT 1
SELECT * FROM t WHERE a
SELECT a FROM t WHERE s = 'x' AND d >= '2020-01-01' AND a IN (1, 2, 3)
SELECT count(*) AS c FROM t ORDER BY c + 1
SELECT sum(m * (1 - m)) AS revenue FROM t WHERE m BETWEEN 0.05 AND 0.07
TABLE t
SELECT a FROM t ORDER BY a LIMIT 50%
SELECT a, a AS c, count(*) AS n FROM t GROUP BY ROLLUP (1, 2) ORDER BY ALL
SELECT s FROM t ORDER BY s COLLATE nocase, a
"""


@pytest.fixture(scope="module")
def duck():
    return oracle()


@pytest.mark.parametrize("text", QUERIES.strip().splitlines())
def test_names_and_types(duck, text):
    theirs = oracle_types(duck, text)
    assert theirs is not None
    query = plan(text)
    assert list(query.plan.names) == theirs[0]
    assert result_types(query) == theirs[1]
    for node in query.plan.walk():
        assert len(set(node.schema.names)) == len(node.schema.names)


def tree(text: str, **kwargs) -> str:
    return show(plan(text, **kwargs).plan)


def test_plan_of_an_aggregation():
    grouped = "SELECT s, sum(a) AS total, count(*) FROM t WHERE b > 1 GROUP BY s HAVING total > 10"
    assert tree(f"{grouped} ORDER BY total DESC LIMIT 3") == """\
output (s, total, count_star as count_star())
  limit CAST(3 AS BIGINT)
    sort total desc nulls last
      filter total > CAST(10 AS HUGEINT)
        aggregate by=(s) total=sum(a) count_star=count(*)
          filter b > 1
            scan t (a, b, s, d, ts, x, m, flag, Cc, A b)""".replace("CAST(10 AS HUGEINT)", "10")  # fmt: skip


def test_equal_aggregates_are_computed_once():
    assert (
        tree("SELECT sum(a), sum(a) + 1, sum(t.A) FROM t").count("sum(a)") == 3
    )  # twice in the names, once in the plan


def test_order_by_what_is_not_selected_is_carried_along():
    query = plan("SELECT a FROM t ORDER BY b + 1")
    assert query.plan.names == ("a",)
    assert isinstance(query.plan.input, logical.Sort)
    assert len(query.plan.input.schema) == 2


def test_a_union_of_many_is_a_flat_tree():
    query = plan(" UNION ALL ".join(f"SELECT {i} AS x" for i in range(64)))
    depth, level = 0, [query.plan]
    while level:
        depth, level = depth + 1, [n for node in level for n in node.inputs]
    assert depth == 9
    assert [n.columns[0][1].value for n in query.plan.walk() if isinstance(n, logical.Project)] == list(range(64))


def test_grouping_sets():
    query = plan("SELECT s, a, count(*) FROM t GROUP BY s, ROLLUP (a, b)")
    (node,) = [n for n in query.plan.walk() if isinstance(n, logical.Aggregate)]
    assert node.sets == ((0, 1, 2), (0, 1), (0,))


def test_files_are_opened_by_the_catalog():
    tables = catalog()
    plan("SELECT * FROM 'logs/*.parquet' WHERE f > 1", tables=tables)
    plan(
        (
            "SELECT f FROM read_csv('x.csv', header => true, delim = '|', skip := 2, columns => {'f': "
            "'INTEGER'}, nulls => ['', 'x'])"
        ),
        tables=tables,
    )
    plan("SELECT * FROM read_parquet(['a', 'b']) AS q(z)", tables=tables)
    assert tables.opened == [
        ("logs/*.parquet", None, {}),
        ("x.csv", "csv", {"header": True, "delim": "|", "skip": 2, "columns": {"f": "INTEGER"}, "nulls": ["", "x"]}),
        (["a", "b"], "parquet", {}),
    ]


def test_views_are_analyzed_in_place():
    tables = catalog()
    tables.entries["v"] = FakeView("SELECT a + 1 AS z FROM t WHERE a > 0")
    assert tree("SELECT z FROM v WHERE z < 9", tables=tables).splitlines()[1] == "  filter z < 9"
    tables.entries["w"] = FakeView("SELECT * FROM w")
    with pytest.raises(BindError, match="defined by itself"):
        plan("SELECT * FROM w", tables=tables)
    tables.entries["bad"] = FakeView("SELECT\n  nothing FROM t")
    with pytest.raises(BindError) as error:
        plan("SELECT * FROM bad", tables=tables)
    assert error.value.origin == 'view "bad"'
    assert error.value.line_column == (2, 3)


def test_parameters():
    query = plan(
        "SELECT ? + a, $name FROM t WHERE d = ? LIMIT ?", {"1": INTEGER, "2": VARCHAR, "3": BIGINT, "name": DATE}
    )
    text = show(query.plan)
    assert "$1 + a" in text
    assert "d = CAST($2 AS DATE)" in text
    assert "limit $3" in text
    assert result_types(query)[1] == "DATE"
    with pytest.raises(BindError, match=r"no value is given for parameter \?"):
        plan("SELECT ?, ?", {"1": INTEGER})
    with pytest.raises(BindError, match=r"parameter \$x"):
        plan("SELECT $x")


def test_hints_are_kept():
    query = plan("SELECT /*+ BROADCAST(d, scope => 'global'), SHARDS(16), AGG('two_phase') */ a FROM t")
    assert [(h.name, h.args, h.options) for h in query.hints] == [
        ("BROADCAST", ("d",), (("scope", "global"),)),
        ("SHARDS", (16,), ()),
        ("AGG", ("two_phase",), ()),
    ]


def test_statements():
    tables = catalog()
    run = lambda text: analyze(text, tables)[0]  # noqa: E731
    assert run("EXPLAIN SELECT 1").level == "PHYSICAL"
    explain = run("EXPLAIN analyze SELECT a FROM t")
    assert (explain.level, explain.query.text) == ("ANALYZE", "SELECT a FROM t")
    compiled = run("COMPILE PLAN 'q.plan' FOR SELECT a FROM t;")
    assert (compiled.path, compiled.query.text) == ("q.plan", "SELECT a FROM t")
    assert run("EXECUTE PLAN 'q.plan'") == statements.ExecutePlan("q.plan")
    created = run("CREATE OR REPLACE TABLE n AS FROM t")
    assert (created.name, created.replace, created.if_not_exists, created.query.text) == ("n", True, False, "FROM t")
    assert run("CREATE TABLE IF NOT EXISTS n AS SELECT 1").if_not_exists
    assert run("CREATE TABLE n(p, q) AS SELECT 1, 2, 3").query.plan.names == ("p", "q", "3")
    assert run("CREATE VIEW v AS SELECT a AS b FROM t") == statements.CreateView("v", "SELECT a AS b FROM t")
    assert run("CREATE VIEW v(z) AS SELECT a FROM t").text == "SELECT * FROM (SELECT a FROM t) AS v(z)"
    assert run("DROP TABLE IF EXISTS t") == statements.Drop("table", ("t",), True)
    assert run("DROP VIEW v") == statements.Drop("view", ("v",))
    assert run("SET threads = 4") == statements.Set("threads", 4)
    assert run("SET memory_limit TO '1GB'") == statements.Set("memory_limit", "1GB")
    assert run("SET optimizer = off") == statements.Set("optimizer", False)
    assert run("RESET threads") == statements.Set("threads", None)
    assert run("SHOW TABLES") == statements.ShowTables()
    assert run("DESCRIBE t").query.plan.names[:2] == ("a", "b")
    assert run("DESCRIBE SELECT 1 AS x").query.plan.names == ("x",)
    assert [type(s).__name__ for s in analyze("SELECT 1; ; SET a = 1; SHOW TABLES;", tables)] == [
        "Query",
        "Set",
        "ShowTables",
    ]
