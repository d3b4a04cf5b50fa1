"""Tables and views of a Spark session by name: what is found, how it is read, and that the rows are Spark's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.spark.same_rows import rows, same
from tsql.kernels.expr.errors import BindError, CatalogError

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]


@pytest.fixture(scope="module")
def shop(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A database of Spark's with its folder beside the tests', and tables that several tests read."""
    folder = tmp_path_factory.mktemp("shop")
    spark.sql(f"CREATE DATABASE shop LOCATION '{folder}'")
    spark.sql("CREATE TABLE shop.orders USING parquet AS SELECT id, id % 7 AS customer FROM range(1000)")
    spark.sql("CREATE VIEW shop.renamed AS SELECT customer AS c, id FROM shop.orders")
    spark.sql("CREATE VIEW shop.some AS SELECT * FROM shop.orders WHERE id < 10")
    yield "shop"
    spark.sql("DROP DATABASE shop CASCADE")


@pytest.fixture
def db(spark: Any, shop: str) -> Iterator[Any]:
    with tsql.connect(spark=spark) as session:
        yield session


def test_names(db: Any, spark: Any) -> None:
    spark.range(5).createOrReplaceTempView("five")
    spark.range(6).createOrReplaceGlobalTempView("six")
    for name, count in (
        ("five", 5),
        ("FIVE", 5),
        ("global_temp.six", 6),
        ("shop.orders", 1000),
        ("spark_catalog.shop.orders", 1000),
        ("shop.some", 10),
    ):
        assert db.sql(f"SELECT count(*) FROM {name}").fetchall() == [(count,)], name
    assert db.sql("SELECT max(shop.orders.id), max(orders.id) FROM shop.orders").fetchall() == [(999, 999)]
    assert db.sql("SELECT max(o.id) FROM shop.orders o JOIN five ON o.id = five.id").fetchall() == [(4,)]
    assert db.table("five").fetchall() == [(i,) for i in range(5)]


def test_plain_names_of_the_current_database(db: Any, spark: Any) -> None:
    spark.sql("USE shop")
    try:
        assert db.sql("SELECT count(*) FROM orders").fetchall() == [(1000,)]
    finally:
        spark.sql("USE default")


def test_own_names_win(db: Any, spark: Any) -> None:
    spark.range(5).createOrReplaceTempView("both")
    assert db.sql("SELECT count(*) FROM both").fetchall() == [(5,)]
    db.register("both", {"a": [1, 2]})
    assert db.sql("SELECT count(*) FROM both").fetchall() == [(2,)]
    assert db.sql("SELECT count(*) FROM main.both").fetchall() == [(2,)]
    db.unregister("both")
    assert db.sql("SELECT count(*) FROM both").fetchall() == [(5,)]


@pytest.mark.parametrize("name", ['a"b', "a'b", "a.b", "a b", "ä ü", "select", "x`y", "tab\tle", "a/b.parquet", "{"])
def test_hostile_names(db: Any, spark: Any, name: str) -> None:
    quoted = "`" + name.replace("`", "``") + "`"
    spark.range(3).createOrReplaceTempView(quoted)
    shown = '"' + name.replace('"', '""') + '"'
    relation = db.sql(f"SELECT count(*) FROM {shown}")
    assert relation.fetchall() == [(3,)]
    assert tsql.load_plan_text(relation.plan()).run(db).fetchall() == [(3,)]
    spark.catalog.dropTempView(name)
    with pytest.raises((BindError, CatalogError, tsql.TsqlError)):
        db.sql(f"SELECT count(*) FROM {shown}")


def test_unknown_names(db: Any, spark: Any) -> None:
    spark.range(3).createOrReplaceTempView("measurements")
    with pytest.raises(BindError, match='table "measurement" does not exist') as caught:
        db.sql("SELECT * FROM\n measurement")
    assert "measurements" in (caught.value.hint or "") and caught.value.line_column == (2, 2)
    for name in ("nowhere.t", "shop.nothing", "a.b.c", "a.b.c.d", '""'):
        with pytest.raises((BindError, CatalogError, tsql.ParseError)) as caught:
            db.sql(f"SELECT * FROM {name}")
        assert "java" not in str(caught.value) and "Traceback" not in str(caught.value)


def test_a_view_of_a_table_that_is_gone(db: Any, spark: Any) -> None:
    spark.sql("CREATE TABLE shop.brief USING parquet AS SELECT 1 AS a")
    spark.sql("CREATE VIEW shop.on_brief AS SELECT a + 1 AS b FROM shop.brief")
    spark.sql("DROP TABLE shop.brief")
    with pytest.raises(CatalogError, match="Spark cannot read shop.on_brief: .*brief") as caught:
        db.sql("SELECT * FROM shop.on_brief")
    assert caught.value.line_column == (1, 20)


def test_changes_are_seen(db: Any, spark: Any) -> None:
    """A plan that is kept is not used for a table that has changed since."""
    sql = "SELECT count(*), max(a) FROM changing"
    spark.sql("USE shop")
    try:
        spark.sql("CREATE TABLE changing USING parquet AS SELECT 1 AS a")
        assert db.sql(sql).fetchall() == db.sql(sql).fetchall() == [(1, 1)]
        spark.sql("INSERT INTO changing VALUES (2)")
        assert db.sql(sql).fetchall() == [(2, 2)]
        spark.sql("INSERT OVERWRITE changing VALUES (3)")
        assert db.sql(sql).fetchall() == [(1, 3)]
        spark.sql("ALTER TABLE changing ADD COLUMN b STRING")
        assert db.sql("SELECT * FROM changing").fetchall() == [(3, None)]
        spark.range(10).selectExpr("id AS a").createOrReplaceTempView("changing")
        assert db.sql(sql).fetchall() == [(10, 9)]
        spark.range(20).selectExpr("id AS a").createOrReplaceTempView("changing")
        assert db.sql(sql).fetchall() == [(20, 19)]
        spark.catalog.dropTempView("changing")
        assert db.sql(sql).fetchall() == [(1, 3)]
        spark.sql("DROP TABLE changing")
        with pytest.raises(BindError, match='"changing" does not exist'):
            db.sql(sql)
        spark.sql("CREATE TABLE changing USING parquet AS SELECT 'x' AS a")
        assert db.sql(sql).fetchall() == [(1, "x")]
    finally:
        spark.sql("DROP TABLE IF EXISTS changing")
        spark.sql("USE default")


def test_a_file_that_becomes_a_view(db: Any, spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "n.parquet"
    pq.write_table(pa.table({"id": [1]}), path)
    sql = f"SELECT count(*) FROM '{path}'"
    assert db.sql(sql).fetchall() == [(1,)]
    spark.range(4).createOrReplaceTempView(f"`{path}`")
    assert db.sql(sql).fetchall() == [(4,)]
    spark.catalog.dropTempView(str(path))
    assert db.sql(sql).fetchall() == [(1,)]


def test_plan_files(db: Any) -> None:
    relation = db.sql("SELECT customer, count(*) AS n FROM shop.orders GROUP BY customer")
    text = relation.plan()
    assert "scan shop.orders columns=(customer)" in text
    plan = tsql.load_plan_text(text)
    assert plan.bind(db).text() == text
    assert rows(plan.run(db)) == rows(relation)
    assert plan.check(db) == 7
    with pytest.raises(tsql.PlanError, match="there is no table shop.nothing"):
        tsql.load_plan_text(text.replace("shop.orders columns", "shop.nothing columns")).bind(db)


def test_the_way_is_told(db: Any, spark: Any) -> None:
    for name in ("shop.orders", "shop.renamed"):
        assert f"# {name}: 2 Parquet files of Spark, read by tsql\n" in same(db, spark, name).explain("physical")
    assert "# shop.some: a DataFrame of Spark: its plan is Filter, and no scan of files alone" in same(
        db, spark, "shop.some"
    ).explain("physical")
