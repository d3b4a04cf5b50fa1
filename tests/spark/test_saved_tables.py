"""Tables in the catalogs of Spark as targets: CREATE TABLE AS, INSERT and DROP TABLE of qualified names."""

from __future__ import annotations

import datetime as dt
import os
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.patience import wait_until
from tests.spark.cluster import InProcess
from tsql.backends.spark import tables
from tsql.kernels.expr.errors import (
    BindError,
    CancelledError,
    CatalogError,
    ExecutionError,
    PlanError,
    TransactionError,
)

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]

ROWS = pa.table({"k": pa.array([i % 4 for i in range(100)], pa.int32()), "v": pa.array(range(100), pa.int64())})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="module")
def db(spark: Any, folder: Path) -> Any:
    spark.sql(f"CREATE DATABASE shop LOCATION '{folder.as_uri()}'")
    with tsql.connect(spark=spark) as session:
        session.register("rows", ROWS)
        yield session
    spark.sql("DROP DATABASE shop CASCADE")


def values(spark: Any, table: str) -> list[int]:
    return sorted(row[0] for row in spark.table(table).select("v").collect())


def test_create_and_insert(db: Any, spark: Any) -> None:
    """Running a statement twice appends twice, as SQL says."""
    assert db.sql("CREATE TABLE shop.t AS FROM rows").fetchall() == [(100,)]
    assert values(spark, "shop.t") == list(range(100))
    insert = "INSERT INTO spark_catalog.shop.t SELECT k, v + 100 FROM rows WHERE v < 10"
    for _ in range(2):
        assert db.sql(insert).fetchall() == [(10,)]
    assert values(spark, "shop.t") == sorted([*range(100), *range(100, 110), *range(100, 110)])
    assert db.sql("INSERT INTO shop.t (v, k) VALUES (1000, 1), (1001, 2)").fetchall() == [(2,)]
    assert db.sql("INSERT INTO shop.t BY NAME SELECT '2000' AS v, 3 AS k").fetchall() == [(1,)]
    assert sorted(map(tuple, spark.table("shop.t").where("v >= 1000").collect())) == [(1, 1000), (2, 1001), (3, 2000)]
    assert "t" not in db.tables(), "the session's own catalog knows nothing of it"
    db.sql("DROP TABLE shop.t")
    assert not spark.catalog.tableExists("shop.t")


def test_types(db: Any, spark: Any) -> None:
    db.sql(
        "CREATE TABLE shop.types AS SELECT true AS b, 1::UTINYINT AS u, 2::HUGEINT AS h, 1.5::DECIMAL(9,2) AS d, "
        "'é' AS s, DATE '2024-01-02' AS day, TIMESTAMP '2024-01-02 03:04:05' AS ts, NULL AS n, 1 AS a, 2 AS a"
    )
    (row,) = spark.table("shop.types").collect()
    assert tuple(row) == (
        True, 1, 2, Decimal("1.50"), "é", dt.date(2024, 1, 2), dt.datetime(2024, 1, 2, 3, 4, 5), None, 1, 2,
    )  # fmt: skip
    assert spark.table("shop.types").columns[-2:] == ["a", "a_1"]
    with pytest.raises(PlanError, match="column i is INTERVAL, which a Spark DataFrame cannot hold"):
        db.sql("CREATE TABLE shop.interval AS SELECT INTERVAL 1 DAY AS i")
    assert not spark.catalog.tableExists("shop.interval")


def test_what_exists(db: Any, spark: Any) -> None:
    db.sql("CREATE TABLE shop.there AS SELECT 1::BIGINT AS v")
    with pytest.raises(CatalogError, match="Table with name shop.there already exists"):
        db.sql("CREATE TABLE shop.there AS SELECT 2 AS v")
    db.sql("CREATE TABLE IF NOT EXISTS shop.there AS SELECT 2 AS v")
    assert values(spark, "shop.there") == [1]
    db.sql("CREATE OR REPLACE TABLE shop.there AS SELECT 3 AS v, 'x' AS w")
    assert values(spark, "shop.there") == [3] and spark.table("shop.there").columns == ["v", "w"]
    db.register("before", spark.table("shop.there"))
    db.sql("CREATE OR REPLACE TABLE shop.there AS SELECT v + 1 AS v FROM before")
    assert values(spark, "shop.there") == [4], "a query may read the table that it replaces"
    db.sql("CREATE OR REPLACE TABLE spark_catalog.shop.there AS SELECT 6 AS v")
    assert values(spark, "shop.there") == [6]
    db.sql("CREATE OR REPLACE TABLE shop.fresh AS SELECT 5 AS v")
    assert values(spark, "shop.fresh") == [5]


def test_partitions_and_formats(db: Any, spark: Any, folder: Path) -> None:
    db.sql("CREATE TABLE shop.days WITH (format = 'orc', partition_by = 'K') AS SELECT v, k FROM rows")
    assert sorted(name for name in os.listdir(folder / "days") if "=" in name) == ["k=0", "k=1", "k=2", "k=3"]
    db.sql("INSERT INTO shop.days SELECT 500, 9")
    assert spark.table("shop.days").where("k = 9").collect()[0].v == 500
    db.sql("CREATE OR REPLACE TABLE shop.days WITH (partition_by = 'v') AS SELECT k, v FROM shop.days WHERE v > 97")
    assert sorted(map(tuple, spark.table("shop.days").collect())) == [(2, 98), (3, 99), (9, 500)]
    assert db.sql("SELECT sum(k) FROM shop.days WHERE v < 500").fetchall() == [(5,)]
    for options, message in (
        ("format = 'nonsense'", "DATA_SOURCE_NOT_FOUND"),
        ("partition_by = 'zzz'", 'partition_by: there is no column "zzz"'),
        ("path = 'x'", 'unknown option "path"'),
        ("format = 1", 'option "format" takes a string'),
    ):
        with pytest.raises(tsql.TsqlError, match=message):
            db.sql(f"CREATE TABLE shop.other WITH ({options}) AS SELECT 1 AS v")
        assert not spark.catalog.tableExists("shop.other")


def test_partitions_of_a_replaced_table(db: Any, spark: Any) -> None:
    """The new rows are found in the folders of the table, which was renamed; also if the old table had partitions."""
    for first in (0, 10):
        replace = "CREATE OR REPLACE TABLE shop.parted WITH (partition_by = 'k') AS"
        db.sql(f"{replace} SELECT v + {first} AS v, k FROM rows WHERE v < 8")
        assert values(spark, "shop.parted") == list(range(first, first + 8))
        assert db.sql("SELECT count(*) FROM shop.parted WHERE k = 1").fetchall() == [(2,)]


def test_a_failing_query_leaves_no_table(db: Any, spark: Any) -> None:
    failing = "SELECT (CASE WHEN v = 99 THEN 'x' ELSE '1' END)::INTEGER AS v FROM rows"
    with pytest.raises(ExecutionError, match="Could not convert string 'x' to INT32"):
        db.sql(f"CREATE TABLE shop.failed AS {failing}")
    assert not spark.catalog.tableExists("shop.failed")
    db.sql("CREATE TABLE shop.failed AS SELECT 1 AS v")
    with pytest.raises(ExecutionError):
        db.sql(f"CREATE OR REPLACE TABLE shop.failed AS {failing}")
    with pytest.raises(ExecutionError):
        db.sql(f"INSERT INTO shop.failed {failing}")
    assert values(spark, "shop.failed") == [1]
    assert not [t for t in spark.sql("SHOW TABLES IN shop").collect() if t.tableName.startswith("tsql_")]


def test_a_failing_rename_leaves_the_old_table(db: Any, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    db.sql("CREATE TABLE shop.stays AS SELECT 1 AS v")
    rename, calls = tables._rename, []

    def fails_second(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError("no")
        rename(*arguments)

    monkeypatch.setattr(tables, "_rename", fails_second)
    with pytest.raises(OSError, match="no"):
        db.sql("CREATE OR REPLACE TABLE shop.stays AS SELECT 2 AS v")
    assert values(spark, "shop.stays") == [1]
    assert not [t for t in spark.sql("SHOW TABLES IN shop").collect() if t.tableName.startswith("tsql_")]


def test_messages(db: Any, spark: Any) -> None:
    spark.sql("CREATE TABLE shop.known (v BIGINT, day DATE) USING parquet")
    for text, kind, message in (
        ("INSERT INTO shop.known SELECT 1", BindError, "table shop.known has 2 columns but 1 values were supplied"),
        ("INSERT INTO shop.known SELECT 1, 2", BindError, 'do not fit .* shop.known: "day" is DATE, not INTEGER'),
        ("INSERT INTO shop.known (v) SELECT 1", BindError, "INSERT gives no values for day of shop.known"),
        ("INSERT INTO shop.known (v, v) SELECT 1, 2", BindError, 'Duplicate column name "v" in INSERT'),
        ("INSERT INTO shop.known (v, w) SELECT 1, 2", BindError, 'does not have a column with name "w"'),
        ("INSERT INTO shop.known DEFAULT VALUES", BindError, "takes no DEFAULT VALUES"),
        ("INSERT OR IGNORE INTO shop.known SELECT 1, NULL", BindError, "takes no OR"),
        ("INSERT INTO shop.known SELECT 1, NULL RETURNING v", BindError, "takes no RETURNING"),
        ("INSERT INTO shop.missing SELECT 1", CatalogError, "Table with name shop.missing does not exist"),
        ("CREATE TABLE nowhere.t AS SELECT 1 AS a", CatalogError, "Spark refuses nowhere.t: .SCHEMA_NOT_FOUND"),
        ("CREATE TABLE shop.t (a INTEGER)", BindError, "is made with CREATE TABLE .. AS and a query"),
        ("CREATE TEMP TABLE shop.t AS SELECT 1 AS a", BindError, "is made with CREATE TABLE .. AS and a query"),
        ("DROP TABLE shop.missing", CatalogError, "Table with name shop.missing does not exist"),
        ("DROP TABLE shop.known, rows", BindError, "tables of the session, or tables of Spark, not both"),
    ):
        with pytest.raises(kind, match=message):
            db.sql(text)
    db.sql("DROP TABLE IF EXISTS shop.missing, shop.known")
    assert not spark.catalog.tableExists("shop.known")


def test_hostile_names(db: Any, spark: Any) -> None:
    for name in ("a b", "x`y", "é", "select", "a-b", "1", "q'r"):
        quoted = '"' + name.replace('"', '""') + '"'
        ticked = "`" + name.replace("`", "``") + "`"
        try:
            db.sql(f'CREATE TABLE shop.{quoted} AS SELECT 1 AS "c d", 2 AS "e`f"')
        except CatalogError as error:
            assert "Spark refuses" in str(error), "Spark does not allow the name"
            continue
        db.sql(f"INSERT INTO shop.{quoted} SELECT 3, 4")
        assert sorted(map(tuple, spark.table(f"shop.{ticked}").collect())) == [(1, 2), (3, 4)]
        db.sql(f"DROP TABLE shop.{quoted}")


def test_no_transactions(db: Any) -> None:
    db.sql("BEGIN")
    try:
        with pytest.raises(TransactionError, match="cannot be part of a transaction"):
            db.sql("CREATE TABLE shop.inside AS SELECT 1 AS v")
    finally:
        db.sql("ROLLBACK")


def test_own_names_stay_own(db: Any, spark: Any) -> None:
    for name in ("plain", "main.plain", "memory.plain", "memory.main.plain"):
        db.sql(f"CREATE TABLE {name} AS SELECT 1 AS v")
        assert "plain" in db.tables() and not spark.catalog.tableExists("default.plain")
        db.sql(f"INSERT INTO {name} VALUES (2)")
        db.sql(f"DROP TABLE {name}")
    for session in (tsql.connect(), tsql.connect(spark=InProcess())):
        for text in (
            "CREATE TABLE shop.t AS SELECT 1 AS v",
            "INSERT INTO shop.t SELECT 1",
            "DROP TABLE shop.t",
        ):
            with pytest.raises(BindError, match='schema "shop" does not exist'):
                session.sql(text)


def test_cancel(db: Any, spark: Any) -> None:
    def sleeps(batches: Any) -> Any:
        import time

        yield from batches
        time.sleep(300)

    db.register("sleepers", spark.range(0, 100, 1, 2).mapInArrow(sleeps, "id long"))
    caught: list[BaseException] = []
    tracker = spark.sparkContext.statusTracker()

    def create() -> None:
        try:
            db.sql("CREATE TABLE shop.asleep AS FROM sleepers")
        except CancelledError as error:
            caught.append(error)

    thread = threading.Thread(target=create)
    thread.start()
    assert wait_until(lambda: bool(tracker.getActiveJobsIds()))
    for work in list(db._running.at_work):
        work.run.cancel()
    thread.join()
    assert caught and wait_until(lambda: not tracker.getActiveJobsIds())
    assert not spark.catalog.tableExists("shop.asleep")
