"""Columns without a SQL type (lists, structs, maps, UUIDs, wide decimals, ..) cost nothing until somebody asks for
one."""

from __future__ import annotations

import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tsql.kernels.expr.errors import BindError, CatalogError, PlanError, SourceError

UNREAD = {
    "l": (pa.array([[1, 2], None, []], pa.list_(pa.int32())), "INTEGER[]"),
    "s": (
        pa.array(
            [{"a": 1, "price": 2}, None, {"a": 3, "price": 4}], pa.struct([("a", pa.int32()), ("price", pa.int64())])
        ),
        "STRUCT(a INTEGER, price BIGINT)",
    ),
    "m": (pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())), "MAP(VARCHAR, BIGINT)"),
    "n": (
        pa.array([[{"x": [1]}], None, []], pa.list_(pa.struct([("x", pa.list_(pa.int8()))]))),
        "STRUCT(x TINYINT[])[]",
    ),
    "u": (pa.array([uuid.UUID(int=i).bytes for i in range(3)], pa.uuid()), "UUID"),
}
ONLY_ARROW = {
    "w": (pa.array([Decimal(10) ** 40, None, Decimal(1)], pa.decimal256(50, 2)), "decimal256(50, 2)"),
    "f": (pa.array([[1, 2], [3, 4], None], pa.list_(pa.int32(), 2)), "INTEGER[2]"),
    "dl": (pa.DictionaryArray.from_arrays(pa.array([0, None, 0]), pa.array([[1]], pa.list_(pa.int64()))), "BIGINT[]"),
    "e": (pa.array([[1], [2], None], pa.large_list(pa.timestamp("us", "UTC"))), "TIMESTAMP WITH TIME ZONE[]"),
    "un": (
        pa.UnionArray.from_sparse(
            pa.array([0, 0, 1], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])], ["i", "t"]
        ),
        "UNION(i BIGINT, t VARCHAR)",
    ),
    "lv": (pa.nulls(3, pa.list_view(pa.string())), "VARCHAR[]"),
}


def mixed(more: dict[str, tuple[pa.Array, str]]) -> pa.Table:
    """Columns that can be read, with others before, between and behind them."""
    columns: dict[str, Any] = {"id": pa.array([1, 2, 3], pa.int32())}
    for number, (name, (array, _)) in enumerate(more.items()):
        columns[name] = array
        columns[f"c{number}"] = pa.array([number, None, number + 2], pa.int64())
    columns["price"] = pa.array([Decimal("1.25"), None, Decimal("3.50")], pa.decimal128(9, 2))
    columns["word"] = pa.array(["a", "b", "a"])
    return pa.table(columns)


@pytest.fixture(params=["parquet", "ipc", "stream", "arrow", "polars"])
def named(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[tsql.Session, str, dict[str, tuple[pa.Array, str]]]:
    """A session, what FROM says, and the columns that cannot be read."""
    db, kind = tsql.connect(), request.param
    more = UNREAD if kind in ("parquet", "polars") else {**UNREAD, **ONLY_ARROW}
    if kind == "polars":
        more = {"l": UNREAD["l"], "n": UNREAD["n"], "s": UNREAD["s"]}
    table = mixed(more)
    if kind == "parquet":
        pq.write_table(table, tmp_path / "t.parquet", row_group_size=2, store_decimal_as_integer=True)
        return db, f"'{tmp_path}/t.parquet'", more
    if kind in ("ipc", "stream"):
        path = tmp_path / "t.arrow"
        with (
            pa.OSFile(str(path), "wb") as file,
            (pa.ipc.new_file if kind == "ipc" else pa.ipc.new_stream)(file, table.schema) as writer,
        ):
            writer.write_table(table)
        return db, f"'{path}'", more
    db.register("t", pl.from_arrow(table) if kind == "polars" else table)
    return db, "t", more


def test_other_columns_are_read(named: Any) -> None:
    db, name, more = named
    assert db.sql(f"SELECT id, price, word FROM {name}").fetchall() == [
        (1, Decimal("1.25"), "a"),
        (2, None, "b"),
        (3, Decimal("3.50"), "a"),
    ]
    assert db.sql(f"SELECT count(*) FROM {name}").fetchall() == [(3,)]
    assert db.sql(
        f"SELECT count(*), sum(c1), min(price), max(c0) FROM {name} WHERE c1 > 1 AND price > 1"
    ).fetchall() == [(1, 3, Decimal("3.50"), 2)]
    assert db.sql(
        f"SELECT a.id, b.c2 FROM {name} a JOIN {name} b USING (id) WHERE b.word = 'a' ORDER BY 1"
    ).fetchall() == [(1, 2), (3, 4)]
    everything = ", ".join(more)
    assert db.sql(f"SELECT * EXCLUDE ({everything}) FROM {name}").columns == [
        "id",
        *(f"c{i}" for i in range(len(more))),
        "price",
        "word",
    ]
    assert db.sql(f"SELECT id FROM (SELECT * FROM {name}) WHERE EXISTS (SELECT * FROM {name})").fetchall() == [
        (1,),
        (2,),
        (3,),
    ]
    assert db.sql(f"WITH t AS (FROM {name}) SELECT word FROM t UNION SELECT word FROM t ORDER BY 1").fetchall() == [
        ("a",),
        ("b",),
    ]


def test_describe_shows_them(named: Any) -> None:
    db, name, more = named
    found = {row[0]: row[1] for row in db.sql(f"DESCRIBE {name}").fetchall()}
    assert list(found) == mixed(more).column_names
    assert {column: found[column] for column in more} == {column: kind for column, (_, kind) in more.items()}
    assert found["price"] == "DECIMAL(9,2)"


def test_naming_one_is_an_error_with_its_place(named: Any) -> None:
    db, name, more = named
    for column, (_, kind) in more.items():
        with pytest.raises(BindError) as error:
            db.sql(f"SELECT id, {column} FROM {name}")
        assert error.value.position == 11
        assert f'column "{column}" is {kind}, which cannot be read' in str(error.value)
    for query in ("PIVOT {} ON word USING sum(id)", "SELECT id FROM STITCH(LIFETIME({}, start => make_timestamp(id)))",
                  "WITH RECURSIVE r AS (FROM {} UNION ALL FROM r WHERE false) SELECT id FROM r",
                  "SELECT a.id FROM {} a NATURAL JOIN {} b", "SELECT COLUMNS(*) FROM {}",
                  "SELECT id FROM {} WHERE l IS NULL", "SELECT count(l) FROM {}", "SELECT id FROM {} ORDER BY l",
                  "SELECT id FROM {} GROUP BY id, l", "SELECT s.a FROM {}", "SELECT l[1] FROM {}"):  # fmt: skip
        with pytest.raises(BindError, match="which cannot be read") as error:
            db.sql(query.replace("{}", name))
        assert error.value.position is not None


def test_a_star_says_how_to_leave_them_out(named: Any) -> None:
    db, name, more = named
    clause = f"EXCLUDE ({', '.join(more)})"
    for query in (f"SELECT * FROM {name}", f"FROM {name}", f"SELECT DISTINCT * FROM {name}",
                  f"SELECT * FROM {name} ORDER BY id", f"CREATE TABLE x AS SELECT * FROM {name}",
                  f"COPY (SELECT * FROM {name}) TO '/nowhere/x.csv'", f"SELECT * FROM (SELECT * FROM {name})",
                  f"SUMMARIZE SELECT * FROM {name}", f"FROM {name} UNION ALL FROM {name}"):  # fmt: skip
        with pytest.raises(BindError, match="cannot be read: ") as error:
            db.sql(query)
        assert clause in error.value.hint, query
        assert error.value.position is not None, query
    with pytest.raises(BindError) as error:
        db.sql(f"SELECT t.* EXCLUDE (id, l) FROM {name} AS t")
    assert error.value.hint == f"SELECT t.* EXCLUDE (id, l, {', '.join(c for c in more if c != 'l')})"
    assert db.sql(f"SELECT * {clause} FROM {name}").arrow().num_rows == 3
    db.sql(f"CREATE TABLE kept AS SELECT * {clause} FROM {name}")
    assert db.sql("SELECT count(*) FROM kept").fetchall() == [(3,)]


def test_views_and_scripts(named: Any) -> None:
    db, name, more = named
    db.sql(f"CREATE VIEW v AS SELECT * FROM {name}")
    assert db.sql("SELECT sum(id) FROM v").fetchall() == [(6,)]
    with pytest.raises(BindError, match="cannot be read"):
        db.sql("SELECT * FROM v")
    assert [row[0] for row in db.sql("DESCRIBE v").fetchall()] == mixed(more).column_names
    (shown,) = [row for row in db.sql("SHOW ALL TABLES").fetchall() if row[2] == "v"]
    assert "INTEGER[]" in shown[4]


@pytest.mark.parametrize("optimizer", [True, False])
def test_without_the_optimizer(named: Any, optimizer: bool) -> None:
    db, name, _ = named
    db.settings.optimizer = optimizer
    assert db.sql(f"SELECT word, count(*) FROM (SELECT * FROM {name}) GROUP BY word ORDER BY 1").fetchall() == [
        ("a", 2),
        ("b", 1),
    ]


def test_duckdb_spells_the_types_so(tmp_path: Path) -> None:
    pq.write_table(mixed(UNREAD), tmp_path / "t.parquet")
    ours = [row[:2] for row in tsql.connect().sql(f"DESCRIBE '{tmp_path}/t.parquet'").fetchall()]
    assert ours == [tuple(row[:2]) for row in duckdb.sql(f"DESCRIBE '{tmp_path}/t.parquet'").fetchall()]


def test_a_file_of_nothing_else(tmp_path: Path) -> None:
    pq.write_table(pa.table({"l": UNREAD["l"][0]}), tmp_path / "t.parquet")
    db, name = tsql.connect(), f"'{tmp_path}/t.parquet'"
    assert db.sql(f"SELECT count(*) FROM {name}").fetchall() == [(3,)]
    assert db.sql(f"SELECT count(*) FROM (SELECT * FROM {name})").fetchall() == [(3,)]
    assert db.sql(f"DESCRIBE {name}").fetchall()[0][:2] == ("l", "INTEGER[]")
    with pytest.raises(BindError, match="cannot be read"):
        db.sql(f"SELECT * FROM {name}")


def test_several_files(tmp_path: Path) -> None:
    """A column that one file has in a type that cannot be read cannot be read; the others are merged as ever."""
    pq.write_table(pa.table({"id": [1], "x": [1], "y": [[1]]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [2.5], "x": [{"k": 1}], "z": ["z"]}), tmp_path / "b.parquet")
    db, name = tsql.connect(), f"read_parquet('{tmp_path}/*.parquet', union_by_name => true)"
    assert db.sql(f"SELECT id, z FROM {name} ORDER BY id").fetchall() == [(1.0, None), (2.5, "z")]
    assert [row[:2] for row in db.sql(f"DESCRIBE FROM {name}").fetchall()] == [
        ("id", "DOUBLE"),
        ("x", "STRUCT(k BIGINT)"),
        ("y", "BIGINT[]"),
        ("z", "VARCHAR"),
    ]
    plain = f"read_parquet('{tmp_path}/*.parquet')"
    assert db.sql(f"SELECT count(*) FROM {plain}").fetchall() == [(2,)]
    with pytest.raises(SourceError, match=r"b.parquet: column x is STRUCT\(k BIGINT\) here and BIGINT in"):
        db.sql(f"SELECT x FROM {plain}").fetchall()


def test_relations_over_whole_files_stay_lazy(tmp_path: Path) -> None:
    pq.write_table(mixed(UNREAD), tmp_path / "t.parquet")
    db = tsql.connect()
    whole = db.read_parquet(tmp_path / "t.parquet")
    assert whole.columns == mixed(UNREAD).column_names and "INTEGER[]" in whole.types
    for use in (
        whole.fetchall,
        whole.arrow,
        whole.show,
        lambda: whole.schema,
        lambda: repr(whole),
        lambda: whole.write(tmp_path / "o.csv"),
    ):
        with pytest.raises(BindError, match=r"cannot be read: l \(INTEGER\[\]\)"):
            use()
    db.register("t", whole)
    assert db.sql("SELECT sum(id) FROM t").fetchall() == [(6,)]
    db.register("again", db.table("t"))
    assert db.sql("SELECT sum(id) FROM again").fetchall() == [(6,)]
    with pytest.raises(BindError, match="cannot be read"):
        db.table("t").fetchall()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.parquet"]


def test_a_decimal_inside_of_a_struct_is_not_one_outside(tmp_path: Path) -> None:
    """Names in a footer repeat on other levels: the price in the struct has digits behind the point, the other one is a
    plain number."""
    inner = pa.array([{"price": Decimal("1.25")}], pa.struct([("price", pa.decimal128(9, 2))]))
    pq.write_table(
        pa.table({"s": inner, "price": pa.array([125], pa.int32())}),
        tmp_path / "t.parquet",
        store_decimal_as_integer=True,
    )
    assert tsql.connect().sql(f"SELECT price FROM '{tmp_path}/t.parquet'").fetchall() == [(125,)]


def test_streams_and_plans_have_the_others(tmp_path: Path) -> None:
    table = mixed(UNREAD).append_column("ts", pa.array([1, 2, 3], pa.timestamp("us")))
    pq.write_table(table, tmp_path / "t.parquet")
    db = tsql.connect()
    db.sql(f"CREATE STREAM s (WATERMARK FOR ts AS ts) WITH (connector = 'parquet', path = '{tmp_path}/t.parquet')")
    assert db.sql("SELECT count(*), sum(id) FROM TUMBLE(s, ts, INTERVAL '1 second')").fetchall() == [(3, 6)]
    assert (
        db.sql(f"SELECT id, count(*) FROM LIFETIME('{tmp_path}/t.parquet', start => ts) GROUP BY id").arrow().num_rows
        == 3
    )
    db.register("t", table, time="ts")
    plan = db.sql("SELECT id FROM t").plan()
    path = tmp_path / "q.plan"
    path.write_text(plan.replace("columns=(id)", "columns=(id, l)"))
    with pytest.raises(PlanError, match=r"column l of table t is INTEGER\[\], which cannot be read"):
        db.sql(f"EXECUTE PLAN '{path}'").fetchall()
    with pytest.raises(PlanError, match="cannot be read"):
        db.sharded("t")
    with pytest.raises(PlanError, match="cannot be read"):
        db.sharded("t", ["id", "l"])
    with pytest.raises(CatalogError, match=r"is INTEGER\[\]"):
        db.register("t", table, time="l")


def test_pandas_frames(tmp_path: Path) -> None:
    db = tsql.connect()
    db.register("t", pd.DataFrame({"id": [1, 2], "l": [[1], [2, 3]], "d": [{"a": 1}, {"a": 2}]}))
    assert db.sql("SELECT id FROM t").fetchall() == [(1,), (2,)]
    assert [row[:2] for row in db.sql("DESCRIBE t").fetchall()] == [
        ("id", "BIGINT"),
        ("l", "BIGINT[]"),
        ("d", "STRUCT(a BIGINT)"),
    ]


def test_files_below_a_stated_schema(tmp_path: Path) -> None:
    pq.write_table(mixed(UNREAD), tmp_path / "t.parquet")
    db = tsql.connect()
    assert db.sql(
        f"FROM read_parquet('{tmp_path}/t.parquet', schema => {{'id': 'BIGINT', 'word': 'VARCHAR'}})"
    ).fetchall() == [(1, "a"), (2, "b"), (3, "a")]
    with pytest.raises(SourceError, match=r"column l is INTEGER\[\] in the file, which cannot be read as VARCHAR"):
        db.sql(f"FROM read_parquet('{tmp_path}/t.parquet', schema => {{'l': 'VARCHAR'}})")
