"""The Spark backend on a real cluster: files, tables, DataFrames, errors, cancellation, and a part of the corpus."""

from __future__ import annotations

import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError

import tsql
from tests.patience import wait_until
from tests.slt.datasets import DATASETS
from tests.spark.queries import bag
from tests.spark.suites import corpus
from tsql.backends.spark.transport.rdd import RddTransport
from tsql.backends.spark.transport.transport import TaskWork
from tsql.kernels.expr.errors import CancelledError, ExecutionError, PlanError, SourceError

# One worker of xdist runs all of these (see tests/conftest.py), so that the cluster is started once.
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]

EVERY = 100
"""One record of the corpus in so many runs on the cluster; `test_parts.py` runs more of it in this process."""


@pytest.fixture(scope="module")
def db(spark: Any) -> Any:
    with tsql.connect(spark=spark) as session:
        session.register("nums", DATASETS["nums"])
        session.register("all_types", DATASETS["all_types"])
        yield session


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parquet files with several row groups: 12 splits in all."""
    folder = tmp_path_factory.mktemp("clicks")
    for number in range(3):
        ids = range(number * 4000, (number + 1) * 4000)
        table = pa.table({
            "id": pa.array(ids, pa.int64()),
            "ad": pa.array([None if i % 11 == 0 else f"ad {i % 7}" for i in ids]),
            "price": pa.array([Decimal(i % 1000) / 100 for i in ids], pa.decimal128(12, 2)),
            "day": pa.array([dt.date(2024, 1, 1) + dt.timedelta(days=i % 30) for i in ids]),
        })  # fmt: skip
        pq.write_table(table, folder / f"part{number}.parquet", row_group_size=1000)
    return folder


@corpus.files(EVERY)
def test_corpus(spark: Any, path: Path, request: pytest.FixtureRequest) -> None:
    corpus.check(spark, path, "spark", corpus.every_of(request, EVERY))


def test_parquet_splits(db: Any, clicks: Path) -> None:
    """Tasks read their row groups; partial groups are merged."""
    sql = (
        f"SELECT ad, count(*) AS n, sum(price) AS total, min(day) AS first FROM '{clicks}/*.parquet' WHERE id "
        "% 3 <> 0 GROUP BY ad ORDER BY ad"
    )
    relation = db.sql(sql)
    assert "scope=global" in relation.plan() or "gather" in relation.plan()
    assert relation.arrow().equals(tsql.connect().sql(sql).arrow())


def test_parts_of_files(db: Any, clicks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many files, the driver opens a sample, and tasks find the row groups in parts of files."""
    monkeypatch.setattr("tsql.backends.io.parquet.source.ALL_FOOTERS", 1)
    monkeypatch.setattr("tsql.backends.io.parquet.sampled.SAMPLED_FILES", 2)
    monkeypatch.setattr("tsql.backends.io.parquet.sampled.PART_BYTES", 9000)
    monkeypatch.setattr("tsql.backends.io.open.MANY_FILES", 1)
    for sql in (
        f"SELECT ad, count(*), sum(price), min(day), first(id), last(id) FROM '{clicks}/*.parquet' WHERE id % 3 <> 0 "
        "GROUP BY ad ORDER BY ad",
        f"SELECT id FROM '{clicks}/*.parquet' WHERE id BETWEEN 3990 AND 4010",
        f"SELECT count(*) FROM '{clicks}/*.parquet'",
    ):
        relation = db.sql(sql)
        assert relation.arrow().equals(tsql.connect().sql(sql).arrow())
    limited = db.sql(f"SELECT id FROM '{clicks}/*.parquet' LIMIT 7")
    assert limited.fetchall() == [(number,) for number in range(7)]


@pytest.mark.parametrize("fewer", [False, True])
def test_many_splits_beside_placed_rows(db: Any, clicks: Path, monkeypatch: pytest.MonkeyPatch, fewer: bool) -> None:
    """A stage that reads a shuffle and files: many splits are moved to their tasks, and are in no function."""
    monkeypatch.setattr(RddTransport, "most_given_bytes", 10)
    monkeypatch.setattr("tsql.backends.spark.transport.rdd.PIECE_BYTES", 200)
    given: list[int] = []
    computed = RddTransport.computed

    def seen(self: Any, rows: Any, work: TaskWork) -> Any:
        given.append(len(work.given))
        return computed(self, rows, work)

    monkeypatch.setattr(RddTransport, "computed", seen)
    sql = (
        f"SELECT ad, sum(m), count(*) FROM (SELECT ad, median(id) AS m FROM '{clicks}/*.parquet' GROUP BY ad "
        f"UNION ALL SELECT ad, id FROM '{clicks}/*.parquet' WHERE id < 9000) GROUP BY ad ORDER BY ad"
    )
    if fewer:
        db.execute("SET shards = 24")
    try:
        relation = db.sql(sql)
        assert "union" in relation.plan() and "redistribute" in relation.plan()
        assert relation.arrow().equals(tsql.connect().sql(sql).arrow())
    finally:
        db.execute("RESET shards")
    assert given and not any(given)


def test_redistributed_groups(db: Any, clicks: Path) -> None:
    """A median needs all rows of a group in one shard: they are moved by the hash of the key."""
    sql = (
        f"SELECT ad, median(id) AS middle, count(DISTINCT day) AS days FROM '{clicks}/*.parquet' GROUP BY ad "
        "ORDER BY ad"
    )
    relation = db.sql(sql)
    assert "redistribute" in relation.plan() and "scope=global" in relation.plan()
    assert relation.arrow().equals(tsql.connect().sql(sql).arrow())


def test_input_order(db: Any, clicks: Path) -> None:
    """Without ORDER BY, rows leave in the order of the files."""
    ids = db.sql(f"SELECT id FROM '{clicks}/*.parquet' WHERE id % 1000 < 2").arrow().column("id").to_pylist()
    assert ids == [i + k for i in range(0, 12000, 1000) for k in (0, 1)]


def test_plan_file(db: Any, clicks: Path) -> None:
    """A plan is printed, parsed and run; what a person writes into it is what runs."""
    text = f"""plan version 1
target spark shards=4

clicks = scan '{clicks}/*.parquet' columns=(ad, id)
even   = reshard clicks scope=global shards=3
keyed  = rekey even key=(ad)
placed = redistribute keyed scope=global shards=2
groups = aggregate placed by=(ad) n=count(*) middle=median(id)
copies = broadcast groups scope=global shards=2
one    = gather copies
sorted = sort one by=(ad asc nulls last)
output sorted (ad, n, middle)
"""
    plan = tsql.load_plan_text(text)
    assert plan.bind(db).text() == text
    expected = tsql.connect().sql(
        f"SELECT ad, count(*) AS n, median(id) AS middle FROM '{clicks}/*.parquet' GROUP BY ad ORDER BY ad"
    )
    assert plan.run(db).arrow().equals(expected.arrow())


def test_multicast(db: Any, clicks: Path) -> None:
    """Pairs of a band join meet in the shard of the left row; right rows near a border go to both sides of it."""
    text = f"""plan version 1
target spark shards=4
wide  = scan '{clicks}/part0.parquet' columns=(id)
near  = multicast wide to=(id // 1000) scope=global
other = scan '{clicks}/part0.parquet' columns=(id)
named = project other later=id
both  = multicast named to=(later // 1000, CASE WHEN later % 1000 < 3 AND later >= 1000 THEN later // 1000 - 1 END) \
scope=global
pairs = hash_join near both kind=inner where=(later - id BETWEEN 1 AND 3) build=right
found = aggregate pairs phase=partial by=() n=count(*) s=sum(id * later)
one   = gather found
total = aggregate one phase=final by=() n=count(*) s=sum(id * later)
output total (n, s)
"""
    pairs = [(i, i + d) for i in range(4000) for d in (1, 2, 3) if i + d < 4000]
    assert tsql.load_plan_text(text).run(db).fetchall() == [(len(pairs), sum(a * b for a, b in pairs))]


def test_error_with_position(db: Any) -> None:
    """An error in a task is ours: its class, its message, and the place in the SQL."""
    with pytest.raises(ExecutionError) as caught:
        db.sql("SELECT g,\n  i64 + 1 AS next FROM (SELECT id AS g, i64 FROM all_types)").arrow()
    assert caught.value.line_column == (2, 7)
    assert "Traceback" not in str(caught.value) and "java" not in str(caught.value)


def test_error_behind_movement(db: Any) -> None:
    """An error before a shuffle ends the query just the same."""
    with pytest.raises(ExecutionError, match="Could not convert string 'red' to INT32"):
        db.sql("SELECT k::INTEGER AS n, median(x) FROM nums WHERE k = 'red' GROUP BY ALL").arrow()


def test_source_error(db: Any, clicks: Path, tmp_path: Path) -> None:
    """A file that cannot be read is named."""
    damaged = tmp_path / "damaged.parquet"
    data = bytearray((clicks / "part0.parquet").read_bytes())
    data[100:1100] = bytes(1000)
    damaged.write_bytes(data)
    with pytest.raises(SourceError, match="damaged.parquet"):
        db.sql(f"SELECT sum(id), max(ad) FROM '{damaged}'").arrow()


def test_cancel(db: Any, spark: Any) -> None:
    """A cancelled query ends at once for its caller, and its job soon on the cluster."""

    def sleep(batches: Any) -> Any:
        import time

        time.sleep(300)
        yield from batches

    db.register("sleepers", spark.range(0, 2, 1, 2).mapInArrow(sleep, "id long"))
    relation = db.sql("SELECT sum(id) FROM sleepers")
    tracker = spark.sparkContext.statusTracker()
    # The tasks sleep for longer than anyone waits here.
    canceller = threading.Thread(
        target=lambda: (wait_until(lambda: bool(tracker.getActiveJobsIds())), relation.cancel())
    )
    canceller.start()
    with pytest.raises(CancelledError):
        relation.arrow()
    canceller.join()
    assert wait_until(lambda: not tracker.getActiveJobsIds())
    db.unregister("sleepers")


def test_jobs_that_start_after_the_cancellation(spark: Any) -> None:
    """The thread that starts a job may be late."""
    transport = RddTransport(spark)
    rows = transport.computed(transport.given([[]]), TaskWork("", {}, {}, "stage 1 (step late)"))
    transport.cancel("tsql-late")
    # In a thread of its own: a group belongs to the thread that sets it.
    with ThreadPoolExecutor(1) as pool, pytest.raises(Py4JError, match="cancelled"):
        pool.submit(lambda: list(transport.collect(rows, [0], "tsql-late"))).result()


def test_to_spark(db: Any) -> None:
    """A result goes on as a DataFrame with Spark's types, and comes back as a table."""
    columns = "id, b, i8, i16, i32, i64, i128, u8, u16, u32, u64, f32, f64, d4, d18, d38, s, bl, d, t, ts, tz"
    frame = db.sql(f"SELECT {columns} FROM all_types WHERE id <> 2").to_spark()
    types = {f.name: f.dataType.simpleString() for f in frame.schema}
    assert (types["i128"], types["u8"], types["u64"], types["ts"], types["tz"]) == (
        "decimal(38,0)",
        "smallint",
        "decimal(20,0)",
        "timestamp_ntz",
        "timestamp",
    )
    db.register("back", frame)
    given = db.sql(f"SELECT {columns} FROM back ORDER BY id").fetchall()
    expected = db.sql(f"SELECT {columns} FROM all_types WHERE id <> 2 ORDER BY id").fetchall()
    assert [[str(v) for v in row] for row in given] == [[str(v) for v in row] for row in expected]


def test_to_spark_belongs_to_the_session(db: Any, spark: Any) -> None:
    """A view of the DataFrame is the session's, it joins with other DataFrames, and no setting of the user changes."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    before = spark.conf.getAll
    try:
        sql = "SELECT g, count(*) AS n, max(TIMESTAMPTZ '2024-01-01 00:00:00+00') AS t FROM nums GROUP BY g"
        frame = db.sql(sql).to_spark()
        frame.createOrReplaceTempView("counted")
        found = spark.sql("SELECT count(*) AS n, max(t) = TIMESTAMP '2024-01-01 09:00:00' AS same FROM counted")
        expected = len(tsql_rows("SELECT DISTINCT g FROM nums"))
        assert [tuple(row) for row in found.collect()] == [(expected, True)]
        few = spark.range(3)
        assert frame.join(few, frame.g == few.id).count() == 3
        assert db.sql("SELECT count(*) FROM counted").fetchall() == [(expected,)]
        assert spark.conf.getAll == before
    finally:
        spark.catalog.dropTempView("counted")
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.set("spark.sql.adaptive.enabled", "false")


def test_to_spark_after_gather(db: Any) -> None:
    """What comes after gather runs in a task too, so the DataFrame stays lazy."""
    frame = db.sql("SELECT g AS key, count(*) AS key FROM nums GROUP BY g ORDER BY g LIMIT 3").to_spark()
    assert frame.columns == ["key", "key_1"]
    assert [tuple(row) for row in frame.filter("key_1 > 0").collect()] == tsql_rows(
        "SELECT g, count(*) FROM nums GROUP BY g ORDER BY g LIMIT 3"
    )


def tsql_rows(sql: str) -> list[tuple[Any, ...]]:
    """The rows of the local backend."""
    local = tsql.connect()
    local.register("nums", DATASETS["nums"])
    return local.sql(sql).fetchall()


def test_to_spark_is_computed_again(db: Any) -> None:
    """Each action finds the shuffles of those before it, or makes them again."""
    sql = "SELECT g, median(id) AS m FROM nums GROUP BY g"
    expected = sorted(map(repr, db.sql(sql).fetchall()))
    frame = db.sql(sql).to_spark()
    for _ in range(5):
        assert sorted(repr(tuple(row)) for row in frame.collect()) == expected
    joined = frame.alias("a").join(frame.alias("b"), "g")
    assert joined.count() == joined.count() == sum(not row.startswith("(None") for row in expected)


def test_to_spark_needs_types(db: Any) -> None:
    with pytest.raises(PlanError, match="column iv is INTERVAL, which a Spark DataFrame cannot hold"):
        db.sql("SELECT iv FROM all_types").to_spark()


def test_frame_source(db: Any, spark: Any) -> None:
    """A DataFrame of Spark is a table; alone it is read where it is, with others its rows are moved."""
    db.register("numbers", spark.range(0, 1000, 1, 3).selectExpr("id", "id % 7 AS g", "CAST(id AS STRING) AS text"))
    assert db.sql("SELECT g, count(*), max(text) FROM numbers GROUP BY g ORDER BY g LIMIT 2").fetchall() == [
        (0, 143, "994"),
        (1, 143, "995"),
    ]
    assert db.sql("SELECT count(*) FROM numbers").fetchall() == [(1000,)]
    assert db.sql("SELECT count(*) FROM (SELECT g FROM numbers UNION ALL SELECT g FROM nums)").fetchall() == [
        (1000 + len(DATASETS["nums"]),)
    ]
    local = tsql.connect()
    local.register("numbers", spark.range(0, 10, 1, 3))
    assert local.sql("SELECT sum(id) FROM numbers").fetchall() == [(45,)]


def test_parameters(db: Any) -> None:
    sql = "SELECT count(*) FROM all_types WHERE i32 > $low AND s <> $text AND bl <> $blob AND d <> $day"
    values = {"low": -5, "text": "it's", "blob": b"\x00\xff", "day": dt.date(2000, 2, 29)}
    local = tsql.connect()
    local.register("all_types", DATASETS["all_types"])
    assert db.sql(sql, values).fetchall() == local.sql(sql, values).fetchall()


def test_empty(db: Any) -> None:
    db.register("nothing", DATASETS["nums"].slice(0, 0))
    assert db.sql("SELECT count(*), sum(x) FROM nothing").fetchall() == [(0, None)]
    assert db.sql("SELECT g, median(x) FROM nothing GROUP BY g").fetchall() == []


def test_tables_in_memory(db: Any) -> None:
    """CREATE TABLE AS stores the result on the driver; its blocks go to the tasks."""
    db.execute("CREATE OR REPLACE TABLE stored AS SELECT * FROM all_types")
    # As text, because NaN equals nothing.
    assert str(db.sql("SELECT * FROM stored ORDER BY id").fetchall()) == str(
        db.sql("SELECT * FROM all_types ORDER BY id").fetchall()
    )


def test_local_scope_is_refused(db: Any) -> None:
    text = """plan version 1
target spark shards=2
nums = scan nums columns=(g)
keyed = rekey nums key=(g)
placed = redistribute keyed scope=local shards=2
groups = aggregate placed by=(g) n=count(*)
one = gather groups
output one (g, n)
"""
    with pytest.raises(PlanError, match="scope=local moves rows inside one task only"):
        tsql.load_plan_text(text).run(db).arrow()


def test_more_shards_than_tasks(db: Any, clicks: Path) -> None:
    """The files of a shuffle say how many tasks read them."""
    text = f"""plan version 1
target spark shards=2

clicks = scan '{clicks}/*.parquet' columns=(ad, id)
keyed  = rekey clicks key=(id)
placed = redistribute keyed scope=global shards=16
groups = aggregate placed by=(id) first=min(ad)
there  = arrange groups by=(id desc nulls last) scope=global shards=9
order  = sort there by=(id desc nulls last)
last   = gather order
output last (id, first)
"""
    found = tsql.load_plan_text(text).run(db).arrow()
    assert found.column("id").to_pylist() == list(range(11999, -1, -1))
    assert found.column("first").to_pylist()[:3] == [f"ad {i % 7}" if i % 11 else None for i in (11999, 11998, 11997)]


def test_a_large_order_stays_in_partitions(db: Any, clicks: Path) -> None:
    """ORDER BY of a lazy DataFrame is sorted by several tasks."""
    frame = db.sql(f"SELECT id, ad FROM '{clicks}/*.parquet' ORDER BY ad DESC NULLS FIRST, id").to_spark()
    assert frame.rdd.getNumPartitions() > 1
    expected = tsql.connect().sql(f"SELECT id, ad FROM '{clicks}/*.parquet' ORDER BY ad DESC NULLS FIRST, id")
    assert [tuple(row) for row in frame.collect()] == expected.fetchall()


def test_to_spark_runs_no_job(db: Any, clicks: Path, spark: Any) -> None:
    """Also where the plan has a broadcast that tasks compute together."""
    text = f"""plan version 1
target spark shards=2

clicks = scan '{clicks}/*.parquet' columns=(ad, id)
named  = scan '{clicks}/part0.parquet' columns=(id)
other  = project named later=id
keyed  = rekey other key=(later)
placed = redistribute keyed scope=global shards=2
groups = aggregate placed by=(later) n=count(*)
all    = broadcast groups scope=global shards=2 how=collect
pairs  = hash_join clicks all kind=inner on=(id = later) build=right
last   = gather pairs
output last (id, n)
"""
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    frame = tsql.load_plan_text(text).run(db).to_spark()
    assert set(tracker.getJobIdsForGroup(None)) == before
    assert sorted(tuple(row) for row in frame.collect()) == [(i, 1) for i in range(4000)]


def test_progress_tells_stages_and_tasks(db: Any, spark: Any) -> None:
    def slow(batches: Any) -> Any:
        import time

        time.sleep(1.5)
        yield from batches

    db.register("slow", spark.range(0, 4, 1, 4).mapInArrow(slow, "id long"))
    relation, told = db.sql("SELECT sum(id) FROM slow"), set()
    thread = threading.Thread(target=relation.fetchall)
    thread.start()
    while thread.is_alive():
        told.add(relation.activity)
        thread.join(0.01)
    assert any("stage 1 of 1" in text and "of 4 tasks" in text for text in told)
    assert relation.activity == "", "the run has ended"
    db.unregister("slow")


NUMBERED = {
    "a shard of its own": (
        "SELECT ad, median(id) AS m FROM '{clicks}/*.parquet' GROUP BY ad "
        "UNION ALL SELECT 'all', count(*) FROM '{clicks}/*.parquet'"
    ),
}
SPLITS_BESIDE_PLACED_ROWS = """plan version 1
target {target} shards=3

few    = scan '{clicks}/*.parquet' columns=(ad, price)
fewer  = filter few where=(price > 9.97)
named  = project fewer other=ad
all    = broadcast named scope=global shards=3{how}
rows   = scan '{clicks}/*.parquet' columns=(id, ad)
some   = hash_join rows all kind=semi on=(ad = other) build=right
left_k = rekey some key=(id)
left_p = redistribute left_k scope=global shards=3
again  = scan '{clicks}/*.parquet' columns=(id, ad)
same   = hash_join again all kind=semi on=(ad = other) build=right
names  = project same number=id
rght_k = rekey names key=(number)
rght_p = redistribute rght_k scope=global shards=3
both   = hash_join left_p rght_p kind=inner on=(id = number) build=right
part   = aggregate both phase=partial by=(ad) n=count(*)
one    = gather part
groups = aggregate one phase=final by=(ad) n=count(*)
output groups (ad, n)
"""


@pytest.mark.parametrize("what", NUMBERED)
def test_numbers_of_tasks(db: Any, clicks: Path, what: str) -> None:
    """Tasks over DataFrames know their shard, also behind a union, where Spark counts on."""
    sql = NUMBERED[what].format(clicks=clicks)
    expected = bag(tsql.connect().sql(sql).fetchall())
    assert bag(db.sql(sql).fetchall()) == expected
    assert bag([tuple(row) for row in db.sql(sql).to_spark().collect()]) == expected


def test_splits_of_tasks_behind_a_union(db: Any, clicks: Path) -> None:
    """In a DataFrame, rows of a broadcast move, so the files of both scans are given to tasks that read placed rows."""
    plan = tsql.load_plan_text(SPLITS_BESIDE_PLACED_ROWS.format(target="spark", clicks=clicks, how=" how=collect"))
    local = tsql.load_plan_text(SPLITS_BESIDE_PLACED_ROWS.format(target="local", clicks=clicks, how=""))
    with tsql.connect() as here:
        expected = bag(local.run(here).fetchall())
    assert expected
    assert bag(plan.run(db).fetchall()) == expected
    assert bag([tuple(row) for row in plan.run(db).to_spark().collect()]) == expected


def test_an_empty_frame_of_many_shards(spark: Any, db: Any) -> None:
    """Spark submits no stage without partitions."""
    db.register("nothing", spark.createDataFrame([(1, 2.0)], "a int, b double").where("false"))
    db.execute("SET shards = 24")
    try:
        assert db.sql("SELECT a, median(b) FROM nothing GROUP BY a").fetchall() == []
    finally:
        db.execute("RESET shards")
        db.unregister("nothing")


def test_a_session_of_another_thread(spark: Any) -> None:
    """It is found and used, and neither changed nor stopped."""
    adaptive = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    found: list[Any] = []

    def work() -> None:
        with tsql.connect(backend="spark=local[4]") as other:
            found.append(other.sql("SELECT 1 AS one").fetchall())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    try:
        assert found == [[(1,)]]
        assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
        assert spark.range(3).count() == 3
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", adaptive)
