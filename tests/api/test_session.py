"""Sessions: statements, the catalog, parameters, files and the plan cache."""

import datetime as dt
import os
from decimal import Decimal

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tsql.kernels.expr.errors import BindError, CatalogError, PlanError, SourceError


@pytest.fixture
def db():
    with tsql.connect(threads=1) as session:
        session.register("t", pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]}))
        yield session


def test_statements_before_the_last_run_at_once(db):
    relation = db.sql(
        "CREATE TABLE u AS SELECT a FROM t WHERE a > 1; CREATE VIEW v AS SELECT a + 1 AS n FROM u; SELECT "
        "n FROM v ORDER BY n"
    )
    assert db.tables() == ["t", "u", "v"]
    assert relation.fetchall() == [(3,), (4,)]


def test_create_table_tells_its_rows(db):
    assert db.sql("CREATE TABLE u AS SELECT * FROM t").fetchall() == [(3,)]
    assert db.sql("CREATE TABLE dup AS SELECT a, a, b AS A FROM t").message == "3 rows"
    assert db.table("dup").columns == ["a", "a_1", "A_2"]


def test_create_replace_and_drop(db):
    db.execute("CREATE TABLE u AS SELECT 1 AS x")
    with pytest.raises(CatalogError, match='Table with name "u" already exists'):
        db.execute("CREATE TABLE U AS SELECT 2 AS x")
    db.execute("CREATE TABLE IF NOT EXISTS u AS SELECT 3 AS x")
    assert db.sql("SELECT x FROM u").fetchall() == [(1,)]
    db.execute("CREATE OR REPLACE TABLE u AS SELECT 4 AS x")
    assert db.sql("SELECT x FROM u").fetchall() == [(4,)]
    with pytest.raises(CatalogError, match='"u" is of type Table'):
        db.execute("DROP VIEW u")
    db.execute("DROP TABLE u; DROP TABLE IF EXISTS u")
    with pytest.raises(CatalogError, match='Table with name "u" does not exist'):
        db.execute("DROP TABLE u")
    assert db.tables() == ["t"]


def test_a_failed_create_leaves_nothing(db):
    with pytest.raises(tsql.ExecutionError):
        db.execute("CREATE TABLE bad AS SELECT CAST(b AS INTEGER) AS x FROM t")
    assert db.tables() == ["t"]


def test_show_and_describe(db):
    assert db.sql("SHOW TABLES").fetchall() == [("t",)]
    assert [row[:3] for row in db.sql("DESCRIBE t").fetchall()] == [("a", "BIGINT", "YES"), ("b", "VARCHAR", "YES")]


def test_explain_statement(db):
    ((key, text),) = db.sql("EXPLAIN LOGICAL SELECT a FROM t").fetchall()
    assert key == "logical_plan" and "scan t" in text


def test_set(db):
    db.sql("SET threads = 2; SET memory_limit = '1GB'")
    assert (db.settings.threads, db.settings.memory_limit) == (2, 10**9)
    with pytest.raises(CatalogError, match="unknown setting thread"):
        db.sql("SET thread = 2")


@pytest.mark.parametrize(
    ("query", "params", "expected"),
    [
        ("SELECT ? + ?", [1, 2], 3),
        ("SELECT $2 || $1", ("a", "b"), "ba"),
        ("SELECT $x * 2", {"x": 1.5}, 3.0),
        ("SELECT $x", {"x": Decimal("1.50")}, Decimal("1.50")),
        ("SELECT $x", {"x": 2**80}, 2**80),
        ("SELECT $x", {"x": None}, None),
        ("SELECT $x", {"x": b"\x00\xff"}, b"\x00\xff"),
        ("SELECT NOT $x", {"x": True}, False),
        ("SELECT $x", {"x": dt.date(2024, 2, 29)}, dt.date(2024, 2, 29)),
        ("SELECT $x", {"x": dt.time(1, 2, 3, 4)}, dt.time(1, 2, 3, 4)),
        ("SELECT $x", {"x": dt.datetime(2024, 2, 29, 1)}, dt.datetime(2024, 2, 29, 1)),
        ("SELECT $x", {"x": dt.datetime(2024, 2, 29, 1, tzinfo=dt.UTC)}, dt.datetime(2024, 2, 29, 1, tzinfo=dt.UTC)),
        ("SELECT $x", {"x": dt.timedelta(days=1, seconds=2)}, dt.timedelta(days=1, seconds=2)),
        ("SELECT count(*) FROM t WHERE a >= $low AND b <> $b", {"low": 2, "b": "z"}, 1),
    ],
)
def test_parameters(db, query, params, expected):
    assert db.sql(query, params).fetchall() == [(expected,)]


def test_parameters_must_fit_the_text(db):
    with pytest.raises(BindError, match=r"no value for the parameter \$2"):
        db.sql("SELECT ?, ?", [1])
    with pytest.raises(BindError, match=r"the query has no parameter \$y"):
        db.sql("SELECT $x", {"x": 1, "y": 2})


def test_register_anything(db):
    db.register("columns", {"x": [1, 2]})
    db.register("rows", [{"x": 1}, {"x": 2}])
    db.register("frame", pandas.DataFrame({"x": [1, 2]}))
    db.register("batch", pa.record_batch({"x": [1, 2]}))
    db.register(
        "reader", pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int64())]), [pa.record_batch({"x": [1, 2]})])
    )
    db.register("relation", db.sql("SELECT a AS x FROM t WHERE a < 3"))
    for name in ("columns", "rows", "frame", "batch", "reader", "relation"):
        for _ in range(2):
            assert db.sql(f"SELECT x FROM {name}").fetchall() == [(1,), (2,)], name
    with pytest.raises(SourceError, match="a Python int cannot be registered as table number"):
        db.register("number", 7)
    with pytest.raises(SourceError, match="the data of uneven does not make a table"):
        db.register("uneven", {"x": [1], "y": [1, 2]})


def test_names_ignore_case_and_can_be_replaced(db):
    db.register("T", pa.table({"c": [7]}))
    assert db.tables() == ["T"]
    assert db.table("t").fetchall() == [(7,)]
    db.unregister("t")
    with pytest.raises(CatalogError, match="unknown table t"):
        db.table("t")


def test_python_variables_are_tables_unless_switched_off(db):
    local_table = pa.table({"x": [1]})
    assert local_table.num_rows == 1 and db.sql("SELECT * FROM local_table").fetchall() == [(1,)]
    db.sql("SET python_scan = false")
    with pytest.raises(tsql.TsqlError):
        db.sql("SELECT * FROM local_table")


def test_read_files(db, tmp_path):
    pq.write_table(pa.table({"x": [1, 2], "y": ["a", "b"]}), tmp_path / "f.parquet")
    (tmp_path / "f.csv").write_text("x,y\n1,a\n2,b\n")
    (tmp_path / "f.json").write_text('{"x": 1, "y": "a"}\n{"x": 2, "y": "b"}\n')
    with pa.ipc.new_file(tmp_path / "f.arrow", pa.schema([("x", pa.int64()), ("y", pa.string())])) as file:
        file.write(pa.record_batch({"x": [1, 2], "y": ["a", "b"]}))
    for relation in (
        db.read_parquet(tmp_path / "f.parquet"),
        db.read_csv(tmp_path / "f.csv"),
        db.read_json(tmp_path / "f.json"),
        db.read_ipc(tmp_path / "f.arrow"),
    ):
        assert relation.fetchall() == [(1, "a"), (2, "b")]
        assert relation.source is not None
    db.register("files", db.read_parquet(str(tmp_path / "*.parquet")))
    assert db.sql("SELECT sum(x) FROM files").fetchall() == [(3,)]
    with pytest.raises(SourceError, match=r"missing\.parquet"):
        db.read_parquet(tmp_path / "missing.parquet")


def test_a_cached_query_is_not_planned_again(db, monkeypatch):
    query = "SELECT a, count(*) AS n FROM t WHERE a > $low GROUP BY a ORDER BY a"
    assert db.sql(query, {"low": 1}).fetchall() == [(2, 1), (3, 1)]

    def again(*_, **__):
        raise AssertionError("the plan is not kept")

    monkeypatch.setattr("tsql.analyze.statements.analyze", again)
    monkeypatch.setattr("tsql.planner.build", again)
    assert db.sql(query, {"low": 2}).fetchall() == [(3, 1)]
    with pytest.raises(AssertionError, match="the plan is not kept"):
        db.sql(query + " LIMIT 1", {"low": 2})


def test_the_cache_sees_new_tables_settings_and_types(db):
    assert db.sql("SELECT a FROM t").fetchall() == [(1,), (2,), (3,)]
    db.register("t", pa.table({"a": ["new"]}))
    assert db.sql("SELECT a FROM t").fetchall() == [("new",)]
    assert db.sql("SELECT typeof($1)", [1]).fetchall() == [("INTEGER",)]
    assert db.sql("SELECT typeof($1)", ["x"]).fetchall() == [("VARCHAR",)]


def test_the_cache_sees_changed_files(db, tmp_path):
    path = tmp_path / "f.parquet"
    query = f"SELECT sum(x) AS s, count(*) AS n FROM '{tmp_path}/*.parquet'"
    pq.write_table(pa.table({"x": [1]}), path)
    assert db.sql(query).fetchall() == [(1, 1)]
    pq.write_table(pa.table({"x": [1, 2]}), path)
    os.utime(path, ns=(1, 1))
    assert db.sql(query).fetchall() == [(3, 2)]
    pq.write_table(pa.table({"x": [10]}), tmp_path / "g.parquet")
    assert db.sql(query).fetchall() == [(13, 3)]


def test_errors_point_into_the_script(db):
    with pytest.raises(tsql.TsqlError) as caught:
        db.sql("SELECT 1;\nSELECT nope FROM t", origin="q.sql")
    assert str(caught.value).startswith("q.sql:2:8: ")
    with pytest.raises(CatalogError, match="there is no statement"):
        db.sql(" -- nothing\n;")


def test_a_failing_run_points_at_its_place(db):
    with pytest.raises(tsql.ExecutionError) as caught:
        db.sql("SELECT 1;\nSELECT CAST(b AS INTEGER) FROM t").arrow()
    assert caught.value.line_column is not None and caught.value.line_column[0] == 2


def test_plan_files(db, tmp_path):
    path = tmp_path / "q.plan"
    db.sql(f"COMPILE PLAN '{path}' FOR SELECT a, b FROM t WHERE a > 1 ORDER BY a")
    assert path.read_text().startswith("plan version 1\n")
    expected = [(2, "y"), (3, "z")]
    assert db.sql(f"EXECUTE PLAN '{path}'").fetchall() == expected
    loaded = tsql.load_plan(path)
    assert loaded.run(db).fetchall() == expected
    assert tsql.load_plan_text(loaded.text).run(db).columns == ["a", "b"]
    assert loaded.run(db).plan() == loaded.text


def test_bad_plan_files(db, tmp_path):
    with pytest.raises(SourceError, match="cannot read"):
        tsql.load_plan(tmp_path / "missing.plan")
    (tmp_path / "bad.plan").write_bytes(b"\xff\xfe")
    with pytest.raises(PlanError, match="not UTF-8"):
        tsql.load_plan(tmp_path / "bad.plan")
    with pytest.raises(PlanError) as caught:
        tsql.load_plan_text("no plan at all", "bad.plan").run(db)
    assert "bad.plan" in str(caught.value)


def test_a_closed_session_refuses(db):
    db.close()
    with pytest.raises(CatalogError, match="the session is closed"):
        db.sql("SELECT 1")


def test_the_public_names():
    assert all(hasattr(tsql, name) for name in tsql.__all__)
    assert set(tsql.__all__) <= set(dir(tsql))
    with pytest.raises(AttributeError):
        _ = tsql.nothing


def test_the_name_of_the_database(tmp_path):
    """As in DuckDB: that of the folder, or `memory`."""
    with tsql.connect() as db:
        assert db.sql("SELECT current_database()").fetchall() == [("memory",)]
    with tsql.connect(tmp_path / "sales.db") as db:
        assert db.sql("SELECT current_database()").fetchall() == [("sales",)]
