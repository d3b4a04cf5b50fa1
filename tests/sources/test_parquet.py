"""Parquet: contents as DuckDB reads them, partitions, files that disagree, statistics, and what pushed-down filters
skip."""

from __future__ import annotations

import datetime as dt
import math
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.sources.support import duck, ours, rows_of, table_of
from tsql.backends.io.arrow import ArrowSource
from tsql.backends.io.open import from_description, open_source
from tsql.backends.io.parquet.source import ParquetSource
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.nodes import Call, Cast, Column, Expr, InList, Literal
from tsql.kernels.expr.types import BIGINT, BOOLEAN, DATE, DECIMAL, DOUBLE, INTEGER, TIMESTAMP, VARCHAR, Type

ALL_TYPES = pa.table(
    {
        "i8": pa.array([1, None, -128], pa.int8()), "u8": pa.array([1, None, 255], pa.uint8()),
        "i16": pa.array([1, None, -5], pa.int16()),
        "u16": pa.array([1, None, 65535], pa.uint16()), "i32": pa.array([1, None, -5], pa.int32()),
        "u32": pa.array([1, None, 2**32 - 1], pa.uint32()),
        "i64": pa.array([1, None, -(2**63)], pa.int64()), "u64": pa.array([1, None, 2**64 - 1], pa.uint64()),
        "f": pa.array([1.5, None, -2.25], pa.float32()),
        "d": pa.array([1.5, None, 1e300], pa.float64()), "b": pa.array([True, None, False]),
        "s": pa.array(["x", None, "é日"]), "ls": pa.array(["x", None, ""], pa.large_string()),
        "sv": pa.array(["x", None, "y" * 50], pa.string_view()), "bin": pa.array([b"a", None, b"\xff"]),
        "date": pa.array([dt.date(2020, 1, 1), None, dt.date(1950, 2, 3)]),
        "ts": pa.array([dt.datetime(2020, 1, 1, 10), None, dt.datetime(1950, 1, 1, 0, 0, 0, 5)], pa.timestamp("us")),
        "ms": pa.array([1, None, -5], pa.timestamp("ms")),
        "tz": pa.array([1, None, -5], pa.timestamp("us", "Europe/Paris")),
        "time": pa.array([1, None, 86_399_999_999], pa.time64("us")),
        "dec4": pa.array([Decimal("1.5"), None, Decimal("-999.9")], pa.decimal128(4, 1)),
        "dec15": pa.array([Decimal("1.25"), None, Decimal("-9999999999999.99")], pa.decimal128(15, 2)),
        "dec18": pa.array([Decimal(1), None, Decimal(-(10**17))], pa.decimal128(18, 0)),
        "dec38": pa.array([Decimal("1.5"), None, Decimal(10**30)], pa.decimal128(38, 5)),
        "dict": pa.array(["x", None, "x"]).dictionary_encode(), "time32": pa.array([1, None, 5], pa.time32("ms")),
    }
)  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [
        {}, {"store_decimal_as_integer": True}, {"store_schema": False}, {"use_dictionary": False}, {"version": "1.0"},
        {"data_page_version": "2.0", "compression": "zstd"}, {"compression": "none", "write_statistics": False},
        {"write_page_checksum": True}, {"use_byte_stream_split": ["d", "f"], "use_dictionary": False},
    ],
)  # fmt: skip
def test_all_types_as_duckdb_reads_them(tmp_path: Path, settings: dict[str, Any]) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(ALL_TYPES, path, **settings)
    assert ours(path) == duck("read_parquet", path)


def test_files_written_by_duckdb(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    duckdb.sql(
        "SELECT i, (i / 100)::DECIMAL(4,2) d4, (i / 100)::DECIMAL(9,2) d9, (i / 100)::DECIMAL(18,2) d18, "
        "(i / 100)::DECIMAL(38,2) d38, i::VARCHAR s, i % 5 = 0 b, DATE '2020-01-01' + i::INT dt FROM "
        "range(5000) t(i)"
    ).to_parquet(str(path), row_group_size=2048)
    assert ours(path) == duck("read_parquet", path)


def test_narrow_decimals_arrive_unscaled_and_few_strings_as_dictionary(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(
        pa.table({"d": pa.array([Decimal("1.25"), None], pa.decimal128(15, 2)), "s": ["a", "b"]}),
        path,
        store_decimal_as_integer=True,
    )
    source = open_source(path)
    (batch,) = source.read(source.splits(("d", "s"), None)[0], ("d", "s"))
    assert batch.column(0).to_pylist() == [125, None] and batch.schema.field(0).type == pa.int64()
    assert pa.types.is_dictionary(batch.schema.field(1).type)


def test_timestamps_in_nanoseconds_and_int96(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([0, 1499, 1500, -1500, None], pa.timestamp("ns"))})
    pq.write_table(table, tmp_path / "ns.parquet")
    expected = [0, 1, 1, -2, None]
    assert table_of(open_source(tmp_path / "ns.parquet")).column("t").cast(pa.int64()).to_pylist() == expected
    pq.write_table(
        pa.table({"t": pa.array([0, 1, 2000], pa.timestamp("us"))}),
        tmp_path / "i96.parquet",
        use_deprecated_int96_timestamps=True,
    )
    assert table_of(open_source(tmp_path / "i96.parquet")).column("t").cast(pa.int64()).to_pylist() == [0, 1, 2000]


def test_intervals_of_duckdb(tmp_path: Path) -> None:
    path = tmp_path / "i.parquet"
    duckdb.sql(
        "COPY (SELECT * FROM (VALUES (1, INTERVAL '1 year 2 days 3.5 seconds'), (2, NULL), (3, INTERVAL "
        f"'20 hours'), (4, INTERVAL '0 days')) t(n, i)) TO '{path}'"
    )
    query = f"SELECT i::VARCHAR, n FROM '{path}' ORDER BY n"
    found = tsql.connect().sql(query)
    assert found.fetchall() == duckdb.sql(query).fetchall()
    assert tsql.connect().sql(f"SELECT i FROM '{path}'").types == ["INTERVAL"]


def test_days_in_milliseconds_are_those_of_their_time() -> None:
    millis = [0, -1, 86_399_999, 86_400_000, -86_400_000, -86_400_001, None]
    source = ArrowSource(pa.table({"d": pa.array(millis, pa.int64()).view(pa.date64())}))
    assert table_of(source).column("d").cast(pa.int32()).to_pylist() == [
        None if ms is None else ms // 86_400_000 for ms in millis
    ]


def test_columns_in_any_order_and_none_at_all(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [1, 2, 3], "b.c": ["x", "y", "z"], "c d": [1.5, 2.5, None]}), path, row_group_size=2)
    source = open_source(path)
    assert rows_of(source, ("c d", "b.c")) == [(1.5, "x"), (2.5, "y"), (None, "z")]
    assert sum(batch.num_rows for split in source.splits((), None) for batch in source.read(split, ())) == 3


def test_hive_partitions(tmp_path: Path) -> None:
    for values in (
        ["1", "2"],
        ["2020-01-01", "2020-02-03"],
        ["2020-01-01", "1"],
        ["1.5", "2"],
        ["2020-01-01 00:00:00", "2020-01-01 10:00:00"],
        ["a%20b", "c"],
        ["__HIVE_DEFAULT_PARTITION__", "3"],
        ["007", "1"],
    ):
        root = tmp_path / "-".join(values).replace(":", "")
        for i, value in enumerate(values):
            (root / f"k={value}" / "z=5").mkdir(parents=True)
            pq.write_table(pa.table({"x": [i, i + 10]}), root / f"k={value}" / "z=5" / "f.parquet")
        types, rows = ours(str(root / "**" / "*.parquet"))
        expected_types, expected = duck("read_parquet", root / "**" / "*.parquet")
        assert types == expected_types
        assert sorted(rows, key=repr) == sorted(expected, key=repr)
        assert ours(root, "parquet")[1] == rows
    assert open_source(str(root / "**" / "*.parquet"), None, {"hive_partitioning": False}).schema.names == ("x",)


def test_a_partition_column_wins_over_a_stored_one_and_skips_files(tmp_path: Path) -> None:
    for key in (1, 2, 3):
        (tmp_path / f"x={key}").mkdir()
        pq.write_table(pa.table({"x": [99], "y": [key]}), tmp_path / f"x={key}" / "f.parquet")
    source = open_source(str(tmp_path / "*" / "*.parquet"))
    assert rows_of(source) == [(1, 1), (2, 2), (3, 3)]
    assert len(source.splits(("y",), compare("=", "x", 2, BIGINT))) == 1
    assert rows_of(source, ("y",), compare(">", "x", 1, BIGINT)) == [(2,), (3,)]
    found = source.statistics().columns["x"]
    assert (found.minimum, found.maximum, found.exact) == (1, 3, True)


def write_pair(folder: Path, first: pa.Table, second: pa.Table) -> str:
    pq.write_table(first, folder / "1.parquet", store_decimal_as_integer=True)
    pq.write_table(second, folder / "2.parquet", store_decimal_as_integer=True)
    return str(folder / "*.parquet")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([1]), pa.array([2.5])), (pa.array([1]), pa.array(["7"])), (pa.array(["7"]), pa.array([1])),
        (pa.array([1]), pa.array([5], pa.int8())), (pa.array([1], pa.int32()), pa.array([2])),
        (pa.array([1.5]), pa.array([2])),
        (pa.array([Decimal("1.25")], pa.decimal128(9, 2)), pa.array([Decimal("1.5")], pa.decimal128(9, 1))),
        (pa.array([Decimal("1.2")], pa.decimal128(9, 1)), pa.array([Decimal("1.25")], pa.decimal128(9, 2))),
        (pa.array([dt.datetime(2020, 1, 1)]), pa.array([dt.date(2020, 1, 2)])),
        (pa.array([Decimal("1.2")], pa.decimal128(9, 1)), pa.array([3])),
        (pa.array([3]), pa.array([Decimal("1.5")], pa.decimal128(9, 1))),
    ],
)  # fmt: skip
def test_the_first_file_decides_and_later_ones_are_cast(tmp_path: Path, first: pa.Array, second: pa.Array) -> None:
    pattern = write_pair(tmp_path, pa.table({"x": first}), pa.table({"y": [1], "X": second}))
    assert ours(pattern) == duck("read_parquet", pattern)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (
            pa.table({"x": ["abc"]}),
            r"2\.parquet: column x is VARCHAR here and INTEGER in .*1\.parquet: could not convert 'abc'",
        ),
        (pa.table({"x": [2**40]}), r"2\.parquet: column x is BIGINT here and INTEGER in .*1\.parquet: .*1099511627776"),
        (pa.table({"x": [dt.date(2020, 1, 1)]}), r"2\.parquet: column x is DATE here and INTEGER in .*1\.parquet"),
        (pa.table({"y": [1]}), r"2\.parquet: column x, which is in .*1\.parquet, is missing here"),
        (pa.table({"x": [[1]]}), r"2\.parquet: column x is BIGINT\[\] here and INTEGER in"),
    ],
)
def test_files_that_disagree_are_named(tmp_path: Path, second: pa.Table, message: str) -> None:
    pattern = write_pair(tmp_path, pa.table({"x": pa.array([1], pa.int32())}), second)
    with pytest.raises(SourceError, match=message):
        ours(pattern)


@pytest.mark.parametrize(
    "second", [pa.table({"y": [1]}), pa.table({"x": [1.5]}), pa.table({"X": [5]}), pa.table({"x": ["a"]})]
)
def test_union_by_name(tmp_path: Path, second: pa.Table) -> None:
    pattern = write_pair(tmp_path, pa.table({"x": [1, 2]}), second)
    assert ours(pattern, union_by_name=True) == duck("read_parquet", pattern, union_by_name=True)


def test_statistics(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = pa.table({
        "i": [5, None, 1, 9], "s": ["b", "a", None, "c"], "f": [1.5, math.nan, 2.0, None],
        "dec": pa.array([Decimal("1.5"), Decimal("-2.25"), None, None], pa.decimal128(10, 2)),
        "wide": pa.array([Decimal("1.5"), Decimal("-2.25"), None, None], pa.decimal128(30, 2)),
        "d": pa.array([1, 2, None, 7], pa.date32()), "n": pa.array([None] * 4, pa.int64()),
        "u": pa.array([1, 2**63, 5, 2**64 - 1], pa.uint64()),
    })  # fmt: skip
    pq.write_table(table, path, row_group_size=2)
    found = open_source(path).statistics()
    assert found.rows == 4 and found.bytes > 0
    known = {name: (c.minimum, c.maximum, c.nulls, c.exact) for name, c in found.columns.items()}
    assert known["i"] == (1, 9, 1, True) and known["s"] == ("a", "c", 1, True) and known["dec"] == (-225, 150, 2, True)
    assert (
        known["wide"] == (-225, 150, 2, True) and known["d"] == (1, 7, 1, True) and known["n"] == (None, None, 4, True)
    )
    assert known["u"] == (1, 2**64 - 1, 0, True) and known["f"][3] is False
    pq.write_table(table, path, write_statistics=False)
    column = open_source(path).statistics().columns["i"]
    assert (column.minimum, column.maximum, column.exact) == (None, None, False)


def compare(op: str, name: str, value: Any, kind: Type) -> Expr:
    return Call(op, (Column(name, kind), Literal(value, kind)), BOOLEAN)


def test_row_groups_are_skipped_and_no_row_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    rows = 100
    table = pa.table({
        "i": pa.array([None if i % 10 == 3 else i for i in range(rows)], pa.int32()),
        "s": [f"k{i:03d}" for i in range(rows)],
        "d": pa.array([Decimal(i).scaleb(-1) for i in range(rows)], pa.decimal128(10, 1)),
        "t": pa.array([i * 1_000_000 for i in range(rows)], pa.timestamp("us")),
        "day": pa.array(range(rows), pa.date32()), "f": [math.nan if i == 55 else float(i) for i in range(rows)],
        "n": pa.array([None] * 50 + list(range(50)), pa.int64()),
    })  # fmt: skip
    pq.write_table(table, path, row_group_size=10, store_decimal_as_integer=True)
    source = open_source(path)

    def groups(filter: Expr) -> int:
        return len(source.splits(("i",), filter))

    assert groups(compare("=", "i", 42, INTEGER)) == 1
    assert groups(compare("<", "i", 20, INTEGER)) == 2
    assert groups(Call(">", (Literal(20, INTEGER), Column("i", INTEGER)), BOOLEAN)) == 2
    assert groups(compare(">=", "i", 95, INTEGER)) == 1
    assert groups(compare("<>", "i", 5, INTEGER)) == 10
    assert groups(compare("=", "s", "k077", VARCHAR)) == 1
    assert groups(compare("=", "s", "zzz", VARCHAR)) == 0
    assert groups(compare("=", "d", 35, DECIMAL(10, 1))) == 1
    assert groups(compare("<", "t", 25_000_000, TIMESTAMP)) == 3
    assert groups(compare(">", "day", 89, DATE)) == 1
    assert groups(Call("=", (Cast(Column("i", INTEGER), BIGINT), Literal(42, BIGINT)), BOOLEAN)) == 1
    assert (
        groups(Call("=", (Cast(Column("day", DATE), TIMESTAMP), Literal(42 * 86_400_000_000, TIMESTAMP)), BOOLEAN)) == 1
    )
    assert (
        groups(InList(Column("i", INTEGER), (Literal(5, INTEGER), Literal(95, INTEGER), Literal(None, INTEGER)))) == 2
    )
    assert groups(Call("and", (compare(">", "i", 30, INTEGER), compare("<", "i", 40, INTEGER)), BOOLEAN)) == 1
    assert groups(Call("or", (compare("=", "i", 5, INTEGER), compare("=", "s", "k077", VARCHAR)), BOOLEAN)) == 2
    assert groups(Call("is_null", (Column("n", BIGINT),), BOOLEAN)) == 5
    assert groups(Call("is_not_null", (Column("n", BIGINT),), BOOLEAN)) == 5
    assert groups(compare("<", "n", 5, BIGINT)) == 1
    assert groups(compare("=", "i", None, INTEGER)) == 0
    assert groups(Literal(False, BOOLEAN)) == 0
    # NaN is above every number and not in the statistics: the group that holds it must stay.
    assert any(split.detail == 5 for split in source.splits(("f",), compare(">", "f", 1000.0, DOUBLE)))
    assert groups(compare("<", "f", 10.0, DOUBLE)) == 1
    assert groups(Call("not", (compare("<", "i", 90, INTEGER),), BOOLEAN)) == 1
    assert groups(Call("starts_with", (Column("s", VARCHAR), Literal("k", VARCHAR)), BOOLEAN)) == 10
    assert len(rows_of(source, ("i",), compare(">=", "i", 95, INTEGER))) == 10


def test_threads_read_splits_in_parallel(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"i": range(10_000), "s": [f"v{i % 7}" for i in range(10_000)]}), path, row_group_size=500)
    source = open_source(path)
    found: list[int] = []
    lock = threading.Lock()
    splits = source.splits(("i", "s"), None)

    def work(part: int) -> None:
        for split in splits[part::4]:
            rows = [value for batch in source.read(split, ("i", "s")) for value in batch.column(0).to_pylist()]
            with lock:
                found.extend(rows)

    threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(10_000))


def test_described_and_opened_again(tmp_path: Path) -> None:
    (tmp_path / "k=1").mkdir()
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "k=1" / "f.parquet", row_group_size=1)
    source = open_source(str(tmp_path / "*" / "*.parquet"))
    again = from_description(source.describe())
    assert isinstance(again, ParquetSource)
    split = source.splits(("x", "k"), None)[1]
    assert [batch.to_pylist() for batch in again.read(split, ("x", "k"))] == [[{"x": 2, "k": 1}]]


def test_a_file_that_changed_is_not_read_with_the_old_footer(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": range(1000)}), path)
    source = open_source(path)
    split = source.splits(("x",), None)[0]
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(SourceError, match="has changed since it was opened"):
        list(source.read(split, ("x",)))


@pytest.mark.parametrize(("threads", "remembered"), [(1, 8192), (2, 8192), (1, 1)])
def test_each_row_group_has_its_own_dictionary(
    tmp_path: Path, threads: int, remembered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The codes of one row group mean other strings in the next, whose dictionary may lie where the last one was."""
    monkeypatch.setattr("tsql.kernels.emit.dictionary.MEMO_STRINGS", remembered)
    path = tmp_path / "f.parquet"
    parts = []
    with pq.ParquetWriter(path, pa.schema([("s", pa.string()), ("v", pa.int64())])) as writer:
        for number in range(30):
            first, second = ("aa", "bb") if number % 2 == 0 else ("bb", None if number % 3 == 0 else "aa")
            parts.append(pa.table({"s": pa.array([first, second, second] * 1000, pa.string()), "v": [1, 2, 2] * 1000}))
            writer.write_table(parts[-1])
    rows = pa.concat_tables(parts)
    assert pq.ParquetFile(path).num_row_groups == 30
    db = tsql.connect(threads=threads, small_rows=0)
    for query in (
        "SELECT s, count(*) AS n, sum(v) AS t FROM {} GROUP BY s ORDER BY s",
        "SELECT count(*) AS n, sum(v) AS t FROM {} WHERE s = 'bb'",
        "SELECT count(*) AS n, sum(v) AS t FROM {} WHERE s IN ('aa', 'zz')",
        "SELECT count(*) AS n, sum(v) AS t FROM {} WHERE s LIKE 'b%' OR s IS NULL",
        "SELECT count(*) AS n, sum(v) AS t FROM {} WHERE NOT (s LIKE 'b%')",
        "SELECT sum(CASE WHEN s < 'b' THEN v ELSE 0 END) AS t FROM {}",
    ):
        assert (
            db.sql(query.format(f"'{path}'")).arrow().to_pylist()
            == duckdb.sql(query.format("rows")).to_arrow_table().to_pylist()
        )
    assert rows.num_rows == 90_000
