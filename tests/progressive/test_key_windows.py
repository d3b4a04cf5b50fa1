"""Sessions, windows of so many rows and window functions make progress by the keys that they are partitioned by. DuckDB
is the oracle."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.progressive.test_final import bag
from tsql.loaded import load_plan_text

ROWS, USERS = 36_000, 6_000
SESSION = "SESSION(hits PARTITION BY {keys}, ts, gap => INTERVAL '30 minutes')"
SESSIONS = """(SELECT {keys}, min(ts) AS window_start, count(*) AS n, avg(v) AS m FROM (
  SELECT *, count(*) FILTER (WHERE is_new) OVER (PARTITION BY {keys} ORDER BY ts) AS number FROM (
    SELECT *, coalesce(ts - lag(ts) OVER (PARTITION BY {keys} ORDER BY ts) > INTERVAL '30 minutes', true) AS is_new
    FROM hits WHERE ts IS NOT NULL))
  GROUP BY {keys}, number)"""
"""The sessions of keys, in plain SQL."""
NUMBERED = """(SELECT *, row_number() OVER (PARTITION BY user_id ORDER BY ts) - 1 AS number FROM hits
  WHERE ts IS NOT NULL)"""


def ours(keys: str, columns: str) -> str:
    of = f"({keys})" if "," in keys else keys
    return f"(SELECT {columns} FROM {SESSION.format(keys=of)} GROUP BY {keys}, window_start, window_end)"


PAIRS = {
    "lengths of sessions": (
        f"SELECT avg(n) AS m, count(*) AS c FROM {ours('user_id', 'user_id, window_start, count(*) AS n')}",
        f"SELECT avg(n), count(*) FROM {SESSIONS.format(keys='user_id')}",
    ),
    "sessions of a day": (
        "SELECT CAST(window_start AS DATE) AS day, count(*) AS c, sum(m) AS s FROM "
        f"{ours('user_id', 'user_id, window_start, avg(v) AS m')} GROUP BY day",
        "SELECT CAST(window_start AS DATE) AS day, count(*), sum(m) FROM "
        f"{SESSIONS.format(keys='user_id')} GROUP BY day",
    ),
    "sessions of a country": (
        f"SELECT country, count(*) AS c FROM {ours('user_id, country', 'user_id, country, window_start')} "
        "GROUP BY country",
        f"SELECT country, count(*) FROM {SESSIONS.format(keys='user_id, country')} GROUP BY country",
    ),
    "sessions that end": (
        "SELECT avg(n) AS m, count(*) AS c FROM (SELECT user_id, window_start, count(*) AS n FROM "
        "SESSION(hits PARTITION BY user_id, ts, gap => INTERVAL '30 minutes', max_size => INTERVAL '900 days') "
        "GROUP BY user_id, window_start, window_end)",
        f"SELECT avg(n), count(*) FROM {SESSIONS.format(keys='user_id')}",
    ),
    "sessions of users": (
        "SELECT k, count(*) AS c FROM (SELECT user_id, count(*) AS k FROM "
        f"{ours('user_id', 'user_id, window_start')} GROUP BY user_id) GROUP BY k",
        f"SELECT k, count(*) FROM (SELECT count(*) AS k FROM {SESSIONS.format(keys='user_id')} GROUP BY user_id) "
        "GROUP BY k",
    ),
    "three rows": (
        "SELECT avg(m) AS a, count(*) AS c FROM (SELECT user_id, window_id, avg(v) AS m FROM "
        "TUMBLE(hits PARTITION BY user_id, ts, rows => 3) GROUP BY user_id, window_id)",
        f"SELECT avg(m), count(*) FROM (SELECT avg(v) AS m FROM {NUMBERED} GROUP BY user_id, number // 3 "
        "HAVING count(*) = 3)",
    ),
    "two of three rows": (
        "SELECT avg(m) AS a, count(*) AS c FROM (SELECT user_id, window_id, avg(v) AS m FROM "
        "HOP(hits PARTITION BY user_id, ts, slide_rows => 2, rows => 3) GROUP BY user_id, window_id)",
        f"SELECT avg(m), count(*) FROM (SELECT avg(v) AS m FROM (SELECT *, unnest(range(greatest(number - 1, 0) // 2, "
        f"number // 2 + 1)) AS id FROM {NUMBERED}) WHERE number BETWEEN 2 * id AND 2 * id + 2 GROUP BY user_id, id "
        "HAVING count(*) = 3)",
    ),
    "days of users": (
        "SELECT count(*) AS c, avg(n) AS m FROM (SELECT user_id, window_start, count(*) AS n FROM HOP(hits, ts, "
        "slide => INTERVAL '1 day', size => INTERVAL '2 days') GROUP BY user_id, window_start, window_end)",
        "SELECT count(*), avg(n) FROM (SELECT count(*) AS n FROM (SELECT *, unnest([CAST(ts AS DATE), "
        "CAST(ts AS DATE) - 1]) AS day FROM hits WHERE ts IS NOT NULL) GROUP BY user_id, day)",
    ),
    "first rows of users": (
        "SELECT country, count(*) AS c, avg(v) AS m FROM (SELECT *, row_number() OVER (PARTITION BY user_id "
        "ORDER BY ts) AS r FROM hits WHERE ts IS NOT NULL) WHERE r = 1 GROUP BY country",
        "SELECT country, count(*), avg(v) FROM (SELECT * FROM hits WHERE ts IS NOT NULL QUALIFY row_number() "
        "OVER (PARTITION BY user_id ORDER BY ts) = 1) GROUP BY country",
    ),
    "first rows of a country's tens of users": (
        "SELECT country, count(*) AS c, sum(v) AS s FROM (SELECT *, row_number() OVER (PARTITION BY user_id // 10, "
        "country ORDER BY ts) AS r FROM hits WHERE ts IS NOT NULL) WHERE r < 3 GROUP BY country",
        "SELECT country, count(*), sum(v) FROM (SELECT * FROM hits WHERE ts IS NOT NULL QUALIFY row_number() "
        "OVER (PARTITION BY user_id // 10, country ORDER BY ts) < 3) GROUP BY country",
    ),
    "changes": (
        "SELECT country, sum(d) AS s, count(d) AS c FROM (SELECT country, v - lag(v) OVER (PARTITION BY user_id "
        "ORDER BY ts) AS d FROM hits WHERE ts IS NOT NULL) GROUP BY country ORDER BY country",
        "SELECT country, sum(d), count(d) FROM (SELECT country, v - lag(v) OVER (PARTITION BY user_id ORDER BY ts) "
        "AS d FROM hits WHERE ts IS NOT NULL) GROUP BY country ORDER BY country",
    ),
    "sessions of named users": (
        f"SELECT name, count(*) AS c, sum(n) AS s FROM {ours('user_id', 'user_id, window_start, count(*) AS n')} "
        "JOIN users USING (user_id) GROUP BY name HAVING c > 10",
        f"SELECT name, count(*) AS c, sum(n) FROM {SESSIONS.format(keys='user_id')} JOIN users USING (user_id) "
        "GROUP BY name HAVING c > 10",
    ),
}


def tables() -> dict[str, pa.Table]:
    rng = np.random.default_rng(3)
    users = rng.integers(0, USERS, ROWS)
    # Users come some days at noon. No two times are equal: rows are numbered in one order only.
    hours = 24 * rng.integers(0, 6, ROWS) + 12 + rng.random(ROWS)
    times = (hours * 3600e6).astype(np.int64) + rng.permutation(ROWS)
    return {
        "hits": pa.table({
            "user_id": pa.array(users.astype(np.int32), mask=rng.random(ROWS) < 0.02),
            "country": pa.array([("DE", "FR", "AT", None)[v] for v in rng.integers(0, 4, ROWS)]),
            "ts": pa.array(times, pa.timestamp("us"), mask=rng.random(ROWS) < 0.01),
            "v": rng.integers(0, 100, ROWS),
        }),
        "users": pa.table({
            "user_id": pa.array(np.arange(USERS).astype(np.int32)),
            "name": [f"u{v}" for v in rng.integers(0, 7, USERS)],
        }),
    }  # fmt: skip


@pytest.fixture(autouse=True)
def few_keys_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsql.planner.choose.few_keys.FEW_KEYS", 0)


@pytest.fixture(scope="module", params=["arrow", "blocks", "parquet"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def db(kind: str, tmp_path: Path) -> Iterator[Any]:
    with tsql.connect(threads=2) as opened:
        for name, rows in tables().items():
            if kind == "parquet":
                pq.write_table(rows, tmp_path / f"{name}.parquet", row_group_size=1_000)
                opened.register(name, opened.read_parquet(tmp_path / f"{name}.parquet"))
            elif kind == "blocks":
                opened.register("given", rows)
                opened.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
            else:
                opened.register(name, rows)
        yield opened


@pytest.fixture(scope="module")
def oracle() -> Iterator[Any]:
    with duckdb.connect() as opened:
        for name, rows in tables().items():
            opened.register(name, rows)
        yield opened


def rounded(rows: list[tuple[Any, ...]]) -> list[str]:
    return bag([tuple(round(float(v), 6) if isinstance(v, float | int | Decimal) else v for v in row) for row in rows])


def values(found: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in found.to_pylist()]


@pytest.mark.parametrize("name", PAIRS)
def test_final(db: Any, oracle: Any, kind: str, name: str) -> None:
    """The last snapshot is the result, whatever the seed; those before it are of 2, 6 and 25 percent of the keys."""
    sql, plain = PAIRS[name]
    for seed in (len(sql) % 7, 8):
        relation = db.sql(f"{sql} PROGRESSIVE SEED {seed}")
        assert re.search(r"= progressive (windows|windowed|total|joined)", relation.explain()), relation.explain()
        *shown, last = relation.snapshots()
        assert last.is_final and last.progress == 1.0
        assert [round(one.progress, 2) for one in shown] == ([0.03] if kind == "parquet" else [0.02, 0.06, 0.25])
        assert rounded(values(last.table)) == rounded(oracle.sql(plain).fetchall()), name
    assert rounded(db.sql(sql).fetchall()) == rounded(oracle.sql(plain).fetchall()), name


@pytest.mark.parametrize("name", ["lengths of sessions", "sessions of a country", "three rows", "first rows of users"])
def test_bounds(db: Any, oracle: Any, kind: str, name: str) -> None:
    """Bounds hold nearly as often as they say."""
    sql, plain = PAIRS[name]
    exact = oracle.sql(plain).fetchall()
    by_key = {row[0]: row[1:] for row in exact} if " GROUP BY country" in sql else {}
    held = shown = 0
    for seed in range(20):
        *early, _ = db.sql(f"{sql} PROGRESSIVE SEED {seed}").snapshots()
        for snap in early:
            names = [one for one in snap.table.column_names if one != "country"]
            for number, row in enumerate(snap.table.to_pylist()):
                expected = by_key[row["country"]] if by_key else exact[0]
                for column, value in zip(names, expected, strict=True):
                    bounds = snap.bounds[column]
                    low, high = bounds.lower[number].as_py(), bounds.upper[number].as_py()
                    shown += low is not None
                    held += low is not None and low - 1e-6 <= float(value) <= high + 1e-6
    # A value has bounds when its group has been met in enough batches: those of countries come later.
    assert shown >= (0 if by_key and kind == "parquet" else 40) and held >= 0.92 * shown, (held, shown)


def test_plans(db: Any, oracle: Any) -> None:
    """The plan can be kept."""
    for name in ("lengths of sessions", "first rows of users"):
        sql, plain = PAIRS[name]
        text = db.sql(f"{sql} PROGRESSIVE").explain()
        *shown, last = load_plan_text(text).run(db).snapshots()
        assert shown and rounded(values(last.table)) == rounded(oracle.sql(plain).fetchall())


WITHOUT = {
    "SELECT avg(n) FROM (SELECT window_start, count(*) AS n FROM SESSION(hits, ts, gap => INTERVAL '30 minutes') "
    "GROUP BY window_start, window_end)": "sessions without PARTITION BY see all rows of hits",
    "SELECT avg(m) FROM (SELECT window_id, avg(v) AS m FROM TUMBLE(hits, ts, rows => 3) GROUP BY window_id)":
        "windows of so many rows without PARTITION BY see all rows of hits",
    "SELECT country, max(r) FROM (SELECT country, sum(v) OVER (ORDER BY ts) AS r FROM hits) GROUP BY country":
        "window functions without PARTITION BY see all rows of hits",
    "SELECT user_id, ts, row_number() OVER (PARTITION BY user_id ORDER BY ts) FROM hits":
        "window functions see all rows of hits, and no groups stand above them",
    "SELECT user_id, window_start, count(*) FROM SESSION(hits PARTITION BY user_id, ts, gap => INTERVAL '30 minutes') "
    "GROUP BY user_id, window_start, window_end":
        "sessions see all rows of hits, and no groups stand above them",
    "SELECT user_id, count(*) FROM (SELECT user_id, window_start FROM SESSION(hits PARTITION BY user_id, ts, "
    "gap => INTERVAL '30 minutes') GROUP BY user_id, window_start, window_end) GROUP BY user_id":
        "sessions see all rows of hits, and the groups above them are not a sample",
    "SELECT country, max(r) FROM (SELECT country, row_number() OVER (PARTITION BY user_id ORDER BY q, ts) AS r FROM "
    "(SELECT *, rank() OVER (PARTITION BY country ORDER BY ts) AS q FROM hits)) GROUP BY country":
        "window functions see all rows of hits",
    "SELECT country, max(r) FROM (SELECT country, row_number() OVER (PARTITION BY user_id ORDER BY ts) AS r FROM "
    "(SELECT * FROM hits ORDER BY ts LIMIT 9)) GROUP BY country":
        "the first rows of hits are read by window, which sees several rows at a time",
}  # fmt: skip


@pytest.mark.parametrize("sql", WITHOUT)
def test_reasons(db: Any, kind: str, sql: str) -> None:
    """What has no partitions, and what shows the windows of each key, has the final result only and says why."""
    relation = db.sql(f"{sql} PROGRESSIVE")
    assert [one.is_final for one in relation.snapshots()] == [True]
    said = relation.explain().partition("PROGRESSIVE shows the final result only: ")[2].splitlines()[0]
    assert said.startswith(WITHOUT[sql]), said


def test_groups_of_the_same_keys(db: Any) -> None:
    """Groups that are complete in a part of the keys are no sample of others: they are never scaled up."""
    for sql in (
        "SELECT user_id, count(*) AS n FROM (SELECT *, row_number() OVER (PARTITION BY user_id ORDER BY ts) AS r "
        "FROM hits) WHERE r < 3 GROUP BY user_id",
        "SELECT country, count(DISTINCT v % 10) AS n FROM hits GROUP BY country",
    ):
        most = max(row[1] for row in db.sql(sql).fetchall())
        for snap in db.sql(f"{sql} PROGRESSIVE").snapshots():
            assert max(snap.table["n"].to_pylist()) <= 3 * most, sql


@pytest.mark.parametrize("name", ["lengths of sessions", "sessions that end", "three rows", "two of three rows"])
def test_rows_without_a_time(db: Any, name: str) -> None:
    """Rows that are left out are counted once, in whatever ripple."""
    sql, _ = PAIRS[name]
    plain = db.sql(sql)
    plain.fetchall()
    progressive = db.sql(f"{sql} PROGRESSIVE")
    *_, last = progressive.snapshots()
    assert last.is_final and plain.notes and progressive.notes == plain.notes
