"""Random tables, written by pyarrow or by hand and read by us and by DuckDB: both must see the same."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sources.support import duck, ours, rows_of, table_of
from tsql.backends.io.open import open_source
from tsql.backends.io.text import from_stored
from tsql.backends.io.writers import write
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal
from tsql.kernels.expr.types import BIGINT, BOOLEAN, DATE, TIMESTAMP, TIMESTAMPTZ, VARCHAR
from tsql.kernels.runtime.calendar import (
    DATE_INFINITY,
    DATE_MAX,
    DATE_MIN,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
)

quick = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
text = st.text(st.characters(codec="utf-8", exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=8)
cells = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1), pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.uint16(): st.integers(0, 65535), pa.float64(): st.floats(allow_nan=False), pa.bool_(): st.booleans(),
    pa.string(): text, pa.date32(): st.dates(dt.date(1, 1, 1)), pa.timestamp("us"): st.datetimes(dt.datetime(1, 1, 1)),
    pa.time64("us"): st.times(), pa.binary(): st.binary(max_size=6),
    pa.decimal128(9, 2): st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    pa.decimal128(25, 3): st.integers(-(10**25) + 1, 10**25 - 1).map(lambda n: Decimal(n).scaleb(-3)),
}  # fmt: skip


@st.composite
def tables(draw: st.DrawFn, kinds: tuple[pa.DataType, ...] = tuple(cells), min_rows: int = 0) -> pa.Table:
    rows = draw(st.integers(min_rows, 12))
    columns = {}
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(kinds))
        values = draw(st.lists(st.one_of(st.none(), cells[kind]), min_size=rows, max_size=rows))
        columns[f"c{number}"] = pa.array(values, kind)
    return pa.table(columns)


@quick
@given(table=tables(), group=st.integers(1, 5), integers=st.booleans(), dictionary=st.booleans())
def test_parquet(tmp_path: Path, table: pa.Table, group: int, integers: bool, dictionary: bool) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, row_group_size=group, store_decimal_as_integer=integers, use_dictionary=dictionary)
    assert ours(path) == duck("read_parquet", path)


@quick
@given(
    values=st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=20),
    words=st.lists(text, min_size=20, max_size=20),
    op=st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
    bound=st.integers(-6, 6),
    word=text,
)
def test_skipping_never_loses_a_row(
    tmp_path: Path, values: list[int | None], words: list[str], op: str, bound: int, word: str
) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(
        pa.table({"i": pa.array(values, pa.int64()), "s": pa.array(words[: len(values)], pa.string())}),
        path,
        row_group_size=3,
    )
    source = open_source(path)
    tests = {
        "=": lambda a, b: a == b,
        "<>": lambda a, b: a != b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
    }

    def kept(filter: Expr, column: int, constant: Any) -> tuple[list[Any], list[Any]]:
        keep = [row for row in rows_of(source) if row[column] is not None and tests[op](row[column], constant)]
        return [
            row for row in rows_of(source, None, filter) if row[column] is not None and tests[op](row[column], constant)
        ], keep

    found, expected = kept(Call(op, (Column("i", BIGINT), Literal(bound, BIGINT)), BOOLEAN), 0, bound)
    assert found == expected
    found, expected = kept(Call(op, (Column("s", VARCHAR), Literal(word, VARCHAR)), BOOLEAN), 1, word)
    assert found == expected


CSV_KINDS = (pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.date32(), pa.timestamp("us"), pa.decimal128(9, 2))


@quick
@given(table=tables(CSV_KINDS))
def test_csv_written_by_us_reads_back(tmp_path: Path, table: pa.Table) -> None:
    path = tmp_path / "t.csv"
    write(table.to_batches(), table.schema, "csv", path)
    types = {
        name: {
            "int64": "BIGINT",
            "double": "DOUBLE",
            "bool": "BOOLEAN",
            "string": "VARCHAR",
            "date32[day]": "DATE",
            "timestamp[us]": "TIMESTAMP",
        }.get(str(table.schema.field(name).type), "DECIMAL(9,2)")
        for name in table.column_names
    }
    source = open_source(path, None, {"header": True, "delim": ",", "quote": '"', "columns": types})
    # An empty string is written as "" and read as NULL, in DuckDB too.
    assert table_of(source).to_pylist() == [
        {k: None if v == "" else v for k, v in row.items()} for row in table.to_pylist()
    ]


days = st.one_of(
    st.sampled_from([DATE_INFINITY, -DATE_INFINITY, DATE_MIN, DATE_MAX, 0]), st.integers(DATE_MIN, DATE_MAX)
)
micros = st.one_of(
    st.sampled_from([TIMESTAMP_INFINITY, -TIMESTAMP_INFINITY, TIMESTAMP_MIN, TIMESTAMP_MAX, 0]),
    st.integers(TIMESTAMP_MIN, TIMESTAMP_MAX),
)


@quick
@given(rows=st.lists(st.tuples(days, micros, micros, st.floats()), min_size=1, max_size=8))
def test_times_of_all_years_and_all_floats_written_by_us_read_back(
    tmp_path: Path, rows: list[tuple[int, int, int, float]]
) -> None:
    path = tmp_path / "t.csv"
    dates, stamps, zoned, floats = (list(column) for column in zip(*rows, strict=True))
    table = pa.table(
        {
            "d": from_stored(dates, DATE),
            "t": from_stored(stamps, TIMESTAMP),
            "z": from_stored(zoned, TIMESTAMPTZ),
            "f": pa.array(floats, pa.float64()),
        }
    )
    write(table.to_batches(), table.schema, "csv", path)
    found = table_of(
        open_source(
            path,
            None,
            {
                "header": True,
                "delim": ",",
                "columns": {"d": "DATE", "t": "TIMESTAMP", "z": "TIMESTAMPTZ", "f": "DOUBLE"},
            },
        )
    )
    assert [
        found.column(name).combine_chunks().view(pa.int32() if name == "d" else pa.int64()).to_pylist()
        for name in "dtz"
    ] == [dates, stamps, zoned]
    assert list(map(repr, found.column("f").to_pylist())) == list(map(repr, floats))


@quick
@given(rows=st.lists(st.lists(st.text("ab1,;\"' \n.-", max_size=5), min_size=2, max_size=2), min_size=2, max_size=8))
def test_csv_of_quoted_fields_is_read_as_duckdb_reads_it(tmp_path: Path, rows: list[list[str]]) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "x,y\n" + "".join(",".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\n" for row in rows),
        newline="",
    )
    options = {"header": True, "delim": ",", "quote": '"', "escape": '"', "all_varchar": True}
    assert ours(path, **options) == duck("read_csv", path, **options)


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), text
)


@quick
@given(
    rows=st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), scalars, min_size=1), min_size=1, max_size=10),
    array=st.booleans(),
)
def test_json(tmp_path: Path, rows: list[dict[str, Any]], array: bool) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(rows) if array else "\n".join(map(json.dumps, rows)))
    types, found = ours(path)
    names = list(dict.fromkeys(key for row in rows for key in row))
    assert [name for name, _ in types] == names
    for row, values in zip(rows, found, strict=True):
        for (name, kind), value in zip(types, values, strict=True):
            original = row.get(name)
            if kind in ("BIGINT", "BOOLEAN") or original is None:
                assert value == original
            elif kind == "DOUBLE":
                assert value == float(original)
            elif kind == "VARCHAR" and isinstance(original, str) and value == original:
                continue
            elif kind == "VARCHAR":
                assert json.loads(value) == original


@quick
@given(table=tables())
def test_arrow_stream(tmp_path: Path, table: pa.Table) -> None:
    out = io.BytesIO()
    write(table.to_batches(), table.schema, "arrow", out)
    (tmp_path / "t.arrow").write_bytes(out.getvalue())
    assert table_of(open_source(tmp_path / "t.arrow")).equals(table)
