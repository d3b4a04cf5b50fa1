"""Delta and Iceberg tables on Spark. Spark has no jar for either here: what it would read is refused with one message,
and what our reader reads needs none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.spark.same_rows import rows
from tsql.kernels.expr.errors import CatalogError

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]
deltalake = pytest.importorskip("deltalake")


@pytest.fixture
def db(spark: Any) -> Iterator[Any]:
    with tsql.connect(spark=spark) as session:
        yield session


def write(path: Path, start: int, **options: Any) -> None:
    numbers = list(range(start, start + 50))
    data = pa.table({"n": numbers, "k": [f"k {n % 3}" for n in numbers]})
    deltalake.write_deltalake(str(path), data, **options)


def test_scans(db: Any, tmp_path: Path) -> None:
    """Tasks read the files of the snapshot, without the package."""
    path = tmp_path / "t"
    write(path, 0, partition_by=["k"])
    write(path, 50, mode="append")
    sql = f"SELECT k, count(*), sum(n) FROM delta_scan('{path}') GROUP BY k"
    assert rows(db.sql(sql)) == rows(tsql.connect().sql(sql))
    assert db.sql(f"SELECT count(*) FROM delta_scan('{path}', version => 0)").fetchall() == [(50,)]
    deltalake.DeltaTable(str(path)).delete()
    assert db.sql(f"SELECT count(*) FROM delta_scan('{path}')").fetchall() == [(0,)]


def register(spark: Any, name: str, path: Path) -> None:
    """A table of the provider `delta` in Spark's catalog, as a session with Delta's jar has it."""
    jvm, state = spark._jvm, spark._jsparkSession.sessionState()
    spark.sql(f"CREATE TABLE {name} (n BIGINT, k STRING) USING parquet LOCATION '{path}'")
    table = state.catalog().getTableMetadata(state.sqlParser().parseTableIdentifier(name))
    arguments = [table.productElement(i) for i in range(table.productArity())]
    place = next(i for i in range(table.productArity()) if table.productElementName(i) == "provider")
    arguments[place] = jvm.scala.Option.apply("delta")
    changed = jvm.org.apache.spark.sql.catalyst.catalog.CatalogTable(*arguments)
    spark._jsparkSession.sharedState().externalCatalog().unwrapped().alterTable(changed)
    state.catalog().invalidateAllCachedTables()


def test_catalog_tables(db: Any, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "t", 0, partition_by=["k"])
    register(spark, "lake_table", tmp_path / "t")
    try:
        relation = db.sql("SELECT sum(n), max(k) FROM lake_table")
        assert "# lake_table: " in relation.explain("physical") and "Delta version 0" in relation.explain("physical")
        assert "scan lake_table columns" in relation.plan()
        assert relation.fetchall() == [(sum(range(50)), "k 2")]
        write(tmp_path / "t", 50, mode="append")
        assert db.sql("SELECT count(*) FROM spark_catalog.default.lake_table").fetchall() == [(100,)]
        monkeypatch.setattr("tsql.backends.io.delta.KNOWN", set())
        monkeypatch.setattr(deltalake.DeltaTable, "protocol", lambda _: SimpleNamespace(reader_features=["new"]))
        with pytest.raises(CatalogError, match="Spark cannot read lake_table: .*Failed to find the data source: delta"):
            db.sql("FROM lake_table")
    finally:
        state = spark._jsparkSession.sessionState()
        state.catalog().dropTable(state.sqlParser().parseTableIdentifier("lake_table"), True, False)


def test_iceberg_tables_of_a_catalog() -> None:
    """What Spark's plan tells of an Iceberg table. (The classes of Iceberg are not here: these stand for them.)"""
    from tsql.backends.spark.lakes import metadata_file

    def java(name: str, **methods: Any) -> Any:
        named = SimpleNamespace(getSimpleName=lambda: name)
        return SimpleNamespace(
            getClass=lambda: named, **{word: lambda found=found: found for word, found in methods.items()}
        )

    state = java("TableMetadata", metadataFileLocation="file:/t/metadata/v1.metadata.json")
    inner = java("BaseTable", operations=java("Operations", current=state))
    relation = java("DataSourceV2Relation", table=java("SparkTable", table=inner))
    assert metadata_file(relation) == ("iceberg", "file:/t/metadata/v1.metadata.json")
    assert metadata_file(java("DataSourceV2Relation", table=java("JDBCTable"))) is None
    assert metadata_file(java("Filter")) is None


def test_python_variables(db: Any, spark: Any) -> None:
    numbers = spark.range(10).selectExpr("id AS n")
    assert numbers and db.sql("SELECT sum(n) FROM numbers").fetchall() == [(45,)]
    with tsql.connect() as local:
        assert local.sql("SELECT sum(n) FROM numbers").fetchall() == [(45,)]
    spark.range(3).createOrReplaceTempView("numbers")
    assert db.sql("SELECT count(*) FROM numbers").fetchall() == [(3,)]
    spark.catalog.dropTempView("numbers")


def test_file_urls(db: Any, spark: Any, tmp_path: Path) -> None:
    spark.range(7).write.parquet(str(tmp_path / "a b"))
    assert db.sql(f"SELECT count(*) FROM 'file://{tmp_path}/a%20b'").fetchall() == [(7,)]
