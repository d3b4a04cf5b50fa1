"""COPY to folders: every task writes its own files, and the folder has all of them or none."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq
import pytest

import tsql
from tests.api.test_copy_partitions import HARD
from tests.patience import wait_until
from tests.sources.store import CountingStore, s3_server
from tests.spark.cluster import InProcess, Moved
from tsql.backends.io import folders, remote, store_writes
from tsql.backends.spark.transport.transport import TaskWork
from tsql.kernels.expr.errors import CancelledError, ExecutionError, SourceError

ROWS = pa.table(
    {
        "k": pa.array([None if i % 7 == 0 else i % 5 for i in range(400)], pa.int32()),
        "v": pa.array(range(400), pa.int64()),
        "s": pa.array([f"é, {i}\n" if i % 3 else None for i in range(400)]),
    }
)
pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
NAME = re.compile(r"part-\d{5}-[0-9a-f]{16}(_\d{4})?\.(parquet|csv|json|arrow)")


@pytest.fixture
def db() -> Any:
    with tsql.connect(spark=InProcess()) as session:
        session.register("t", ROWS)
        yield session


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def rows_of(folder: Path, kind: str = "parquet", columns: str = "k, v, s") -> list[tuple[Any, ...]]:
    """The rows in order of v, read by DuckDB; Arrow files by tsql."""
    text = f"SELECT {columns} FROM read_{kind}('{folder}/**/*.{kind}') ORDER BY v"
    if kind == "arrow":
        return tsql.connect().sql(text.replace("read_arrow", "read_ipc")).fetchall()
    return duckdb.sql(text).fetchall()


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "arrow"])
@pytest.mark.parametrize("by", ["", ", PARTITION_BY (k)"])
def test_every_format(db: Any, tmp_path: Path, kind: str, by: str) -> None:
    out = tmp_path / "out"
    assert db.sql(f"COPY t TO '{out}/' (FORMAT {kind}{by})").fetchall() == [(400,)]
    expected = sorted(zip(*(ROWS.column(c).to_pylist() for c in ("k", "v", "s")), strict=True), key=lambda r: r[1])
    assert [(k, v, s) for k, v, s in rows_of(out, kind)] == expected
    assert all(NAME.fullmatch(Path(name).name) for name in files_in(out))
    assert len({Path(name).name for name in files_in(out)}) == 3, "a file of each task"
    assert os.listdir(tmp_path) == ["out"]


def test_what_is_a_folder(db: Any, tmp_path: Path) -> None:
    """A name without a slash is one file, as on one machine, unless a folder or an option says otherwise."""
    db.sql(f"COPY t TO '{tmp_path}/one.parquet'")
    assert (tmp_path / "one.parquet").is_file()
    for option in ("per_thread_output", "per_task true", "PER_THREAD_OUTPUT 1"):
        target = tmp_path / option
        db.sql(f"COPY t TO '{target}' (FORMAT parquet, {option})")
        assert len(files_in(target)) == 3
    (tmp_path / "there").mkdir()
    db.sql(f"COPY t TO '{tmp_path}/there' (FORMAT parquet)")
    assert len(files_in(tmp_path / "there")) == 3
    db.sql(f"COPY t TO '{tmp_path}/plain' (FORMAT csv, per_task false)")
    assert (tmp_path / "plain").is_file()
    with pytest.raises(SourceError, match="per_task is true or false, not 'maybe'"):
        db.sql(f"COPY t TO '{tmp_path}/x' (FORMAT csv, per_task 'maybe')")
    with pytest.raises(SourceError, match='unrecognized option "per_task"'):
        tsql.connect().sql(f"COPY (SELECT 1) TO '{tmp_path}/x' (FORMAT csv, per_task)")


def test_order_and_limit(db: Any, tmp_path: Path) -> None:
    """Files by name have the rows in the order of the result."""
    db.sql(f"COPY (SELECT v FROM t ORDER BY v DESC LIMIT 50) TO '{tmp_path}/o/' (FORMAT csv)")
    names = files_in(tmp_path / "o")
    found = [int(line) for name in names for line in (tmp_path / "o" / name).read_text().split()[1:]]
    assert found == list(range(399, 349, -1))
    db.sql(f"COPY (SELECT v FROM t WHERE v >= 10) TO '{tmp_path}/plain/' (FORMAT csv)")
    names = files_in(tmp_path / "plain")
    found = [int(line) for name in names for line in (tmp_path / "plain" / name).read_text().split()[1:]]
    assert len(names) == 3 and found == list(range(10, 400))


def test_order_in_ranges(db: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that is sorted in several tasks: the files by name have its order."""
    monkeypatch.setattr("tsql.planner.cost.constants.DRIVER_BYTES", -1)
    db.sql(f"COPY (SELECT v FROM t ORDER BY v DESC) TO '{tmp_path}/o/' (FORMAT csv)")
    names = files_in(tmp_path / "o")
    found = [int(line) for name in names for line in (tmp_path / "o" / name).read_text().split()[1:]]
    assert len(names) > 1 and found == list(range(399, -1, -1))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, count(*) AS v, max(s) AS s FROM t GROUP BY k",
        "SELECT k, median(v) AS v, min(s) AS s FROM t GROUP BY k",
        "SELECT a.k, b.v, a.s FROM t a JOIN t b ON a.v = b.v + 1",
        "SELECT 1 AS k, 2 AS v, 'x' AS s",
        "SELECT k, max(v) OVER (PARTITION BY k ORDER BY s) AS v, s FROM t",
        "FROM (SELECT * FROM t LIMIT 9) UNION ALL SELECT * FROM t",
    ],
)
def test_queries(db: Any, tmp_path: Path, query: str) -> None:
    out = tmp_path / "out"
    (count,) = db.sql(f"COPY ({query}) TO '{out}/' (FORMAT parquet)").fetchone()
    assert sorted(map(repr, rows_of(out))) == sorted(map(repr, db.sql(f"SELECT k, v, s FROM ({query})").fetchall()))
    assert count == len(rows_of(out))


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "arrow"])
def test_no_rows(db: Any, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out"
    assert db.sql(f"COPY (FROM t WHERE v < 0) TO '{out}/' (FORMAT {kind})").fetchall() == [(0,)]
    assert len(files_in(out)) == 1
    if kind in ("parquet", "arrow"):
        assert tsql.connect().sql(f"FROM '{out}'").columns == ["k", "v", "s"]


def test_no_rows_of_partitions(db: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    db.sql(f"COPY (FROM t WHERE v < 0) TO '{out}' (FORMAT parquet, PARTITION_BY (k))")
    assert duckdb.sql(f"FROM '{out}/*/*.parquet'").columns == ["v", "s", "k"]
    db.sql(f"COPY t TO '{out}' (FORMAT parquet, PARTITION_BY (k), APPEND)")
    assert duckdb.sql(f"SELECT count(*), count(k) FROM '{out}/*/*.parquet'").fetchall() == [(400, 342)]


@pytest.mark.parametrize("by", ["", ", PARTITION_BY (k)"])
def test_no_rows_in_the_place_of_others(db: Any, tmp_path: Path, by: str) -> None:
    """OVERWRITE_OR_IGNORE replaces the files of earlier runs, also if the result is empty."""
    out = tmp_path / "out"
    db.sql(f"COPY (FROM t WHERE k IS NULL AND v < 10) TO '{out}/' (FORMAT parquet{by})")
    assert len(rows_of(out)) == 2
    below = out / os.path.dirname(files_in(out)[0])
    (below / "part-00000-0123abcd.parquet").write_text("of an earlier version")
    (below / "notes.txt").write_text("mine")
    assert db.sql(f"COPY (FROM t WHERE false) TO '{out}/' (FORMAT parquet{by}, OVERWRITE_OR_IGNORE)").fetchall() == [
        (0,)
    ]
    assert rows_of(out) == [] and len(files_in(out)) == 2 and (below / "notes.txt").exists()


def test_hard_values_and_paths(db: Any, tmp_path: Path) -> None:
    db.register("hard", {"k": pa.array(HARD, pa.string()), "v": list(range(len(HARD)))})
    for name in ("a b", "é", "%41", "x'y", "*", "-", "a" * 250, "deep/er/still"):
        out = tmp_path / name
        quoted = str(out).replace("'", "''")
        db.sql(f"COPY hard TO '{quoted}/' (FORMAT parquet, PARTITION_BY (k))")
        found = tsql.connect().sql(
            f"SELECT k, v FROM read_parquet('{quoted}', hive_partitioning => true, hive_types_autocast => false) "
            "ORDER BY v"
        )
        assert found.fetchall() == list(zip(HARD, range(len(HARD)), strict=True))
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".partial")]


def test_what_is_there_already(db: Any, tmp_path: Path) -> None:
    """OVERWRITE replaces the folder, OVERWRITE_OR_IGNORE the files of earlier runs, APPEND nothing."""
    out = tmp_path / "out"
    copy = f"COPY t TO '{out}' (FORMAT parquet, PARTITION_BY (k)"
    db.sql(copy + ")")
    first = files_in(out)
    with pytest.raises(SourceError, match="is not empty! Enable OVERWRITE"):
        db.sql(copy + ")")
    assert files_in(out) == first
    (out / "k=1" / "notes.txt").write_text("mine")
    db.sql(copy + ", OVERWRITE_OR_IGNORE)")
    second = files_in(out)
    assert len(second) == len(first) + 1 and not {*first} & {*second} and len(rows_of(out)) == 400
    db.sql(f"COPY (FROM t WHERE k = 1) TO '{out}' (FORMAT parquet, PARTITION_BY (k), OVERWRITE_OR_IGNORE)")
    assert len(rows_of(out)) == 400, "other partitions stay"
    db.sql(copy + ", APPEND)")
    assert len(rows_of(out)) == 800
    db.sql(copy + ", OVERWRITE)")
    assert len(rows_of(out)) == 400 and "k=1/notes.txt" not in files_in(out)
    with pytest.raises(SourceError, match="COPY takes overwrite or append, not both"):
        db.sql(copy + ", OVERWRITE, APPEND)")
    assert os.listdir(tmp_path) == ["out"]


def test_a_query_may_read_the_folder_that_it_replaces(db: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    db.sql(f"COPY t TO '{out}/' (FORMAT parquet)")
    db.sql(f"COPY (SELECT k, v + 1000 AS v, s FROM '{out}') TO '{out}' (FORMAT parquet, OVERWRITE)")
    assert [v for _, v, _ in rows_of(out)] == list(range(1000, 1400))


def test_refusals(db: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for text, message in (
        (f"COPY t TO '{tmp_path}/file' (FORMAT parquet, PARTITION_BY (k))", "it is a file, not a folder"),
        (f"COPY t TO '{tmp_path}/file/x/' (FORMAT parquet)", "File exists|Not a directory"),
        (f"COPY t TO '{tmp_path}/x' (FORMAT parquet, PARTITION_BY (zzz))", 'there is no column "zzz"'),
        (f"COPY t TO '{tmp_path}/x' (FORMAT csv, PARTITION_BY (k, v, s))", "a file needs a column"),
        (f"COPY t TO '{tmp_path}/x/' (FORMAT parquet, COMPRESSION x)", "unknown compression x"),
        (f"COPY t TO '{tmp_path}/x/' (FORMAT parquet, OVERWRIT)", "did you mean overwrite"),
        (f"COPY (SELECT INTERVAL 1 DAY AS i) TO '{tmp_path}/x/' (FORMAT parquet)", "not written to Parquet"),
        (f"COPY (SELECT repeat('x', 300) AS k, v FROM t) TO '{tmp_path}/x' (PARTITION_BY (k))", "too long to be"),
        (f"COPY t TO '{tmp_path}/x\0/' (FORMAT csv)", "NUL"),
        ("COPY t TO 'http://host/x/' (FORMAT csv)", "only files of this machine and of a store are written"),
    ):
        with pytest.raises(SourceError, match=message):
            db.sql(text)
        assert os.listdir(tmp_path) == ["file"], text


def test_small_memory_makes_more_files(db: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "WAITING_BYTES", 500)
    db.register("t", pa.Table.from_batches(ROWS.to_batches(max_chunksize=20)))
    db.settings.batch_rows = 20
    db.sql(f"COPY t TO '{tmp_path}/out' (FORMAT csv, PARTITION_BY (k))")
    assert len(rows_of(tmp_path / "out", "csv")) == 400
    assert any("_0001.csv" in name for name in files_in(tmp_path / "out"))


class Again(InProcess):
    """Runs every task twice, as a cluster does that has lost its rows, and uses those of the second attempt."""

    def computed(self, rows: Moved, work: TaskWork) -> Moved:
        first, second = super().computed(rows, work), super().computed(rows, work)
        return Moved(lambda: (first(), second())[1])


def test_attempts_that_do_not_count(tmp_path: Path) -> None:
    with tsql.connect(spark=Again()) as db:
        db.register("t", ROWS)
        db.sql(f"COPY t TO '{tmp_path}/out' (FORMAT parquet, PARTITION_BY (k))")
    assert len(rows_of(tmp_path / "out")) == 400
    assert os.listdir(tmp_path) == ["out"]


def test_a_failing_query_leaves_what_was_there(db: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    db.sql(f"COPY t TO '{out}/' (FORMAT parquet)")
    before = files_in(out)
    failing = "SELECT k, (CASE WHEN v = 399 THEN 'x' ELSE '1' END)::INTEGER AS v FROM t"
    with pytest.raises(ExecutionError, match="Could not convert") as caught:
        db.sql(f"COPY ({failing}) TO '{out}' (FORMAT parquet, OVERWRITE)")
    assert caught.value.position is not None
    with pytest.raises(ExecutionError):
        db.sql(f"COPY ({failing}) TO '{tmp_path}/other/' (FORMAT parquet)")
    assert files_in(out) == before and os.listdir(tmp_path) == ["out"]


def test_files_that_the_driver_does_not_see(db: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks on other machines may have a disk of their own under the same path."""
    real = folders.write_part

    def elsewhere(about: dict[str, Any], shard: int, batches: Any) -> Any:
        for file in real(about, shard, batches):
            os.unlink(os.path.join(about["staged"], file.place))
            yield file

    monkeypatch.setattr("tsql.backends.spark.task.write_part", elsewhere)
    with pytest.raises(SourceError, match="is not there where the driver looks for it") as caught:
        db.sql(f"COPY t TO '{tmp_path}/out/' (FORMAT parquet)")
    assert "share" in caught.value.hint and os.listdir(tmp_path) == []

    def unseen(about: dict[str, Any], shard: int, batches: Any) -> Any:
        return real(about | {"staged": str(tmp_path / "nowhere")}, shard, batches)

    monkeypatch.setattr("tsql.backends.spark.task.write_part", unseen)
    with pytest.raises(SourceError, match="this machine does not see the folder"):
        db.sql(f"COPY t TO '{tmp_path}/out/' (FORMAT parquet)")
    assert os.listdir(tmp_path) == []


DIES = """
import os, sys, tsql
from tests.spark.cluster import InProcess
from tsql.backends.spark import sinks
sinks.commit = lambda *_: os._exit(9)
with tsql.connect(spark=InProcess()) as db:
    db.sql(f"COPY (SELECT 1 AS a) TO '{sys.argv[1]}/' (FORMAT parquet)")
"""


def test_leftovers_of_a_dead_driver(db: Any, tmp_path: Path) -> None:
    """The next writer to the same place removes them; nobody reads them meanwhile."""
    out = tmp_path / "out"
    assert subprocess.run([sys.executable, "-c", DIES, str(out)], check=False).returncode == 9
    (left,) = os.listdir(tmp_path)
    assert re.fullmatch(r"\.out\.[0-9a-f]{16}\.partial", left)
    (tmp_path / ".out.0123abcd.partial").mkdir()  # of an earlier version
    db.sql(f"COPY t TO '{out}/' (FORMAT parquet)")
    assert os.listdir(tmp_path) == ["out"] and len(rows_of(out)) == 400


def test_the_mode_of_a_folder_stays(db: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir(mode=0o750)
    db.sql(f"COPY t TO '{out}' (FORMAT parquet)")
    assert stat.S_IMODE(out.stat().st_mode) == 0o750
    link = tmp_path / "link"
    link.symlink_to("out")
    db.sql(f"COPY t TO '{link}' (FORMAT parquet, OVERWRITE)")
    assert link.is_symlink() and len(rows_of(out)) == 400


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountingStore:
    """A store that is a folder of this machine: `mock://bucket/..`."""
    (tmp_path / "bucket").mkdir()
    made = CountingStore(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()))
    monkeypatch.setitem(remote.FILESYSTEMS, "mock", lambda url, storage: made.opened(storage))
    monkeypatch.setattr(remote, "_made", {})
    made.folder = tmp_path / "bucket"
    return made


@pytest.mark.parametrize("transport", [InProcess, Again])
@pytest.mark.parametrize("by", ["", ", PARTITION_BY (k)"])
@pytest.mark.parametrize("has_folders", [False, True])
def test_a_folder_of_a_store(
    store: CountingStore, transport: Any, by: str, has_folders: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks write to a store as to a folder: the files of the attempts that count, each once."""
    if has_folders:
        monkeypatch.setattr(store_writes, "RENAMES", {"mock"})
    out = store.folder / "out"
    with tsql.connect(spark=transport()) as db:
        db.register("t", ROWS)
        copy = f"COPY t TO 'mock://bucket/out/' (FORMAT parquet{by}{{}})"
        for how in ("", ", OVERWRITE", ", OVERWRITE_OR_IGNORE"):
            assert db.sql(copy.format(how)).fetchall() == [(400,)]
            assert len(rows_of(out)) == 400, how
        with pytest.raises(SourceError, match="is not empty"):
            db.sql(copy.format(""))
        db.sql(copy.format(", APPEND"))
        assert len(rows_of(out)) == 800
        before = files_in(store.folder)
        assert not [name for name in before if "partial" in name]
        failing = "SELECT k, s, (CASE WHEN v = 399 THEN 'x' ELSE '1' END)::INTEGER AS v FROM t"
        for how in ("OVERWRITE", "APPEND"):
            with pytest.raises(ExecutionError, match="Could not convert"):
                db.sql(f"COPY ({failing}) TO 'mock://bucket/out' (FORMAT parquet, {how}{by})")
        assert files_in(store.folder) == before
        db.sql(f"COPY (FROM t WHERE v < 0) TO 'mock://bucket/none/' (FORMAT parquet{by})")
        assert rows_of(store.folder / "none") == []
        db.sql(
            "COPY (SELECT v FROM 'mock://bucket/out' WHERE v < 5) TO 'mock://bucket/out' (FORMAT parquet, OVERWRITE)"
        )
        assert rows_of(out, columns="v") == [(v,) for v in range(5) for _ in range(2)], "a query may read its target"


@pytest.fixture(scope="module")
def cluster(spark: Any) -> Any:
    with tsql.connect(spark=spark) as session:
        session.register("t", ROWS)
        yield session


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    for number in range(3):
        pq.write_table(ROWS.slice(number * 140, 140), folder / f"{number}.parquet", row_group_size=30)
    return folder


@pytest.mark.spark
def test_on_a_cluster(cluster: Any, spark: Any, parts: Path, tmp_path: Path) -> None:
    """Answers as Spark and DuckDB read them."""
    out = tmp_path / "out"
    query = f"SELECT * FROM '{parts}/*.parquet'"
    assert cluster.sql(f"COPY ({query}) TO '{out}' (FORMAT parquet, PARTITION_BY (k))").fetchall() == [(400,)]
    assert rows_of(out) == rows_of(parts)
    assert spark.read.parquet(str(out)).count() == 400
    (total,) = spark.read.parquet(str(out)).selectExpr("sum(v)", "count(k)").collect()
    assert tuple(total) == (79800, 342)
    grouped = f"SELECT k, median(v) AS v, count(*) AS s FROM '{parts}/*.parquet' GROUP BY k"
    cluster.sql(f"COPY ({grouped}) TO '{tmp_path}/groups/' (FORMAT csv)")
    assert {*rows_of(tmp_path / "groups", "csv")} == {*duckdb.sql(grouped).fetchall()}
    cluster.sql(f"COPY ({query} ORDER BY v DESC LIMIT 10) TO '{tmp_path}/top/' (FORMAT json)")
    assert [v for _, v, _ in rows_of(tmp_path / "top", "json")] == list(range(390, 400))
    assert sorted(os.listdir(tmp_path)) == ["groups", "out", "top"]


@pytest.mark.spark
def test_a_lost_attempt_on_a_cluster(cluster: Any, spark: Any, tmp_path: Path) -> None:
    """The first attempt of a task dies when it has written all of its rows. Spark runs it again."""
    marker = str(tmp_path / "marker")

    def dies_once(batches: Any) -> Any:
        yield from batches
        try:
            os.mkdir(marker)
        except FileExistsError:
            return
        os._exit(1)

    cluster.register("fragile", spark.range(0, 20000, 1, 2).mapInArrow(dies_once, "id long"))
    assert cluster.sql(f"COPY fragile TO '{tmp_path}/out/' (FORMAT parquet)").fetchall() == [(20000,)]
    assert duckdb.sql(f"SELECT count(*), sum(id) FROM '{tmp_path}/out/*.parquet'").fetchall() == [(20000, 199990000)]
    assert sorted(os.listdir(tmp_path)) == ["marker", "out"]
    assert all(NAME.fullmatch(name) for name in os.listdir(tmp_path / "out"))


@pytest.mark.spark
def test_a_failed_job_on_a_cluster(cluster: Any, spark: Any, tmp_path: Path) -> None:
    def fails(batches: Any) -> Any:
        yield from batches
        raise ValueError("no more")

    cluster.register("broken", spark.range(0, 100, 1, 2).mapInArrow(fails, "id long"))
    with pytest.raises(ExecutionError, match="the Spark job failed: ValueError: no more"):
        cluster.sql(f"COPY broken TO '{tmp_path}/out/' (FORMAT parquet)")
    assert os.listdir(tmp_path) == []


@pytest.mark.spark
def test_a_cancelled_job_on_a_cluster(cluster: Any, spark: Any, tmp_path: Path) -> None:
    def sleeps(batches: Any) -> Any:
        import time

        yield from batches
        time.sleep(300)

    cluster.register("sleepers", spark.range(0, 100, 1, 2).mapInArrow(sleeps, "id long"))
    caught: list[BaseException] = []
    tracker = spark.sparkContext.statusTracker()

    def copy() -> None:
        try:
            cluster.sql(f"COPY sleepers TO '{tmp_path}/out/' (FORMAT parquet)")
        except CancelledError as error:
            caught.append(error)

    thread = threading.Thread(target=copy)
    thread.start()
    assert wait_until(lambda: bool(tracker.getActiveJobsIds()) and bool(os.listdir(tmp_path)))
    for work in list(cluster._running.at_work):
        work.run.cancel()
    thread.join()
    assert caught and wait_until(lambda: not tracker.getActiveJobsIds())
    assert os.listdir(tmp_path) == []


@pytest.fixture(scope="module")
def lake(spark: Any) -> Iterator[Any]:
    """A bucket at a server that speaks S3, whose key is in Hadoop's settings of the session alone."""
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    words = ("access.key", "secret.key", "endpoint")
    with s3_server() as address:
        for word, value in zip(words, ("me", "a-secret-key", f"http://{address}"), strict=True):
            settings.set(f"fs.s3a.bucket.shop-lake.{word}", value)
        s3 = fs.S3FileSystem(
            access_key="me", secret_key="a-secret-key", endpoint_override=address, scheme="http",
            allow_bucket_creation=True,
        )  # fmt: skip
        s3.create_dir("shop-lake")
        yield s3
        for word in words:
            settings.unset(f"fs.s3a.bucket.shop-lake.{word}")


def keys(lake: Any) -> list[str]:
    found = lake.get_file_info(fs.FileSelector("shop-lake", recursive=True))
    return sorted(one.path for one in found if one.type == fs.FileType.File)


@pytest.mark.spark
def test_a_store_on_a_cluster(cluster: Any, spark: Any, lake: Any, parts: Path, tmp_path: Path) -> None:
    """Tasks get the key with their part. An attempt that dies and a job that fails leave nothing."""
    marker = str(tmp_path / "marker")

    def dies_once(batches: Any) -> Any:
        yield from batches
        try:
            os.mkdir(marker)
        except FileExistsError:
            return
        os._exit(1)

    def fails(batches: Any) -> Any:
        yield from batches
        raise ValueError("no more")

    cluster.register("fragile", spark.range(0, 20000, 1, 2).mapInArrow(dies_once, "id long"))
    assert cluster.sql("COPY fragile TO 's3://shop-lake/out/' (FORMAT parquet)").fetchall() == [(20000,)]
    assert os.path.exists(marker)
    found = pq.read_table("shop-lake/out", filesystem=lake).column("id").to_pylist()
    assert sorted(found) == list(range(20000))
    before = keys(lake)
    assert len(before) == 3 and before[0] == "shop-lake/out/_SUCCESS"
    relation = cluster.sql("SELECT sum(id) FROM 's3://shop-lake/out'")
    assert relation.fetchall() == [(199990000,)] and "a-secret-key" not in relation.explain("analyze")
    cluster.register("broken", spark.range(0, 100, 1, 2).mapInArrow(fails, "id long"))
    for target in ("out/' (FORMAT parquet, OVERWRITE)", "new/' (FORMAT parquet)"):
        with pytest.raises(ExecutionError, match="the Spark job failed: ValueError: no more"):
            cluster.sql(f"COPY broken TO 's3a://shop-lake/{target}")
    assert keys(lake) == before
    assert cluster.sql(f"COPY (SELECT v FROM '{parts}/*.parquet') TO 's3://shop-lake/one.csv'").fetchall() == [(400,)]
    assert lake.open_input_stream("shop-lake/one.csv").read().count(b"\n") == 401


@pytest.mark.spark
def test_a_cancelled_job_on_a_store(cluster: Any, spark: Any, lake: Any) -> None:
    def sleeps(batches: Any) -> Any:
        import time

        for batch in batches:
            yield batch
            if batch.column(0)[0].as_py():
                time.sleep(300)

    before = keys(lake)
    cluster.register("sleepers", spark.range(0, 100, 1, 2).mapInArrow(sleeps, "id long"))
    caught: list[BaseException] = []
    tracker = spark.sparkContext.statusTracker()

    def copy() -> None:
        try:
            cluster.sql("COPY sleepers TO 's3://shop-lake/asleep/' (FORMAT parquet)")
        except CancelledError as error:
            caught.append(error)

    thread = threading.Thread(target=copy)
    thread.start()
    assert wait_until(lambda: any(".partial/" in key for key in keys(lake)))
    for work in list(cluster._running.at_work):
        work.run.cancel()
    thread.join()
    assert caught and wait_until(lambda: not tracker.getActiveJobsIds())
    assert keys(lake) == before
