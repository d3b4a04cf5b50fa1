"""How runs use the cluster: waves of tasks, broadcasts that cost no job, input that waits in a file, what
`explain analyze` tells."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.spark.cluster import InProcess
from tsql.backends import Run
from tsql.backends.io import Split
from tsql.backends.spark import kept, task
from tsql.backends.spark.backend import SparkBackend
from tsql.backends.spark.failures import TaskFailed
from tsql.backends.spark.jobs import Jobs
from tsql.backends.spark.limits import growing
from tsql.backends.spark.mailbox import Mailbox
from tsql.backends.spark.splits import TASK_BYTES, dealt, tasks_for
from tsql.backends.spark.transport.rdd import RddTransport
from tsql.kernels.expr.errors import ExecutionError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty files of one row group, and a small table."""
    found = tmp_path_factory.mktemp("rows")
    for number in range(40):
        ids = range(number * 100, number * 100 + 100)
        pq.write_table(
            pa.table({"id": list(ids), "k": [i % 7 for i in ids], "s": [f"text {i}" for i in ids]}),
            found / f"{number:02}.parquet",
        )
    pq.write_table(pa.table({"k": list(range(7)), "name": [f"name {i}" for i in range(7)]}), found / "names.pq")
    return found


@pytest.fixture
def cluster() -> InProcess:
    return InProcess(3)


@pytest.fixture
def db(cluster: InProcess, folder: Path) -> Iterator[Any]:
    with tsql.connect(spark=cluster) as session:
        session.register("big", session.read_parquet(f"{folder}/*.parquet"))
        session.register("names", session.read_parquet(f"{folder}/names.pq"))
        yield session


def oracle(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as duck:
        duck.execute(f"CREATE VIEW big AS FROM '{folder}/*.parquet'")
        duck.execute(f"CREATE VIEW names AS FROM read_parquet('{folder}/names.pq')")
        return duck.sql(sql).fetchall()


def test_a_query_is_one_job(db: Any, cluster: InProcess, folder: Path) -> None:
    """Joins with small files, scalar subqueries and groupings move nothing to the driver in between."""
    sql = (
        "SELECT name, count(*), max(id), (SELECT avg(id) FROM big) FROM big JOIN names USING (k) "
        "WHERE id > (SELECT min(k) FROM names) GROUP BY name ORDER BY name"
    )
    assert db.sql(sql).fetchall() == oracle(folder, sql)
    assert len(cluster.jobs) == 1
    assert "how=read" in db.sql(sql).plan()


def test_limit_reads_no_more_than_it_needs(db: Any, cluster: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsql.backends.spark.splits.TASK_BYTES", 1)
    assert len(db.sql("SELECT id, s FROM big LIMIT 5").fetchall()) == 5
    assert [len(wave) for wave in cluster.jobs] == [3]
    cluster.jobs.clear()
    assert len(db.sql("SELECT id FROM big WHERE id >= 1500 LIMIT 7 OFFSET 2").fetchall()) == 7
    cluster.jobs.clear()
    assert len(db.sql("SELECT id FROM big WHERE id % 1000 = 999 LIMIT 3").fetchall()) == 3
    assert [len(wave) for wave in cluster.jobs] == [3, 12, 25]
    assert db.sql("SELECT id FROM big LIMIT 0").fetchall() == []
    assert len(db.sql("SELECT id FROM big LIMIT 100000").fetchall()) == 4000


def test_waves_of_a_result(db: Any, cluster: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result comes in the order of the input, a few partitions at a time."""
    monkeypatch.setattr("tsql.backends.spark.splits.TASK_BYTES", 1)
    ids = [row[0] for row in db.sql("SELECT id FROM big WHERE id % 2 = 0").fetchall()]
    assert ids == list(range(0, 4000, 2))
    assert [len(wave) for wave in cluster.jobs] == [12, 12, 12, 4]
    rows = iter(db.sql("SELECT id FROM big"))
    cluster.jobs.clear()
    next(rows)
    rows.close()
    assert len(cluster.jobs) <= 2


def test_growing_waves() -> None:
    assert [len(wave) for wave in growing(100, 4)] == [4, 16, 64, 16]
    assert list(growing(0, 4)) == []
    assert [n for wave in growing(100, 4) for n in wave] == list(range(100))


def test_splits_are_dealt_evenly_and_in_order() -> None:
    splits = [Split(n, "file", rows) for n, rows in enumerate([1, 1, 1, 1000, 1, 1, 1, 500, 500])]
    for tasks in range(1, len(splits) + 1):
        found = dealt(splits, tasks)
        assert [split for mine in found for split in mine] == splits
        assert all(found), "a task has nothing to do"
    assert [[split.rows for split in mine] for mine in dealt(splits, 2)] == [[1, 1, 1, 1000], [1, 1, 1, 500, 500]]
    assert dealt([], 1) == [[]]


def test_tasks_follow_the_bytes() -> None:
    assert tasks_for(10, splits=100, cores=4) == 4
    assert tasks_for(10, splits=3, cores=4) == 3
    assert tasks_for(TASK_BYTES * 9, splits=100, cores=4) == 12
    assert tasks_for(TASK_BYTES * 900, splits=100, cores=4) == 100


def test_a_mailbox_keeps_what_fits(tmp_path: Path) -> None:
    box = Mailbox(100, str(tmp_path))
    letters = [(number % 2, "rows", 50 - number, bytes([number]) * (number * 3)) for number in range(40)]
    for letter in letters:
        box.put(*letter)
    assert box.spilled_bytes > 0
    box.close()
    for shard in (0, 1):
        expected = sorted((place, blob) for s, _, place, blob in letters if s == shard)
        assert [(place, bytes(blob)) for place, blob in box.of(shard, "rows")] == expected
    assert box.of(0, "others") == []
    assert list(box.shards()) == [0, 1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k, median(id), count(DISTINCT s) FROM big GROUP BY k ORDER BY k",
        "SELECT a.id, b.s FROM big a JOIN big b ON a.id = b.id + 1 ORDER BY a.id",
        "SELECT id, sum(id) OVER (PARTITION BY k ORDER BY id) FROM big ORDER BY id",
    ],
)
def test_input_that_waits_in_a_file(db: Any, folder: Path, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task with more input than its share of memory keeps it in a file, and its steps may spill."""
    monkeypatch.setattr("tsql.planner.cost.constants.BROADCAST_BYTES", -1)
    monkeypatch.setattr(task, "WAITING_SHARE", 1e-9)
    assert db.sql(sql).fetchall() == oracle(folder, sql)


def test_analyze_adds_up_all_tasks(db: Any) -> None:
    text = db.sql("SELECT k, median(id) FROM big WHERE id % 2 = 0 GROUP BY k ORDER BY k").explain("analyze")
    (filtered,) = (line for line in text.splitlines() if line.startswith("filtered "))
    assert "# 2,000 rows" in filtered
    (groups,) = (line for line in text.splitlines() if line.startswith("groups ") and "aggregate" in line)
    assert "# 7 rows" in groups
    head = next(line for line in text.splitlines() if line.startswith("stage "))
    assert head.split() == ["stage", "tasks", "ms", "slowest", "ms", "skew", "bytes", "in", "bytes", "out"]
    stages = text[text.index(head) :].split("\n\n")[0].splitlines()[1:]
    assert [line.split()[:4] for line in stages] == [["1", "to", "placed", "3"], ["2", "to", "gathered", "3"]]


def test_what_a_run_leaves(db: Any, cluster: InProcess) -> None:
    db.sql("SELECT k, median(id) FROM big GROUP BY k").fetchall()
    assert cluster.freed == 2


MANY = """plan version 1
target spark shards=3

big    = scan big columns=(id, k)
keyed  = rekey big key=(id)
placed = redistribute keyed scope=global shards=40
groups = aggregate placed by=(id) m=median(k)
some   = aggregate groups phase=partial by=() n=count(*) s=sum(m)
one    = gather some
total  = aggregate one phase=final by=() n=count(*) s=sum(m)
output total (n, s)
"""


def test_tasks_follow_what_was_written(db: Any, cluster: InProcess, folder: Path) -> None:
    """Forty shards of few bytes are three tasks; each shard is still computed by itself."""
    expected = oracle(folder, "SELECT count(*), sum(k) FROM big")
    assert tsql.load_plan_text(MANY).run(db).fetchall() == expected
    assert cluster.jobs == [[0, 1, 2]]


def test_shards_follow_the_bytes_that_move(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsql.planner.cost.constants.BROADCAST_BYTES", -1)
    sql = "SELECT a.k, median(b.id) FROM big a JOIN big b ON a.id = b.id GROUP BY a.k"
    assert "shards=3" in db.sql(sql).plan()
    monkeypatch.setattr("tsql.planner.cost.constants.SHARD_BYTES", 4000)
    sides = [line for line in db.sql(sql + " ").plan().splitlines() if "= redistribute" in line]
    assert len({line.split("shards=")[1] for line in sides[:2]}) == 1
    assert all(int(line.split("shards=")[1]) > 3 for line in sides[:2])
    assert "SHARDS" not in db.sql(sql).plan()
    forced = db.sql(sql.replace("SELECT", "SELECT /*+ SHARDS(5) */")).plan()
    assert {line.split("shards=")[1] for line in forced.splitlines() if "= redistribute" in line} == {"5"}


def test_the_start_of_spark_is_no_parsing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first query looks for its names in Spark, which is started for that."""
    waited, clock = [0.0], time.perf_counter

    def start(name: str, spark: Any) -> SparkBackend:
        waited[0] += 1e6
        return SparkBackend(InProcess())

    monkeypatch.setattr("time.perf_counter", lambda: clock() + waited[0])
    monkeypatch.setattr("tsql.query_runner.make_backend", start)
    with tsql.connect(backend="spark") as session:
        relation = session.sql(f"SELECT count(*) FROM '{folder}/*.parquet'")
        assert relation.fetchall() == [(4000,)]
        assert relation.timings["start"] >= 1e9 > relation.timings["parse"] >= 0
        assert re.search(r"^start +\d{10}", relation.explain("analyze"), re.MULTILINE)
        again = session.sql(f"SELECT count(id) FROM '{folder}/*.parquet'")
        assert again.fetchall() == [(4000,)] and "start" not in again.timings


def test_what_a_worker_keeps_open(tmp_path: Path) -> None:
    """Files that are gone are closed when another run opens one: the disk would keep them."""

    def opened(run: str, name: str) -> Any:
        return kept.source_of(run, {"kind": "parquet", "paths": [f"{tmp_path}/{name}"], "options": {}}, name)

    for name in ("a", "b", "c", "d"):
        pq.write_table(pa.table({"name": [name]}), tmp_path / name)
    sources = {name: opened("one", name) for name in ("a", "b", "c")}
    (tmp_path / "a").unlink()
    pq.write_table(pa.table({"name": ["b", "b"]}), tmp_path / "b")
    assert opened("one", "b") is sources["b"], "a run reads one version of a file"
    opened("two", "d")
    open_now = [one.source for one in kept._sources.values()]
    assert not any(one is sources[name] for one in open_now for name in ("a", "b"))
    assert any(one is sources["c"] for one in open_now)


def test_a_broadcast_of_several_parts_is_sent_once(
    db: Any, cluster: InProcess, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample of ORDER BY and the rows that it is for are two parts over the same broadcast."""
    monkeypatch.setattr("tsql.planner.cost.constants.DRIVER_BYTES", -1)
    monkeypatch.setattr("tsql.backends.spark.stages.broadcasts.SENT_BYTES", 10)
    shared: list[Any] = []
    share = cluster.share
    monkeypatch.setattr(cluster, "share", lambda blobs: shared.append(share(blobs)) or shared[-1])
    sql = "SELECT b.id, n.name FROM big b JOIN near n ON b.k = n.k ORDER BY b.id DESC"
    db.register("near", db.sql("SELECT * FROM names").arrow())
    relation = db.sql(sql)
    assert "= arrange" in relation.plan() and "how=send" in relation.plan()
    assert relation.fetchall() == oracle(folder, sql.replace("near", "names"))
    assert len(shared) == 1 and shared[0].destroyed


def test_every_way_to_the_cluster_prepares_it(
    db: Any, cluster: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors that lack the package get it before the first task, whatever the statement is."""
    prepared: list[str] = []
    for statement in (
        "SELECT count(*) FROM big",
        f"COPY (SELECT * FROM big) TO '{tmp_path}/out/' (FORMAT parquet)",
        "CREATE TABLE stays WITH (target = 'spark') AS SELECT * FROM big",
    ):
        ran: list[bool] = []
        monkeypatch.setattr(cluster, "prepare", lambda ran=ran: ran.append(True))
        computed = type(cluster).computed

        def seen(rows: Any, work: Any, ran: list[bool] = ran, computed: Any = computed) -> Any:
            assert ran, "tasks before the cluster was made ready"
            return computed(cluster, rows, work)

        monkeypatch.setattr(cluster, "computed", seen)
        db.sql(statement).fetchall()
        prepared += [statement] * bool(ran)
    assert len(prepared) == 3


def test_side_by_side_jobs_end_with_the_first_failure(cluster: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages that are written before the main job are jobs of their own: if one fails, the others are cancelled."""
    jobs, cancelled = Jobs(cluster, Run()), threading.Event()

    def fails(*_: Any) -> None:
        raise TaskFailed("stage 1 (step t, shard 0): MemoryError")

    monkeypatch.setattr(cluster, "written", fails)
    monkeypatch.setattr(cluster, "cancel", lambda group: cancelled.set())
    with pytest.raises(ExecutionError, match="MemoryError"):
        jobs.written([], 4)
    assert cancelled.wait(10) and jobs.is_cancelled


def test_a_stopped_session() -> None:
    """PySpark leaves a context without a JVM."""

    class Stopped:
        _jsc = None

    transport = RddTransport.__new__(RddTransport)
    transport._context = Stopped()
    for ask in (lambda: transport.cores, lambda: transport.executors, lambda: transport.given([[]])):
        with pytest.raises(ExecutionError, match="the Spark session was stopped"):
            ask()
    transport.cancel("group")
    transport.rest("group")
    transport.free([])
