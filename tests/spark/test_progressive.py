"""PROGRESSIVE queries on a cluster: a snapshot per wave of tasks, and a final one that is the plain result."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.patience import wait_until
from tests.progressive import test_unions as unions
from tests.progressive.test_final import ONE_SNAPSHOT, QUERIES, SIDE, bag, rows, table
from tests.progressive.test_whole_suites import filled, finished
from tests.slt_runner import run_file
from tests.spark.cluster import InProcess
from tests.spark.engine import SparkTsql
from tests.spark.suites import corpus
from tests.temporal.constructs import Construct, tables
from tests.temporal.data import to_rows
from tests.temporal.test_constructs import CONSTRUCTS, assert_answers, expected_of
from tsql.backends.local.progressive.units import Units
from tsql.backends.spark.progressive.schedule import Schedule
from tsql.kernels.expr.errors import ExecutionError, TsqlError
from tsql.planner.logical.progression import Progression
from tsql.tpch import data
from tsql.tpch.check import Oracle
from tsql.tpch.queries import NUMBERS, query

SCALE = 0.01
EVERY = 60
"""One record of the corpus in so many; `--all-configurations` runs all."""
KINDS = ("arrow", "blocks", "parquet")


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsql.backends.local.progressive.units.LEAST_ROWS", 32)
    monkeypatch.setattr("tsql.backends.local.progressive.units.MOST_ROWS", 64)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("rows") / "t.parquet"
    pq.write_table(table(), found, row_group_size=100)
    return found


@pytest.fixture(scope="module")
def duck() -> Iterator[Any]:
    with duckdb.connect() as connection:
        connection.register("t", table())
        connection.register("s", SIDE)
        yield connection


def fill(db: Any, kind: str, path: Path) -> None:
    if kind == "parquet":
        db.register("t", db.read_parquet(path))
    elif kind == "blocks":
        db.register("arrow", table())
        db.execute("CREATE TABLE t AS SELECT * FROM arrow")
    else:
        db.register("t", table())
    db.register("s", SIDE)


def values(found: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows(found)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cluster", [(1, 1), (3, 1), (2, 2)], ids=str)
def test_last_snapshots(kind: str, cluster: tuple[int, int], path: Path, duck: Any) -> None:
    """Whatever the table, the tasks at a time and their threads."""
    with tsql.connect(spark=InProcess(*cluster)) as db:
        fill(db, kind, path)
        for seed, sql in enumerate(QUERIES):
            plain = sql.replace("upper_bound(count(*))", "count(*)").replace("is_certain(count(*))", "true")
            *shown, last = db.sql(f"{sql} PROGRESSIVE EVERY 20 PERCENT SEED {seed}").snapshots()
            assert last.is_final and last.progress == 1.0
            assert bag(duck.sql(plain).fetchall()) == bag(values(last.table)), sql
            assert [one.is_final for one in shown] == [False] * len(shown)
            assert 4 <= len(shown) <= 5, sql
            assert [one.progress for one in shown] == sorted(one.progress for one in shown)
            assert all(0 < one.progress < 1 and one.table.schema.equals(last.table.schema) for one in shown)


@pytest.mark.parametrize("kind", KINDS)
def test_no_rows_that_may_pass(kind: str, path: Path) -> None:
    with tsql.connect(spark=InProcess(3)) as db:
        fill(db, kind, path)
        for by, expected in (("k", []), ("()", [(0, None)])):
            sql = f"SELECT count(*), sum(i) FROM t WHERE k > 100000 GROUP BY {by} PROGRESSIVE EVERY 20 PERCENT"
            *_, last = db.sql(sql).snapshots()
            assert last.is_final and last.progress == 1.0 and values(last.table) == expected


@pytest.mark.parametrize("sql", ONE_SNAPSHOT)
def test_one_snapshot(path: Path, duck: Any, sql: str) -> None:
    """What cannot progress says so, and gives the final answer alone."""
    with tsql.connect(spark=InProcess(3)) as db:
        fill(db, "parquet", path)
        relation = db.sql(f"{sql} PROGRESSIVE EVERY 20 PERCENT")
        (last,) = relation.snapshots()
        assert last.is_final
        assert bag(duck.sql(sql).fetchall()) == bag(values(last.table))
        assert "PROGRESSIVE shows the final result only: " in relation.explain()


@pytest.mark.parametrize("kind", KINDS)
def test_groups_over_a_union(kind: str, tmp_path: Path) -> None:
    given = unions.tables()
    with tsql.connect(spark=InProcess(3)) as db, duckdb.connect() as oracle:
        for name, part in given.items():
            oracle.register(name, part)
            if kind == "parquet":
                pq.write_table(part, tmp_path / f"{name}.parquet", row_group_size=200)
                db.register(name, db.read_parquet(tmp_path / f"{name}.parquet"))
            else:
                db.register("given" if kind == "blocks" else name, part)
                if kind == "blocks":
                    db.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
        for sql in (unions.QUERIES[0], unions.QUERIES[2], unions.QUERIES[3]):
            *shown, last = db.sql(f"{sql} PROGRESSIVE EVERY 20 PERCENT SEED 3").snapshots()
            assert len(shown) >= 4
            assert bag(oracle.sql(sql).fetchall()) == bag(values(last.table)), sql


def test_groups_that_the_driver_merges(path: Path, duck: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each wave the driver has each group once, and all snapshots are what they are without that."""
    sql = "SELECT k, g, count(*), avg(i), min(x), any_value(g) FROM t GROUP BY k, g ORDER BY 1, 2 LIMIT 50"
    found = []
    for growth in (1_000_000, 1):
        monkeypatch.setattr("tsql.backends.spark.progressive.merging.GROWTH", growth)
        monkeypatch.setattr("tsql.backends.spark.progressive.merging.LEAST_ROWS", 1)
        with tsql.connect(spark=InProcess(3)) as db:
            fill(db, "parquet", path)
            found.append(list(db.sql(f"{sql} PROGRESSIVE EVERY 20 PERCENT").snapshots()))
    for one, other in zip(*found, strict=True):
        assert_alike(one, other)
    assert bag(values(found[1][-1].table)) == bag(duck.sql(sql).fetchall())


def assert_alike(one: Any, other: Any) -> None:
    """Two snapshots show the same, but for the last digits."""
    assert one.progress == other.progress and one.bounds.keys() == other.bounds.keys()
    for left, right in zip(one.table.columns, other.table.columns, strict=True):
        near(left, right)
    for name, bounds in one.bounds.items():
        near(bounds.lower, other.bounds[name].lower)
        near(bounds.upper, other.bounds[name].upper)


def near(left: Any, right: Any) -> None:
    assert [v if not isinstance(v, float) else pytest.approx(v) for v in left.to_pylist()] == right.to_pylist()


@pytest.mark.parametrize("cluster", [(1, 1), (3, 1), (2, 2)], ids=str)
def test_bounds_are_those_of_a_local_run(cluster: tuple[int, int], path: Path) -> None:
    """Row groups are units of both, and a seed decides their order."""
    for sql in (
        "SELECT g, count(*) AS n, sum(x) AS s, avg(i) AS m, stddev(x) AS d FROM t WHERE i < 90 GROUP BY g ORDER BY g",
        "SELECT name, sum(i * x) / count(*) AS q FROM t JOIN s USING (g) GROUP BY name ORDER BY name",
        "SELECT count(*) AS n, max(x) AS m FROM t WHERE x > 5",
    ):
        found = []
        for settings in ({"threads": 1}, {"spark": InProcess(*cluster)}):
            with tsql.connect(**settings) as db:
                fill(db, "parquet", path)
                shown = db.sql(f"{sql} PROGRESSIVE EVERY 20 PERCENT SEED 5").snapshots()
                found.append({one.rows_read: one for one in shown})
        assert len(found[0]) == 5 and found[0].keys() <= found[1].keys()
        for rows_read, one in found[0].items():
            assert_alike(one, found[1][rows_read])


def test_populations_are_those_of_a_local_run(tmp_path: Path) -> None:
    """Groups that live in few row groups are estimated from these alone."""
    rng = np.random.default_rng(8)
    days = np.sort(rng.integers(0, 40, 12_000))
    given = pa.table({"day": days, "x": rng.gamma(2, 3, len(days))})
    pq.write_table(given, tmp_path / "days.parquet", row_group_size=60)
    sql = f"SELECT day, count(*) AS n, sum(x) AS s FROM '{tmp_path}/days.parquet' GROUP BY day ORDER BY day"
    found = []
    for settings in ({"threads": 1}, {"spark": InProcess(3)}):
        with tsql.connect(**settings) as db:
            shown = db.sql(f"{sql} PROGRESSIVE EVERY 25 PERCENT SEED 2").snapshots()
            found.append({one.rows_read: one for one in shown})
    assert found[0].keys() <= found[1].keys()
    for rows_read, one in found[0].items():
        assert_alike(one, found[1][rows_read])


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_hold(kind: str, path: Path, duck: Any) -> None:
    """About as often as they say, for 20 seeds."""
    sql = "SELECT sum(x) AS s, avg(i) AS m, count(*) AS n FROM t WHERE i < 50"
    exact: dict[str, Any] = dict(zip("smn", duck.sql(sql).fetchall()[0], strict=True))
    held = shown = 0
    with tsql.connect(spark=InProcess(3)) as db:
        fill(db, kind, path)
        for seed in range(20):
            with db.sql(f"{sql} PROGRESSIVE EVERY 30 PERCENT SEED {seed}").snapshots() as snapshots:
                for snap in (next(snapshots), next(snapshots)):
                    for name, value in exact.items():
                        low, high = (end[0].as_py() for end in (snap.bounds[name].lower, snap.bounds[name].upper))
                        shown += 1
                        held += low <= value <= high
    assert shown == 120 and 0.88 * shown <= held


def counted(cluster: InProcess, snapshots: Any) -> list[int]:
    """The jobs that each snapshot took."""
    found = []
    while True:
        before = len(cluster.jobs)
        if next(snapshots, None) is None:
            return found
        found.append(len(cluster.jobs) - before)


def test_nothing_runs_between_snapshots(path: Path) -> None:
    """A wave is one job, which runs when its snapshot is asked for."""
    cluster = InProcess(3)
    with tsql.connect(spark=cluster) as db:
        fill(db, "parquet", path)
        relation = db.sql("SELECT g, sum(i) FROM t JOIN s USING (g) GROUP BY g PROGRESSIVE EVERY 10 PERCENT")
        assert counted(cluster, relation.snapshots()) == [1] * 10
        snapshots = relation.snapshots()
        next(snapshots)
        snapshots.pause()
        before = len(cluster.jobs)
        assert snapshots.is_paused and len(cluster.jobs) == before
        snapshots.resume()
        last = snapshots.finish()
        assert last.is_final and len(cluster.jobs) == before + 9
        assert relation.progress == 1.0


def test_waves_have_a_unit_for_each_core(path: Path) -> None:
    """However small the parts are that EVERY asks for. The first wave is small."""
    cluster = InProcess(7)
    with tsql.connect(spark=cluster) as db:
        fill(db, "parquet", path)
        sql = "SELECT g, sum(i) FROM t GROUP BY g PROGRESSIVE EVERY"
        list(db.sql(f"{sql} 10 ROWS").snapshots())
        assert [len(job) for job in cluster.jobs] == [7] * 12
        cluster.jobs.clear()
        first, *_ = [one.rows_read for one in db.sql(f"{sql} 50 PERCENT").snapshots()]
        assert first == 800 and [len(job) for job in cluster.jobs] == [7] * 3


def test_stops(path: Path, duck: Any) -> None:
    """UNTIL looks after each wave, WITHIN stops, and who asks for the result gets the snapshot at the stop."""
    cluster = InProcess(3)
    with tsql.connect(spark=cluster) as db:
        fill(db, "parquet", path)
        sql = "SELECT avg(x) AS m, count(*) AS n FROM t WHERE i < 80"
        until = f"{sql} PROGRESSIVE EVERY 5 PERCENT UNTIL ERROR <= 0.2"
        *_, last = db.sql(until).snapshots()
        assert not last.is_final and last.progress < 1
        assert all(last.relative_error(name)[0].as_py() <= 0.2 for name in "mn")
        assert db.sql(until).fetchall() == values(last.table)
        (only,) = db.sql(f"{sql} PROGRESSIVE EVERY 5 PERCENT WITHIN INTERVAL '1 microsecond'").snapshots()
        assert not only.is_final and only.progress < 0.2
        *_, last = db.sql(f"{sql} PROGRESSIVE EVERY INTERVAL '1 microsecond' UNTIL ERROR <= 1e-9").snapshots()
        (mean, rows) = duck.sql(sql).fetchall()[0]
        assert last.is_final and values(last.table) == [(pytest.approx(mean), rows)]


def test_a_stop_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed on the cluster is freed, a broadcast too, and a job that runs is cancelled."""
    monkeypatch.setattr("tsql.backends.spark.stages.broadcasts.SENT_BYTES", 10)
    cluster, made, shared, cancelled = InProcess(3), [], [], threading.Event()
    computed, share = cluster.computed, cluster.share
    monkeypatch.setattr(cluster, "computed", lambda rows, work: made.append(1) or computed(rows, work))
    monkeypatch.setattr(cluster, "share", lambda blobs: shared.append(share(blobs)) or shared[-1])
    monkeypatch.setattr(cluster, "cancel", lambda group: cancelled.set())
    with tsql.connect(spark=cluster) as db:
        fill(db, "parquet", path)
        relation = db.sql("SELECT g, sum(i) FROM t JOIN s USING (g) GROUP BY g PROGRESSIVE EVERY 5 PERCENT")
        with relation.snapshots() as snapshots:
            next(snapshots), next(snapshots)
        assert len(made) == 2 == cluster.freed
        assert len(shared) == 1 and shared[0].destroyed and not cancelled.is_set()
        held, go = threading.Event(), threading.Event()
        collect = cluster.collect

        def waits(*given: Any) -> Iterator[Any]:
            held.set()
            go.wait(30)
            yield from collect(*given)

        monkeypatch.setattr(cluster, "collect", waits)
        snapshots = relation.snapshots()
        stopper = threading.Thread(target=lambda: held.wait(30) and snapshots.stop())
        stopper.start()
        assert next(snapshots, None) is None
        stopper.join()
        assert cancelled.wait(10)
        go.set()
        assert wait_until(lambda: len(made) == cluster.freed)
        assert wait_until(lambda: not at_work()), at_work()


def at_work() -> list[str]:
    """The threads of runs. (Those that share rows between the workers of an executor are the executor's.)"""
    names = {"tsql-spark", "tsql-spark-cancel", "tsql-spark-release"}
    return [thread.name for thread in threading.enumerate() if thread.name in names]


class Twice(InProcess):
    """A cluster that runs each task twice, and drops what the first one says."""

    def computed(self, rows: Any, work: Any) -> Any:
        first, second = super().computed(rows, work), super().computed(rows, work)
        return type(first)(lambda: (first(), second())[1])


def test_tasks_that_run_again(path: Path) -> None:
    """They give the same groups, and what they count counts once."""
    sql = (
        "SELECT window_start, count(*) AS n, sum(x) AS s FROM TUMBLE(u, ts, INTERVAL '6 hours') GROUP BY window_start "
        "ORDER BY window_start"
    )
    plain = table()
    times = [None if n % 50 == 0 else time for n, time in enumerate(plain["ts"].to_pylist())]
    given = plain.set_column(5, "ts", pa.array(times, pa.timestamp("us")))
    found = []
    for cluster in (InProcess(3), Twice(3)):
        with tsql.connect(spark=cluster) as db:
            db.register("u", given)
            relation = db.sql(f"{sql} PROGRESSIVE EVERY 25 PERCENT")
            found.append((list(relation.snapshots()), relation.notes))
    for one, other in zip(found[0][0], found[1][0], strict=True):
        assert_alike(one, other)
    assert found[0][1] == found[1][1] == ["180 rows without a time"]


def test_errors(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the query has the place that it has in a plain run; others name their stage and step."""
    with tsql.connect(spark=InProcess(3)) as db:
        fill(db, "parquet", path)
        sql = "SELECT g, sum(CAST(g || 'x' AS INTEGER)) AS s FROM t GROUP BY g"
        with pytest.raises(TsqlError) as plain:
            db.sql(sql).fetchall()
        with pytest.raises(TsqlError) as found:
            list(db.sql(f"{sql} PROGRESSIVE EVERY 20 PERCENT").snapshots())
        assert type(found.value) is type(plain.value) and found.value.message.startswith("Could not convert string")
        assert found.value.position == plain.value.position is not None

        def fails(*_: Any) -> Any:
            raise RuntimeError("a disk was pulled out")

        monkeypatch.setattr("tsql.backends.spark.task.sampled_groups", fails)
        with pytest.raises(ExecutionError, match=r"stage 1 \(step partial, shard 0\): RuntimeError: a disk"):
            list(db.sql("SELECT count(*) FROM t PROGRESSIVE EVERY 20 PERCENT").snapshots())


@pytest.mark.parametrize(
    ("sql", "note"),
    [
        ("SELECT k, sum(x) FROM t GROUP BY k", "the groups of total are too many for the driver"),
        (
            "SELECT a.n, t.x FROM (SELECT g, count(*) AS n FROM s GROUP BY g) a JOIN t USING (g)",
            "the rows of",
        ),
    ],
)
def test_what_the_driver_has_no_room_for(path: Path, sql: str, note: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsql.planner.cost.constants.DRIVER_BYTES", 10)
    with tsql.connect(spark=InProcess(3)) as db:
        fill(db, "parquet", path)
        relation = db.sql(f"{sql} PROGRESSIVE EVERY 20 PERCENT")
        assert [one.is_final for one in relation.snapshots()] == [True]
        assert note in next(line for line in relation.explain().splitlines() if "final result only" in line)


def test_a_memory_limit_shows_the_final_result(path: Path) -> None:
    with tsql.connect(spark=InProcess(3), memory_limit="100MB") as db:
        fill(db, "parquet", path)
        relation = db.sql("SELECT g, count(*) FROM t GROUP BY g PROGRESSIVE EVERY 20 PERCENT")
        assert [one.is_final for one in relation.snapshots()] == [True]
        assert relation.notes == ["a run with a memory limit shows the final result only"]


def test_rows_of_large_tables(path: Path, duck: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows move between tasks before they are grouped, there is the final result; where only groups move, there
    are snapshots."""
    with tsql.connect(spark=InProcess(3)) as db:
        fill(db, "parquet", path)
        monkeypatch.setattr("tsql.planner.cost.constants.BROADCAST_BYTES", -1)
        joined = "SELECT name, count(*), sum(i) FROM t JOIN s USING (g) GROUP BY name"
        (only,) = db.sql(f"{joined} PROGRESSIVE EVERY 20 PERCENT").snapshots()
        assert bag(values(only.table)) == bag(duck.sql(joined).fetchall())
        placed = "SELECT a.k, a.n + b.n FROM (SELECT k, count(*) AS n FROM t GROUP BY k) a JOIN c b ON a.k = b.k"
        db.execute("CREATE TABLE c AS SELECT k, count(*) AS n FROM t GROUP BY k")
        hinted = placed.replace("(SELECT k", "(SELECT /*+ AGG('two_phase') */ k")
        relation = db.sql(f"{hinted} PROGRESSIVE EVERY 20 PERCENT")
        assert "redistribute partial" in relation.plan() or "rekey partial" in relation.plan()
        *shown, last = relation.snapshots()
        expected = duck.sql(placed.replace("JOIN c b", "JOIN (SELECT k, count(*) AS n FROM t GROUP BY k) b"))
        assert len(shown) >= 4 and bag(values(last.table)) == bag(expected.fetchall())


@pytest.fixture(scope="module")
def tpch_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("cut")
    found = {}
    for name, source in data.tables(SCALE).items():
        found[name] = folder / f"{name}.parquet"
        pq.write_table(pq.read_table(source), found[name], row_group_size=2_000)
    return found


@pytest.mark.parametrize("cluster", [(3, 1), (2, 2), (1, 1)], ids=str)
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.in_turn(3)
def test_tpch(number: int, cluster: tuple[int, int], tpch_files: dict[str, Path]) -> None:
    oracle = Oracle(SCALE, data.tables(SCALE))
    with tsql.connect(spark=InProcess(*cluster)) as db:
        for name, file in tpch_files.items():
            db.register(name, db.read_parquet(file))
        outcome = oracle.compare("tsql", number, lambda: finished(db, query(number, SCALE), seed=number))
    oracle.close()
    assert outcome.right, str(outcome)


@pytest.mark.parametrize("construct", CONSTRUCTS, ids=lambda construct: construct.name)
@pytest.mark.parametrize("cluster", [(3, 1), (2, 2), (1, 1)], ids=str)
@pytest.mark.in_turn(3)
def test_constructs(construct: Construct, cluster: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of 40 rows, in units of 4."""
    monkeypatch.setattr("tsql.backends.local.progressive.units.LEAST_ROWS", 2)
    monkeypatch.setattr("tsql.backends.local.progressive.units.MOST_ROWS", 4)
    given = tables("unsorted", seed=cluster[0])
    with tsql.connect(spark=InProcess(*cluster)) as db:
        filled(db, given, blocks=cluster[1] == 2)
        for statement in construct.setup:
            db.sql(statement)
        found = to_rows(finished(db, construct.sql, seed=len(construct.sql)))
    assert_answers(construct, found, expected_of(construct, given))


@corpus.files(EVERY, turn=1)
def test_corpus(path: Path, request: pytest.FixtureRequest) -> None:
    with closing(SparkTsql(InProcess(3), progressive=True)) as engine:
        failures = run_file(path, engine, "progressive", every=corpus.every_of(request, EVERY), turn=1)
    assert not failures, "\n".join(map(str, failures))


def sizes(length: int, cores: int, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.0, **asked: Any) -> list[int]:
    """The units of each wave. A unit takes so many seconds."""
    now = [100.0]
    monkeypatch.setattr("tsql.backends.spark.progressive.schedule.time.perf_counter", lambda: now[0])
    schedule = Schedule(Progression(**asked), Units(np.full(length, 10), 0), cores, now[0])
    found, last = [], 0
    while last < length:
        after = schedule.next()
        found.append(after - last)
        now[0] += seconds * (after - last)
        last = after
    return found


def test_sizes_of_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sizes(1000, 4, monkeypatch) == [8, 42, *[50] * 19]
    assert sizes(1000, 4, monkeypatch, every=25.0) == [8, 242, 250, 250, 250]
    assert sizes(1000, 4, monkeypatch, every=2500, unit="rows") == [8, 242, 250, 250, 250]
    assert sizes(20, 4, monkeypatch, every=25.0) == [5, 5, 5, 5]
    # A core without a unit would idle, and so would most of them in a wave of what is left.
    assert sizes(100, 30, monkeypatch, every=1.0) == [30, 30, 40]
    assert sizes(10, 30, monkeypatch) == [10]
    assert sizes(1, 1, monkeypatch) == [1]
    # By time: a unit takes 10 ms, a snapshot is due each second.
    assert sizes(1000, 4, monkeypatch, seconds=0.01, every=1e6, unit="us")[:6] == [8, 32, 100, 100, 100, 100]
    # Two seconds are left for half of the input, which would take five.
    within = sizes(1000, 4, monkeypatch, seconds=0.01, every=50.0, within_us=2_000_000)
    assert sum(within[:4]) <= 200 < 500 and within[0] == 8
