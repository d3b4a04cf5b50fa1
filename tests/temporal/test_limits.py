"""LIMIT, OFFSET and FETCH in subqueries over temporal relations: at every instant the answer is that of DuckDB to the
plain query over the rows alive then."""

from __future__ import annotations

from collections import Counter

import duckdb
import pyarrow as pa
import pytest

import tsql
from tests.temporal.live.lives import rows_of
from tests.temporal.reference.rows import SECOND
from tests.temporal.reference.snapshot import alive_at

TIMES = [0, 1, 1, 2, 5, 6, 6, 9, 12, 13]
ROWS = pa.table(
    {
        "k": [1, 2, 1, 2, 1, 1, 2, 2, 3, 1],
        "v": [5, 3, 9, 1, 7, 2, 8, 4, 6, 0],
        "ts": pa.array([time * SECOND for time in TIMES], pa.timestamp("us")),
    }
)
PERIODS = pa.table(
    {
        "k": [1, 2, 3],
        "v": [2, 1, 3],
        "vs": pa.array([0, 2 * SECOND, 4 * SECOND], pa.timestamp("us")),
        "ve": pa.array([None, 9 * SECOND, 5 * SECOND], pa.timestamp("us")),
    }
)
CASES = [
    "SELECT count(*) AS n FROM (SELECT k FROM {S} ORDER BY v LIMIT 1) HAVING count(*) > 0",
    "SELECT count(*) AS n FROM (SELECT k FROM {S} OFFSET 1) HAVING count(*) > 0",
    "SELECT sum(v)::BIGINT AS n FROM (SELECT v FROM {S} ORDER BY v DESC LIMIT 3 OFFSET 1) HAVING count(*) > 0",
    "SELECT k, v FROM (SELECT k, v FROM {S} ORDER BY v FETCH FIRST 2 ROWS ONLY)",
    "WITH c AS (SELECT k, v FROM {S} ORDER BY v LIMIT 1) SELECT k FROM c WHERE v > 1",
    "(SELECT k FROM {S} ORDER BY v LIMIT 1) UNION ALL SELECT k FROM {S}",
    "SELECT v FROM q WHERE EXISTS (SELECT 1 FROM {S} s WHERE s.k = q.k LIMIT 0)",
    "SELECT v FROM q WHERE EXISTS (SELECT 1 FROM {S} s WHERE s.k = q.k LIMIT 1)",
    "SELECT v FROM q WHERE k IN (SELECT k FROM {S} ORDER BY v LIMIT 1)",
    "SELECT v FROM q WHERE NOT EXISTS (SELECT 1 FROM (SELECT k FROM {S} ORDER BY v LIMIT 2) s WHERE s.k = q.k)",
    "SELECT k, v FROM (SELECT k, v FROM {S} ORDER BY v LIMIT 2) ORDER BY k LIMIT 100",
    "SELECT k, v FROM (SELECT k, v FROM (SELECT k, v FROM {S} ORDER BY v LIMIT 3) ORDER BY v DESC LIMIT 2)",
    "SELECT a.v, b.v AS w FROM (SELECT k, v FROM {S} ORDER BY v LIMIT 2) a JOIN {S} b ON a.k = b.k",
    "SELECT k, v FROM first_ones",
    "SELECT k FROM (SELECT k FROM {S} LIMIT ALL)",
    "SELECT k, v FROM {S} QUALIFY row_number() OVER (PARTITION BY k ORDER BY v) = 1",
    "SELECT k, v FROM {S} QUALIFY v > avg(v) OVER () OR rank() OVER (ORDER BY v) = 1",
    "SEQUENCED VALIDTIME SELECT k FROM (SELECT k FROM periods ORDER BY v LIMIT 1)",
    "SELECT k FROM (SEQUENCED VALIDTIME SELECT k FROM periods ORDER BY v LIMIT 1 OFFSET 1)",
]
S, VIEW = "SLIDE(q, ts, INTERVAL '3 seconds')", "SELECT k, v FROM {S} ORDER BY v LIMIT 2"


@pytest.mark.parametrize("sql", CASES)
@pytest.mark.parametrize("shards", [1, 3])
def test_every_instant(sql: str, shards: int) -> None:
    with tsql.connect(threads=2, shards=shards) as session:
        session.register("q", ROWS)
        session.register("periods", PERIODS, period=("vs", "ve"))
        session.sql(f"CREATE VIEW first_ones AS {VIEW.format(S=S)}")
        found = rows_of(session.sql(sql.format(S=S)).arrow())
    plain = duckdb.connect()
    plain.register("q", ROWS)
    plain.register("every_period", PERIODS)
    several = 0
    for half in range(-1, 40):
        instant = half * SECOND // 2
        alive = f"(SELECT * FROM q WHERE epoch_us(ts) <= {instant} AND {instant} < epoch_us(ts) + 3000000)"
        plain.sql(
            "CREATE OR REPLACE VIEW periods AS SELECT * FROM every_period WHERE epoch_us(vs) <= "
            f"{instant} AND (ve IS NULL OR {instant} < epoch_us(ve))"
        )
        plain.sql(f"CREATE OR REPLACE VIEW first_ones AS {VIEW.format(S=f'{alive} s')}")
        expected = Counter(plain.sql(sql.format(S=alive).replace("SEQUENCED VALIDTIME ", "")).fetchall())
        assert Counter(tuple(row.values()) for row in alive_at(found, instant)) == expected, instant
        several += len(expected)
    assert several or "LIMIT 0" in sql


def test_a_shifted_relation_is_cut_before() -> None:
    with tsql.connect() as session:
        session.register("q", ROWS)
        first = f"(SELECT k, v FROM {S} ORDER BY v LIMIT 1)"
        moved = rows_of(session.sql(f"SELECT k, v FROM SHIFT({first}, INTERVAL '1 second')").arrow())
        rows = rows_of(session.sql(f"SELECT k, v FROM {first}").arrow())
    times = ("valid_from", "valid_to")
    assert Counter(tuple((row | {n: row[n] + SECOND for n in times}).values()) for row in rows) == Counter(
        tuple(row.values()) for row in moved
    )
