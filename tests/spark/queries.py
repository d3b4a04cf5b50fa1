"""Queries beyond one table's groups, and changes of tables, that both the tests in this process and those on the
cluster run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from tests.duck import empty_duckdb

ROWS = pa.table(
    {
        "k": pa.array([i % 5 for i in range(400)], pa.int32()),
        "v": pa.array([None if i % 9 == 0 else i for i in range(400)], pa.int64()),
    }
)

QUERIES = {
    "recursion": (
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 20) SELECT sum(n), count(*) FROM r"
    ),
    "recursion to a fixed point": (
        "WITH RECURSIVE r(n) AS (SELECT k FROM f WHERE v < 3 UNION SELECT (n * 2 + 1) % 17 FROM r) SELECT n FROM r"
    ),
    "recursion with a join": (
        "WITH RECURSIVE r(n, d) AS (SELECT 1::BIGINT, 0 UNION ALL SELECT f.v, d + 1 FROM r JOIN f ON f.v = n "
        "* 2 WHERE d < 10) SELECT n, d FROM r"
    ),
    "recursion joined with itself": "WITH RECURSIVE r(s, d) AS (SELECT k, k + 1 FROM f WHERE v < 6 UNION "
    "SELECT a.s, b.d FROM r a JOIN r b ON a.d = b.s) SELECT s, d FROM r",
    "recursion with a subquery of itself": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL "
    "SELECT n + 1 FROM r WHERE EXISTS (SELECT 1 FROM r x WHERE x.n = r.n) AND n < 4) SELECT n FROM r x "
    "JOIN r y USING (n)",
    "recursion with an asof join of itself": "WITH RECURSIVE r(n) AS (SELECT 1 UNION "
    "SELECT a.n + 1 FROM r a ASOF JOIN (SELECT n FROM r) b ON a.n = b.n AND a.n >= b.n WHERE a.n < 5) SELECT n FROM r",
    "recursion over joined files": "WITH RECURSIVE r(n) AS (SELECT 1::BIGINT UNION "
    "SELECT b.v + n FROM r JOIN (f a JOIN f b ON a.v = b.v JOIN t ON t.v = b.v) ON b.k = r.n % 5 AND b.v "
    "< 9 WHERE n < 30) SELECT n FROM r",
    "recursion inside a query": (
        "SELECT f.k, count(*) FROM f JOIN (WITH RECURSIVE r(n) AS (SELECT 0 UNION ALL SELECT n + 2 FROM r "
        "WHERE n < 6) SELECT n FROM r) x ON x.n = f.k GROUP BY f.k"
    ),
    "correlated recursion": (
        "SELECT v, (WITH RECURSIVE r(n) AS (SELECT k UNION ALL SELECT n + 1 FROM r WHERE n < 6) SELECT "
        "sum(n) FROM r) AS s FROM t WHERE v < 10"
    ),
    "series": "SELECT sum(i), count(*) FROM generate_series(1, 1000) s(i)",
    "series of each row": "SELECT k, i, count(*) FROM f, range(k) s(i) GROUP BY ALL",
    "series beside files": "SELECT f.k, s.i FROM f JOIN generate_series(0, 20, 5) s(i) ON s.i = f.v",
    "series of months": "SELECT d FROM generate_series(DATE '2024-01-01', DATE '2024-06-01', INTERVAL 1 MONTH) s(d)",
    "unnest": "SELECT unnest([k, k + 1]) AS u, v FROM f WHERE v < 5",
    "exact sample": "SELECT count(*) FROM (SELECT v FROM f USING SAMPLE 10 ROWS)",
    "windows": (
        "SELECT k, v, sum(v) OVER (PARTITION BY k ORDER BY v ROWS 3 PRECEDING) AS s, ntile(4) OVER (ORDER BY "
        "v, k) AS q, last_value(v) OVER (PARTITION BY k ORDER BY v DESC) AS l FROM f WHERE v > 0"
    ),
    "qualify": "SELECT k, v, median(v) OVER (PARTITION BY k ORDER BY v RANGE BETWEEN 20 PRECEDING AND 20 FOLLOWING "
    "EXCLUDE CURRENT ROW) AS m FROM f "
    "WHERE v > 0 QUALIFY row_number() OVER (PARTITION BY k ORDER BY v) < 9",
    "window over groups": "SELECT k, sum(v) AS s, rank() OVER (ORDER BY sum(v) DESC) AS r FROM f GROUP BY k",
    "pivot": "SELECT * FROM (PIVOT f ON k USING sum(v))",
    "unpivot": "SELECT * FROM (SELECT k, v AS a, v + 1 AS b FROM f WHERE v < 8) UNPIVOT (x FOR n IN (a, b))",
    "correlated scalar": "SELECT k, (SELECT max(v) FROM f WHERE f.k = t.k AND f.v < 300) AS m FROM t",
    "correlated by an inequality": (
        "SELECT a.v FROM t a WHERE EXISTS (SELECT 1 FROM f b WHERE b.v < a.k AND b.k <> a.k)"
    ),
    "not in": "SELECT v FROM f WHERE v NOT IN (SELECT v FROM t WHERE v < 390)",
    "lateral": (
        "SELECT a.k, x.v FROM (SELECT DISTINCT k FROM t) a, LATERAL (SELECT v FROM f WHERE f.k = a.k ORDER "
        "BY v DESC NULLS LAST LIMIT 2) x"
    ),
    "range join": "SELECT count(*), sum(b.v - a.v) FROM t a JOIN f b ON a.v < b.v",
    "first rows beside a broadcast": (
        "SELECT count(*), sum(b.v) FROM (SELECT v FROM f ORDER BY v LIMIT 350) a LEFT JOIN f b ON a.v = b.v"
    ),
    "positional join": (
        "SELECT a.v, b.v AS other FROM (SELECT v FROM f ORDER BY v) a POSITIONAL JOIN (SELECT v FROM f WHERE k = 1 "
        "ORDER BY v DESC) b"
    ),
    "positional join below a join": (
        "SELECT count(*), sum(f.v) FROM ((SELECT v FROM f ORDER BY v) a POSITIONAL JOIN (SELECT k AS n FROM t ORDER BY "
        "k, v) b) JOIN f ON f.k = n"
    ),
    "asof join": (
        "SELECT a.v, b.v AS before FROM t a ASOF JOIN (SELECT DISTINCT k, v FROM f WHERE v % 3 = 0) b ON a.k "
        "= b.k AND a.v > b.v"
    ),
    "asof left join without a key": (
        "SELECT a.v, b.v AS after FROM t a ASOF LEFT JOIN (SELECT DISTINCT v FROM f WHERE k = 2) b ON a.v <= b.v"
    ),
    "band join": "SELECT count(*), sum(b.v - a.v) FROM t a JOIN f b ON a.k = b.k AND b.v BETWEEN a.v AND a.v + 20",
    "left join by a band around the right side": (
        "SELECT i, f.v FROM range(0, 300, 50) s(i) LEFT JOIN f ON i BETWEEN f.v AND f.v + 2 AND f.k <> 1"
    ),
    "full join": "SELECT a.v, b.v FROM t a FULL JOIN (SELECT v + 100 AS v FROM f WHERE k = 2) b ON a.v = b.v",
    "full join by one column twice": (
        "SELECT a.v, b.v, b.w FROM t a FULL JOIN (SELECT v, v + k AS w FROM f) b ON a.v = b.v AND a.v = b.w"
    ),
    "full join of two columns by one": (
        "SELECT a.k, a.v, b.v FROM t a FULL JOIN (SELECT DISTINCT v FROM f) b ON a.k IS NOT DISTINCT FROM b.v "
        "AND a.v = b.v"
    ),
    "full join by one sum twice": "SELECT a.k, b.v, b.w FROM (SELECT DISTINCT k FROM t) a "
    "FULL JOIN (SELECT v, v * 2 AS w FROM f) b ON a.k + 1 = b.v + 1 AND a.k + 1 = b.w + 1",
    "subqueries of subqueries": (
        "SELECT v FROM t a WHERE v IN (SELECT v FROM f b WHERE b.k IN (SELECT k FROM f c WHERE c.v > a.v + 390))"
    ),
    "limit and offset beyond all numbers": "SELECT k, v FROM t LIMIT 9223372036854775807 OFFSET 390",
    "cte used twice": (
        "WITH c AS (SELECT k, sum(v) AS s FROM f GROUP BY k) SELECT a.k, b.s FROM c a JOIN c b ON a.k = b.k + 1"
    ),
}

CHANGES = (
    "CREATE TABLE m (id INTEGER PRIMARY KEY, s VARCHAR DEFAULT 'x', v BIGINT)",
    "INSERT INTO m SELECT v, 'a' || k, v * v FROM f WHERE v < 100",
    "INSERT INTO m (id) VALUES (1000), (1001)",
    "UPDATE m SET v = v + 1 WHERE id % 2 = 0",
    "UPDATE m SET v = f.v FROM f WHERE f.v = m.id AND m.id < 10",
    "DELETE FROM m WHERE id IN (SELECT v FROM f WHERE k = 3)",
    "BEGIN",
    "DELETE FROM m WHERE id = 50",
    "ROLLBACK",
    "ALTER TABLE m ADD COLUMN z DOUBLE DEFAULT 1.5",
    "ALTER TABLE m ALTER COLUMN v TYPE VARCHAR",
    "INSERT INTO m SELECT id + 10000, s, v, NULL FROM m WHERE id < 20",
    "CREATE TABLE c AS SELECT s, count(*) AS n, sum(z) AS z FROM m GROUP BY s",
    "CREATE VIEW w AS SELECT m.id, c.n FROM m JOIN c USING (s) WHERE m.id > 50",
)
"""Statements; after all of them the tables `m` and `c` and the view `w` are compared."""


def files(folder: Path) -> str:
    """The rows of `ROWS` in three files with several row groups; their glob."""
    for number, rows in enumerate((ROWS.slice(0, 130), ROWS.slice(130, 130), ROWS.slice(260))):
        pq.write_table(rows, folder / f"part{number}.parquet", row_group_size=50)
    return f"{folder}/*.parquet"


def fill(db: Any, path: str) -> Any:
    """The table `t` and the view `f` over files, in a session of ours or a connection of DuckDB."""
    db.register("t", ROWS)
    db.execute(f"CREATE VIEW f AS SELECT * FROM '{path}'")
    return db


def oracle(path: str) -> duckdb.DuckDBPyConnection:
    return fill(empty_duckdb(), path)


def bag(rows: list[tuple[Any, ...]]) -> list[str]:
    """Rows without their order."""
    return sorted(map(str, rows))


def changed(db: Any) -> list[list[str]]:
    """What the changes have left."""
    return [bag(db.sql(f"SELECT * FROM {name}").fetchall()) for name in ("m", "c", "w")]
