"""What Python code registers arrives whole: all keys of rows, numbers of any size, and the columns beside those that
cannot be read."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tsql
from tsql.kernels.expr.errors import BindError, SourceError

MOST, LEAST = 2**127 - 1, -(2**127)
EDGES = [MOST, LEAST, MOST - 1, LEAST + 1, 10**38, -(10**38), 10**38 - 1, 1 - 10**38, 2**64, -(2**63) - 1, 0, -1, None]


def rows_of(data: Any, query: str = "FROM x") -> list[tuple[Any, ...]]:
    db = tsql.connect()
    db.register("x", data)
    return db.sql(query).fetchall()


def test_rows_have_all_keys() -> None:
    db = tsql.connect()
    db.register("x", [{"a": 1}, {"b": "y", "a": 2}, {}, {"c": None, "b": "z"}])
    found = db.sql("FROM x")
    assert found.columns == ["a", "b", "c"]
    assert found.types == ["BIGINT", "VARCHAR", "INTEGER"]
    assert found.fetchall() == [(1, None, None), (2, "y", None), (None, None, None), (None, "z", None)]


def test_random_rows_come_back() -> None:
    generator = random.Random(seed := 5)
    for _ in range(20):
        rows = [
            {key: generator.randrange(100) for key in generator.sample("abcdef", generator.randrange(7))}
            for _ in range(generator.randrange(1, 9))
        ]
        keys = list(dict.fromkeys(key for row in rows for key in row))
        if keys:
            assert rows_of(rows) == [tuple(row.get(key) for key in keys) for row in rows], (seed, rows)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([2**63], "UBIGINT"),
        ([2**64 - 1, None, 0], "UBIGINT"),
        ([2**63, -1], "HUGEINT"),
        ([2**100], "HUGEINT"),
        ([LEAST, MOST, None], "HUGEINT"),
        ([1, 2**63 - 1], "BIGINT"),
    ],
)
def test_whole_numbers_past_64_bits(values: list[int | None], kind: str) -> None:
    db = tsql.connect()
    frames = {
        "columns": {"a": values},
        "rows": [{"a": v} for v in values],
        "pandas": pd.DataFrame({"a": pd.Series(values, dtype=object)}),
    }
    for way, data in frames.items():
        db.register("x", data)
        found = db.sql("SELECT a FROM x")
        assert (found.types, [row[0] for row in found.fetchall()]) == ([kind], values), way
    if kind == "HUGEINT":
        db.register("x", pl.DataFrame({"a": pl.Series(values, dtype=pl.Int128), "b": [1] * len(values)}))
        assert [row[0] for row in db.sql("SELECT a FROM x").fetchall()] == values


@pytest.mark.parametrize("values", [[2**127], [2**200, None], [-(2**127) - 1]])
def test_numbers_past_128_bits_are_one_clear_error(values: list[Any]) -> None:
    for data in ({"a": values}, [{"a": v} for v in values], pd.DataFrame({"a": pd.Series(values, dtype=object)})):
        with pytest.raises(SourceError, match="out of the range of HUGEINT"):
            tsql.connect().register("x", data)


@pytest.mark.parametrize(
    "data",
    [
        {"a": [2**70, 1.5]},
        {"a": [2**70, "x"]},
        {"a": [True, 2**70]},
        {1: [1]},
        {"a": [1], "b": [1, 2]},
        [{"a": 1}, {"a": "x"}],
    ],
)
def test_what_makes_no_table_is_one_clear_error(data: Any) -> None:
    with pytest.raises(SourceError, match="the data of x does not make a table"):
        tsql.connect().register("x", data)


def test_columns_of_objects_cost_nothing() -> None:
    mixed = pd.DataFrame(
        {"o": [object(), 1], "id": [1, 2], "m": ["x", 1], "big": np.array([2**70, None], dtype=object)},
        index=pd.Index(["p", "q"], name="key"),
    )
    db = tsql.connect()
    db.register("x", mixed)
    assert db.sql("SELECT id, big, key FROM x").fetchall() == [(1, 2**70, "p"), (2, None, "q")]
    assert [row[:2] for row in db.sql("DESCRIBE x").fetchall()] == [
        ("o", "OBJECT"),
        ("id", "BIGINT"),
        ("m", "OBJECT"),
        ("big", "HUGEINT"),
        ("key", "VARCHAR"),
    ]
    with pytest.raises(BindError, match='column "m" is OBJECT, which cannot be read'):
        db.sql("SELECT m FROM x")
    db.register("y", pl.DataFrame({"o": pl.Series([object(), object()], dtype=pl.Object), "id": [1, 2]}))
    assert db.sql("SELECT id FROM y").fetchall() == [(1,), (2,)]
    with pytest.raises(BindError, match=r"o \(OBJECT\)"):
        db.sql("FROM y")


@pytest.mark.parametrize("name", ["t.arrow", "t.parquet", "t.csv"])
def test_all_hugeints_come_back_from_files(name: str, tmp_path: Path) -> None:
    generator = random.Random(seed := 3)
    values = EDGES + [generator.randrange(LEAST, MOST) >> generator.randrange(127) for _ in range(300)]
    db = tsql.connect()
    db.register("x", {"h": values, "n": list(range(len(values)))})
    db.sql(f"COPY x TO '{tmp_path}/{name}'")
    found = db.sql(f"SELECT h FROM '{tmp_path}/{name}' ORDER BY n")
    assert found.types == ["HUGEINT"]
    assert [row[0] for row in found.fetchall()] == values, seed
    least = db.sql(
        f"SELECT min(h), max(h), count(*) FILTER (h = {MOST}) FROM '{tmp_path}/{name}' WHERE h < 0 OR h > 0"
    ).fetchall()
    assert least == [(LEAST, MOST, 1)]


@pytest.mark.parametrize("way", ["arrow", "pandas", "polars"])
def test_all_hugeints_come_back_from_frames(way: str) -> None:
    db = tsql.connect()
    db.register("x", {"h": EDGES})
    db.register("y", getattr(db.sql("FROM x"), way)())
    assert [row[0] for row in db.sql("FROM y").fetchall()] == EDGES
    db.sql("CREATE TABLE kept AS FROM y")
    assert [row[0] for row in db.sql("SELECT h FROM kept").fetchall()] == EDGES


def test_decimals_of_256_bits_with_39_digits() -> None:
    table = pa.table({"h": pa.array([Decimal(v) if v is not None else None for v in EDGES], pa.decimal256(39, 0))})
    assert [row[0] for row in rows_of(table)] == EDGES
    assert [row[0] for row in rows_of(table[3:])] == EDGES[3:]
    with pytest.raises(SourceError, match="out of the range of HUGEINT"):
        rows_of(pa.table({"h": pa.array([Decimal(2**127)], pa.decimal256(39, 0))}))


def test_decimals_of_38_digits_keep_them(tmp_path: Path) -> None:
    """Python's decimal context has 28 digits; neither values, nor the bounds by which rows are skipped, go through
    it."""
    low, high = Decimal("-123456789012345678901234567890123456.78"), Decimal("123456789012345678901234567890123456.79")
    db = tsql.connect()
    db.register("x", pa.table({"d": pa.array([low, high, None], pa.decimal128(38, 2))}))
    assert db.sql(f"SELECT d FROM x WHERE d = {high}").fetchall() == [(high,)]
    assert db.sql(f"SELECT d FROM x WHERE d <= {low}").fetchall() == [(low,)]
    (tmp_path / "d.json").write_text(f'{{"d": "{low}"}}\n{{"d": "{high}"}}\n')
    (tmp_path / "d.csv").write_text(f"d;n\n{low};1\n{high};x\n")
    for name in (
        "read_json('{}/d.json', columns => {{'d': 'DECIMAL(38,2)'}})",
        "read_csv('{}/d.csv', types => {{'d': 'DECIMAL(38,2)'}})",
    ):
        assert db.sql(f"SELECT d FROM {name.format(tmp_path)}").fetchall() == [(low,), (high,)]
    db.sql("PREPARE q AS SELECT d FROM x WHERE d = CAST(? AS DECIMAL(38,2))")
    assert db.sql(f"EXECUTE q({high})").fetchall() == [(high,)]


@pytest.mark.parametrize("data", [[], {}])
@pytest.mark.parametrize(("query", "column"), [("FROM x", 1), ("SELECT * FROM x", 8), ("SELECT x.* FROM x", 8)])
def test_a_table_without_columns_is_said_to_have_none(data: Any, query: str, column: int) -> None:
    with pytest.raises(BindError) as caught:
        rows_of(data, query)
    assert caught.value.message.endswith("* has none")
    assert caught.value.line_column == (1, column)
    assert rows_of(data, "SELECT count(*) FROM x") == [(0,)]


DAY, NAIVE, AWARE = (
    dt.date(2020, 1, 1),
    dt.datetime(2020, 1, 1, 5),
    dt.datetime(2020, 1, 1, 5, tzinfo=dt.timezone(dt.timedelta(hours=2))),
)


def as_columns(values: list[Any]) -> dict[str, Any]:
    return {
        "columns": {"a": values},
        "rows": [{"a": value} for value in values],
        "numpy": {"a": np.array([*values, None], dtype=object)[:-1]},
    }


def as_all(values: list[Any]) -> dict[str, Any]:
    series = pd.Series(values, dtype=object)
    return {**as_columns(values), "series": {"a": series}, "pandas": pd.DataFrame({"a": series})}


@pytest.mark.parametrize("way", ["columns", "rows", "numpy", "series", "pandas"])
@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([DAY, NAIVE, None], "TIMESTAMP", [dt.datetime(2020, 1, 1), NAIVE, None]),
        ([NAIVE, None, DAY], "TIMESTAMP", [NAIVE, None, dt.datetime(2020, 1, 1)]),
        ([DAY, pd.Timestamp(NAIVE)], "TIMESTAMP", [dt.datetime(2020, 1, 1), NAIVE]),
        ([pd.NaT, NAIVE], "TIMESTAMP", [None, NAIVE]),
        ([AWARE, AWARE.astimezone(dt.UTC)], "TIMESTAMPTZ", [AWARE, AWARE]),
        ([DAY, None], "DATE", [DAY, None]),
        ([1, 2.5], "DOUBLE", [1.0, 2.5]),
        ([2**53, 0.5], "DOUBLE", [2.0**53, 0.5]),
        ([Decimal("0.1"), 2**60, None], "DECIMAL(20,1)", [Decimal("0.1"), Decimal(2**60), None]),
        ([2**60, Decimal("0.1")], "DECIMAL(20,1)", [Decimal(2**60), Decimal("0.1")]),
        ([np.uint64(2**64 - 1), 1], "UBIGINT", [2**64 - 1, 1]),
        ([np.int8(1), 300], "BIGINT", [1, 300]),
        ([pd.NA, 7], "BIGINT", [None, 7]),
    ],
)
def test_kinds_that_go_together(values: list[Any], kind: str, expected: list[Any], way: str) -> None:
    db = tsql.connect()
    db.register("x", as_all(values)[way])
    found = db.sql("SELECT a FROM x")
    assert (found.types, [row[0] for row in found.fetchall()]) == ([kind], expected)


MIXED = [
    [NAIVE, AWARE], [AWARE, NAIVE], [DAY, AWARE], [AWARE, DAY], [dt.time(1), dt.time(1, tzinfo=dt.UTC)],
    [dt.time(1, tzinfo=dt.UTC)], [1, True], [True, 1], [np.True_, 1], [1.5, True], [2**53 + 1, 0.5], [0.5, 2**53 + 1],
    ["a", b"b"], [b"b", "a"], [Decimal("1.5"), 2.5], [2.5, Decimal("1.5")], [DAY, 1], [dt.timedelta(1), 1],
    [DAY, "2020"], [1, "a"],
]  # fmt: skip


@pytest.mark.parametrize("values", MIXED, ids=repr)
def test_kinds_that_do_not_go_together(values: list[Any]) -> None:
    """In columns and rows this is an error that names the column; a frame has a column that cannot be read."""
    for data in as_columns(values).values():
        with pytest.raises(SourceError, match="the data of x does not make a table: column a: "):
            tsql.connect().register("x", data)
    db = tsql.connect()
    db.register("x", pd.DataFrame({"a": pd.Series(values, dtype=object), "b": range(len(values))}))
    assert db.sql("SELECT b FROM x").fetchall() == [(i,) for i in range(len(values))]
    with pytest.raises(BindError, match='column "a" is OBJECT'):
        db.sql("SELECT a FROM x")


@pytest.mark.parametrize(
    "column",
    ["abc", b"xyz", bytearray(b"xyz"), memoryview(b"xyz"), {"k": 1}, {1, 2}, frozenset([1]), 5, None, 2.5],
    ids=lambda column: type(column).__name__,
)
def test_what_is_no_column(column: Any) -> None:
    with pytest.raises(SourceError, match="column a: a column is a list, an array, or a series, not a Python "):
        tsql.connect().register("x", {"a": column})


@pytest.mark.parametrize(
    "column",
    [
        (1, 2),
        range(1, 3),
        iter([1, 2]),
        {1: 0, 2: 0}.keys(),
        np.array([1, 2]),
        pa.array([1, 2]),
        pd.Series([1, 2]),
        pd.Index([1, 2]),
        pl.Series([1, 2]),
    ],
    ids=lambda column: type(column).__name__,
)
def test_what_is_a_column(column: Any) -> None:
    assert rows_of({"a": column}) == [(1,), (2,)]
