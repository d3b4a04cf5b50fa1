"""Arrow data in memory: every Arrow type that has a SQL type, and an error that names the column for the others."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.sources.support import rows_of, table_of, types_of
from tsql.backends.io.arrow import ArrowSource
from tsql.backends.io.normalize import normalize, unique_names
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.types import VARCHAR

MOMENT = dt.datetime(2020, 1, 1, 10)


@pytest.mark.parametrize(
    ("array", "kind", "expected"),
    [
        (pa.array([1, None], pa.timestamp("s")), "TIMESTAMP", [dt.datetime(1970, 1, 1, 0, 0, 1), None]),
        (
            pa.array([1500, -1500, 499, None], pa.timestamp("ns")),
            "TIMESTAMP",
            [
                dt.datetime(1970, 1, 1, 0, 0, 0, 1),
                dt.datetime(1969, 12, 31, 23, 59, 59, 999998),
                dt.datetime(1970, 1, 1),
                None,
            ],
        ),
        (pa.array([MOMENT], pa.timestamp("ms", "Europe/Paris")), "TIMESTAMPTZ", [MOMENT.replace(tzinfo=dt.UTC)]),
        (pa.array([86_400_000, None], pa.date64()), "DATE", [dt.date(1970, 1, 2), None]),
        (pa.array(["a", None], pa.large_string()), "VARCHAR", ["a", None]),
        (pa.array(["a", None, "x" * 40], pa.string_view()), "VARCHAR", ["a", None, "x" * 40]),
        (pa.array([b"a", None], pa.binary_view()), "BLOB", [b"a", None]),
        (pa.array([b"ab", None], pa.binary(2)), "BLOB", [b"ab", None]),
        (pa.array([1.5, None], pa.float32()).cast(pa.float16()), "FLOAT", [1.5, None]),
        (pa.array([Decimal("1.5"), None], pa.decimal32(5, 2)), "DECIMAL(5,2)", [Decimal("1.50"), None]),
        (pa.array([Decimal("1.5"), None], pa.decimal64(12, 2)), "DECIMAL(12,2)", [Decimal("1.50"), None]),
        (pa.array([Decimal("1.5"), None], pa.decimal256(30, 2)), "DECIMAL(30,2)", [Decimal("1.50"), None]),
        (pa.nulls(2), "INTEGER", [None, None]),
        (pa.array(["a", None, "a"]).dictionary_encode(), "VARCHAR", ["a", None, "a"]),
        (
            pa.DictionaryArray.from_arrays(
                pa.array([0, 1, None], pa.uint64()), pa.array(["x", "y"], pa.large_string())
            ),
            "VARCHAR",
            ["x", "y", None],
        ),
        (pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["x", None])), "VARCHAR", ["x", None]),
        (pa.array([7, None, 7]).dictionary_encode(), "BIGINT", [7, None, 7]),
        (pa.array([3, None], pa.time32("s")), "TIME", [dt.time(0, 0, 3), None]),
        (pa.array([3999, None], pa.time64("ns")), "TIME", [dt.time(0, 0, 0, 3), None]),
        (pa.array([90, None], pa.duration("s")), "INTERVAL", [pa.MonthDayNano([0, 0, 90_000_000_000]), None]),
        (
            pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", "b"])),
            "VARCHAR",
            ["a", "a", "b"],
        ),
        (pa.array([Decimal(5), None], pa.decimal128(38, 0)), "HUGEINT", [Decimal(5), None]),
    ],
)
def test_arrow_types(array: pa.Array, kind: str, expected: list[Any]) -> None:
    for data in (array, array[1:], pa.chunked_array([array, array])):
        values = (
            expected[1:]
            if data is not array and not isinstance(data, pa.ChunkedArray)
            else expected * (2 if isinstance(data, pa.ChunkedArray) else 1)
        )
        source = ArrowSource(pa.table({"x": data}))
        assert types_of(source) == [("x", kind)]
        assert [row[0] for row in rows_of(source)] == values


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[1]]),
        pa.array([{"a": 1}]),
        pa.array([Decimal(1)], pa.decimal256(60, 2)),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    ],
)
def test_types_without_a_sql_type_name_the_column(array: pa.Array) -> None:
    source = ArrowSource(pa.table({"bad": array}))
    with pytest.raises(SourceError, match="column bad.* cannot be read"):
        list(source.read(source.splits(("bad",), None)[0], ("bad",)))


def test_values_that_do_not_fit_are_an_error() -> None:
    source = ArrowSource(
        pa.table({"far": pa.array([2**62], pa.timestamp("s")), "long": pa.array([2**62], pa.duration("s"))})
    )
    for name in ("far", "long"):
        with pytest.raises(SourceError, match=f"column {name}"):
            rows_of(source, (name,))


def test_frames_streams_and_batches() -> None:
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    for data in (
        table,
        reader,
        table.to_batches()[0],
        pl.DataFrame({"a": [1, 2], "b": ["x", None]}),
        pd.DataFrame({"a": [1, 2], "b": ["x", None]}),
        pa.table({"a": [1, 2], "b": ["x", None]}),
    ):
        source = ArrowSource(data)
        for _ in range(2):
            assert rows_of(source) == [(1, "x"), (2, None)]
    with pytest.raises(SourceError, match="is no Arrow data"):
        ArrowSource(5)


def test_splits_cover_all_rows_in_order() -> None:
    chunks = [
        pa.table({"a": range(start, start + 70_000), "s": pa.array([str(i % 3) for i in range(70_000)])})
        for start in (0, 70_000, 140_000)
    ]
    source = ArrowSource(pa.concat_tables(chunks))
    splits = source.splits(("a",), None)
    assert [split.order for split in splits] == list(range(len(splits))) and sum(
        split.rows for split in splits
    ) == 210_000
    assert table_of(source, ("a",)).column("a").to_pylist() == list(range(210_000))
    assert sum(batch.num_rows for split in splits for batch in source.read(split, ())) == 210_000
    assert source.describe() is None


def test_names_are_made_unique() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "A", "a_1"])
    assert ArrowSource(table).schema.names == ("a", "A_1", "a_1_1")
    assert rows_of(ArrowSource(table)) == [(1, 2, 3)]
    assert unique_names(["x", "x", "x"]) == ["x", "x_1", "x_2"]


def test_exact_statistics() -> None:
    table = pa.table({
        "i": [3, None, 1], "s": ["b", "a", "b"], "k": pa.array(["b", None, "z"]).dictionary_encode(),
        "f": [1.5, math.nan, 0.5], "d": pa.array([Decimal("1.25"), None, Decimal("-2.5")], pa.decimal128(5, 2)),
        "t": pa.array([5, None, 7], pa.timestamp("us")), "b": [True, False, None],
        "day": pa.array([4, 2, None], pa.date32()), "n": pa.nulls(3, pa.int64()),
        "clock": pa.array([1, 2, 3], pa.time64("us")),
        "h": pa.array([Decimal(10**30), None, None], pa.decimal128(38, 0)),
    })  # fmt: skip
    found = {name: (c.minimum, c.maximum, c.nulls) for name, c in ArrowSource(table).statistics().columns.items()}
    assert (
        found["i"] == (1, 3, 1)
        and found["s"] == ("a", "b", 0)
        and found["k"] == ("b", "z", 1)
        and found["d"] == (-250, 125, 1)
    )
    assert (
        found["t"] == (5, 7, 1)
        and found["b"] == (False, True, 1)
        and found["day"] == (2, 4, 1)
        and found["n"] == (None, None, 3)
    )
    assert (
        found["f"][0] == 0.5
        and math.isnan(found["f"][1])
        and found["clock"] == (1, 3, 0)
        and found["h"] == (10**30, 10**30, 2)
    )
    assert all(c.exact for c in ArrowSource(table).statistics().columns.values())


def test_an_empty_table() -> None:
    source = ArrowSource(pa.table({"a": pa.array([], pa.int64())}))
    assert rows_of(source) == [] and source.statistics().rows == 0
    assert normalize(pa.chunked_array([], pa.large_string()), VARCHAR) == []
