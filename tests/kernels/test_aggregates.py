"""Aggregates beyond the basic ones against DuckDB: all types, NULLs, empty groups, single rows, every way to run a
plan."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import tsql
from tests.duck import empty_duckdb

EPOCH = datetime.datetime(1970, 1, 1)
WORDS = ["", "a", "b", "aa", "日本", "a longer text that does not fit in a few bytes", "🦆", "b\x00c"]


def make_table(rows: int, seed: int) -> pa.Table:
    """Random columns of all types; `g` groups (4 has no values, 5 one row), `c` is constant, ties are frequent."""
    rng = random.Random(seed)

    def column(make: Any, type: pa.DataType) -> pa.Array:
        return pa.array([None if g == 4 or rng.random() < 0.2 else make() for g in groups], type)

    groups = [rng.choice([0, 1, 2, 3, 4, None]) for _ in range(rows - 1)] + [5] if rows else []
    integers = {
        name: pa.type_for_alias(name)
        for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    }
    columns = {"g": pa.array(groups, pa.int32()), "id": pa.array(range(rows), pa.int64())}
    for name, t in integers.items():
        low, high = (
            (0, 2**t.bit_width - 1) if name.startswith("u") else (-(2 ** (t.bit_width - 1)), 2 ** (t.bit_width - 1) - 1)
        )
        columns[name] = column(
            lambda low=low, high=high: rng.choice([low, high, rng.randint(low, high), rng.randint(max(low, -9), 9)]), t
        )
    columns["small"] = column(lambda: rng.randint(-9, 9), pa.int32())
    columns["huge"] = column(
        lambda: Decimal(rng.choice([rng.randint(-9, 9), rng.randint(-(10**37), 10**37)])), pa.decimal128(38, 0)
    )
    columns["x"] = column(lambda: rng.choice([rng.uniform(-100, 100), float(rng.randint(-3, 3))]), pa.float64())
    columns["y"] = column(lambda: rng.uniform(-5, 20), pa.float64())
    columns["c"] = column(lambda: 2.5, pa.float64())
    columns["f"] = column(lambda: rng.choice([rng.uniform(-10, 10), 0.5]), pa.float32())
    columns["odd"] = column(lambda: rng.choice([math.nan, math.inf, -math.inf, 0.0, 1.0, 2.0]), pa.float64())
    columns["d2"] = column(lambda: Decimal(rng.randint(-500, 500)).scaleb(-2), pa.decimal128(10, 2))
    columns["d30"] = column(lambda: Decimal(rng.randint(-(10**25), 10**25)).scaleb(-4), pa.decimal128(30, 4))
    columns["flag"] = column(lambda: rng.random() < 0.5, pa.bool_())
    columns["s"] = column(lambda: rng.choice(WORDS), pa.string())
    columns["b"] = column(lambda: rng.choice([b"", b"\x00", b"\xff\xfe", b"abc"]), pa.binary())
    columns["d"] = column(
        lambda: datetime.date(2020, 1, 1) + datetime.timedelta(rng.randint(-30000, 3000)), pa.date32()
    )
    columns["t"] = column(lambda: rng.randint(0, 86_399_999_999), pa.time64("us"))
    columns["ts"] = column(
        lambda: EPOCH + datetime.timedelta(microseconds=rng.randint(-(10**15), 10**15)), pa.timestamp("us")
    )
    columns["tz"] = column(
        lambda: EPOCH + datetime.timedelta(microseconds=rng.randint(-(10**15), 10**15)), pa.timestamp("us", "UTC")
    )
    columns["iv"] = column(
        lambda: pa.MonthDayNano([rng.randint(-2, 2), rng.randint(-40, 40), rng.randint(-(10**9), 10**9) * 1000]),
        pa.month_day_nano_interval(),
    )
    return pa.table(columns)


def one_after_another(tables: list[pa.Table]) -> pa.Table:
    """All rows; `id` goes on counting."""
    rows = pa.concat_tables(tables).combine_chunks()
    return rows.set_column(rows.column_names.index("id"), "id", pa.array(range(rows.num_rows), pa.int64()))


TABLES = {
    "many": make_table(400, 1),
    "small": one_after_another([make_table(12, 2), make_table(1, 3)]),
    "none": make_table(0, 4),
}
PARTS = {"few": (0, 12), "one": (12, 13), "none": (13, 99)}
"""Rows of the table `small`, by `id`: a query with parameters for the limits is planned and emitted once for all of
them."""
WAYS = ("all", "groups")
NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "huge", "x", "f", "d2", "d30")
TIMES = ("d", "t", "ts", "tz")
ANY = (*NUMBERS, *TIMES, "flag", "s", "b", "iv")
ONE_VARIABLE = (
    "stddev stddev_samp stddev_pop variance var_samp var_pop sem skewness kurtosis kurtosis_pop product "
    "fsum kahan_sum sumkahan favg"
).split()
PAIRS = (
    "corr covar_samp covar_pop regr_slope regr_intercept regr_r2 regr_count regr_avgx regr_avgy regr_sxx "
    "regr_syy regr_sxy"
).split()

QUERIES: dict[str, list[str]] = {
    **{f"variable_{c}": [f"{name}({c})" for name in ONE_VARIABLE] for c in ("x", "small", "d2", "c")},
    "variable_of_types": [f"var_pop({c})" for c in NUMBERS] + ["geomean(abs(x))", "geometric_mean(x)",
                                                               "stddev(DISTINCT small)", "sem(x) FILTER (WHERE x > 0)"],
    "odd_floats": [f"{name}(odd)" for name in ("stddev", "var_pop", "product", "median", "mode", "mad", "first", "sem",
                                               "entropy")] + ["quantile_disc(odd, 0.9)", "arg_max(id, odd)",
                                                              "arg_min(id, odd)"],
    "pairs": [f"{name}(y, x)" for name in PAIRS],
    "pairs_turned": [f"{name}(x, y)" for name in PAIRS],
    "pairs_constant": [f"{name}({args})" for name in PAIRS for args in ("x, c", "c, x")],
    "first": [f"first({c})" for c in ANY],
    "last": [f"last({c})" for c in ANY],
    "any_value": [f"any_value({c})" for c in ANY],
    "arg_min": [f"arg_min({c}, small)" for c in ANY],
    "arg_max_by": [f"arg_max(id, {c})" for c in ANY],
    "arg_nulls": ["min_by(s, x)", "max_by(s, s)", "argmin(x, iv)", "argmax(iv, d)", "arg_min_null(x, small)",
                  "arg_max_null(s, x)", "arbitrary(s)", "first(x) FILTER (WHERE x > 0)"],
    "ordered_picks": ["first(id ORDER BY small)", "last(id ORDER BY small)", "first(id ORDER BY small DESC, s)",
                      "last(s ORDER BY x NULLS FIRST)", "first(s ORDER BY x DESC NULLS FIRST)",
                      "any_value(s ORDER BY x DESC)", "arg_max(id, small ORDER BY id DESC)"],
    "string_agg": ["string_agg(s, ',')", "string_agg(s)", "string_agg(s, '')", "string_agg(small, ' ')",
                   "string_agg(id, '-' ORDER BY small, id DESC)", "string_agg(s, ', ' ORDER BY s DESC, id)",
                   "string_agg(DISTINCT s, '|' ORDER BY s)", "group_concat(d2, ';')", "listagg(d ORDER BY id DESC)",
                   "string_agg(s, NULL)", "string_agg(flag ORDER BY x NULLS FIRST, id)"],
    "median": [f"median({c})" for c in ANY if c != "iv"],
    "quantile_disc": [f"quantile_disc({c}, {q})" for c in ANY if c != "iv" for q in (0.3, -0.25)],
    "quantile_cont": [f"quantile_cont({c}, {q})" for c in NUMBERS for q in (0.3, -0.25)],
    # Quarters of microseconds are exact: for other fractions builds of DuckDB differ in the last digit.
    "quantile_cont_times": [f"quantile_cont({c}, {q})" for c in TIMES for q in (0.75, -0.25)],
    "quantile_ends": [
        f"{name}(x, {q})" for name in ("quantile_disc", "quantile_cont", "quantile")
        for q in ("0", "1", "-1", "0.999", "1e-3", "0.1::FLOAT", "2 / 3")
    ],
    "percentile": [
        f"{name}({q}) WITHIN GROUP (ORDER BY {c}{direction})" for name in ("percentile_cont", "percentile_disc")
        for q in (0, 0.25, 1) for c in ("small", "d2") for direction in ("", " DESC")
    ],
    "mad": [f"mad({c})" for c in (*NUMBERS, *TIMES)],
    "mode": [f"mode({c})" for c in ANY],
    "mode_ordered": ["mode(small ORDER BY small)", "mode(small ORDER BY small DESC)", "mode(s ORDER BY id DESC)",
                     "mode() WITHIN GROUP (ORDER BY small)", "mode() WITHIN GROUP (ORDER BY small DESC)"],
    "entropy": [f"entropy({c})" for c in ANY],
    "approx_count_distinct": [(f"approx_count_distinct({c}) BETWEEN count(DISTINCT {c}) * 0.9 "
                               f"AND count(DISTINCT {c}) * 1.1") for c in ("small", "flag", "s", "iv", "d2")],
    "bits": [f"{name}({c})" for name in ("bit_and", "bit_or", "bit_xor") for c in ("int8", "int16", "int32", "int64",
                                                                                   "uint8", "uint16", "uint32",
                                                                                   "uint64")],
    "avg_times": [f"avg({c})" for c in (*TIMES, "iv")],
}  # fmt: skip
CONFIGS = {"shards_3": {"shards": 3}, "batch_rows_1": {"batch_rows": 1}, "blocks": {}}
OTHERWISE = (
    "variable_x",
    "pairs",
    "last",
    "arg_max_by",
    "ordered_picks",
    "string_agg",
    "median",
    "quantile_disc",
    "mode",
    "approx_count_distinct",
    "bits",
    "avg_times",
)
"""What is run under the other configurations: one query of each kind of state."""


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=1e-8, abs_tol=1e-9)
    return a == b


def plain(table: pa.Table) -> list[list[Any]]:
    """Rows; DuckDB gives some times as other Arrow types, which mean the same."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        elif pa.types.is_time(column.type):
            column = column.cast(pa.int64())
        columns.append(column.to_pylist())
    return [list(row) for row in zip(*columns, strict=True)]


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = empty_duckdb()
    connection.execute("SET threads = 1; SET TimeZone = 'UTC'")
    for name, table in TABLES.items():
        connection.register(f"{name}_arrow", table)
        huge = "* REPLACE (huge::HUGEINT AS huge)"
        connection.execute(f"CREATE VIEW {name} AS SELECT {huge} FROM {name}_arrow")
    yield connection
    connection.close()


def check(
    db: Any, oracle: duckdb.DuckDBPyConnection, expressions: list[str], table: str, ways: tuple[str, ...] = WAYS
) -> None:
    """The aggregates of all rows of a table, and of its groups, are those of DuckDB."""
    for sql in texts(expressions, table, ways):
        compare(expressions, db.sql(sql).arrow(), answer(oracle, sql), table)


def check_parts(db: Any, oracle: duckdb.DuckDBPyConnection, expressions: list[str], way: str) -> None:
    """As `check`, of few rows, one row and none."""
    for with_parameters in texts(expressions, "small WHERE id >= $low AND id < $high", (way,)):
        for part, (low, high) in PARTS.items():
            sql = with_parameters.replace("$low", str(low)).replace("$high", str(high))
            compare(expressions, db.sql(with_parameters, {"low": low, "high": high}).arrow(), answer(oracle, sql), part)


def texts(expressions: list[str], table: str, ways: tuple[str, ...]) -> list[str]:
    listed = ", ".join(f"{e} AS c{i}" for i, e in enumerate(expressions))
    known = {"all": f"SELECT {listed} FROM {table}", "groups": f"SELECT g, {listed} FROM {table} GROUP BY g ORDER BY g"}
    return [known[way] for way in ways]


ANSWERS: dict[str, pa.Table] = {}


def answer(oracle: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """What DuckDB gives, asked once."""
    if sql not in ANSWERS:
        ANSWERS[sql] = oracle.sql(sql).to_arrow_table()
    return ANSWERS[sql]


def compare(expressions: list[str], ours: pa.Table, theirs: pa.Table, table: str) -> None:
    assert ours.num_rows == theirs.num_rows
    names = [None, *expressions] if len(ours.column_names) > len(expressions) else expressions
    wrong = [
        f"{table} row {number}: {name} is {a!r}, DuckDB has {b!r}"
        for number, (mine, other) in enumerate(zip(plain(ours), plain(theirs), strict=True))
        for name, a, b in zip(names, mine, other, strict=True)
        if not same(a, b)
    ]
    assert not wrong, "\n".join(wrong)
    for field, other in zip(ours.schema, theirs.schema, strict=True):
        assert field.type == other.type or pa.types.is_decimal(field.type) or field.type.id == other.type.id


@pytest.mark.parametrize("query", list(QUERIES))
def test_against_duckdb(query: str, oracle: duckdb.DuckDBPyConnection) -> None:
    with tsql.connect(threads=2) as db:
        db.register("many", TABLES["many"])
        check(db, oracle, QUERIES[query], "many")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("query", list(QUERIES))
@pytest.mark.in_turn(2)
def test_few_rows_against_duckdb(query: str, way: str, oracle: duckdb.DuckDBPyConnection) -> None:
    with tsql.connect(threads=2) as db:
        db.register("small", TABLES["small"])
        check_parts(db, oracle, QUERIES[query], way)


@pytest.mark.parametrize("config", list(CONFIGS))
@pytest.mark.parametrize("query", OTHERWISE)
@pytest.mark.in_turn(3)
def test_configurations(query: str, config: str, oracle: duckdb.DuckDBPyConnection) -> None:
    with tsql.connect(threads=2, **CONFIGS[config]) as db:
        for name in ("many", "none"):
            if config == "blocks":
                db.register(f"{name}_arrow", TABLES[name])
                db.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_arrow")
            else:
                db.register(name, TABLES[name])
            check(db, oracle, QUERIES[query], name)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("query", list(QUERIES))
@pytest.mark.in_turn(2)
def test_interpreter(query: str, way: str, oracle: duckdb.DuckDBPyConnection) -> None:
    with tsql.connect(backend="interp") as db:
        db.register("small", TABLES["small"])
        check_parts(db, oracle, QUERIES[query], way)
