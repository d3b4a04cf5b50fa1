"""Plans of every shape through the Spark backend, in this process: where they are cut, and that rows reach their
shards."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.slt.datasets import DATASETS
from tests.spark.cluster import InProcess
from tsql.backends.spark.cut import Cut
from tsql.backends.spark.wire import decode_error, decode_value, encode_error, encode_value
from tsql.kernels.expr.errors import CatalogError, ExecutionError, OutOfMemoryError, PlanError, SourceError

ROWS = pa.table(
    {
        "k": pa.array([i % 5 for i in range(40)], pa.int32()),
        "v": pa.array([None if i % 9 == 0 else i for i in range(40)], pa.int64()),
    }
)


@pytest.fixture
def db() -> Any:
    with tsql.connect(spark=InProcess()) as session:
        session.register("t", ROWS)
        yield session


@pytest.fixture
def local() -> Any:
    with tsql.connect(threads=1) as session:
        session.register("t", ROWS)
        yield session


@pytest.mark.parametrize(
    "sql",
    [
        (
            "SELECT k, count(*) AS n FROM (SELECT * FROM (SELECT k FROM t ORDER BY v LIMIT 7) UNION ALL SELECT "
            "k FROM t) GROUP BY k"
        ),
        (
            "WITH c AS (SELECT k, median(v) AS m FROM t GROUP BY k) SELECT k, m FROM c UNION ALL SELECT -k, m "
            "FROM c WHERE k > 1"
        ),
        "SELECT k, median(v) FROM (SELECT k, v FROM t UNION ALL VALUES (3, 100), (9, 1)) GROUP BY k",
        "SELECT median(k) FROM (VALUES (1), (2), (6)) AS x(k)",
        "SELECT DISTINCT ON (k) k, v FROM t",
        "SELECT k, sum(v) FILTER (WHERE v > 3) FROM t GROUP BY ROLLUP (k)",
        "SELECT count(*) FROM t",
        "SELECT * FROM t WHERE v IS NULL",
        "SELECT k FROM t INTERSECT ALL SELECT v FROM t",
        "SELECT 1 WHERE false",
        (
            "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS rn, sum(v) OVER (PARTITION BY k "
            "ORDER BY v RANGE 3 PRECEDING) AS s FROM t"
        ),
        (
            "SELECT v, lag(v) OVER (ORDER BY v, k) AS before, rank() OVER (PARTITION BY v % 3 ORDER BY k) AS r "
            "FROM t QUALIFY r < 4"
        ),
        "SELECT k, string_agg(v::VARCHAR, ',' ORDER BY v DESC) FROM t GROUP BY k HAVING k <> 2",
    ],
)
def test_same_rows(db: Any, local: Any, sql: str) -> None:
    """What runs in tasks, on the driver, and in tasks again gives what the local backend gives."""
    assert sorted(map(repr, db.sql(sql).fetchall())) == sorted(map(repr, local.sql(sql).fetchall()))


@pytest.mark.parametrize(
    "steps",
    [
        "even = reshard t scope=global shards=5\nlast = gather even",
        "even = reshard t scope=local shards=2\nlast = gather even",
        "copies = broadcast t scope=global\nlast = gather copies",
        "copies = broadcast t scope=local shards=2\nlast = gather copies",
        (
            "one = gather t\nkeyed = rekey one key=(k)\nplaced = redistribute keyed scope=global "
            "shards=4\nlast = gather placed"
        ),
        "keyed = rekey t key=(k)\none = gather keyed\nplaced = redistribute one scope=global\nlast = gather placed",
        (
            "keyed = rekey t key=(k)\nplaced = redistribute keyed scope=global\nagain = redistribute placed "
            "scope=global shards=7\nlast = gather again"
        ),
        (
            "one = gather t\nsome = limit one count=(40)\nall = union some t\nlimited = filter all "
            "where=(true)\nback = gather limited\nlast = limit back count=(40)"
        ),
    ],
)
def test_movement_keeps_rows(db: Any, steps: str) -> None:
    """Rows are moved and none is lost or doubled."""
    text = f"plan version 1\ntarget spark shards=3\nt = scan t columns=(k, v)\n{steps}\noutput last (k, v)\n"
    given = tsql.load_plan_text(text).run(db).arrow()
    assert sorted(map(str, given.to_pylist())) == sorted(map(str, ROWS.to_pylist()))


def test_two_phases_in_a_task(db: Any) -> None:
    """scope=local works inside each task: its shards merge before rows leave it (Quill, figure 1)."""
    text = """plan version 1
target spark shards=3
t = scan t columns=(k, v)
partial = aggregate t phase=partial by=(k) n=count(*)
keyed = rekey partial key=(k)
near = redistribute keyed scope=local shards=2
far = redistribute near scope=global shards=2
total = aggregate far phase=final by=(k) n=count(*)
one = gather total
sorted = sort one by=(k asc nulls last)
output sorted (k, n)
"""
    assert tsql.load_plan_text(text).run(db).fetchall() == [(k, 8) for k in range(5)]


MULTICAST = """plan version 1
target spark shards=4
t = scan t columns=(k, v)
rows = multicast t to=(v % 2 * 2, v % 2 * 2 + 1) scope=global
u = scan t columns=(k, v)
named = project u w=v
cols = multicast named to=(w % 2, w % 2 + 2) scope=global
pairs = hash_join rows cols kind=inner where=(v < w) build=right
last = gather pairs
output last (v, w)
"""


def test_multicast_between_tasks(db: Any, local: Any) -> None:
    """A row goes to a line or a column of a square of shards, where each pair meets once; a row without a shard goes
    nowhere."""
    expected = local.sql("SELECT a.v, b.v AS w FROM t a JOIN t b ON a.v < b.v").fetchall()
    assert sorted(tsql.load_plan_text(MULTICAST).run(db).fetchall()) == sorted(expected)
    with pytest.raises(ExecutionError, match="multicast to a shard that does not exist: there are 4, numbered from 0"):
        tsql.load_plan_text(MULTICAST.replace("v % 2 * 2 + 1)", "v)")).run(db).fetchall()


def test_multicast_inside_tasks_is_refused(db: Any) -> None:
    with pytest.raises(
        PlanError, match="step rows: a multicast with scope=local sends rows to shards inside one task only"
    ) as caught:
        tsql.load_plan_text(MULTICAST.replace("scope=global", "scope=local")).run(db).fetchall()
    assert caught.value.hint == "use scope=global"


ROUNDS = """plan version 1
target spark shards=3
first = values columns=(n INTEGER) rows=((1))
working = working table=r columns=(n INTEGER)
next = project working m=(n + 1)
keyed = rekey next key=(m)
placed = redistribute keyed scope=local
few = filter placed where=(m < 6)
back = gather few
rounds = recursive first back table=r
output rounds (n)
"""


def test_rounds_move_rows_inside_their_process(db: Any) -> None:
    assert sorted(tsql.load_plan_text(ROUNDS).run(db).fetchall()) == [(n,) for n in range(1, 6)]


MEETING = (
    "t = scan t columns=(k)\nall = broadcast t scope=global\nplaced = hash_join keyed all kind=semi "
    "on=(m = k) build=right"
)


@pytest.mark.parametrize(
    ("movement", "hint"),
    [
        ("placed = redistribute keyed scope=global", "leave placed out, or use scope=local"),
        (MEETING, "put gather between all and placed"),
    ],
    ids=["moved", "met"],
)
def test_rounds_in_tasks_are_refused(db: Any, movement: str, hint: str) -> None:
    """The rows of the round before are nowhere in a task."""
    text = ROUNDS.replace("placed = redistribute keyed scope=local", movement)
    with pytest.raises(
        PlanError,
        match="step placed: rows of the working table r are in one process on Spark, and tasks do not reach them",
    ) as caught:
        tsql.load_plan_text(text).run(db).fetchall()
    assert caught.value.hint == hint


def test_hints_of_joins(db: Any, local: Any) -> None:
    for hint in ("BROADCAST(a)", "BROADCAST(b, scope => 'global')", "JOIN(a, b, 'loop')", "LEADING(b, a)"):
        sql = f"SELECT /*+ {hint} */ a.v, b.k FROM t a JOIN t b ON a.v = b.v"
        assert sorted(db.sql(sql).fetchall()) == sorted(local.sql(sql).fetchall())


def test_marks_by_several_keys(db: Any, local: Any) -> None:
    sql = "SELECT a.k, a.v, (a.k + 1, a.v) IN (SELECT b.k, b.v + 1 FROM t b) AS found FROM t a"
    assert sorted(map(repr, db.sql(sql).fetchall())) == sorted(map(repr, local.sql(sql).fetchall()))


def test_cut(db: Any) -> None:
    """Scans and what follows them run in tasks up to gather; the rest on the driver."""
    plan = tsql.load_plan_text(db.sql("SELECT k, median(v) AS m FROM t GROUP BY k ORDER BY m LIMIT 2").plan()).bind(db)
    cut = Cut(plan)
    places = {step.name: cut.in_tasks[id(step)] for step in plan.root.walk()}
    assert places["t"] and places["placed"] and places["groups"]
    assert not any(places[step.name] for step in plan.root.walk() if step.op == "gather")
    assert [step.op for step in cut.entries(plan.root, on_driver=True)] == ["gather"]
    assert "t = input columns=(k INTEGER, v BIGINT)" in " ".join(cut.travelling().text().split())


def test_input_is_no_step_of_a_file(db: Any) -> None:
    with pytest.raises(PlanError, match="a plan file reads them with scan"):
        tsql.load_plan_text("plan version 1\ntarget spark shards=1\nx = input columns=(k INTEGER)\noutput x (k)\n").run(
            db
        )


def test_errors_on_the_wire() -> None:
    for error in (
        ExecutionError("a", position=3),
        SourceError("b", hint="h"),
        OutOfMemoryError("c"),
        CatalogError("d"),
    ):
        found = decode_error(encode_error(error))
        assert (type(found), found.message, found.position, found.hint) == (
            type(error),
            error.message,
            error.position,
            error.hint,
        )
    assert decode_error(b"") is None


@pytest.mark.parametrize("value", [None, True, -(2**100), 1.5, float("inf"), "text", b"\x00\xff", (14, 3, -1)])
def test_values_on_the_wire(value: Any) -> None:
    assert decode_value(json.loads(json.dumps(encode_value(value)))) == value


def test_memory_limit_of_a_task(db: Any) -> None:
    db.register("wide", pa.table({"v": pa.array(range(200_000))}))
    db.sql("SET memory_limit = '64KiB'").arrow()
    with pytest.raises(OutOfMemoryError):
        db.sql("SELECT v, count(*) FROM wide GROUP BY v").arrow()


def test_batches_of_one_row(local: Any) -> None:
    with tsql.connect(spark=InProcess(), batch_rows=1) as session:
        session.register("nums", DATASETS["nums"])
        local.register("nums", DATASETS["nums"])
        sql = "SELECT k, count(*), min(y), max(x) FROM nums GROUP BY k ORDER BY k"
        assert session.sql(sql).fetchall() == local.sql(sql).fetchall()


def test_local_sessions_have_no_frames(local: Any) -> None:
    with pytest.raises(CatalogError, match="not of a session on Spark"):
        local.sql("SELECT 1").to_spark()
