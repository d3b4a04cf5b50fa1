"""Datasets that stay in the cluster: CREATE TABLE .. WITH (target = 'spark') AS .., and queries over them."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.spark.cluster import InProcess
from tsql.backends.datasets import datasets_of
from tsql.kernels.expr.errors import BindError, CatalogError, ExecutionError, TransactionError, UnknownTableError

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")

ROWS = pa.table(
    {
        "k": pa.array([None if i % 7 == 0 else i % 5 for i in range(400)], pa.int32()),
        "v": pa.array(range(400), pa.int64()),
        "s": pa.array([f"é {i % 50}" if i % 3 else None for i in range(400)]),
    }
)
KEEP = "WITH (target = 'spark') AS"
QUERIES = (
    "SELECT count(*) FROM {t}",
    "SELECT * FROM {t} ORDER BY v",
    "SELECT v, s FROM {t} WHERE k = 3 AND s IS NOT NULL",
    "SELECT k, count(*), sum(v), min(s) FROM {t} GROUP BY k",
    "SELECT k, median(v) FROM {t} GROUP BY k",
    "SELECT a.v, b.s FROM {t} a JOIN {t} b ON a.v = b.v + 1",
    "SELECT a.v, b.k FROM {t} a JOIN other b ON a.k = b.k",
    "SELECT other.k, (SELECT count(*) FROM {t} x WHERE x.k = other.k) FROM other",
    "SELECT v, sum(v) OVER (PARTITION BY k ORDER BY v) FROM {t}",
    "SELECT s FROM {t} UNION SELECT 'x'",
    "SELECT v FROM {t} ORDER BY v DESC LIMIT 3",
    "SELECT first(v) FROM {t}",
    "SELECT DISTINCT s FROM {t}",
)


@pytest.fixture
def cluster() -> InProcess:
    return InProcess()


@pytest.fixture
def db(cluster: InProcess) -> Any:
    with tsql.connect(spark=cluster) as session:
        session.register("rows", ROWS)
        session.register("other", ROWS.slice(0, 9).select(["k"]))
        yield session


def test_queries(db: Any) -> None:
    assert db.sql(f"CREATE TABLE kept {KEEP} FROM rows").fetchall() == [(400,)]
    for query in QUERIES:
        found, expected = (db.sql(query.format(t=table)).fetchall() for table in ("kept", "rows"))
        assert sorted(map(repr, found)) == sorted(map(repr, expected)), query


def test_it_is_computed_once(db: Any, cluster: InProcess) -> None:
    db.sql(f"CREATE TABLE kept {KEEP} SELECT k, max(v) AS v FROM rows GROUP BY k")
    (dataset,) = datasets_of(cluster).all()
    for _ in range(3):
        assert db.sql("SELECT sum(v) FROM kept").fetchall() == [(2379,)]
    assert dataset.rows().times == 1
    dataset.rows().lose()
    assert db.sql("SELECT sum(v) FROM kept").fetchall() == [(2379,)]
    assert dataset.rows().times == 2


def test_statistics(db: Any, cluster: InProcess) -> None:
    db.sql(f"CREATE TABLE kept {KEEP} FROM rows")
    known = db.catalog.lookup("kept").statistics()
    assert known.rows == 400
    assert (known.columns["k"].minimum, known.columns["k"].maximum, known.columns["k"].nulls) == (0, 4, 58)
    assert known.columns["v"].nulls is None, "no promise: rows may be computed again"
    assert not any(column.exact for column in known.columns.values())
    assert 40 <= known.columns["s"].distinct <= 60
    every = "SELECT INTERVAL 1 DAY AS i, 'a'::BLOB AS b, 1.5::DECIMAL(9, 2) AS d, DATE '2024-01-01' AS day, NULL AS n"
    db.sql(f"CREATE TABLE types {KEEP} {every}, 1 AS a, 2 AS a")
    assert db.sql("FROM types").columns == ["i", "b", "d", "day", "n", "a", "a_1"]
    assert str(db.sql("SELECT i, b, d, day, n FROM types").fetchall()) == str(db.sql(every).fetchall())


def test_no_rows(db: Any) -> None:
    assert db.sql(f"CREATE TABLE kept {KEEP} FROM rows WHERE v < 0").fetchall() == [(0,)]
    assert db.sql("SELECT count(*), max(s) FROM kept").fetchall() == [(0, None)]
    assert db.sql("FROM kept").columns == ["k", "v", "s"]


def test_sessions_share_them(db: Any, cluster: InProcess) -> None:
    db.sql(f"CREATE TABLE Kept {KEEP} FROM rows")
    with tsql.connect(spark=cluster) as other:
        assert other.tables() == ["Kept"] and other.sql("SHOW TABLES").fetchall() == [("Kept",)]
        assert other.sql("SELECT count(*) FROM kept").fetchall() == [(400,)]
        assert [row[:2] for row in other.sql("DESCRIBE KEPT").fetchall()] == [
            ("k", "INTEGER"),
            ("v", "BIGINT"),
            ("s", "VARCHAR"),
        ]
        query = "SELECT count(*) FROM kept"
        assert db.sql(query).fetchall() == [(400,)]
        other.sql(f"CREATE OR REPLACE TABLE kept {KEEP} SELECT 1 AS a")
        assert db.sql(query).fetchall() == [(1,)], "a plan that was cached is made again"
        relation = db.sql("FROM kept")
        other.sql("DROP TABLE kept")
        with pytest.raises(CatalogError, match='the dataset "kept" was dropped'):
            relation.fetchall()
        with pytest.raises(UnknownTableError):
            db.sql(query)
    with tsql.connect(spark=InProcess()) as elsewhere:
        assert elsewhere.tables() == []


def test_names(db: Any) -> None:
    db.sql(f"CREATE TABLE kept {KEEP} SELECT 1 AS a")
    db.sql(f"CREATE TABLE IF NOT EXISTS kept {KEEP} SELECT 2 AS a")
    assert db.sql("FROM kept").fetchall() == [(1,)]
    for text, message in (
        (f"CREATE TABLE kept {KEEP} SELECT 2 AS a", 'Table with name "kept" already exists'),
        ("CREATE TABLE kept AS SELECT 2 AS a", "already exists in the cluster"),
        ("CREATE OR REPLACE TABLE kept AS SELECT 2 AS a", "already exists in the cluster"),
        ("CREATE OR REPLACE VIEW kept AS SELECT 2 AS a", "already exists in the cluster"),
        (f"CREATE TABLE rows {KEEP} SELECT 2 AS a", '"rows" exists in this session already'),
        ("INSERT INTO kept VALUES (1)", "is kept in the cluster and does not change: INSERT needs"),
        ("DELETE FROM kept", "is kept in the cluster and does not change: DELETE needs"),
        ("UPDATE kept SET a = 1", "is kept in the cluster and does not change: UPDATE needs"),
        ("ALTER TABLE kept RENAME TO b", "is kept in the cluster and does not change: ALTER TABLE needs"),
        ("DROP TABLE nothing, kept", 'Table with name "nothing" does not exist'),
        ("DROP VIEW kept", 'View with name "kept" does not exist'),
    ):
        with pytest.raises(CatalogError, match=message):
            db.sql(text)
        assert db.sql("FROM kept").fetchall() == [(1,)], text
    name = "a \"b'c`é.d"
    quoted = '"' + name.replace('"', '""') + '"'
    db.sql(f"CREATE TABLE {quoted} {KEEP} SELECT 1 AS {quoted}")
    assert db.sql(f"SELECT {quoted} FROM {quoted}").fetchall() == [(1,)]
    db.sql(f"DROP TABLE kept, {quoted}")
    assert db.tables() == ["other", "rows"]


def test_refusals(db: Any) -> None:
    for text, kind, message in (
        ("CREATE TABLE x WITH (target = 'moon') AS SELECT 1 AS a", BindError, "target is 'spark', not 'moon'"),
        ("CREATE TABLE x WITH (target = 'spark', b = 1) AS SELECT 1 AS a", BindError, 'unknown option "b"'),
        (f"CREATE TEMP TABLE x {KEEP} SELECT 1 AS a", BindError, "is made with CREATE TABLE .. AS and a query"),
        ("CREATE TABLE x (a INTEGER) WITH (target = 'spark')", BindError, 'option "path" is missing'),
    ):
        with pytest.raises(kind, match=message):
            db.sql(text)
    with pytest.raises(CatalogError, match="this session has none"):
        tsql.connect().sql(f"CREATE TABLE x {KEEP} SELECT 1 AS a")
    db.sql(f"CREATE TABLE kept {KEEP} SELECT 1 AS a")
    db.sql("BEGIN")
    with pytest.raises(TransactionError, match="cannot be taken back"):
        db.sql("DROP TABLE kept")
    db.sql("ROLLBACK")
    assert db.sql("FROM kept").fetchall() == [(1,)]


def test_a_failing_query_keeps_nothing(db: Any, cluster: InProcess) -> None:
    failing = "SELECT (CASE WHEN v = 399 THEN 'x' ELSE '1' END)::INTEGER AS v FROM rows"
    with pytest.raises(ExecutionError, match="Could not convert string 'x'") as caught:
        db.sql(f"CREATE TABLE kept {KEEP} {failing}")
    assert caught.value.position is not None and not datasets_of(cluster).all()
    db.sql(f"CREATE TABLE kept {KEEP} SELECT 1 AS a")
    with pytest.raises(ExecutionError):
        db.sql(f"CREATE OR REPLACE TABLE kept {KEEP} {failing}")
    assert db.sql("FROM kept").fetchall() == [(1,)]


def test_a_dataset_of_a_dataset(db: Any, cluster: InProcess) -> None:
    """What lost rows are computed from is there as long as another dataset needs it."""
    db.sql(f"CREATE TABLE base {KEEP} FROM rows")
    db.sql(f"CREATE TABLE above {KEEP} SELECT k, count(*) AS n FROM base GROUP BY k")
    base, above = datasets_of(cluster).find("base"), datasets_of(cluster).find("above")
    freed = cluster.freed
    db.sql("DROP TABLE base")
    assert base._kept.forgotten and cluster.freed == freed
    above.rows().lose()
    assert db.sql("SELECT sum(n) FROM above").fetchall() == [(400,)]
    freed = cluster.freed
    db.sql("DROP TABLE above")
    assert above._kept.forgotten and cluster.freed > freed + 1


def test_plans_and_copies(db: Any, tmp_path: Path) -> None:
    db.sql(f"CREATE TABLE kept {KEEP} FROM rows")
    text = db.sql("SELECT k, count(*) AS n FROM kept GROUP BY k ORDER BY k").plan()
    assert "scan kept columns=(k)" in text
    assert len(tsql.load_plan_text(text).run(db).fetchall()) == 6
    assert db.sql(f"COPY kept TO '{tmp_path}/out/' (FORMAT parquet)").fetchall() == [(400,)]
    db.sql("CREATE TABLE own AS FROM kept WHERE v < 10")
    db.sql("DELETE FROM own WHERE v IN (SELECT v FROM kept WHERE v < 5)")
    assert db.sql("SELECT count(*) FROM own").fetchall() == [(5,)]


def test_clusters_that_are_gone() -> None:
    cluster = InProcess()
    with tsql.connect(spark=cluster) as session:
        session.sql(f"CREATE TABLE kept {KEEP} SELECT 1 AS a")
    with tsql.connect(spark=cluster) as session:
        assert session.sql("FROM kept").fetchall() == [(1,)], "it outlives the session that made it"
    datasets_of(cluster).clear()
    del cluster, session
    gc.collect()


@pytest.fixture(scope="module")
def on_spark(spark: Any) -> Any:
    with tsql.connect(spark=spark) as session:
        session.register("rows", ROWS)
        session.register("other", ROWS.slice(0, 9).select(["k"]))
        yield session
    datasets_of(spark.sparkContext).clear()


@pytest.mark.spark
def test_on_a_cluster(on_spark: Any, spark: Any, tmp_path: Path) -> None:
    """Spark keeps the blobs. Lost ones are computed again from the query."""
    computed = tmp_path / "computed"
    computed.mkdir()

    def counted(batches: Any) -> Any:
        import secrets

        (computed / secrets.token_hex(8)).touch()
        yield from batches

    on_spark.register("source", spark.range(0, 1000, 1, 2).mapInArrow(counted, "id long"))
    assert on_spark.sql(f"CREATE TABLE kept {KEEP} SELECT id, id % 7 AS g FROM source").fetchall() == [(1000,)]
    assert len(os.listdir(computed)) == 2
    expected = sorted((g, len(range(g, 1000, 7))) for g in range(7))
    for _ in range(2):
        assert on_spark.sql("SELECT g, count(*) FROM kept GROUP BY g ORDER BY g").fetchall() == expected
    assert len(os.listdir(computed)) == 2, "rows are computed once"
    with tsql.connect(spark=spark) as other:
        pq.write_table(pa.table({"g": [1, 2], "name": ["one", "two"]}), tmp_path / "names.parquet")
        joined = f"SELECT name, sum(id) FROM kept JOIN '{tmp_path}/names.parquet' USING (g) GROUP BY name ORDER BY name"
        sums = [("one", sum(range(1, 1000, 7))), ("two", sum(range(2, 1000, 7)))]
        assert other.sql(joined).fetchall() == sums
    context = spark.sparkContext
    (dataset,) = datasets_of(context).all()
    blocks, level = dataset.rows().jrdd, dataset.rows().jrdd.getStorageLevel()
    blocks.unpersist(True)
    blocks.persist(level)
    assert on_spark.sql("SELECT count(*), sum(id) FROM kept").fetchall() == [(1000, 499500)]
    assert len(os.listdir(computed)) == 4, "lost rows are computed again"
    assert blocks.id() in context._jsc.getPersistentRDDs()
    on_spark.sql("DROP TABLE kept")
    assert blocks.id() not in context._jsc.getPersistentRDDs()


@pytest.mark.spark
def test_queries_on_a_cluster(on_spark: Any, spark: Any) -> None:
    on_spark.sql(f"CREATE TABLE kept {KEEP} FROM rows")
    for query in QUERIES[3:8]:
        found, expected = (on_spark.sql(query.format(t=table)).fetchall() for table in ("kept", "rows"))
        assert sorted(map(repr, found)) == sorted(map(repr, expected)), query
    frame = on_spark.sql("SELECT k, v FROM kept WHERE v < 20").to_spark()
    assert sorted(row.v for row in frame.collect()) == list(range(20)), "a lazy DataFrame over it"
    joined = on_spark.sql("SELECT a.v FROM kept a JOIN kept b ON a.v = b.v + 390").to_spark()
    assert sorted(row.v for row in joined.collect()) == list(range(390, 400))
    on_spark.sql("DROP TABLE kept")
