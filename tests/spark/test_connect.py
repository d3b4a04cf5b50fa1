"""Spark Connect: whole runs by DataFrames of a session whose driver is a server in another process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.patience import wait_until
from tests.slt.datasets import DATASETS
from tsql.backends.spark.frame import FrameSource
from tsql.backends.spark.transport import connect as transport
from tsql.kernels.expr.errors import CancelledError, CatalogError, ExecutionError, PlanError

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]


@pytest.fixture(scope="module")
def db(remote: Any) -> Iterator[Any]:
    with tsql.connect(spark=remote) as session:
        session.register("nums", DATASETS["nums"])
        session.register("all_types", DATASETS["all_types"])
        yield session


def local_rows(sql: str) -> list[tuple[Any, ...]]:
    with tsql.connect() as local:
        local.register("nums", DATASETS["nums"])
        return local.sql(sql).fetchall()


def test_input_order(db: Any, tmp_path: Path) -> None:
    """Rows stream in in the order of the files, in many partitions."""
    for number in range(5):
        ids = range(number * 1000, (number + 1) * 1000)
        pq.write_table(pa.table({"id": ids}), tmp_path / f"{number}.parquet", row_group_size=300)
    found = db.sql(f"SELECT id FROM '{tmp_path}/*.parquet' WHERE id % 100 = 7").arrow().column(0).to_pylist()
    assert found == list(range(7, 5000, 100))
    assert db.sql(f"SELECT id FROM '{tmp_path}/*.parquet' LIMIT 3").fetchall() == [(0,), (1,), (2,)]


def test_plan_file(db: Any) -> None:
    """A broadcast moves inside of the job: no rows come here in between."""
    text = """plan version 1
target spark shards=2

nums   = scan nums columns=(g, x)
keyed  = rekey nums key=(g)
placed = redistribute keyed scope=global shards=2
groups = aggregate placed by=(g) n=count(*) middle=median(x)
copies = broadcast groups scope=global shards=2
one    = gather copies
sorted = sort one by=(g asc nulls last)
output sorted (g, n, middle)
"""
    plan = tsql.load_plan_text(text)
    assert plan.bind(db).text() == text
    assert plan.run(db).fetchall() == local_rows("SELECT g, count(*), median(x) FROM nums GROUP BY g ORDER BY g")


def test_error_with_position(db: Any) -> None:
    with pytest.raises(ExecutionError) as caught:
        db.sql("SELECT g,\n  i64 + 1 AS next FROM (SELECT id AS g, i64 FROM all_types)").arrow()
    assert caught.value.line_column == (2, 7)
    with pytest.raises(ExecutionError, match="Could not convert string 'red' to INT32"):
        db.sql("SELECT k::INTEGER AS n, median(x) FROM nums WHERE k = 'red' GROUP BY ALL").arrow()


def test_large_tables_move(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too large for a message is uploaded, and moved to the tasks."""
    monkeypatch.setattr(transport.ConnectTransport, "most_sent_bytes", 10)
    monkeypatch.setattr(transport.ConnectTransport, "most_given_bytes", 10)
    sql = "SELECT a.g, count(*), sum(b.x) FROM nums a JOIN nums b ON a.x = b.x GROUP BY 1 ORDER BY 1"
    assert db.sql(sql).fetchall() == local_rows(sql)
    sql = "SELECT count(*) FROM (SELECT median(x) m FROM nums GROUP BY g) JOIN nums ON x < m"
    assert db.sql(sql).fetchall() == local_rows(sql)


def test_cancel(db: Any, remote: Any, tmp_path: Path) -> None:
    """A cancelled query ends at once for its caller, and its tasks soon on the server."""
    alive = tmp_path / "alive"

    def sleep(batches: Any) -> Any:
        import time

        try:
            while True:
                alive.touch()
                time.sleep(0.1)
        finally:
            yield from batches

    db.register("sleepers", remote.range(0, 1, 1, 1).mapInArrow(sleep, "id long"))
    relation = db.sql("SELECT sum(id) FROM sleepers")
    canceller = threading.Thread(target=lambda: (wait_until(alive.exists), relation.cancel()))
    canceller.start()
    with pytest.raises(CancelledError):
        relation.arrow()
    canceller.join()

    def ended() -> bool:
        """Whether the task has stopped to touch its file, which it does ten times a second."""
        alive.unlink(missing_ok=True)
        time.sleep(1)
        return not alive.exists()

    assert wait_until(ended)
    assert wait_until(lambda: not db.backend.transport.running)
    db.unregister("sleepers")


def test_cancelled_table(db: Any, remote: Any) -> None:
    """A table that Spark writes ends like other work, and is not there."""
    db.register("sleepers", remote.range(0, 1, 1, 1).mapInArrow(sleeps, "id long"))
    caught: list[BaseException] = []

    def create() -> None:
        try:
            db.sql("CREATE TABLE default.never AS FROM sleepers")
        except CancelledError as error:
            caught.append(error)

    thread = threading.Thread(target=create)
    thread.start()
    assert wait_until(lambda: bool(db.backend.transport.running))
    for work in list(db._running.at_work):
        work.run.cancel()
    thread.join()
    assert caught and wait_until(lambda: not db.backend.transport.running)
    assert not remote.catalog.tableExists("default.never")
    db.unregister("sleepers")


def sleeps(batches: Any) -> Any:
    import time

    time.sleep(300)
    yield from batches


def test_datasets(db: Any, remote: Any, tmp_path: Path) -> None:
    """The rows of a dataset are computed once, and seen by all sessions on this one of Spark."""

    def counted(batches: Any) -> Any:
        import secrets

        (tmp_path / secrets.token_hex(8)).touch()
        yield from batches

    db.register("source", remote.range(0, 1000, 1, 2).mapInArrow(counted, "id long"))
    keep = "CREATE TABLE kept WITH (target = 'spark') AS"
    assert db.sql(f"{keep} SELECT id, id % 7 AS g FROM source").fetchall() == [(1000,)]
    groups = [(g, len(range(g, 1000, 7))) for g in range(7)]
    with tsql.connect(spark=remote) as other:
        for session in (db, other):
            assert session.sql("SELECT g, count(*) FROM kept GROUP BY g ORDER BY g").fetchall() == groups
        joined = other.sql("SELECT count(*) FROM kept JOIN (VALUES (1), (2)) v(g) USING (g)")
        assert joined.fetchall() == [(286,)]
        assert joined.to_spark().collect()[0][0] == 286
        assert len(list(tmp_path.iterdir())) == 2
        with pytest.raises(ExecutionError, match="Could not convert string 'x'"):
            other.sql(
                f"{keep.replace('kept', 'bad')} SELECT (CASE WHEN id = 5 THEN 'x' ELSE '1' END)::INTEGER FROM kept"
            )
        other.sql("DROP TABLE kept")
        assert "kept" not in db.tables() and "bad" not in db.tables()
    db.unregister("source")


def test_to_spark(db: Any, remote: Any) -> None:
    """A result goes on as a DataFrame of the user's session: a view of it can be made there."""
    before = remote.conf.getAll
    frame = db.sql("SELECT g AS key, count(*) AS key FROM nums GROUP BY g ORDER BY g LIMIT 3").to_spark()
    assert frame.columns == ["key", "key_1"]
    rows = local_rows("SELECT g, count(*) FROM nums GROUP BY g ORDER BY g LIMIT 3")
    assert [tuple(row) for row in frame.collect()] == rows
    frame.createOrReplaceTempView("counted")
    assert remote.sql("SELECT count(*) AS n FROM counted").collect()[0].n == 3
    assert db.sql("SELECT count(*) FROM counted").fetchall() == [(3,)]
    assert remote.conf.getAll == before
    with pytest.raises(PlanError, match="column iv is INTERVAL, which a Spark DataFrame cannot hold"):
        db.sql("SELECT iv FROM all_types").to_spark()


def test_to_spark_in_order(db: Any) -> None:
    frame = db.sql("SELECT x FROM nums ORDER BY x DESC NULLS LAST").to_spark()
    assert [row.x for row in frame.collect()] == [x for (x,) in local_rows("FROM nums SELECT x ORDER BY x DESC")]


def test_frame_source(db: Any, remote: Any) -> None:
    frame = remote.range(0, 1000, 1, 3).selectExpr("id", "id % 7 AS g", "CAST(id AS STRING) AS text")
    db.register("numbers", frame)
    assert db.sql("SELECT g, count(*), max(text) FROM numbers GROUP BY g ORDER BY g LIMIT 2").fetchall() == [
        (0, 143, "994"),
        (1, 143, "995"),
    ]
    assert db.sql("SELECT count(*) FROM numbers").fetchall() == [(1000,)]
    assert db.sql("SELECT count(*) FROM (SELECT g FROM numbers UNION ALL SELECT g FROM nums)").fetchall() == [
        (1000 + len(DATASETS["nums"]),)
    ]
    db.register("empty", remote.range(0))
    assert db.sql("SELECT count(*) FROM empty").to_spark().collect()[0][0] == 0
    with tsql.connect() as local:
        local.register("numbers", frame)
        assert local.sql("SELECT sum(id) FROM numbers").fetchall() == [(499500,)]


def test_frame_of_another_session(db: Any, server: str) -> None:
    with tsql.connect(backend="spark", master=server, conf={"spark.sql.session.timeZone": "Asia/Tokyo"}) as other:
        assert other.backend.spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        db.register("foreign", other.backend.spark.range(3))
        with pytest.raises(CatalogError, match="a DataFrame of another Spark session cannot be read"):
            db.sql("SELECT sum(id) FROM foreign").arrow()
        db.unregister("foreign")


def test_what_needs_the_jvm(remote: Any) -> None:
    from tsql.backends.spark.failures import telling

    with pytest.raises(CatalogError, match="Spark Connect cannot do this: .*sparkContext"), telling():
        _ = remote.sparkContext


def test_server_of_another_version(remote: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(remote), "version", "4.1.2")
    with (
        tsql.connect(spark=remote) as session,
        pytest.raises(CatalogError, match=r"the Spark Connect server is Spark 4\.1\.2, and PySpark here is 4\."),
    ):
        _ = session.backend


def test_server_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.connect.session import SparkSession

    monkeypatch.setattr("tsql.backends.spark.transport.reach.REACH_SECONDS", 0.5)
    session = SparkSession.builder.remote("sc://127.0.0.1:1").create()
    with (
        tsql.connect(spark=session) as db,
        pytest.raises(CatalogError, match=r"no Spark Connect server is at 127\.0\.0\.1:1: no answer") as caught,
    ):
        _ = db.backend
    assert caught.value.hint == "start one with sbin/start-connect-server.sh of Spark"
    session.release_session_on_close = False
    session.client.close()


def test_estimates(db: Any, remote: Any) -> None:
    """What the text of a plan says of its rows; nothing where several inputs meet, or nothing is known."""
    numbers = remote.range(1000)
    for frame, rows in (
        (numbers, 1000),
        (numbers.limit(7), 7),
        (numbers.where("id > 3"), 1000),
        (numbers.join(remote.range(5), "id"), None),
        (numbers.union(remote.range(5).where("id > 1")), None),
        (numbers.selectExpr("`id` AS `Statistics(sizeInBytes=9.0 EiB)`"), 1000),
    ):
        assert FrameSource(frame).statistics().rows == rows
    numbers.createOrReplaceTempView("thousand")
    told = db.sql("FROM thousand").explain("physical")
    assert told.rstrip().endswith("a session of Spark Connect does not tell its files; rows as Spark counts them")
    remote.catalog.dropTempView("thousand")


def test_tables_of_the_catalog(db: Any, remote: Any, tmp_path: Path) -> None:
    remote.sql(f"CREATE DATABASE over LOCATION '{tmp_path}'")
    try:
        db.sql(
            "CREATE TABLE over.t USING parquet PARTITIONED BY (k) AS SELECT range AS v, range % 3 AS k FROM range(9)"
        )
        assert db.sql("INSERT OVERWRITE over.t PARTITION (k = 1) SELECT sum(v) FROM over.t").fetchall() == [(1,)]
        assert sorted(map(tuple, remote.table("over.t").collect())) == [
            (0, 0), (2, 2), (3, 0), (5, 2), (6, 0), (8, 2), (36, 1)
        ]  # fmt: skip
        with pytest.raises(ExecutionError, match="^Could not convert string 'x' to INT32"):
            db.sql("INSERT OVERWRITE over.t SELECT (CASE WHEN v > 0 THEN 'x' ELSE '1' END)::INT, k FROM over.t")
        assert remote.table("over.t").count() == 7
        assert db.sql("INSERT INTO over.t VALUES (1, 1)").fetchall() == [(1,)]
        db.sql("CREATE OR REPLACE TABLE over.t PARTITIONED BY (v) AS SELECT k, v FROM over.t")
        assert remote.table("over.t").columns == ["k", "v"] and remote.table("over.t").count() == 8
        tables = remote.sql("SHOW TABLES IN over").collect()
        assert [table.tableName for table in tables if not table.isTemporary] == ["t"]
    finally:
        remote.sql("DROP DATABASE over CASCADE")
