"""Plans of snapshot aggregates: what is known of ends, filters below them, the text of the step, and what is refused of
it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.temporal.data import assert_same_rows, events
from tests.temporal.live.lives import rows_of

EVENTS = events("unsorted", seed=1, rows=50)
SLIDE = "SLIDE(events, ts, INTERVAL '10 seconds')"


@pytest.fixture(scope="module")
def db() -> Iterator[Any]:
    with tsql.connect(threads=2) as session:
        session.register("events", EVENTS)
        yield session


@pytest.mark.parametrize(
    ("source", "ends"),
    [
        (SLIDE, "in_order"),
        ("LIFETIME(events, start => ts, duration => INTERVAL '2 days 1 second')", "in_order"),
        ("(SELECT k, v FROM SLIDE(events, ts, INTERVAL '1 hour') WHERE v > 0)", "in_order"),
        ("LIFETIME(events, start => ts)", "none"),
        ("LIFETIME(events, start => ts, duration => INTERVAL '1 month')", "any"),
        ("LIFETIME(events, start => ts, end => ts + v * INTERVAL '1 second')", "any"),
        ("CLIP(LIFETIME(events, start => ts), INTERVAL '1 hour')", "any"),
        (f"{SLIDE} JOIN {SLIDE} o USING (k)", "any"),
    ],
)
def test_what_is_known_of_ends(db: Any, source: str, ends: str) -> None:
    plan = db.sql(f"SELECT k, count(*) AS n FROM {source} GROUP BY k").plan()
    assert f" ends={ends} " in plan


def kernels(db: Any, sql: str) -> str:
    return db.sql(f"EXPLAIN KIR {sql}").fetchall()[0][1]


def test_how_aggregates_follow(db: Any) -> None:
    """The choice is shown."""
    calls = "count(*) AS n, sum(v) AS s, max(v) AS m, max(name) AS t, sum(x) AS f"
    assert (
        'n=count(*) (removing) s=sum(v) (removing) m=max(v) (two stacks) t=max("name") (heap) f=sum(x) (two stacks)'
        in kernels(db, f"SELECT {calls} FROM {SLIDE}")
    )
    own = "LIFETIME(events, start => ts, end => ts + INTERVAL '1 second' * v)"
    assert 'n=count(*) (removing) s=sum(v) (removing) m=max(v) (heap) t=max("name") (heap) f=sum(x) (tree)' in kernels(
        db, f"SELECT {calls} FROM {own}"
    )


def test_holistic_aggregates_have_another_plan(db: Any) -> None:
    for call in ("median(v)", "count(DISTINCT v)", "string_agg(name, ',' ORDER BY name)"):
        assert "= snapshot " not in db.sql(f"SELECT k, {call} AS m FROM {SLIDE} GROUP BY k").plan()


def test_filters_on_keys_move_below(db: Any) -> None:
    sql = f"SELECT * FROM (SELECT k, count(*) AS n FROM {SLIDE} GROUP BY k) WHERE k = 2 AND n > 1"
    plan = db.sql(sql).plan()
    lines = plan.split("\n")
    place = next(i for i, line in enumerate(lines) if "= snapshot " in line)
    assert any("k = 2" in line for line in lines[:place]) and not any("k = 2" in line for line in lines[place:])
    assert any("n > 1" in line for line in lines[place:]) and not any("where=(n > 1" in line for line in lines[:place])


TIMES = pa.timestamp("us")
STEPS = """plan version 1
target local shards=2

events = scan events columns=(k, v, ts)
alive  = project events k=k v=v s=ts e=(ts + INTERVAL '10 seconds')
living = filter alive where=(s < e)
keyed  = rekey living key=(k)
placed = redistribute keyed scope=local shards=2
groups = snapshot placed by=(k) lifetime=(s, e) span=(since, until) {ends}n=count(*)
whole  = gather groups
output whole (k, n, since, until)
"""


def test_a_written_plan(db: Any) -> None:
    expected = sorted(
        map(
            str,
            rows_of(
                db.sql(
                    f"SELECT k, count(*) AS n, valid_from AS since, valid_to AS until FROM {SLIDE} GROUP BY k"
                ).arrow()
            ),
        )
    )
    for ends in ("", "ends=any ", "ends=in_order "):
        plan = tsql.load_plan_text(STEPS.format(ends=ends))
        assert sorted(map(str, rows_of(plan.run(db).arrow()))) == expected


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("by=(k)", "by=(j)", "has no column j"),
        ("lifetime=(s, e)", "lifetime=(s)", "lifetime=(start, end) are two columns of type TIMESTAMP"),
        ("lifetime=(s, e)", "lifetime=(s, v)", "lifetime: v is BIGINT, not TIMESTAMP"),
        ("span=(since, until)", "span=(k, until)", "two columns of the step would be called k"),
        ("{ends}", "ends=soon ", "ends=soon: it is one of any, in_order, none"),
        ("n=count(*)", "n=median(v)", "cannot follow rows that come and go"),
        ("n=count(*)", "n=count(DISTINCT v)", "cannot follow rows that come and go"),
        (
            "placed = redistribute keyed scope=local shards=2",
            "placed = reshard keyed",
            "step groups: snapshot requires of placed",
        ),
    ],
)
def test_refused_plans(db: Any, old: str, new: str, message: str) -> None:
    with pytest.raises(tsql.TsqlError) as caught:
        tsql.load_plan_text(STEPS.replace(old, new).format(ends="")).run(db).arrow()
    assert message in str(caught.value)


def test_a_wrong_promise_about_ends_is_an_error(db: Any) -> None:
    """Rows that do not end in their order would be removed at wrong times."""
    text = STEPS.format(ends="ends=in_order ").replace(
        "(ts + INTERVAL '10 seconds')", "(ts + to_seconds(1 + k * 7919 % 13 + v % 7))"
    )
    with pytest.raises(tsql.ExecutionError, match="rows do not end in the order in which they start"):
        tsql.load_plan_text(text).run(db).arrow()


def test_a_group_larger_than_memory_is_refused_clearly(tmp_path) -> None:
    rows = 400_000
    table = pa.table(
        {"ts": pa.array(range(rows), pa.int64()).cast(pa.timestamp("us")), "v": pa.array(range(rows), pa.int64())}
    )
    sql = "SELECT max(v) AS m FROM LIFETIME(big, start => ts, duration => (v % 5 + 1) * INTERVAL '1 second')"
    with tsql.connect(threads=2, memory_limit="6MB") as session:
        session.register("big", table)
        with pytest.raises(tsql.TsqlError, match="memory"):
            session.sql(sql).arrow()
    with tsql.connect(threads=2) as session:
        session.register("big", table)
        assert session.sql(sql).arrow().num_rows == rows


def test_many_rows_are_sorted_in_more_shards(db: Any, monkeypatch) -> None:
    """Sorting parts that fit the cache is faster; the answer is the same."""
    from tsql.planner.cost import constants as cost

    sql = f"SELECT k, count(*) AS n, max(v) AS m FROM {SLIDE} GROUP BY k"
    expected = sorted(map(str, rows_of(db.sql(sql).arrow())))
    monkeypatch.setattr(cost, "SORTED_ROWS", 5)
    with tsql.connect(threads=2) as session:
        session.register("events", EVENTS)
        assert "shards=10" in session.sql(sql).plan()
        assert sorted(map(str, rows_of(session.sql(sql).arrow()))) == expected
        alone = f"SELECT count(*) AS n FROM {SLIDE}"
        assert "redistribute" not in session.sql(alone).plan()


ANY = "LIFETIME(events, start => ts, end => ts + v * INTERVAL '1 second')"


def joined(db: Any, sql: str) -> str:
    line = next(line for line in db.sql(sql).plan().split("\n") if "= hash_join " in line)
    return re.sub(r"(alive_(?:from|to))_\d", r"\1_1", line)


@pytest.mark.parametrize(
    ("left", "right", "times"),
    [
        (
            ANY,
            SLIDE,
            "range=(alive_from < (alive_from_1 + INTERVAL '10 seconds'), alive_from_1 < alive_to) build=right",
        ),
        (SLIDE, ANY, "range=(alive_from < alive_to_1, alive_from_1 < (alive_from + INTERVAL '10 seconds')) build=left"),
        (
            ANY,
            f"SHIFT({SLIDE}, INTERVAL '1 day')",
            "range=(alive_from < (alive_from_1 + INTERVAL '10 seconds'), alive_from_1 < alive_to) build=right",
        ),
        (
            ANY,
            "LIFETIME(events, start => ts, duration => INTERVAL '1 day 1 second')",
            "range=(alive_from < (alive_from_1 + INTERVAL '86401 seconds'), alive_from_1 < alive_to) build=right",
        ),
        (ANY, ANY, "range=(alive_from_1 < alive_to) overlap=(alive_from < alive_to_1) build=right"),
        (
            ANY,
            "LIFETIME(events, start => ts, duration => INTERVAL '1 month')",
            "range=(alive_from_1 < alive_to) overlap=(alive_from < alive_to_1) build=right",
        ),
    ],
)
def test_joins_are_by_time(db: Any, left: str, right: str, times: str) -> None:
    for condition, keys in (("a.k = b.k", "on=(k = k_1) "), ("true", "")):
        line = joined(db, f"SELECT a.v, b.v AS w FROM {left} a JOIN {right} b ON {condition}")
        assert keys in line and times in line, line
        assert "where=" not in line


def test_joins_of_plans_that_are_read_back(db: Any) -> None:
    clipped = "CLIP(LIFETIME(events, start => ts), INTERVAL '9 seconds')"
    for right in (SLIDE, clipped):
        relation = db.sql(f"SELECT a.v, b.v AS w FROM {clipped} a JOIN {right} b ON a.k = b.k AND a.v < b.v")
        text = relation.plan()
        assert "range=" in text
        assert_same_rows(tsql.load_plan_text(text).run(db).arrow(), relation.arrow())


def test_an_anti_join_by_another_condition_is_by_time(db: Any) -> None:
    """Rows that do not live at the same time are not compared."""
    sql = f"SELECT v FROM {ANY} a WHERE NOT EXISTS (SELECT 1 FROM {ANY} b WHERE a.k = b.k AND a.v < b.v)"
    line = joined(db, sql)
    assert "range=(alive_from_1 < alive_to) overlap=(alive_from < alive_to_1) where=(v < v_1)" in line, line


def test_keys_that_seem_unique_are_not_relied_on() -> None:
    """Half of the rows have one key, which the bounds of the column do not tell."""
    rows = 2000
    keys = [5 if i % 2 else i * 1_000_003 for i in range(rows)]
    table = pa.table({"k": keys, "v": range(rows), "ts": pa.array([i * 1_000_000 for i in range(rows)], TIMES)})
    with tsql.connect(threads=2) as db:
        db.register("events", table)
        relation = db.sql(f"SELECT a.v, b.v AS w FROM {SLIDE} a JOIN {SLIDE} b ON a.k = b.k")
        assert "range=(" in joined(db, f"SELECT a.v, b.v AS w FROM {SLIDE} a JOIN {SLIDE} b ON a.k = b.k")
        times = dict(zip(range(rows), keys, strict=True))
        expected = {(i, j) for i in times for j in range(i - 9, i + 10) if times.get(j) == times[i]}
        assert sorted(relation.arrow().select(["v", "w"]).to_pylist(), key=str) == sorted(
            ({"v": i, "w": j} for i, j in expected), key=str
        )
