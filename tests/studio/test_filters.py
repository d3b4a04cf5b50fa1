"""Filters of the page: the rows of a filtered query are those that DuckDB gives with the condition in its WHERE."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.studio.page import opened
from tsql.kernels.expr.errors import BindError
from tsql.studio.filters import Filter, filters_of
from tsql.studio.statements import Script

START = dt.datetime(2024, 1, 1)
SALES = pa.table({
    "shop": [None if i % 11 == 0 else "bco"[i % 3] + "'s" for i in range(200)],
    "item": pa.array([i % 7 for i in range(200)], pa.int32()),
    "price": pa.array([(i * 37) % 100 for i in range(200)], pa.int32()).cast(pa.decimal128(12, 2)),
    "score": [i / 8 for i in range(200)],
    "day": [(START + dt.timedelta(days=i % 20)).date() for i in range(200)],
    "ts": [START + dt.timedelta(hours=i) for i in range(200)],
    "sold": [i % 2 == 0 for i in range(200)],
})  # fmt: skip
ITEMS = pa.table({"item": pa.array(range(6), pa.int32()), "name": [f"n{i}" for i in range(6)]})
HOUR_MS = 3_600_000
START_MS = 1_704_067_200_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    pq.write_table(SALES, folder / "sales.parquet")
    return folder


@pytest.fixture(scope="module")
def db(files: Path) -> Iterator[tsql.Session]:
    with tsql.connect(threads=1) as session:
        session.register("sales", SALES)
        session.register("items", ITEMS)
        session.sql("CREATE VIEW cheap AS SELECT item, price, upper(shop) AS shop FROM sales WHERE price < 50")
        yield session


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as found:
        found.execute("SET TimeZone = 'UTC'")
        found.register("sales", SALES)
        found.register("items", ITEMS)
        found.execute("CREATE VIEW cheap AS SELECT item, price, upper(shop) AS shop FROM sales WHERE price < 50")
        yield found


def answer(
    db: tsql.Session, sql: str, *filters: Filter, progressive: bool = False
) -> tuple[list[Any], tuple[str, ...]]:
    script = Script(db, sql)
    shown = script.query(script.statements[-1], filters, progressive)
    return sorted(shown.relation.fetchall(), key=str), shown.notes


CASES: tuple[tuple[str, str, tuple[Filter, ...]], ...] = (
    (
        "SELECT item, count(*) FROM sales GROUP BY item",
        "SELECT item, count(*) FROM sales WHERE item BETWEEN 2 AND 4 GROUP BY item",
        (Filter("item", 2, 4),),
    ),
    (
        "SELECT shop, sum(item) FROM sales WHERE item = 1 OR item = 2 GROUP BY shop",
        "SELECT shop, sum(item) FROM sales WHERE item IN (1, 2) AND score >= 3.5 AND price <= 70 GROUP BY shop",
        (Filter("score", 3.5, None), Filter("PRICE", None, "70.00")),
    ),
    (
        "SELECT count(*) FROM sales",
        "SELECT count(*) FROM sales WHERE shop IN ('b''s', 'x') OR shop IS NULL",
        (Filter("shop", values=("b's", "x", None)),),
    ),
    ("SELECT count(*) FROM sales", "SELECT count(*) FROM sales WHERE shop IS NULL", (Filter("shop", values=(None,)),)),
    ("SELECT count(*) FROM sales", "SELECT 0", (Filter("shop", values=()),)),
    ("SELECT count(*) FROM sales", "SELECT count(*) FROM sales WHERE sold", (Filter("sold", values=(True,)),)),
    (
        "SELECT day, count(*) FROM sales GROUP BY day",
        "SELECT day, count(*) FROM sales WHERE day BETWEEN DATE '2024-01-03' AND DATE '2024-01-05' GROUP BY day",
        (Filter("day", START_MS + 48 * HOUR_MS, "2024-01-05"),),
    ),
    (
        "SELECT count(*) FROM sales",
        "SELECT count(*) FROM sales WHERE ts BETWEEN '2024-01-01 03:00:00' AND '2024-01-01 05:30:00'",
        (Filter("ts", START_MS + 3 * HOUR_MS, START_MS + 5.5 * HOUR_MS),),
    ),
    (
        "SELECT count(*) FROM sales",
        "SELECT count(*) FROM sales WHERE ts >= '2024-01-04 00:00:00'",
        (Filter("ts", "2024-01-04T00:00:00", None),),
    ),
    (
        "SELECT count(*) FROM sales WHERE item > -5",
        "SELECT count(*) FROM sales WHERE item BETWEEN -1.5 AND 1e-3",
        (Filter("item", -1.5, 1e-3),),
    ),
    (  # both tables have the column
        "SELECT s.shop, count(*) FROM sales AS s JOIN items AS i ON s.item = i.item GROUP BY s.shop",
        "SELECT s.shop, count(*) FROM sales AS s JOIN items AS i ON s.item = i.item WHERE s.item <= 3 GROUP BY s.shop",
        (Filter("item", None, 3),),
    ),
    (
        "SELECT name, count(*) FROM sales JOIN items USING (item) GROUP BY name",
        "SELECT name, count(*) FROM sales JOIN items USING (item) WHERE item >= 3 GROUP BY name",
        (Filter("item", 3, None),),
    ),
    (
        "SELECT name, count(*) FROM sales, items WHERE sales.item = items.item GROUP BY name",
        "SELECT name, count(*) FROM sales, items WHERE sales.item = items.item AND name = 'n2' GROUP BY name",
        (Filter("name", values=("n2",)),),
    ),
    (  # in each SELECT that reads the table, and in no other
        "SELECT a.n, b.n FROM (SELECT count(*) AS n FROM sales) a, (SELECT sum(item) AS n FROM sales WHERE sold) b",
        "SELECT a.n, b.n FROM (SELECT count(*) AS n FROM sales WHERE item = 2) a, "
        "(SELECT sum(item) AS n FROM sales WHERE sold AND item = 2) b",
        (Filter("item", 2, 2),),
    ),
    (
        "WITH q AS (SELECT item + 100 AS item FROM sales) SELECT count(*), min(item) FROM q",
        "WITH q AS (SELECT item + 100 AS item FROM sales WHERE item = 2) SELECT count(*), min(item) FROM q",
        (Filter("item", 2, 2),),
    ),
    (  # the name of a WITH query, which reads the table of that name
        "WITH sales AS (SELECT item + 100 AS item FROM sales) SELECT count(*), min(item) FROM sales",
        "WITH sales AS (SELECT item + 100 AS item FROM sales WHERE item = 2) SELECT count(*), min(item) FROM sales",
        (Filter("item", 2, 2),),
    ),
    (
        "SELECT name, (SELECT count(*) FROM sales s WHERE s.item = i.item) FROM items i",
        "SELECT name, (SELECT count(*) FROM sales s WHERE s.item = i.item AND score < 9) FROM items i",
        (Filter("score", None, 8.875),),
    ),
    (
        "SELECT item FROM sales WHERE score < 2 UNION ALL SELECT item FROM items",
        "SELECT item FROM sales WHERE score < 2 AND item = 3 UNION ALL SELECT item FROM items WHERE item = 3",
        (Filter("item", values=(3,)),),
    ),
    (
        "SELECT shop, count(*) FROM cheap GROUP BY shop",
        "SELECT shop, count(*) FROM cheap WHERE shop = 'B''S' GROUP BY shop",
        (Filter("shop", values=("B'S",)),),
    ),
    (
        "SELECT item, price FROM cheap ORDER BY item, price LIMIT 3",
        "SELECT item, price FROM cheap WHERE item = 6 AND price <= 12 ORDER BY item, price LIMIT 3",
        (Filter("item", 6, 6), Filter("price", None, 12)),
    ),
    (
        "FROM sales SELECT count(*)",
        "SELECT count(*) FROM sales WHERE item = 5",
        (Filter("item", 5, 5),),
    ),
    (
        "SELECT upper(shop) AS shop, count(*) FROM sales GROUP BY ALL",
        "SELECT upper(shop) AS shop, count(*) FROM sales WHERE sales.shop = 'c''s' GROUP BY ALL",
        (Filter("shop", values=("c's",)),),
    ),
)


@pytest.mark.parametrize(("sql", "said", "filters"), CASES)
def test_filters(
    db: tsql.Session, oracle: duckdb.DuckDBPyConnection, sql: str, said: str, filters: tuple[Filter, ...]
) -> None:
    found, notes = answer(db, sql, *filters)
    assert found == sorted(oracle.execute(said).fetchall(), key=str) and notes == ()
    assert answer(db, sql, *filters, progressive=True)[0] == found


def test_files(db: tsql.Session, oracle: duckdb.DuckDBPyConnection, files: Path) -> None:
    for source in (f"'{files / 'sales.parquet'}'", f"read_parquet('{files}/*.parquet') AS p"):
        sql = f"SELECT shop, count(*) FROM {source} GROUP BY shop"
        said = "SELECT shop, count(*) FROM sales WHERE item IN (1, 2) GROUP BY shop"
        assert answer(db, sql, Filter("item", values=(1, 2)))[0] == sorted(oracle.execute(said).fetchall(), key=str)


def test_columns_that_no_table_has(db: tsql.Session) -> None:
    found, notes = answer(db, "SELECT count(*) FROM items", Filter("price", 1, 2), Filter("item", 1, 2))
    assert found == [(2,)] and notes == ("no table of the query has the column price: its filter changes nothing",)


def test_values_are_never_text_of_the_query(db: tsql.Session) -> None:
    """A value with quotes and words of SQL is a value."""
    evil = "x' OR '1'='1'; DROP TABLE items; --"
    assert answer(db, "SELECT count(*) FROM sales", Filter("shop", values=(evil,)))[0] == [(0,)]
    assert answer(db, "SELECT count(*) FROM sales", Filter('shop" OR "1', values=("a",)))[0] == [(200,)]
    assert db.sql("SELECT count(*) FROM items").fetchall() == [(6,)]


def test_errors_keep_their_places(db: tsql.Session) -> None:
    script = Script(db, "SELECT 1;\nSELECT item,\n nothing FROM sales")
    with pytest.raises(BindError) as found:
        script.query(script.statements[-1], [Filter("item", 1, 2)], True)
    assert found.value.line_column == (3, 2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "filters are a list"),
        ([1], "a filter names its column"),
        ([{"column": 3}], "a filter names its column"),
        ([{"column": "a"}], "neither values nor bounds"),
        ([{"column": "a", "values": 3}], "the values of the filter of a are a list"),
        ([{"column": "a", "values": [[1]]}], "a number, a text, true, false or null"),
        ([{"column": "a", "low": {"x": 1}}], "a number, a text, true, false or null"),
        ([{"column": "a", "low": float("inf")}], "a number, a text, true, false or null"),
    ],
)
def test_filters_that_are_none(given: Any, said: str) -> None:
    with pytest.raises(BindError, match=said):
        filters_of(given)


def test_values_of_other_types(db: tsql.Session) -> None:
    days = Filter("day", "nonsense"), Filter("day", True)
    for one in (Filter("shop", 3), Filter("item", values=("a",)), Filter("item", True), Filter("sold", 1), *days):
        with pytest.raises(tsql.TsqlError):
            answer(db, "SELECT count(*) FROM sales", one)


def test_brushing(db: tsql.Session) -> None:
    """The messages of a page whose chart is brushed."""
    with db.studio() as studio, opened(studio) as page:
        filters = [{"column": "item", "low": 1, "high": 2}, {"column": "price", "values": ["37.00", "0.00"]}]
        told = page.run("SELECT item, count(*) AS n FROM sales GROUP BY item ORDER BY item", filters=filters)
        kept = SALES.to_pylist()
        expected = [
            (item, n) for item in (1, 2) if (n := sum(row["item"] == item and row["price"] in (37, 0) for row in kept))
        ]
        assert told.rows == expected
        assert page.run("SELECT 1", filters=filters).last["notes"] == [
            f"no table of the query has the column {name}: its filter changes nothing" for name in ("item", "price")
        ]
        assert page.run("SELECT item FROM sales", filters=[{"column": "item", "low": "a"}]).last["type"] == "error"
