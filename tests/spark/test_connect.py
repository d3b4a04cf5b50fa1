"""Spark Connect: whole runs by DataFrames of a session whose driver is a server in another process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.patience import wait_until
from tests.slt.datasets import DATASETS
from tests.slt_runner import CORPUS, run_file
from tests.spark.engine import SparkTsql
from tests.spark.queries import QUERIES, bag, files, fill, oracle
from tests.temporal.constructs import tables
from tests.temporal.data import to_rows
from tests.temporal.test_constructs import CONSTRUCTS, assert_answers, expected_of
from tsql.backends.spark.transport import connect as transport
from tsql.kernels.expr.errors import CancelledError, CatalogError, ExecutionError, PlanError
from tsql.tpch import data
from tsql.tpch.check import Oracle
from tsql.tpch.queries import NUMBERS, query

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]

CORPUS_FILES = ("queries/group_by", "queries/order_by", "queries/set_operations", "aggregates/ordered")
EVERY = 60
SCALE = 0.01
TPCH = (4, 15, 18, 22)
DEFAULT = ("recursion with a join", "windows", "cte used twice")
TEMPORAL = ("session", "ASOF LEFT JOIN >= TOLERANCE INTERVAL '2 seconds'", "temporal left join")
"""What runs without `--all-configurations`; the same runs on a cluster and in this process."""


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


@pytest.mark.parametrize("file", CORPUS_FILES)
def test_corpus(remote: Any, file: str, request: pytest.FixtureRequest) -> None:
    every = 6 if request.config.getoption("--all-configurations") else EVERY
    with closing(SparkTsql(remote)) as engine:
        failures = run_file(CORPUS / f"{file}.slt", engine, "spark", every=every)
    assert not failures, "\n".join(map(str, failures))


@pytest.fixture(scope="module")
def answers() -> Iterator[Oracle]:
    made = Oracle(SCALE, data.tables(SCALE))
    yield made
    made.close()


@pytest.fixture(scope="module")
def tpch(remote: Any) -> Iterator[Any]:
    with tsql.connect(spark=remote) as session:
        for name, path in data.tables(SCALE).items():
            session.sql(f"CREATE VIEW {name} AS SELECT * FROM '{path}'")
        yield session


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=() if n in TPCH else pytest.mark.all_configurations) for n in NUMBERS]
)
def test_tpch(tpch: Any, answers: Oracle, number: int) -> None:
    outcome = answers.compare("tsql", number, lambda: tpch.sql(query(number, SCALE)).arrow())
    assert outcome.right, str(outcome)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in DEFAULT else pytest.mark.all_configurations) for name in QUERIES]
)
def test_queries(remote: Any, name: str, tmp_path: Path) -> None:
    path = files(tmp_path)
    with tsql.connect(spark=remote) as session, oracle(path) as duck:
        fill(session, path)
        assert bag(session.sql(QUERIES[name]).fetchall()) == bag(duck.sql(QUERIES[name]).fetchall())


@pytest.mark.parametrize("name", TEMPORAL)
def test_temporal(remote: Any, name: str) -> None:
    (construct,) = (c for c in CONSTRUCTS if c.name == name)
    given = tables("unsorted", seed=12)
    with tsql.connect(spark=remote) as session:
        for table, rows in given.items():
            session.register(table, rows)
        for statement in construct.setup:
            session.sql(statement)
        assert_answers(construct, to_rows(session.sql(construct.sql).arrow()), expected_of(construct, given))


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
