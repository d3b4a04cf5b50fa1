"""Plans and queries of odd shapes through the Spark backend's tasks in this process: tables that are read twice, rows
of one shard beside rows of several, broadcasts of every kind, input beyond memory, and random plans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.spark import random_plans
from tests.spark.cluster import InProcess
from tsql.backends.spark import mailbox, task
from tsql.kernels.expr.errors import PlanError

ROWS = pa.table(
    {
        "k": pa.array([i % 5 for i in range(40)], pa.int32()),
        "v": pa.array([None if i % 9 == 0 else i for i in range(40)], pa.int64()),
    }
)
HEAD = "plan version 1\ntarget spark shards=3\n"
PLANS = {
    "a table below a broadcast and beside it": """t = scan {t} columns=(k, v)
one = gather t
all = broadcast one scope=global how={how}
named = project all k2=k v2=v
last = hash_join t named kind=inner on=(v = v2) build=right
output end (k, v, v2)
""",
    "a whole table below a broadcast and beside it": """t = scan {t} columns=(k, v) shards=1
all = broadcast t scope=global how={how}
named = project all k2=k v2=v
wide = scan {t} columns=(k, v)
even = reshard wide scope=global shards=3
both = union even t
last = hash_join both named kind=inner on=(v = v2) build=right
output end (k, v, v2)
""",
    "a broadcast of a join with a broadcast": """t = scan {t} columns=(k, v)
u = scan {t} columns=(k, v)
named = project u k2=k v2=v
inner = broadcast named scope=global
pairs = hash_join t inner kind=inner on=(v = k2) build=right
one = gather pairs
renamed = project one a=v b=v2
outer = broadcast renamed scope=global how={how}
w = scan {t} columns=(k, v)
last = hash_join w outer kind=left on=(v = b) build=right
output end (k, v, a, b)
""",
    "a broadcast of groups": """t = scan {t} columns=(k, v)
keyed = rekey t key=(k)
placed = redistribute keyed scope=global shards=2
groups = aggregate placed by=(g=k) m=median(v)
one = gather groups
all = broadcast one scope=global how={how}
last = hash_join t all kind=inner on=(k = g) build=right
output end (k, v, m)
""",
    "a broadcast of values": """t = scan {t} columns=(k, v)
some = values columns=(g INTEGER, s VARCHAR) rows=((1, 'one'), (2, NULL), (7, ''))
all = broadcast some scope=global how={how}
last = hash_join t all kind=inner on=(k = g) build=right
output end (k, v, s)
""",
    "a step of a part that is also below a broadcast": """t = scan {t} columns=(k, v)
keyed = rekey t key=(v)
placed = redistribute keyed scope=global
u = scan {t} columns=(k, v)
named = project u g=(CAST(k AS BIGINT)) w=v
other = rekey named key=(g)
there = redistribute other scope=global
few = merge_join placed there kind=semi on=(v = g) build=right
more = series few column=e from=(CAST(0 AS BIGINT)) to=(v % 4) by=(CAST(1 AS BIGINT))
again = project few a=k b=v
one = gather again
all = broadcast one scope=global how={how}
last = hash_join more all kind=left on=(e = b) build=right
output end (k, v, e, a, b)
""",
    "rows of the driver for the shards of a task": """t = scan {t} columns=(k, v) shards=1
u = scan {t} columns=(k, v)
one = gather u
groups = aggregate one by=(g=k) n=count(*)
all = broadcast groups scope=local
last = merge_join t all kind=inner on=(k = g) build=right
output end (k, v, n)
""",
    "counts of one shard beside rows of several": """t = scan {t} columns=(v) shards=1
count = aggregate t by=() n=count(*)
wide = scan {t} columns=(v)
named = project wide n=v
even = reshard named scope=global shards=3
last = union even count
output end (n)
""",
    "the first rows of one shard beside a scan": """t = scan {t} columns=(v) shards=1
few = sort t by=(v asc nulls last) limit=(3)
wide = scan {t} columns=(v)
last = union wide few
output end (v)
""",
    "one shard of moved rows beside several": """t = scan {t} columns=(v)
alone = reshard t scope=global shards=1
count = aggregate alone by=() n=count(*)
named = project t n=v
even = reshard named scope=global shards=3
last = union even count
output end (n)
""",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("rows")
    pq.write_table(ROWS, found / "t.parquet", row_group_size=1)
    return found


def filled(db: Any) -> Any:
    db.register("t", ROWS)
    db.execute("CREATE TABLE blocks AS SELECT * FROM t")
    return db


@pytest.fixture
def db() -> Iterator[Any]:
    with tsql.connect(spark=InProcess()) as session:
        yield filled(session)


@pytest.fixture
def local() -> Iterator[Any]:
    with tsql.connect(threads=1) as session:
        yield filled(session)


def bag(rows: Any) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.in_turn(7)
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("how", ["read", "send", "collect"])
@pytest.mark.parametrize("table", ["t", "blocks", "file"])
@pytest.mark.parametrize("settings", [{}, {"batch_rows": 1}, {"spill_after": 1}], ids=str)
def test_plans(folder: Path, name: str, how: str, table: str, settings: dict[str, Any]) -> None:
    source = f"'{folder}/t.parquet'" if table == "file" else table
    text = HEAD + PLANS[name].format(t=source, how=how).replace("output end", "end = gather last\noutput end")
    with tsql.connect(spark=InProcess(), **settings) as db, tsql.connect(threads=1) as one:
        given = tsql.load_plan_text(text).run(filled(db)).fetchall()
        expected = tsql.load_plan_text(random_plans.alone(text)).run(filled(one)).fetchall()
    assert bag(given) == bag(expected)


def test_movement_inside_a_task_beside_rows_of_all_tasks_is_refused(db: Any) -> None:
    """The rows of a task that are divided again meet others of the task only in their own part of it."""
    text = f"""{HEAD}t = scan t columns=(k, v)
keyed = rekey t key=(k)
left = redistribute keyed scope=global
again = rekey left key=(k)
near = redistribute again scope=local shards=3
named = project near g=k w=v
pairs = hash_join left named kind=anti on=(k = g) build=right
last = gather pairs
output last (k, v)
"""
    with pytest.raises(PlanError, match="scope=local moves rows inside one task only"):
        tsql.load_plan_text(text).run(db).fetchall()


def test_a_worker_that_has_not_spilled_before() -> None:
    """A worker keeps the kernels of a plan: those of a task that need not spill are of no use to one that must."""
    plan = PLANS["a broadcast of groups"].format(t="t", how="read")
    text = HEAD + plan.replace("output", "end = gather last\noutput")
    for settings in ({}, {"spill_after": 1}, {"memory_limit": "64MiB"}, {"batch_rows": 1}, {}):
        with tsql.connect(spark=InProcess(), **settings) as db:
            assert len(tsql.load_plan_text(text).run(filled(db)).fetchall()) == 40, settings


def test_spilled_rows_of_the_driver(local: Any) -> None:
    """A step with one shard whose rows tasks need."""
    sql = "SELECT a.k, b.i FROM blocks a JOIN (SELECT i FROM range(50) s(i) ORDER BY i LIMIT 45) b ON a.v = b.i"
    with tsql.connect(spark=InProcess(), spill_after=1) as db:
        assert bag(filled(db).sql(sql).fetchall()) == bag(local.sql(sql).fetchall())


QUERIES = (
    "SELECT k, median(v), count(*) FROM t GROUP BY k",
    "SELECT a.v, b.k FROM t a JOIN blocks b ON a.v = b.v + 1",
    "SELECT k, s, octet_length(encode(s)) FROM (SELECT k, repeat(chr(65 + k), 300000 + v) AS s FROM t WHERE v < 9) "
    "QUALIFY row_number() OVER (PARTITION BY k ORDER BY s DESC) = 1",
    "SELECT v, row_number() OVER (PARTITION BY k ORDER BY v) FROM t",
)


@pytest.mark.parametrize("sql", QUERIES)
def test_input_beyond_memory(local: Any, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a task receives waits in a file."""
    boxes: list[mailbox.Mailbox] = []

    class Watched(mailbox.Mailbox):
        def __init__(self, *given: Any):
            super().__init__(*given)
            boxes.append(self)

    monkeypatch.setattr(task, "WAITING_SHARE", 0.0)
    monkeypatch.setattr(task, "Mailbox", Watched)
    monkeypatch.setattr("tsql.planner.cost.constants.BROADCAST_BYTES", -1)
    with tsql.connect(spark=InProcess(17)) as db:
        assert bag(filled(db).sql(sql).fetchall()) == bag(local.sql(sql).fetchall())
    assert any(box.spilled_bytes for box in boxes)


def test_input_is_not_collected_before_it_is_put_away(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task puts each blob into its mailbox when it arrives: at no time are there two that nobody has put away."""
    arrived, waiting = [0], []
    put, run = mailbox.Mailbox.put, task.Task.run

    def counted(rows: Iterator[Any]) -> Iterator[Any]:
        for row in rows:
            arrived[0] += 1
            waiting.append(arrived[0])
            yield row

    def put_away(self: Any, *letter: Any) -> None:
        arrived[0] = max(0, arrived[0] - 1)
        put(self, *letter)

    monkeypatch.setattr(mailbox.Mailbox, "put", put_away)
    monkeypatch.setattr(task.Task, "run", lambda self, rows: run(self, counted(rows)))
    assert len(db.sql("SELECT k, median(v) FROM t GROUP BY k").fetchall()) == 5
    assert len(waiting) > 5 and max(waiting) == 1


def test_rows_that_two_stages_read_are_counted_once(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = task.Task._rows

    def rows(self: Any, shard: int, execution: Any) -> Any:
        if any(entry.kind == "table" for entry in self.part.entries):
            execution.run.count("rows without a time", 1)
        return plain(self, shard, execution)

    monkeypatch.setattr(task.Task, "_rows", rows)
    text = f"""{HEAD}t = scan t columns=(k, v)
keyed = rekey t key=(k)
placed = redistribute keyed scope=global
groups = aggregate placed by=(k) n=count(*)
other = rekey groups key=(n)
moved = redistribute other scope=global
counts = aggregate moved by=(n) m=count(*)
again = rekey placed key=(v)
values = redistribute again scope=global
found = aggregate values by=(n=v) m=count(*)
both = union counts found
last = gather both
output last (n, m)
"""
    relation = tsql.load_plan_text(text).run(db)
    assert relation.fetchall()
    assert relation.counts == {"rows without a time": 3}


FIRST, PLANS_PER_SETTING = 5000, 40


@pytest.mark.parametrize("number", range(len(random_plans.SETTINGS)), ids=lambda n: str(random_plans.SETTINGS[n]))
def test_random_plans(tmp_path: Path, number: int, request: pytest.FixtureRequest) -> None:
    times = 10 if request.config.getoption("--all-configurations") else 1
    ran = 0
    with random_plans.sessions(tmp_path, number) as (spark, one):
        for seed in range(FIRST, FIRST + times * PLANS_PER_SETTING):
            text = random_plans.plan(seed, one, tmp_path)
            wrong = "" if text is None else random_plans.wrong(text, spark, one)
            assert not wrong, f"seed {seed}: {wrong}\n{text}"
            ran += wrong is None
    assert ran > 10
