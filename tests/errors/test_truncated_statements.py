"""Statements of the corpus that end too early, or lack a word: each is analyzed or refused with its place, never a
traceback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tsql
from tests.slt import datasets, records
from tsql.analyze.statements import analyze
from tsql.grammar.parser.statements import parse
from tsql.kernels.expr.errors import TsqlError

CORPUS = Path(__file__).parent.parent / "slt"
EVERY = 240
"""One in so many records is cut."""
TABLES = (
    "CREATE TABLE t (k INTEGER PRIMARY KEY, x INTEGER, s VARCHAR, ts TIMESTAMP); CREATE TABLE u (k "
    "INTEGER, y INTEGER); CREATE VIEW v AS SELECT 1 AS a"
)
STATEMENTS = [
    (
        "INSERT INTO t AS q (k, x) VALUES (1, 2), (3, 4) ON CONFLICT (k) DO UPDATE SET x = q.x + excluded.x "
        "WHERE q.x > 1 RETURNING *"
    ),
    "INSERT OR REPLACE INTO t BY NAME WITH c AS (SELECT 1 AS k) SELECT * FROM c",
    "INSERT INTO t DEFAULT VALUES",
    "UPDATE t AS q SET x = u.y, s = DEFAULT FROM u WHERE q.k = u.k RETURNING q.x AS n",
    "DELETE FROM t USING u WHERE t.k = u.k AND EXISTS (SELECT 1 FROM v) RETURNING t.k",
    (
        "CREATE OR REPLACE TABLE q (a INTEGER PRIMARY KEY, b VARCHAR DEFAULT 'x' NOT NULL, c DECIMAL(5, 2) "
        "CHECK (c > 0), UNIQUE NULLS NOT DISTINCT (b, c))"
    ),
    "CREATE TEMPORARY VIEW q (a, b) AS SELECT k, x FROM t ORDER BY 1 LIMIT 3",
    "CREATE TABLE q AS SELECT * FROM t WITH NO DATA",
    "CREATE OR REPLACE MACRO m(a, b := 1) AS CASE WHEN a > b THEN a ELSE b END",
    "ALTER TABLE t ALTER COLUMN x SET DATA TYPE VARCHAR USING x || 'a'",
    "ALTER TABLE t ADD COLUMN IF NOT EXISTS z TIMESTAMP(3) DEFAULT TIMESTAMP '2020-01-01'",
    "COPY (SELECT * FROM t) TO 'a.csv' (FORMAT csv, HEADER true)",
    "PREPARE p AS SELECT * FROM t WHERE k = $1 AND x BETWEEN ? AND 3",
    "EXPLAIN LOGICAL SELECT * FROM t",
    "PIVOT t ON x IN (1, 2 AS two) USING sum(k) AS n, count(*) GROUP BY s ORDER BY s",
    "UNPIVOT (SELECT k, x FROM t) ON * LIKE 'k', x AS b INTO NAME n VALUE v",
    (
        "WITH RECURSIVE r(k) AS MATERIALIZED (SELECT 1 UNION ALL SELECT k + 1 FROM r WHERE k < 3) SELECT * "
        "FROM r LEFT JOIN t USING (k)"
    ),
    "SELECT DISTINCT ON (k) COLUMNS('k|x') AS 'c_\\0', t.* EXCLUDE (k) REPLACE (x + 1 AS x), * ILIKE 's%' FROM t",
    (
        "SELECT k, sum(x) FILTER (WHERE x > 1) OVER (w ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE "
        "TIES) FROM t WINDOW w AS (PARTITION BY s ORDER BY k DESC NULLS LAST) QUALIFY k > 1"
    ),
    (
        "SELECT s, string_agg(DISTINCT s, ',' ORDER BY s), grouping(s) FROM t GROUP BY ROLLUP (s), CUBE (k), "
        "GROUPING SETS ((x), ()) HAVING count(*) > 1"
    ),
    (
        "SELECT * FROM t q(a, b) TABLESAMPLE reservoir(10 ROWS) REPEATABLE (3), LATERAL range(a) WITH "
        "ORDINALITY AS r(i, n) LEFT JOIN u ON q.a >= u.k"
    ),
    (
        "SELECT * FROM t ASOF LEFT JOIN (SELECT k, ts FROM t) q ON t.k = q.k AND t.ts >= q.ts TOLERANCE "
        "INTERVAL '1 second'"
    ),
    (
        "SELECT x::DECIMAL(5, 2), TRY_CAST(s AS TIMESTAMP(0)), EXTRACT(year FROM ts), INTERVAL '3' DAYS, s "
        "NOT SIMILAR TO 'a', s[1:2], -x ** 2, unnest([1, 2]) FROM t"
    ),
    (
        "SELECT k FROM t WHERE (k, x) IN (SELECT k, y FROM u) OR k = ANY (VALUES (1)) UNION ALL BY NAME "
        "(SELECT 2 AS k) EXCEPT SELECT 3 ORDER BY k FETCH FIRST 2 ROWS ONLY"
    ),
    (
        "SELECT window_start, count(*) FROM TUMBLE(t PARTITION BY s, ts, INTERVAL '10 minutes', offset => "
        "INTERVAL '1 minute') GROUP BY ALL EMIT FINAL"
    ),
]
"""Statements of each kind, with the clauses that they can have."""


def _damaged(text: str) -> Iterator[str]:
    """The text up to each of its words, and without each of them."""
    try:
        tokens = [token for statement in parse(text) for token in statement.tokens]
    except TsqlError:
        return
    for token in tokens:
        yield text[: token.start]
        yield text[: token.start] + text[token.end + 1 :]


def _check(text: str, catalog: object) -> None:
    try:
        analyze(text, catalog, {})
    except TsqlError as error:
        assert error.__cause__ is None, f"sqlglot stumbles: {text}"
        assert error.line_column is not None, f"no place: {text}"
    except Exception as error:
        pytest.fail(f"{type(error).__name__}: {error}\n{text}")


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda text: " ".join(text.split()[:4]))
def test_statements_of_each_kind(statement: str) -> None:
    with tsql.connect(threads=1) as db:
        for table in TABLES.split(";"):
            db.sql(table)
        analyze(statement, db.catalog, {"1": tsql.kernels.expr.types.INTEGER})
        for text in _damaged(statement):
            _check(text, db.catalog)


def test_statements_of_the_corpus() -> None:
    with tsql.connect(threads=1) as db:
        for name, table in datasets.DATASETS.items():
            db.register(name, table)
        found = [record.sql for path in sorted(CORPUS.rglob("*.slt")) for record in records.read(path) if record.sql]
        for statement in found[::EVERY]:
            for text in _damaged(statement):
                _check(text, db.catalog)
