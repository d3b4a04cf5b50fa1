"""What a relation gives: Arrow, frames, rows, files, texts; and how a run ends early."""

import datetime as dt
import os
import signal
import threading
from decimal import Decimal

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.api.slow import SlowBackend
from tests.patience import PATIENCE_SECONDS, wait_until
from tsql.kernels.expr.errors import CancelledError, CatalogError, SourceError

TABLE = pa.table({
    "id": pa.array([1, 2, 3], pa.int64()),
    "name": pa.array(["a", None, "c"]),
    "price": pa.array([Decimal("1.50"), Decimal("2.25"), None], pa.decimal128(10, 2)),
    "ts": pa.array([dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2), None], pa.timestamp("us")),
})  # fmt: skip


@pytest.fixture
def db():
    with tsql.connect(threads=1) as session:
        session.register("t", TABLE)
        yield session


def test_schema_is_known_without_running(db):
    relation = db.sql("SELECT id, name AS id, price, ts FROM t")
    assert relation.columns == ["id", "id", "price", "ts"]
    assert relation.types == ["BIGINT", "VARCHAR", "DECIMAL(10,2)", "TIMESTAMP"]
    assert relation.schema == pa.schema(
        [("id", pa.int64()), ("id", pa.string()), ("price", pa.decimal128(10, 2)), ("ts", pa.timestamp("us"))]
    )
    assert relation.timings == {} and relation.progress is None


def test_arrow_and_streams(db):
    relation = db.sql("SELECT * FROM t")
    assert relation.arrow().equals(TABLE)
    assert pa.Table.from_batches(list(relation), schema=relation.schema).equals(TABLE)
    assert pa.table(relation).equals(TABLE)
    assert relation.reader().read_all().equals(TABLE)


def test_an_empty_result_has_its_schema(db):
    table = db.sql("SELECT id, name FROM t WHERE id > 100").arrow()
    assert table.num_rows == 0 and table.schema.names == ["id", "name"]


def test_frames(db):
    assert db.sql("SELECT id, name FROM t").pandas()["id"].tolist() == [1, 2, 3]
    assert db.sql("SELECT id, id, id FROM t").pandas().columns.tolist() == ["id", "id_1", "id_2"]
    assert db.sql("SELECT id, id FROM t").polars().columns == ["id", "id_1"]
    assert db.sql("SELECT id, INTERVAL '2 days' AS gap FROM t").polars()["gap"].to_list() == [dt.timedelta(days=2)] * 3
    with pytest.raises(SourceError, match="intervals of months"):
        db.sql("SELECT INTERVAL '2 months' AS gap").polars()
    frame = polars.DataFrame({"x": [1, 2]})
    db.register("frame", frame)
    assert db.sql("SELECT * FROM frame").polars().equals(frame)


def test_rows(db):
    relation = db.sql("SELECT * FROM t ORDER BY id")
    rows = [
        (1, "a", Decimal("1.50"), dt.datetime(2024, 1, 1)),
        (2, None, Decimal("2.25"), dt.datetime(2024, 1, 2)),
        (3, "c", None, None),
    ]
    assert relation.fetchall() == rows
    assert [relation.fetchone(), relation.fetchall(), relation.fetchall()] == [rows[0], rows[1:], rows]
    assert [relation.fetchone() for _ in range(4)] == [*rows, None]


def test_repr_is_a_small_table(db):
    text = repr(db.sql("SELECT id, name FROM t ORDER BY id"))
    assert text == (
        "┌────────┬─────────┐\n"
        "│   id   │  name   │\n"
        "│ bigint │ varchar │\n"
        "├────────┼─────────┤\n"
        "│      1 │ a       │\n"
        "│      2 │ NULL    │\n"
        "│      3 │ c       │\n"
        "└────────┴─────────┘\n"
        " 3 rows"
    )


def test_repr_does_not_read_a_long_result_to_its_end():
    backend = SlowBackend(first=10_001)
    with tsql.Session(backend) as session:
        assert " more than 10,000 rows (20 shown)" in repr(session.sql("SELECT 1 AS x"))
    assert backend.released.wait(PATIENCE_SECONDS)


def test_show(db, capsys):
    db.sql("SELECT id FROM t ORDER BY id").show(max_rows=2)
    assert " 3 rows (2 shown)" in capsys.readouterr().out


def test_explain_and_plan(db):
    relation = db.sql("SELECT id FROM t WHERE id > 1")
    assert relation.plan().startswith("plan version 1\n")
    assert "scan t" in relation.explain("logical")
    assert "t" in relation.explain()
    with pytest.raises(CatalogError, match="has no plan"):
        db.sql("SHOW TABLES").explain()


def test_timings_of_the_last_run(db):
    relation = db.sql("SELECT id FROM t")
    relation.arrow()
    assert {"parse", "plan", "run"} <= set(relation.timings)


@pytest.mark.parametrize(
    ("name", "format"),
    [("r.csv", None), ("r.json", None), ("r.parquet", None), ("r.arrow", None), ("r.bin", "parquet")],
)
def test_write(db, tmp_path, name, format):
    path = tmp_path / name
    db.sql("SELECT id, name FROM t ORDER BY id").write(path, format)
    assert os.listdir(tmp_path) == [name]
    reader = {"csv": db.read_csv, "json": db.read_json, "parquet": db.read_parquet, "arrow": db.read_ipc}[
        format or path.suffix[1:]
    ]
    assert reader(path).fetchall() == [(1, "a"), (2, None), (3, "c")]


def test_write_needs_a_known_format(db, tmp_path):
    with pytest.raises(SourceError, match="does not say in which format"):
        db.sql("SELECT 1").write(tmp_path / "r.xyz")
    with pytest.raises(SourceError, match="unknown format xml"):
        db.sql("SELECT 1").write(tmp_path / "r.xml", "xml")
    with pytest.raises(SourceError, match="cannot write"):
        db.sql("SELECT 1").write(tmp_path / "no" / "r.csv")
    assert os.listdir(tmp_path) == []


def test_a_failing_query_leaves_the_old_file(db, tmp_path):
    path = tmp_path / "r.parquet"
    db.sql("SELECT 1 AS x").write(path)
    with pytest.raises(tsql.ExecutionError):
        db.sql("SELECT CAST(name AS INTEGER) AS x FROM t").write(path)
    assert pq.read_table(path).to_pylist() == [{"x": 1}]
    assert os.listdir(tmp_path) == ["r.parquet"]


def test_cancel_from_another_thread():
    backend = SlowBackend()
    with tsql.Session(backend) as session:
        relation = session.sql("SELECT 1 AS x")

        def cancel():
            wait_until(lambda: bool(relation.progress))
            relation.cancel()

        canceller = threading.Thread(target=cancel)
        canceller.start()
        with pytest.raises(CancelledError, match="the query was cancelled"):
            relation.arrow()
        canceller.join()
        assert 0 < relation.progress < 0.5
        assert backend.released.is_set()


def test_ctrl_c_ends_a_run():
    backend = SlowBackend()
    with tsql.Session(backend) as session:
        relation = session.sql("SELECT 1 AS x")
        threading.Thread(
            target=lambda: (wait_until(lambda: bool(relation.progress)), os.kill(os.getpid(), signal.SIGINT))
        ).start()
        with pytest.raises(KeyboardInterrupt):
            relation.arrow()
        assert 0 < relation.progress < 0.5
        assert backend.released.is_set()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_leaving_a_stream_early_frees_the_run():
    backend = SlowBackend(first=1)
    with tsql.Session(backend) as session:
        batches = session.sql("SELECT 1 AS x").batches()
        assert next(batches).num_rows == 1
        batches.close()
    assert backend.released.is_set()
