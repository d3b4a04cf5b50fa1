"""Python variables as tables: which are found, in which order, and where none are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tsql
from tsql.kernels.expr.errors import BindError, SourceError

elsewhere = pa.table({"a": [1, 2, 3]})
number = 5


@pytest.fixture
def db() -> Iterator[Any]:
    with tsql.connect() as session:
        yield session


def test_kinds(db: Any) -> None:
    table = pa.table({"a": [1, 2]})
    batch = table.to_batches()[0]
    frame = pd.DataFrame({"a": [1, 2]})
    polar = pl.DataFrame({"a": [1, 2]})
    columns = {"a": np.array([1, 2])}
    listed = [{"a": 1}, {"a": 2}]
    relation = db.sql("SELECT unnest([1, 2]) AS a")
    assert table is not None and batch is not None and frame is not None and polar is not None and columns and listed
    for name in ("table", "batch", "frame", "polar", "columns", "listed", "relation"):
        assert db.sql(f'SELECT sum(a) FROM "{name}"').fetchall() == [(3,)], name
    assert relation.columns == ["a"]


def test_locals_come_before_globals(db: Any) -> None:
    assert db.sql("SELECT sum(a) FROM elsewhere").fetchall() == [(6,)]

    def inner() -> Any:
        elsewhere = {"a": [10]}
        assert elsewhere
        return db.sql("SELECT sum(a) FROM elsewhere").fetchall()

    assert inner() == [(10,)]
    assert db.execute("SELECT 1; SELECT sum(a) FROM elsewhere").fetchall() == [(6,)]
    assert [r.fetchall() for r in db.statements("SELECT 1; SELECT sum(a) FROM elsewhere")] == [[(1,)], [(6,)]]
    assert db.sql("WITH w AS (SELECT * FROM elsewhere) SELECT (SELECT max(a) FROM elsewhere) FROM w").fetchone() == (3,)


def test_only_the_caller_is_looked_at(db: Any) -> None:
    def helper() -> Any:
        return db.sql("SELECT * FROM hidden_here")

    hidden_here = {"a": [1]}
    assert hidden_here
    with pytest.raises(BindError, match='"hidden_here" does not exist'):
        helper()


def test_each_call_sees_the_present_value(db: Any) -> None:
    t = pa.table({"a": [1]})
    sql = "SELECT sum(a) FROM t"
    assert db.sql(sql).fetchall() == [(1,)]
    t = pa.table({"a": [2]})
    assert db.sql(sql).fetchall() == [(2,)]
    changed = pd.DataFrame({"a": [1, 2]})
    relation = db.sql("SELECT sum(a) FROM changed")
    changed.loc[0, "a"] = 40
    assert db.sql("SELECT sum(a) FROM changed").fetchall() == [(42,)]
    assert relation.fetchall() in ([(3,)], [(42,)])
    del t
    with pytest.raises(BindError):
        db.sql(sql)


def test_names_of_the_catalog_win(db: Any, tmp_path: Path) -> None:
    t = {"a": [1]}
    db.execute("CREATE TABLE t AS SELECT 7 AS a")
    assert t and db.sql("FROM t").fetchall() == [(7,)]
    assert db.sql("WITH t AS (SELECT 8 AS a) FROM t").fetchall() == [(8,)]
    db.execute("DROP TABLE t")
    assert db.sql("FROM t").fetchall() == [(1,)]
    with pytest.raises(BindError):
        db.sql("FROM main.t")


def test_names_are_pythons(db: Any) -> None:
    Case = {"a": [1]}
    assert Case and db.sql('FROM "Case"').fetchall() == [(1,)]
    with pytest.raises(BindError):
        db.sql('FROM "CASE"')


def test_a_reader_is_read_once(db: Any) -> None:
    reader = pa.table({"a": [1, 2]}).to_reader()
    assert reader and db.sql("SELECT sum(a) FROM reader").fetchall() == [(3,)]


def test_what_is_no_table(db: Any) -> None:
    text = "rows"
    with pytest.raises(BindError, match='table "text" does not exist') as caught:
        db.sql("SELECT * FROM text")
    assert text and caught.value.hint == "the Python variable text is of type str, which is no table"
    with pytest.raises(BindError) as caught:
        db.sql("SELECT * FROM number")
    assert "int" in caught.value.hint
    for name in ("pytest", "test_kinds", "Path", "print"):
        with pytest.raises(BindError) as caught:
            db.sql(f'SELECT * FROM "{name}"')
        assert "Python" not in (caught.value.hint or "")
    uneven = {"a": [1, 2], "b": [1]}
    with pytest.raises(SourceError, match="the data of uneven does not make a table") as wrong:
        db.sql("SELECT *\nFROM uneven")
    assert uneven and wrong.value.line_column == (2, 6)


def test_it_can_be_switched_off(db: Any) -> None:
    df = {"a": [1]}
    db.execute("SET python_scan = false")
    with pytest.raises(BindError, match='table "df" does not exist') as caught:
        db.sql("FROM df")
    assert df and caught.value.hint == (
        'there is a Python variable of this name: db.register("df", df) makes it a table, and so does SET python_scan '
        "= true"
    )
    with tsql.connect(python_scan=False) as other, pytest.raises(BindError):
        other.sql("FROM df")
    db.execute("RESET python_scan")
    assert db.sql("FROM df").fetchall() == [(1,)]


def test_views_and_plan_files_have_no_variables(db: Any, tmp_path: Path) -> None:
    df = {"a": [1]}
    with pytest.raises(BindError, match='"df" does not exist'):
        db.execute("CREATE VIEW v AS SELECT * FROM df")
    db.execute("CREATE TABLE made AS SELECT * FROM df")
    assert df and db.sql("FROM made").fetchall() == [(1,)]
    text = db.sql("SELECT a FROM df").plan()
    assert "scan df columns=(a)" in text
    with pytest.raises(tsql.PlanError, match="there is no table df"):
        tsql.load_plan_text(text).run(db)
    (tmp_path / "q.plan").write_text(text)
    with pytest.raises(tsql.TsqlError, match="there is no table df"):
        db.execute(f"EXECUTE PLAN '{tmp_path}/q.plan'")


def test_nothing_is_kept_alive(db: Any) -> None:
    import gc
    import weakref

    def query() -> Any:
        frame = pd.DataFrame({"a": [1, 2]})
        assert db.sql("SELECT sum(a) FROM frame").fetchall() == [(3,)]
        return weakref.ref(frame)

    gone = query()
    gc.collect()
    assert gone() is None
