"""The definition of temporal queries, with DuckDB as the oracle: what is alive of a result at an instant is the plain
query over the rows alive then. Each query is asked once of our engine, and at every instant at which something changes
of DuckDB."""

from __future__ import annotations

from collections import Counter

import hypothesis
import pyarrow as pa
import pytest

from tests.duck import empty_duckdb
from tests.temporal.data import period_tables, repeatable, to_rows
from tests.temporal.live.lives import ask
from tests.temporal.reference.lifetimes import lifetime
from tests.temporal.reference.snapshot import alive_at, elementary

OURS = {"P": "LIFETIME(periods, start => vs, end => ve)", "M": "LIFETIME(more, start => vs, end => ve)"}
THEN = (
    "(SELECT * FROM {table} WHERE vs <= make_timestamp({instant}) AND (ve IS NULL OR make_timestamp({instant}) < ve))"
)

QUERIES = {
    "a filter": "SELECT id, v + 1 AS w FROM {P} p WHERE v > 0",
    "groups": (
        "SELECT k, count(*) AS n, sum(v)::BIGINT AS s, min(v) AS low, max(v) AS high, avg(v) AS mean FROM "
        "{P} p GROUP BY k"
    ),
    "groups by an expression": "SELECT v % 2 AS odd, count(k) AS n FROM {P} p GROUP BY v % 2 HAVING count(*) > 1",
    "no keys": "SELECT max(v) AS m, count(DISTINCT k) AS kinds FROM {P} p HAVING count(*) > 0",
    "grouping sets": "SELECT k, v, count(*) AS n FROM {P} p GROUP BY GROUPING SETS ((k, v), (k)) HAVING count(*) > 0",
    "an inner join by an inequality": "SELECT p.id, m.id AS other FROM {P} p JOIN {M} m ON p.v < m.v",
    "a left join": "SELECT p.id, m.id AS other FROM {P} p LEFT JOIN {M} m ON p.k = m.k AND p.v <= m.v",
    "a full join": "SELECT p.id, m.id AS other FROM {P} p FULL JOIN {M} m ON p.k = m.k",
    "a full join by USING": "SELECT k, p.id, m.id AS other FROM {P} p FULL JOIN {M} m USING (k)",
    "three relations": (
        "SELECT p.id, m.id AS other, q.v FROM {P} p LEFT JOIN {M} m ON p.k = m.k JOIN {P} q ON q.id = p.id"
    ),
    "a product": "SELECT count(*) AS n FROM {P} p, {M} m HAVING count(*) > 0",
    "semi and anti joins": "SELECT p.id FROM {P} p SEMI JOIN {M} m ON p.k = m.k ANTI JOIN {M} o ON p.v = o.v",
    "EXISTS": "SELECT id FROM {P} p WHERE EXISTS (SELECT 1 FROM {M} m WHERE m.k = p.k AND m.v <> p.v)",
    "NOT EXISTS": "SELECT id FROM {P} p WHERE NOT EXISTS (SELECT 1 FROM {M} m WHERE m.k = p.k AND m.v > p.v)",
    "NOT EXISTS without correlation": "SELECT id FROM {P} p WHERE NOT EXISTS (SELECT 1 FROM {M} m WHERE m.v = 2)",
    "NOT EXISTS in EXISTS": (
        "SELECT id FROM {P} p WHERE EXISTS (SELECT 1 FROM {M} m WHERE m.k = p.k AND NOT EXISTS (SELECT 1 "
        "FROM {P} q WHERE q.v = m.v + p.v))"
    ),
    "IN": "SELECT id FROM {P} p WHERE v IN (SELECT v FROM {M} m WHERE m.k = p.k)",
    "a plain subquery": "SELECT id, (SELECT count(*) FROM names n WHERE n.k = p.k) AS names FROM {P} p",
    "DISTINCT": "SELECT DISTINCT k, v FROM {P} p",
    "UNION": "SELECT k, v FROM {P} p UNION SELECT k, v FROM {M} m",
    "EXCEPT ALL of INTERSECT ALL": (
        "SELECT v FROM {P} p EXCEPT ALL (SELECT v FROM {M} m INTERSECT ALL SELECT v FROM {P} q WHERE k = 1)"
    ),
    "INTERSECT": "SELECT k FROM {P} p INTERSECT SELECT k FROM {M} m",
    "EXCEPT": "SELECT k, v FROM {P} p EXCEPT SELECT k, v FROM {M} m",
    "nested groups": "SELECT n, count(*) AS groups FROM (SELECT k, count(*) AS n FROM {P} p GROUP BY k) x GROUP BY n",
    "groups joined": (
        "WITH c AS (SELECT k, count(*) AS n FROM {P} p GROUP BY k) SELECT a.k, b.n FROM c a LEFT JOIN c b ON "
        "a.n = b.n AND a.k <> b.k"
    ),
    "groups of a left join": "SELECT p.k, count(m.id) AS n FROM {P} p LEFT JOIN {M} m ON p.v = m.v GROUP BY p.k",
    "NOT EXISTS over groups": (
        "SELECT id FROM {P} p WHERE NOT EXISTS (SELECT m.k FROM {M} m WHERE m.v <= p.v GROUP BY m.k HAVING "
        "count(*) > 1)"
    ),
    "a lateral join": (
        "SELECT p.id, x.n FROM {P} p, LATERAL (SELECT count(*) AS n, max(m.v) AS top FROM {M} m WHERE m.k = "
        "p.k HAVING count(*) > 0) x"
    ),
    "holistic groups": "SELECT k, median(v) AS m, string_agg(v::VARCHAR, '' ORDER BY v) AS vs_ FROM {P} p GROUP BY k",
}
NAMES = pa.table({"k": pa.array([0, 1, 1, None], pa.int64())})


@pytest.mark.parametrize("name", QUERIES)
def test_at_every_instant(name: str, pytestconfig: pytest.Config) -> None:
    """Over empty tables, which Hypothesis tries first, by default every third query."""
    text = QUERIES[name]
    also_empty = pytestconfig.getoption("--all-configurations") or list(QUERIES).index(name) % 3 == 0

    @repeatable(2)
    @hypothesis.given(period_tables(max_rows=9), period_tables(max_rows=9))
    def check(one: pa.Table, other: pa.Table) -> None:
        if not (also_empty or one.num_rows or other.num_rows):
            return
        data = {"periods": one, "more": other, "names": NAMES}
        ours = ask(text.format(**OURS), data)
        living = [lifetime(to_rows(side), "vs", end="ve") for side in (one, other)]
        with empty_duckdb() as oracle:
            for table, rows in data.items():
                oracle.register(table, rows)
            for instant, _ in elementary(*living, ours):
                plain = text.format(
                    P=THEN.format(table="periods", instant=instant), M=THEN.format(table="more", instant=instant)
                )
                expected = Counter(oracle.sql(plain).fetchall())
                found = Counter(tuple(row.values()) for row in alive_at(ours, instant))
                assert found == expected, f"at {instant}: {plain}"

    check()
