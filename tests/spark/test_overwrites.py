"""INSERT OVERWRITE and partitions of tables in Spark's catalogs: which rows go, and that a query that fails, or reads
the table that it writes, loses none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tsql
from tsql.backends.spark import tables
from tsql.kernels.expr.errors import BindError, CatalogError, ExecutionError, ParseError

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]

MODE = "spark.sql.sources.partitionOverwriteMode"


@pytest.fixture(scope="module")
def db(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    spark.sql(f"CREATE DATABASE over LOCATION '{tmp_path_factory.mktemp('over')}'")
    with tsql.connect(spark=spark) as session:
        yield session
    spark.sql("DROP DATABASE over CASCADE")


@pytest.fixture
def parted(spark: Any) -> Iterator[str]:
    spark.sql("CREATE TABLE over.parted (v BIGINT, k STRING, d INT) USING parquet PARTITIONED BY (k, d)")
    spark.sql("INSERT INTO over.parted VALUES (1, 'a', 1), (2, 'a', 2), (3, 'b', 1)")
    yield "over.parted"
    spark.sql("DROP TABLE over.parted")


def rows(spark: Any, table: str) -> list[tuple[Any, ...]]:
    spark.catalog.refreshTable(table)
    return sorted(map(tuple, spark.table(table).collect()), key=str)


def left_over(spark: Any) -> list[str]:
    found = [row.tableName for row in spark.sql("SHOW TABLES IN over").collect()]
    return [name for name in found if name.startswith("tsql_")] + [
        view.viewName for view in spark.sql("SHOW VIEWS").collect() if view.viewName.startswith("tsql_")
    ]


STATEMENTS = (
    "INSERT OVERWRITE {t} SELECT 10, 'a', 1",
    "INSERT OVERWRITE TABLE {t} PARTITION (k, d) SELECT 10, 'c', 1",
    "INSERT OVERWRITE {t} PARTITION (k = 'a', d) SELECT 10, 2",
    "INSERT OVERWRITE {t} PARTITION (k = 'a', d = 2) SELECT 10",
    "INSERT OVERWRITE {t} PARTITION (k = 'a', d = 2) SELECT 10 WHERE 1 = 0",
    "INSERT OVERWRITE {t} PARTITION (k = 'a', d) SELECT 10, 7 WHERE 1 = 0",
    "INSERT OVERWRITE {t} SELECT 10, 'a', 1 WHERE 1 = 0",
    "INSERT OVERWRITE {t} PARTITION (k = NULL, d = -1) SELECT 10",
)


SAMPLE = {"static": (2, 4), "dynamic": (0, 5)}
"""What runs without `--all-configurations`: Spark takes seconds for each."""


@pytest.mark.parametrize(
    ("mode", "statement"),
    [
        pytest.param(mode, statement, marks=() if number in SAMPLE[mode] else pytest.mark.all_configurations)
        for mode in SAMPLE
        for number, statement in enumerate(STATEMENTS)
    ],
)
def test_as_spark_does(db: Any, spark: Any, mode: str, statement: str) -> None:
    """The same statement by tsql and by Spark leaves the same rows."""
    spark.conf.set(MODE, mode)
    try:
        for name in ("ours", "theirs"):
            spark.sql(f"CREATE TABLE over.{name} (v BIGINT, k STRING, d INT) USING parquet PARTITIONED BY (k, d)")
            spark.sql(f"INSERT INTO over.{name} VALUES (1, 'a', 1), (2, 'a', 2), (3, 'b', 1)")
        spark.sql(statement.format(t="over.theirs"))
        count = 0 if "1 = 0" in statement else 1
        assert db.sql(statement.format(t="over.ours")).fetchall() == [(count,)]
        assert rows(spark, "over.ours") == rows(spark, "over.theirs")
    finally:
        spark.conf.unset(MODE)
        for name in ("ours", "theirs"):
            spark.sql(f"DROP TABLE IF EXISTS over.{name}")
    assert left_over(spark) == []


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_a_query_that_reads_its_target(db: Any, spark: Any, parted: str, mode: str) -> None:
    spark.conf.set(MODE, mode)
    try:
        db.sql("INSERT OVERWRITE over.parted SELECT v * 2, k, d FROM over.parted")
        assert rows(spark, parted) == [(2, "a", 1), (4, "a", 2), (6, "b", 1)]
        db.sql("INSERT OVERWRITE over.parted PARTITION (k = 'a', d = 2) SELECT sum(v) FROM over.parted")
        assert rows(spark, parted) == [(12, "a", 2), (2, "a", 1), (6, "b", 1)]
    finally:
        spark.conf.unset(MODE)


@pytest.mark.parametrize(
    ("mode", "partition"),
    [
        pytest.param("static", "", marks=pytest.mark.all_configurations),
        ("static", "PARTITION (k = 'a', d = 2)"),
        ("dynamic", ""),
        pytest.param("dynamic", "PARTITION (k = 'a', d = 2)", marks=pytest.mark.all_configurations),
    ],
)
def test_a_query_that_fails(db: Any, spark: Any, parted: str, mode: str, partition: str) -> None:
    """Spark removes the old files before the first task runs, so it must not be the query that runs then."""
    columns = "v" if partition else "v, 'a', 1"
    failing = f"SELECT {columns} FROM (SELECT (CASE WHEN v > 0 THEN 'x' ELSE '1' END)::BIGINT AS v FROM over.parted)"
    spark.conf.set(MODE, mode)
    try:
        with pytest.raises(ExecutionError, match="Could not convert string 'x'"):
            db.sql(f"INSERT OVERWRITE over.parted {partition} {failing}")
    finally:
        spark.conf.unset(MODE)
    assert rows(spark, parted) == [(1, "a", 1), (2, "a", 2), (3, "b", 1)]
    assert left_over(spark) == []


def test_rows_that_do_not_fit(db: Any, spark: Any) -> None:
    """What only Spark's writer refuses is found while the old rows are there."""
    spark.sql("CREATE TABLE over.short (c CHAR(3), v VARCHAR(2)) USING parquet")
    spark.sql("INSERT INTO over.short VALUES ('a', 'b')")
    with pytest.raises(ExecutionError, match="EXCEED_LIMIT_LENGTH"):
        db.sql("INSERT OVERWRITE over.short SELECT 'abcd', 'x'")
    assert rows(spark, "over.short") == [("a  ", "b")] and left_over(spark) == []
    db.sql("INSERT OVERWRITE over.short SELECT 'c', 'd'")
    assert rows(spark, "over.short") == [("c  ", "d")]
    spark.sql("DROP TABLE over.short")


def test_partitions_of_insert_into(db: Any, spark: Any, parted: str) -> None:
    db.sql("INSERT INTO over.parted PARTITION (k = 'z', d) SELECT 4, 9")
    db.sql("INSERT INTO over.parted PARTITION (d = '5', k = 'y') VALUES (5)")
    db.sql("INSERT INTO over.parted PARTITION (k = 'x') (d, v) VALUES (8, 6)")
    assert rows(spark, parted)[3:] == [(4, "z", 9), (5, "y", 5), (6, "x", 8)]


HOSTILE = ("it's", "a\\b", "x'; DROP TABLE over.parted; --", "é=ü/ö", "a\nb", "${k}", '"', "😀", "%41")


def test_hostile_values(db: Any, spark: Any, parted: str) -> None:
    """No character of a value ends the text that Spark parses."""
    for value in HOSTILE:
        assert spark.sql(f"SELECT {tables._value(spark, value)} AS v").collect() == [(value,)]
        spark.conf.set(tables._RAW_TEXTS, "true")
        try:
            with pytest.raises(CatalogError, match="the partition value .* cannot be written"):
                tables._value(spark, value)
        finally:
            spark.conf.unset(tables._RAW_TEXTS)
    for value in (HOSTILE[2], HOSTILE[3]):
        quoted = value.replace("'", "''")
        db.sql(f"INSERT OVERWRITE over.parted PARTITION (k = '{quoted}', d = 1) SELECT 4")
        assert [row for row in rows(spark, parted) if row[1] == value] == [(4, value, 1)]


def test_create(db: Any, spark: Any, tmp_path: Path) -> None:
    db.sql("CREATE TABLE over.made USING orc PARTITIONED BY (K) AS SELECT 1 AS v, 'x' AS k")
    assert tables._provider(spark, ("over", "made")) == "orc" and tables.partitions_of(spark, ("over", "made")) == ["k"]
    db.sql("CREATE OR REPLACE TABLE over.made USING parquet AS SELECT 2 AS v")
    assert tables._provider(spark, ("over", "made")) == "parquet" and rows(spark, "over.made") == [(2,)]
    db.sql("INSERT OVERWRITE over.made SELECT 3")
    assert rows(spark, "over.made") == [(3,)]
    db.sql("DROP TABLE over.made")


def test_messages(db: Any, spark: Any, parted: str) -> None:
    db.sql("CREATE TABLE own (a INTEGER)")
    for text, kind, message in (
        ("INSERT OVERWRITE own SELECT 1", BindError, "INSERT OVERWRITE is for tables of Spark's catalogs"),
        ("INSERT INTO own PARTITION (a = 1) SELECT 1", BindError, "PARTITION is for tables of Spark's catalogs"),
        ("CREATE TABLE own2 PARTITIONED BY (a) AS SELECT 1 AS a", BindError, "PARTITIONED BY is not supported"),
        ("CREATE TABLE own2 USING parquet AS SELECT 1 AS a", BindError, "USING is not supported"),
        ("INSERT OVERWRITE over.none SELECT 1", CatalogError, "Table with name over.none does not exist"),
        ("INSERT OVERWRITE over.parted SELECT 1", BindError, "has 3 columns but 1 values"),
        ("INSERT OVERWRITE over.parted PARTITION (k = 'a') SELECT 1", BindError, "has 2 columns but 1 values"),
        ("INSERT OVERWRITE over.parted PARTITION (v = 1, k) SELECT 1, 2", BindError, '"v" is no partition column'),
        ("INSERT OVERWRITE over.parted PARTITION (k = 1, k = 2) SELECT 1, 2", BindError, "Duplicate column name"),
        ("INSERT INTO over.parted PARTITION (k = a) SELECT 1, 2", BindError, "a value in PARTITION is a text"),
        ("INSERT INTO over.parted PARTITION (k = 1 + 1) SELECT 1, 2", BindError, "a value in PARTITION is a text"),
        ("INSERT INTO over.parted PARTITION (k = 'a') (k, v, d) SELECT 1, 2, 3", BindError, "and so does the query"),
        ("INSERT OVERWRITE DIRECTORY '/x' SELECT 1", ParseError, "INSERT OVERWRITE DIRECTORY is not supported"),
        ("INSERT OVERWRITE INTO over.parted SELECT 1", ParseError, "expected a table"),
        ("CREATE TABLE over.t USING orc WITH (format = 'orc') AS SELECT 1 AS a", BindError, "says the same again"),
        (
            "CREATE TABLE over.t PARTITIONED BY (bucket(2, a)) AS SELECT 1 AS a",
            tsql.TsqlError,
            "names of columns|PARTITIONED",
        ),
        ("CREATE TABLE over.t PARTITIONED BY (z) AS SELECT 1 AS a", BindError, 'there is no column "z"'),
        ("CREATE TABLE over.t USING nonsense AS SELECT 1 AS a", tsql.TsqlError, "DATA_SOURCE_NOT_FOUND"),
    ):
        with pytest.raises(kind, match=message):
            db.sql(text)
    assert len(rows(spark, parted)) == 3
    db.sql("DROP TABLE own")
