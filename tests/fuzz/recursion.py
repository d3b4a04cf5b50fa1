"""Random recursive queries inside LATERAL, EXISTS and scalar subqueries: outer columns in any part, subqueries over the
working table, equal outer rows."""

from __future__ import annotations

from random import Random

OUTER = "(VALUES (1, 2), (3, 0), (3, 0), (2, NULL), (3, 1), (NULL, 1)) g(x, y)"

FIRSTS = (
    "SELECT 0, 1",
    "SELECT x, 1",
    "SELECT coalesce(y, 0), x",
    "SELECT i, x FROM (VALUES (0), (1), (1)) f(i)",
    "SELECT i, y FROM generate_series(0, coalesce(x, 1)) f(i)",
)

SOURCES = (
    "c",
    "(SELECT i, s FROM c UNION ALL SELECT i, x FROM c) c",
    "(SELECT i, s FROM c UNION SELECT i, 1 FROM c) c",
    "(SELECT i, max(s) s FROM c GROUP BY i) c",
    "(SELECT i, max(s) s FROM c GROUP BY GROUPING SETS ((i), ())) c",
    "(SELECT a.i, b.s FROM c a JOIN c b ON a.i = b.i) c",
    "(SELECT a.i, b.s FROM c a LEFT JOIN c b ON a.i = b.i + 1) c",
    "(SELECT a.i, b.s FROM c a FULL JOIN c b ON a.i = b.s) c",
    "(SELECT i, s FROM c, LATERAL (SELECT c.i + k AS j FROM generate_series(1, 2) r(k)) q) c",
    "(SELECT i, s FROM c EXCEPT SELECT 1, y FROM c) c",
    "(SELECT DISTINCT i, s FROM c) c",
    "(SELECT i, s FROM c ORDER BY i DESC, s LIMIT 2) c",
    "(SELECT i, sum(s) OVER (PARTITION BY i)::INT s FROM c) c",
)

VALUES = (
    "s",
    "s + x",
    "y",
    "(SELECT count(*) FROM c d WHERE d.i >= c.i)",
    "(SELECT max(d.s) + x FROM c d WHERE d.i + x >= c.i)",
    "(SELECT min(d.i) FROM c d)",
    "(SELECT d.i FROM c d ORDER BY d.i, d.s OFFSET 1)",
    "(SELECT count(*) FROM (SELECT i FROM c UNION SELECT x) q)",
)

CONDITIONS = (
    "",
    " AND i < x",
    " AND EXISTS (SELECT 1 FROM c d WHERE d.s IS DISTINCT FROM c.i)",
    " AND NOT EXISTS (SELECT 1 FROM c d WHERE d.i > c.i AND d.s = y)",
    " AND i IN (SELECT d.i FROM c d WHERE d.s >= x OR d.i = c.i)",
    " AND i NOT IN (SELECT d.i + 1 FROM c d WHERE d.i + 1 IS NOT NULL)",
    " AND i < (SELECT count(*) + x FROM c)",
)

BODIES = (
    "SELECT x, y, r.* FROM {outer}, LATERAL ({recursion} SELECT i, s FROM c) r",
    "SELECT x, y, r.* FROM {outer}, LATERAL ({recursion} SELECT i + x, s FROM c WHERE s >= y) r",
    "SELECT x, y, ({recursion} SELECT sum(i) FROM c) FROM {outer}",
    "SELECT x, y, EXISTS ({recursion} SELECT 1 FROM c WHERE s = x) FROM {outer}",
    "SELECT x, y, x IN ({recursion} SELECT i FROM c) FROM {outer}",
    "SELECT x, y, r.* FROM {outer} LEFT JOIN LATERAL ({recursion} SELECT i, count(*) FROM c GROUP BY i) r ON true",
    (
        "SELECT x, y, r.n FROM {outer}, LATERAL ({recursion} SELECT count(*) AS n FROM c a JOIN c b ON a.i < "
        "b.i AND a.s <> y) r"
    ),
)


def recursive_query(rng: Random) -> str:
    """One query; it ends after three rounds at most."""
    first = rng.choice(FIRSTS)
    step = f"SELECT i + 1, {rng.choice(VALUES)} FROM {rng.choice(SOURCES)} WHERE i < 3{rng.choice(CONDITIONS)}"
    recursion = f"WITH RECURSIVE c(i, s) AS ({first} UNION {rng.choice(('', 'ALL '))}{step})"
    return rng.choice(BODIES).format(outer=OUTER, recursion=recursion)
