"""Groups in arrays that are cut by key where they lie, in the place of a movement; the answers are DuckDB's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tsql
from tests.duck import empty_duckdb
from tsql.backends.local.run import sliced_groups as module

TWO_PHASE = "/*+ AGG('two_phase') */"
TABLE = """CREATE TABLE t AS SELECT (CASE WHEN range % 97 = 5 THEN NULL ELSE range * 7919 % 700 END)::BIGINT AS k,
    range % 3 = 0 AS b, 'c' || (range * 31 % 11) AS c, range % 13 AS x,
    TIMESTAMP '2024-01-01' + to_milliseconds(range) AS ts FROM range(60000)"""
GROUPED = "SELECT {hint} k, b, count(*) AS n, sum(x) AS s, avg(x) AS a FROM t GROUP BY k, b"
QUERIES = {
    "one key": "SELECT {hint} k, count(*) AS n, sum(x) AS s, min(x) AS low FROM t GROUP BY k",
    "two keys": GROUPED,
    "few codes": "SELECT {hint} b, count(*) AS n FROM t GROUP BY b",
    "strings": "SELECT {hint} c, k, sum(x) AS s FROM t GROUP BY c, k",
    "having": GROUPED + " HAVING count(*) > 30",
    "grouped again": f"SELECT b, count(*) AS groups, sum(n) AS n FROM ({GROUPED}) GROUP BY b",
    "ranked": f"SELECT *, row_number() OVER (PARTITION BY k ORDER BY b) AS r FROM ({GROUPED})",
    "used twice": f"WITH g AS ({GROUPED}) SELECT x.k, x.n, y.n AS m FROM g x, g y WHERE x.k = y.k AND x.b AND NOT y.b",
    "joined": (
        "SELECT g.k, g.n, h.s FROM (SELECT {hint} k, count(*) AS n FROM t GROUP BY k) g JOIN (SELECT k, "
        "sum(x) AS s FROM t GROUP BY k) h ON g.k = h.k"
    ),
    "joined with rows": (
        "SELECT g.n, t.x, t.ts FROM (SELECT {hint} k, count(*) AS n FROM t GROUP BY k) g JOIN t ON g.k = t.k "
        "WHERE t.x = 5"
    ),
    "outer join": (
        "SELECT g.k, g.n, h.s FROM (SELECT {hint} k, count(*) AS n FROM t GROUP BY k) g FULL JOIN (SELECT k, "
        "sum(x) AS s FROM t WHERE k > 300 GROUP BY k) h USING (k)"
    ),
    "union": (
        "SELECT k, sum(n) FROM (SELECT {hint} k, count(*) AS n FROM t GROUP BY k UNION ALL SELECT k, "
        "count(*) FROM t WHERE b GROUP BY k) GROUP BY k"
    ),
}


@pytest.fixture(scope="module")
def duck() -> Iterator[Any]:
    with empty_duckdb() as connection:
        connection.execute(TABLE)
        yield connection


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often groups are cut where they lie."""
    counted: list[int] = []
    feed = module.SlicedGroups.feed

    def count(self: Any, shard: int) -> Any:
        counted.append(shard)
        return feed(self, shard)

    monkeypatch.setattr(module.SlicedGroups, "feed", count)
    return counted


@pytest.mark.parametrize("shards", [2, 3, 8])
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.in_turn(3)
def test_answers(name: str, shards: int, duck: Any, cuts: list[int]) -> None:
    sql = QUERIES[name].format(hint=TWO_PHASE)
    with tsql.connect(threads=2, shards=shards, small_rows=0) as db:
        db.execute(TABLE)
        assert sorted(map(repr, db.sql(sql).fetchall())) == sorted(map(repr, duck.sql(sql).fetchall()))
        if name in ("one key", "two keys", "grouped again"):
            assert set(cuts) == set(range(shards))
        if name in ("joined", "outer join"):
            assert not cuts


@pytest.mark.parametrize("shards", [2, 3])
def test_windows_that_share_panes(shards: int, duck: Any) -> None:
    """The key of the movement is a part of the groups' keys: all panes of a key come to one shard."""
    with tsql.connect(threads=2, shards=shards, small_rows=0) as db:
        db.execute(TABLE)
        found = db.sql(
            "SELECT window_start, k, sum(x) AS s FROM HOP(t, ts, slide => INTERVAL '1 second', size => "
            "INTERVAL '5 seconds') GROUP BY window_start, k"
        ).fetchall()
        expected = duck.sql(
            "SELECT time_bucket(INTERVAL '1 second', ts) - to_seconds(back) AS window_start, k, sum(x) AS "
            "s FROM t, range(5) r(back) GROUP BY ALL"
        ).fetchall()
        assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_explain_analyze_counts_the_groups(duck: Any) -> None:
    with tsql.connect(threads=2, small_rows=0) as db:
        db.execute(TABLE)
        text = db.sql(QUERIES["one key"].format(hint=TWO_PHASE)).explain("analyze")
        assert "701 rows" in text
