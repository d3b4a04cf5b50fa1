"""Every source, sink, hint, change of a table, setting and kind of plan on one Spark session, against DuckDB.

`test_cluster_session.py` runs these cases on a cluster, `test_connect_session.py` over Spark Connect."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.duck import empty_duckdb
from tests.spark import queries
from tests.spark.queries import bag
from tsql.kernels.expr.errors import PlanError

ROWS = pa.table(
    {
        "id": pa.array(range(900), pa.int64()),
        "k": pa.array([None if i % 11 == 0 else i % 7 for i in range(900)], pa.int64()),
        "s": pa.array([None if i % 13 == 0 else f"é, \"{i % 30}'" for i in range(900)]),
        "d": pa.array([dt.date(2024, 1, 1) + dt.timedelta(days=i % 40) for i in range(900)]),
        "x": pa.array([i / 8 for i in range(900)], pa.float64()),
        "t": pa.array([dt.datetime(2024, 1, 1) + dt.timedelta(minutes=i * 7) for i in range(900)], pa.timestamp("us")),
        "p": pa.array([Decimal(i * 37 % 1000) / 100 for i in range(900)], pa.decimal128(9, 2)),
    }
)
FILES = 3
NAMES = pa.table({"k": pa.array([1, 2, 3], pa.int64()), "n": ["one", "two", "three"]})
COLUMNS = "id: 'BIGINT', k: 'BIGINT', s: 'VARCHAR', d: 'DATE', x: 'DOUBLE', t: 'TIMESTAMP', p: 'DECIMAL(9,2)'"
"""The columns of `ROWS`, for files of text."""

QUERIES = (
    "SELECT count(*), count(k), sum(id), min(s), max(d), sum(p) FROM x",
    "SELECT k, count(*), median(x), max(t) FROM x GROUP BY k",
    "SELECT id, s, t FROM x WHERE k = 3 AND d < DATE '2024-01-15' AND s IS NOT NULL",
    "SELECT a.id, b.s, names.n FROM x a JOIN x b ON a.id = b.id + 800 LEFT JOIN names ON names.k = a.k",
    "SELECT id, d, p FROM x ORDER BY x.x DESC LIMIT 5",
)
"""Queries over the rows as `x`, and `names` in memory."""


def answers(engine: Any, queries: Iterable[str] = QUERIES) -> list[list[str]]:
    return [bag(engine.sql(query).fetchall()) for query in queries]


@cache
def expected() -> list[list[str]]:
    """DuckDB's answers."""
    with empty_duckdb() as duck:
        return answers(filled(duck))


def filled(engine: Any) -> Any:
    """An engine with the rows in memory."""
    engine.register("x", ROWS)
    engine.register("names", NAMES)
    return engine


def written(folder: Path, kind: str) -> str:
    """The rows in files, as DuckDB or Arrow writes them; their glob."""
    rows = -(-ROWS.num_rows // FILES)
    for number in range(FILES):
        piece, path = ROWS.slice(number * rows, rows), folder / f"{number}.{kind}"
        if kind == "arrow":
            with pa.ipc.new_file(path, piece.schema) as file:
                file.write_table(piece, max_chunksize=100)
        elif kind == "parquet":
            pq.write_table(piece, path, row_group_size=100)
        else:
            with empty_duckdb() as duck:
                duck.register("piece", piece)
                duck.execute(f"COPY piece TO '{path}' (FORMAT {kind})")
    return f"{folder}/*.{kind}"


def view_of(spark: Any, name: str) -> Any:
    """A temporary view of Spark with the rows."""
    frame = spark.createDataFrame(ROWS).selectExpr("* EXCEPT (t)", "CAST(t AS TIMESTAMP_NTZ) AS t").repartition(3)
    frame.createOrReplaceTempView(name)
    return frame


@contextmanager
def cases(spark: Any, folder: Path) -> Iterator[None]:
    """The database `cases` of Spark's catalog, in a folder."""
    spark.sql(f"CREATE DATABASE cases LOCATION '{(folder / 'cases').as_uri()}'")
    try:
        yield
    finally:
        spark.sql("DROP DATABASE cases CASCADE")


def given(kind: str, db: Any, spark: Any, folder: Path) -> None:
    """Make the rows known to a session as `x`, out of a source of some kind."""
    db.register("names", NAMES)
    match kind:
        case "Arrow":
            db.register("x", ROWS)
        case "pandas":
            db.register("x", ROWS.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get, date_as_object=True))
        case "Polars":
            db.register("x", polars.from_arrow(ROWS))
        case "table":
            db.register("given", ROWS)
            db.execute("CREATE TABLE x AS FROM given")
        case "DataFrame":
            db.register("x", view_of(spark, "x_of_spark"))
        case "view of Spark":
            view_of(spark, "x_of_spark")
            db.execute("CREATE VIEW x AS FROM x_of_spark")
        case "table of Spark":
            view_of(spark, "x_of_spark").write.saveAsTable("cases.x_saved")
            db.execute("CREATE VIEW x AS FROM cases.x_saved")
        case "dataset":
            db.register("given", ROWS)
            db.execute("CREATE TABLE x WITH (target = 'spark') AS FROM given")
        case "csv" | "json":
            files = written(folder, kind)
            db.execute(f"CREATE VIEW x AS FROM read_{kind}('{files}', columns => {{{COLUMNS}}})")
        case _:
            db.execute(f"CREATE VIEW x AS FROM '{written(folder, kind)}'")


SOURCES = (
    "Arrow", "pandas", "Polars", "table", "DataFrame", "view of Spark", "table of Spark", "dataset",
    "parquet", "csv", "json", "arrow",
)  # fmt: skip


def check_source(spark: Any, kind: str, folder: Path) -> None:
    """Queries over a source give DuckDB's rows."""
    with cases(spark, folder), tsql.connect(spark=spark) as db:
        given(kind, db, spark, folder)
        try:
            assert answers(db) == expected()
        finally:
            if kind == "dataset":
                db.execute("DROP TABLE x")


SINKS = {
    "parquet": "COPY ({query}) TO '{out}.parquet' (FORMAT parquet)",
    "csv": "COPY ({query}) TO '{out}.csv' (FORMAT csv)",
    "parquet folder": "COPY ({query}) TO '{out}/' (FORMAT parquet)",
    "csv folder": "COPY ({query}) TO '{out}/' (FORMAT csv)",
    "json folder": "COPY ({query}) TO '{out}/' (FORMAT json)",
    "partitions": "COPY ({query}) TO '{out}' (FORMAT parquet, PARTITION_BY (k))",
}
SUNK = "SELECT id, k, s FROM x WHERE id % 3 <> 0 AND k IS NOT NULL"


def check_sink(spark: Any, kind: str, folder: Path) -> None:
    """DuckDB reads what was written."""
    files = written(folder, "parquet")
    out = folder / "out"
    text = SINKS[kind].format(query=SUNK, out=out)
    with tsql.connect(spark=spark) as db, empty_duckdb() as duck:
        db.execute(f"CREATE VIEW x AS FROM '{files}'")
        filled(duck)
        wanted = duck.sql(SUNK).fetchall()
        assert db.sql(text).fetchall() == [(len(wanted),)]
        path = str(out) + (f".{kind}" if "folder" not in kind and kind != "partitions" else "/**/*.*")
        reader = {"csv": "read_csv", "jso": "read_json"}.get(kind[:3], "read_parquet")
        assert bag(duck.sql(f"SELECT id, k, s FROM {reader}('{path}')").fetchall()) == bag(wanted)


def check_saved_table(spark: Any, folder: Path) -> None:
    """A table of Spark's catalog is made, filled, read by both, and dropped."""
    files = written(folder, "parquet")
    with cases(spark, folder), tsql.connect(spark=spark) as db:
        db.execute(f"CREATE VIEW x AS FROM '{files}'")
        db.register("names", NAMES)
        assert db.sql("CREATE TABLE cases.x_made AS SELECT id, k FROM x WHERE id < 100").fetchall() == [(100,)]
        assert db.sql("INSERT INTO cases.x_made SELECT id, k FROM x WHERE id >= 890").fetchall() == [(10,)]
        ids = [*range(100), *range(890, 900)]
        assert sorted(row.id for row in spark.table("cases.x_made").collect()) == ids
        assert db.sql("SELECT id FROM cases.x_made ORDER BY id").fetchall() == [(id,) for id in ids]
        db.execute("CREATE OR REPLACE TABLE cases.x_made WITH (partition_by = 'k') AS SELECT 1 AS one, k FROM names")
        assert sorted(map(tuple, spark.table("cases.x_made").collect())) == [(1, 1), (1, 2), (1, 3)]
        db.execute("DROP TABLE cases.x_made")
        assert not spark.catalog.tableExists("cases.x_made")


def check_changes(spark: Any, folder: Path) -> None:
    """Tables of the session that change."""
    path = queries.files(folder)
    with queries.oracle(path) as duck, tsql.connect(spark=spark) as db:
        queries.fill(db, path)
        for statement in queries.CHANGES:
            db.execute(statement)
            duck.execute(statement)
        assert queries.changed(db) == queries.changed(duck)


HINTS = {
    "SHARDS(5)": "shards=5",
    "AGG('one_phase')": "redistribute",
    "AGG('two_phase')": "phase=merge|phase=final",
    "AGG('two_phase_gather')": "phase=partial",
    "REDISTRIBUTE(x, k)": "rekey x key=(k)|redistribute",
    "BROADCAST(names)": "broadcast",
    "BROADCAST(x)": "broadcast",
    "JOIN(x, names, 'hash')": "hash_join",
    "JOIN(x, names, 'merge')": "merge_join",
    "JOIN(x, names, 'loop')": "where=(k = k_1)",
    "LEADING(names, x)": "join",
}
HINTED = (
    "SELECT /*+ {hint} */ n, count(*) AS c, sum(x.id) AS s FROM {x} x JOIN names ON x.k = names.k WHERE x.id > 7 "
    "GROUP BY n"
)


def check_hint(spark: Any, hint: str, folder: Path) -> None:
    """A hint is in the plan, and the rows are the same."""
    files = written(folder, "parquet")
    with tsql.connect(spark=spark) as db, empty_duckdb() as duck:
        db.register("names", NAMES)
        relation = db.sql(HINTED.format(hint=hint, x=f"'{files}'"))
        plan = relation.plan()
        assert any(word in plan for word in HINTS[hint].split("|")), plan
        assert bag(relation.fetchall()) == bag(filled(duck).sql(HINTED.format(hint=hint, x="x")).fetchall())


SETTINGS: dict[str, dict[str, Any]] = {
    "one shard": {"shards": 1},
    "seven shards": {"shards": 7, "batch_rows": 10},
    "spilled": {"spill_after": 1, "shards": 3},
    "little memory": {"memory_limit": "24MB", "shards": 2},
    "no optimizer": {"optimizer": False},
}


def check_settings(spark: Any, name: str, folder: Path) -> None:
    """The same rows under settings."""
    files = written(folder, "parquet")
    with tsql.connect(spark=spark, **SETTINGS[name]) as db:
        db.register("names", NAMES)
        db.execute(f"CREATE VIEW x AS FROM '{files}'")
        assert answers(db) == expected()


def check_plans(spark: Any, folder: Path) -> None:
    """A plan of Spark runs on the local backend, and one of the local backend on Spark: as it is if it needs no
    movement between tasks, and refused with a way out if it does."""
    files = written(folder, "parquet")
    with tsql.connect(spark=spark) as db, tsql.connect(threads=2, shards=1) as local, tsql.connect(shards=3) as other:
        for session in (db, local, other):
            session.register("names", NAMES)
            session.execute(f"CREATE VIEW x AS FROM '{files}'")
        found = [
            bag(tsql.load_plan_text(plans.sql(query).plan()).run(runs).fetchall())
            for plans, runs in ((db, local), (local, db))
            for query in QUERIES
        ]
        assert found == expected() * 2
        text = other.sql(QUERIES[1]).plan()
        with pytest.raises(PlanError, match="scope=local moves rows inside one task only") as caught:
            tsql.load_plan_text(text).run(db).fetchall()
        assert "use scope=global" in str(caught.value.hint)
        moved = tsql.load_plan_text(text.replace("scope=local", "scope=global"))
        assert bag(moved.run(db).fetchall()) == expected()[1]
