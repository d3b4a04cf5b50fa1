"""FOR VALID_TIME AS OF over tables with a period, against the reference: alone, joined, and with times of other
relations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.temporal.data import ALL_SHAPES, NOON, assert_same_rows, events, periods, selected, to_rows
from tests.temporal.reference.joins import as_of, join_as_of
from tests.temporal.reference.rows import SECOND, equal, moment

AT = f"TIMESTAMP '{moment(NOON + 20 * SECOND)}'"


def with_period(db: Any, name: str, table: pa.Table) -> None:
    """Register a table as one that has PERIOD FOR valid_time (vs, ve)."""
    db.register(name, table)
    db.catalog.entry(name).period = ("vs", "ve")


@pytest.fixture(
    params=[{"threads": 2}, {"threads": 2, "shards": 3, "batch_rows": 7}, {"backend": "interp"}],
    ids=["threads", "shards", "interpreter"],
)
def db(request: pytest.FixtureRequest) -> Iterator[Any]:
    with tsql.connect(**request.param) as session:
        yield session


@pytest.mark.parametrize("shape", ALL_SHAPES)
def test_an_instant(db: Any, shape: str) -> None:
    table = periods(shape, 3)
    with_period(db, "rates", table)
    for word in ("VALID_TIME", "SYSTEM_TIME"):
        ours = db.sql(f"SELECT id, v FROM rates FOR {word} AS OF {AT} WHERE v >= 0").arrow()
        assert_same_rows(
            to_rows(ours),
            selected(
                [r for r in as_of(to_rows(table), NOON + 20 * SECOND) if r["v"] is not None and r["v"] >= 0], "id", "v"
            ),
        )


@pytest.mark.parametrize("shape", ["few_times", "null_times", "null_keys", "on_bounds", "empty"])
@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN", ","])
def test_the_time_of_another_relation(db: Any, shape: str, kind: str) -> None:
    left, right = events(shape, 1), periods(shape, 2)
    db.register("l", left)
    with_period(db, "rates", right)
    on = " ON l.k = r.k" if kind != "," else " WHERE l.k = r.k"
    ours = db.sql(f"SELECT l.id AS id, r.id AS other FROM l {kind} rates FOR VALID_TIME AS OF l.ts AS r{on}").arrow()
    others = [{"k": r["k"], "other": r["id"], "vs": r["vs"], "ve": r["ve"]} for r in to_rows(right)]
    expected = join_as_of(
        to_rows(left), others, equal("k"), "ts", outer=("other", "vs", "ve") if kind == "LEFT JOIN" else None
    )
    assert_same_rows(to_rows(ours), selected(expected, "id", "other"))


def test_it_is_part_of_the_join() -> None:
    """No row of the left is lost, and the period is not looked at pair by pair."""
    with tsql.connect(threads=2) as db:
        db.register("l", events("few_times", 1))
        with_period(db, "rates", periods("few_times", 2))
        text = db.sql("SELECT l.id, r.id FROM l LEFT JOIN rates FOR VALID_TIME AS OF l.ts AS r ON l.k = r.k").explain()
        assert text.count("_join ") == 1 and "kind=left" in text and "on=(k = " in text


def test_other_times(db: Any) -> None:
    table = periods("few_times", 2)
    with_period(db, "rates", table)
    day = [r["id"] for r in as_of(to_rows(table), NOON - NOON % (86_400 * SECOND))]
    assert sorted(
        db.sql(f"SELECT id FROM rates FOR VALID_TIME AS OF DATE '{moment(NOON).date()}'").arrow()["id"].to_pylist()
    ) == sorted(day)
    assert db.sql("SELECT id FROM rates FOR VALID_TIME AS OF NULL").fetchall() == []
    earlier = [r["id"] for r in as_of(to_rows(table), NOON + 10 * SECOND)]
    assert sorted(
        db.sql(f"SELECT id FROM rates FOR VALID_TIME AS OF {AT} - INTERVAL '10 seconds'").arrow()["id"].to_pylist()
    ) == sorted(earlier)
    latest = [r["id"] for r in as_of(to_rows(table), max(r["vs"] for r in to_rows(table)))]
    assert sorted(
        db.sql("SELECT id FROM rates FOR VALID_TIME AS OF (SELECT max(vs) FROM rates)").arrow()["id"].to_pylist()
    ) == sorted(latest)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (f"SELECT * FROM l FOR VALID_TIME AS OF {AT}", '"l" has no PERIOD'),
        (f"WITH rates AS (SELECT 1) SELECT * FROM rates FOR VALID_TIME AS OF {AT}", '"rates" has no PERIOD'),
        (f"SELECT * FROM range(3) FOR VALID_TIME AS OF {AT}", "a table function has no PERIOD"),
        ("SELECT * FROM generate_series(3) FOR SYSTEM_TIME AS OF 'garbage' g", "a table function has no PERIOD"),
        ("SELECT * FROM l JOIN repeat(1, 3) FOR VALID_TIME AS OF l.ts ON TRUE", "a table function has no PERIOD"),
        (f"SELECT * FROM read_parquet('rates.parquet') FOR VALID_TIME AS OF {AT}", "a table function has no PERIOD"),
        (f"SELECT * FROM read_csv('rates.csv') FOR VALID_TIME AS OF {AT}", "a table function has no PERIOD"),
        (
            f"SELECT * FROM tumble(TABLE l, DESCRIPTOR(ts), INTERVAL '1 day') FOR VALID_TIME AS OF {AT}",
            "a table function has no PERIOD",
        ),
        ("SELECT * FROM rates FOR VALID_TIME AS OF id", "AS OF takes constants"),
        ("SELECT * FROM rates FOR VALID_TIME AS OF 5", "cannot compare"),
        (
            (
                "SELECT * FROM rates FOR VALID_TIME AS OF TIMESTAMP '2024-01-01' r RIGHT JOIN l ON true JOIN "
                "rates FOR VALID_TIME AS OF missing.ts z ON true"
            ),
            "missing",
        ),
    ],
)
def test_errors(sql: str, message: str) -> None:
    with tsql.connect(threads=1) as db:
        db.register("l", events("few_times", 1))
        with_period(db, "rates", periods("few_times", 2))
        with pytest.raises(tsql.BindError) as caught:
            db.sql(sql).fetchall()
        assert message in str(caught.value) and caught.value.position is not None


def test_a_table_that_a_query_of_with_hides() -> None:
    """`main.rates` is the table, not the query of the same name."""
    with tsql.connect(threads=1) as db:
        table = periods("few_times", 2)
        with_period(db, "rates", table)
        found = (
            db.sql(f"WITH rates AS (SELECT 1) SELECT id FROM main.rates FOR VALID_TIME AS OF {AT}")
            .arrow()["id"]
            .to_pylist()
        )
        assert sorted(found) == sorted(r["id"] for r in as_of(to_rows(table), NOON + 20 * SECOND))


def test_many_versions_of_a_key_are_not_looked_at_one_by_one() -> None:
    """Each key has 5,000 versions, the last of which is open: the rows of the left are sorted, and each version finds
    its own."""
    with tsql.connect(threads=2) as db:
        db.sql(
            "CREATE TABLE l AS SELECT i AS id, i % 4 AS k, make_timestamp(i * 7919 % 5000 * 1000000 + 5) "
            "AS ts FROM range(30000) r(i)"
        )
        versions = (
            "SELECT i % 4 AS k, i AS v, make_timestamp(i // 4 * 1000000) AS vs, CASE WHEN i < 19996 THEN "
            "make_timestamp((i // 4 + 1) * 1000000) END AS ve FROM range(20000) r(i)"
        )
        with_period(db, "rates", db.sql(versions).arrow())
        relation = db.sql(
            "SELECT count(*), count(r.v), sum(abs(r.v - (i.ts_us // 1000000 * 4 + i.k))) FROM (SELECT *, "
            "epoch_us(ts) AS ts_us FROM l) i LEFT JOIN rates FOR VALID_TIME AS OF i.ts AS r ON i.k = r.k"
        )
        assert (
            "range=(vs <= ts, ts <= coalesce(ve, TIMESTAMP 'infinity')) where=((ve IS NULL) OR (ts < ve)) build=left"
            in relation.explain()
        )
        assert relation.fetchall() == [(30000, 30000, 0)]


@pytest.mark.parametrize(
    ("sql", "message", "place", "hint"),
    [
        (
            f"SELECT * FROM plain FOR VALID_TIME AS OF {AT}",
            '"plain" has no PERIOD: FOR VALID_TIME AS OF needs one',
            "FOR VALID",
            "rates has one",
        ),
        (
            "SELECT * FROM rates FOR VALID_TIME AS OF o.ts",
            'AS OF takes constants: column "ts" is not allowed',
            "o.ts",
            "FROM t JOIN rates FOR VALID_TIME AS OF t.ts",
        ),
        (
            "SELECT * FROM plain o JOIN rates FOR VALID_TIME AS OF o.tz r ON TRUE",
            'column "tz" does not exist',
            "o.tz",
            "FROM t JOIN rates",
        ),
        ("SELECT * FROM rates FOR VALID_TIME AS OF 5", "cannot compare TIMESTAMP with INTEGER", "5", None),
        (
            f"SELECT * FROM rates FOR VALIDTIME AS OF {AT}",
            "FOR VALIDTIME AS OF is not known",
            "FOR VALIDTIME",
            "FOR VALID_TIME AS OF x",
        ),
        (
            f"SELECT * FROM rates FOR TIMESTAMP AS OF {AT}",
            "FOR TIMESTAMP AS OF is not known",
            "FOR TIMESTAMP",
            "FOR VALID_TIME AS OF x",
        ),
        (
            f"SELECT * FROM rates TIMESTAMP AS OF {AT}",
            "TIMESTAMP AS OF is not known",
            "TIMESTAMP AS",
            "FOR VALID_TIME AS OF x",
        ),
        ("SELECT * FROM rates VERSION AS OF 5", "VERSION AS OF is not known", "VERSION", "FOR VALID_TIME AS OF x"),
        (f"SELECT * FROM rates AT (TIMESTAMP => {AT})", "AT (..) is not known", "AT (", "FOR VALID_TIME AS OF x"),
        ("SELECT * FROM rates r BEFORE (VERSION => 3)", "BEFORE (..) is not known", "BEFORE", "FOR VALID_TIME AS OF x"),
    ],
)
def test_refused(db: Any, sql: str, message: str, place: str, hint: str | None) -> None:
    """Each error names its place and a way out."""
    with_period(db, "rates", periods("few_times", 3))
    db.register("plain", events("few_times", 1))
    with pytest.raises(tsql.TsqlError) as refused:
        db.sql(sql).arrow()
    assert message in refused.value.message
    assert sql[refused.value.position :].startswith(place), sql[refused.value.position :]
    assert hint is None or hint in refused.value.hint


@pytest.mark.parametrize("word", ["version", "timestamp", "before", "changes"])
def test_words_of_other_systems_are_names_here(db: Any, word: str) -> None:
    db.register("plain", events("few_times", 1))
    assert (
        db.sql(f"SELECT {word}.id FROM plain {word}").arrow().num_rows
        == db.sql("SELECT id FROM plain").arrow().num_rows
    )
