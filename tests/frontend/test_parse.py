"""Text to tree and back: our canonical text reads back to an equal tree, and DuckDB reads the oracle's text."""

from __future__ import annotations

import sys

import duckdb
import pytest
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from tests.frontend.support import catalog, oracle
from tests.frontend.test_names import EXPRESSIONS
from tests.frontend.test_queries import QUERIES
from tsql.analyze.statements import analyze
from tsql.grammar.dialect import Temporal
from tsql.grammar.generator import to_duckdb
from tsql.grammar.parser.statements import parse
from tsql.kernels.expr.errors import BindError, ParseError, TsqlError
from tsql.planner.bind.syntax import check_plain

STATEMENTS = """
SELECT /*+ BROADCAST(d, scope => 'global'), SHARDS(16), AGG('two_phase') */ a, b AS c FROM t WHERE a > 1 GROUP BY ALL \
ORDER BY ALL LIMIT 10
EXPLAIN SELECT 1
EXPLAIN KIR SELECT a FROM t
COMPILE PLAN 'q.plan' FOR SELECT 1
EXECUTE PLAN 'q.plan'
SET threads = 4
RESET threads
SHOW TABLES
DESCRIBE t
CREATE OR REPLACE TABLE n AS SELECT 1
CREATE VIEW v(a) AS SELECT 1
DROP TABLE IF EXISTS n
SELECT * FROM read_csv('x.csv', header => true, delim = '|', columns = {'a': 'INT'})
SELECT a FROM t WHERE a = ? AND b = $2 AND s = $name
SELECT a FROM t LIMIT 10 PERCENT
SELECT ?::INTEGER, a, FROM t
SELECT sum(a) OVER (PARTITION BY b ORDER BY s) FROM t
SELECT * FROM a JOIN b USING (x) LEFT JOIN c ON a.y = c.y
SELECT a FROM t WHERE a IN (SELECT b FROM t) AND EXISTS (SELECT 1)
WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT * FROM r) SELECT * FROM r
SELECT a FROM t QUALIFY row_number() OVER () = 1
"""
CORPUS = [
    *STATEMENTS.strip().splitlines(),
    *QUERIES.strip().splitlines(),
    *(f"SELECT {e} FROM t" for e in EXPRESSIONS.strip().splitlines()),
]


@pytest.fixture(scope="module")
def duck():
    return oracle()


@pytest.mark.parametrize("text", CORPUS)
def test_canonical_text_reads_back(text):
    (first,) = parse(text)
    (second,) = parse(Temporal().generate(first.node))
    assert second.node == first.node


@pytest.mark.parametrize(
    "text", [*QUERIES.strip().splitlines(), *(f"SELECT {e} FROM t" for e in EXPRESSIONS.strip().splitlines())]
)
def test_oracle_text_means_the_same_to_duckdb(duck, text):
    try:
        theirs = duck.sql(text).types
    except duckdb.BinderException:
        text = f"{text} GROUP BY ALL"
        theirs = duck.sql(text).types
    assert duck.sql(to_duckdb(text)).types == theirs


def test_hints_are_kept_by_us_and_dropped_for_duckdb():
    text = "SELECT /*+ SHARDS(16) */ a FROM t"
    assert parse(text)[0].node.args["hint"] is not None
    assert "/*+ shards(16) */" in Temporal().generate(parse(text)[0].node)
    assert to_duckdb(text) == "SELECT a FROM t"


def test_the_dialect_does_not_replace_transact_sql():
    assert Dialect.get("temporal") is Temporal
    assert Dialect.get("tsql").__name__ == "TSQL"


def test_function_calls_stay_as_written():
    (statement,) = parse("SELECT SUBSTR(s, 1), substring(s, 1), STRPOS(s, 'a'), date_trunc('day', d) FROM t")
    assert [call.name for call in statement.node.expressions] == ["substr", "substring", "strpos", "date_trunc"]
    assert not list(statement.node.find_all(exp.Command))


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("PRAGMA foo", 1, 1), ("INSERT INTO t VALUES (1,", 1, 24), ("CALL f()", 1, 1), ("BEGIN x", 1, 7),
        ("ALTER TABLE t FLY", 1, 15), ("ATTACH 'x'", 1, 1), ("SELECT 1; VACUUM", 1, 11),
        ("CREATE STREAM s (a INT", 1, 20), ("SELECT a b c FROM t", 1, 12), ("SELECT a\nFROM t\nWHERE >", 3, 7),
        ("SELECT (1", 1, 9), ("SELECT 'abc", 1, 8), ('SELECT "abc', 1, 8), ("SELECT 1 /* never closed", 1, 10),
        ("SELECT 'a' 'b'", 1, 12), ("SELECT a,, b", 1, 10), ("SELECT , b", 1, 8), ("EXPLAIN", 1, 1),
        ("COMPILE PLAN FOR SELECT 1", 1, 14), ("EXECUTE PLAN 5", 1, 14), ("SET x", 1, 5), ("SELECT CASE END", 1, 13),
        ("EXTRACT", 1, 1), ("SELECT /*+ f( */ 1", 1, 15),
    ],
)  # fmt: skip
def test_bad_text_is_one_error_with_its_place(text, line, column):
    with pytest.raises(ParseError) as error:
        analyze(text, catalog())
    assert error.value.line_column == (line, column)
    assert "\n" not in error.value.message
    assert "sqlglot" not in error.value.message


DEEP = {
    "parentheses": "SELECT " + "(" * 5000 + "a" + ")" * 5000 + " FROM t",
    "calls": "SELECT " + "abs(" * 3000 + "a" + ")" * 3000 + " FROM t",
    "not": "SELECT " + "NOT " * 5000 + "flag FROM t",
    "minus": "SELECT " + "- " * 5000 + "a FROM t",
    "case": "SELECT " + "CASE WHEN flag THEN " * 1000 + "1" + " END" * 1000 + " FROM t",
    "casts": "SELECT a" + "::INT::BIGINT" * 5000 + " FROM t",
    "subqueries": "SELECT * FROM " + "(SELECT * FROM " * 1000 + "t" + ")" * 1000,
    "lists": "SELECT " + "[" * 3000 + "1" + "]" * 3000,
    "sum": "SELECT " + " + ".join(["a"] * 10_000) + " FROM t",
    "concat": "SELECT " + " || ".join(["s"] * 10_000) + " FROM t",
    "is null": "SELECT a" + " IS NULL" * 3000 + " FROM t",
    "power": "SELECT " + " ^ ".join(["a"] * 3000) + " FROM t",
    "views of views": "WITH c0 AS (SELECT a FROM t WHERE a > 0)"
    + "".join(f", c{i} AS (SELECT a + 1 AS a FROM c{i - 1} WHERE a > 0)" for i in range(1, 500))
    + " SELECT * FROM c499",
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_nesting_is_one_clear_error(name):
    with pytest.raises(TsqlError, match="nested too deeply"):
        analyze(DEEP[name], catalog())


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t WHERE " + " OR ".join(f"a = {i}" for i in range(10_000)),
        "SELECT * FROM t WHERE " + " AND ".join(f"a <> {i}" for i in range(10_000)),
        "SELECT * FROM t WHERE a IN (" + ", ".join(map(str, range(10_000))) + ")",
        "SELECT " + " + ".join(["a"] * 200) + " FROM t",
        "SELECT " + "(" * 150 + "a" + ")" * 150 + " FROM t",
        " UNION ALL ".join(["SELECT a FROM t"] * 1000),
        "VALUES " + ", ".join(f"({i}, 'x')" for i in range(5000)),
        "SELECT " + ", ".join(f"a AS c{i}" for i in range(2000)) + " FROM t",
    ],
    ids=["or", "and", "in", "sum", "parentheses", "union", "values", "columns"],
)
def test_long_queries_work(text):
    assert len(analyze(text, catalog())) == 1


def test_recursion_limit_is_put_back():
    before = sys.getrecursionlimit()
    with pytest.raises(BindError):
        analyze("SELECT nothing FROM t", catalog())
    assert sys.getrecursionlimit() == before


def test_work_grows_with_the_text():
    """Ten times the query is far from a hundred times the work, counted in calls of functions."""

    def calls(columns: int) -> int:
        text = (
            "SELECT "
            + ", ".join(f"sum(m * (1 - m) * (1 + m) + {i}) AS a{i}" for i in range(columns))
            + " FROM t WHERE d <= DATE '1998-12-01' - INTERVAL '90' DAY GROUP BY s ORDER BY s"
        )
        tables, count = catalog(), 0

        def note(frame, event, argument):
            nonlocal count
            count += event == "call"

        sys.setprofile(note)
        try:
            analyze(text, tables)
        finally:
            sys.setprofile(None)
        return count

    calls(1)  # what is made once
    few, many = calls(10), calls(100)
    assert many < 20 * few


def test_compiled_sqlglot_is_refused():
    """Where it is installed beside, the first query would end in an error that says nothing."""
    with pytest.raises(ImportError, match="pip uninstall sqlglotc"):
        check_plain("/site-packages/sqlglot/parser.cpython-311-x86_64-linux-gnu.so")
    check_plain("/site-packages/sqlglot/parser.py")
