"""Casts against DuckDB: every pair of types on edges, every form of text, random values; and the errors of casts that
fail."""

from __future__ import annotations

import math
import random
import re
import struct
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from tests.duck import empty_duckdb
from tests.kernels import cast_cases as cases
from tests.kernels.harness import Bench, both, evaluate
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.expr.nodes import Call, Cast, Column, Literal
from tsql.kernels.expr.types import (
    BIGINT,
    BLOB,
    BOOLEAN,
    DATE,
    DECIMAL,
    DOUBLE,
    FLOAT,
    HUGEINT,
    INTEGER,
    INTERVAL,
    SMALLINT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    TINYINT,
    UBIGINT,
    UTINYINT,
    VARCHAR,
    Type,
)
from tsql.kernels.functions.casts.rules import can_cast
from tsql.kernels.runtime.text.parse_interval import UNITS


@pytest.fixture(scope="module")
def oracle():
    with empty_duckdb() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def check(
    oracle: duckdb.DuckDBPyConnection, values: list, source: Type, *targets: Type, random_from: int | None = None
) -> None:
    """TRY_CAST of the values to each target agrees with DuckDB, compared as text. From number `random_from` on the
    values are random."""
    table = pa.table({"c": pa.array(values, source.to_arrow())})
    oracle.register("input", table)
    query = ", ".join(f"TRY_CAST(c AS {target})::VARCHAR" for target in targets)
    expected = oracle.execute(f"SELECT {query} FROM (SELECT c::{source} AS c FROM input)").fetchall()
    casts = [Cast(Column("c", source), target, safe=True) for target in targets]
    got = both(
        [cast if cast.type == VARCHAR else Cast(cast, VARCHAR) for cast in casts], table, random_from=random_from
    )
    for target, theirs, ours in zip(targets, zip(*expected, strict=True), got, strict=True):
        wrong = [(v, a, b) for v, a, b in zip(values, theirs, ours.to_pylist(), strict=True) if a != b]
        assert not wrong, f"{source} to {target} (value, DuckDB, tsql): {wrong}"


@pytest.mark.parametrize("source", cases.NUMBERS, ids=str)
def test_numbers(oracle, source):
    check(oracle, cases.NUMBERS[source], source, *cases.NUMBER_TYPES)


def test_number_texts(oracle):
    targets = [
        TINYINT,
        UTINYINT,
        INTEGER,
        BIGINT,
        UBIGINT,
        HUGEINT,
        DOUBLE,
        FLOAT,
        DECIMAL(3, 1),
        DECIMAL(5, 2),
        DECIMAL(18, 3),
        DECIMAL(38, 0),
        DECIMAL(38, 38),
    ]
    check(oracle, cases.NUMBER_TEXTS, VARCHAR, *targets)


def test_time_texts(oracle):
    check(
        oracle, cases.DATE_TEXTS + cases.TIME_TEXTS + cases.TIMESTAMP_TEXTS, VARCHAR, DATE, TIME, TIMESTAMP, TIMESTAMPTZ
    )


def test_interval_texts(oracle):
    units = [text for names, *_ in UNITS for name in names for text in (f"1.37 {name}", f"-3.999{name.upper()}")]
    check(oracle, cases.INTERVAL_TEXTS + units, VARCHAR, INTERVAL)


def test_other_texts(oracle):
    check(oracle, cases.BOOLEAN_TEXTS, VARCHAR, BOOLEAN)
    check(oracle, cases.BLOB_TEXTS, VARCHAR, BLOB)


def test_random_floats(oracle):
    chance = random.Random(11)
    doubles = [struct.unpack("<d", chance.randbytes(8))[0] for _ in range(100)]
    doubles = [d for d in doubles if not math.isnan(d)] + [
        round(chance.uniform(-1e6, 1e6), chance.randrange(8)) for _ in range(100)
    ]
    singles = [struct.unpack("<f", chance.randbytes(4))[0] for _ in range(200)]
    singles = [s for s in singles if not math.isnan(s)]
    check(oracle, doubles, DOUBLE, VARCHAR, BIGINT, HUGEINT, FLOAT, DECIMAL(18, 4), DECIMAL(38, 10), random_from=0)
    check(oracle, singles, FLOAT, VARCHAR, random_from=0)
    check(oracle, [repr(d) for d in doubles] + [f"{d:.25g}" for d in doubles], VARCHAR, DOUBLE, random_from=0)


@pytest.mark.parametrize(
    "source", [DECIMAL(4, 2), DECIMAL(9, 4), DECIMAL(18, 3), DECIMAL(30, 2), DECIMAL(38, 30)], ids=str
)
def test_random_decimals(oracle, source):
    chance = random.Random(source.width * 100 + source.scale)
    unscaled = [
        chance.randrange(1 - 10**source.width, 10**source.width) // 10 ** chance.randrange(source.width)
        for _ in range(60)
    ]
    texts = [
        f"{'-' if v < 0 else ''}{abs(v) // 10**source.scale}.{abs(v) % 10**source.scale:0{source.scale}d}"
        for v in unscaled
    ]
    check(
        oracle,
        [Decimal(t) for t in texts],
        source,
        VARCHAR,
        INTEGER,
        UBIGINT,
        HUGEINT,
        DOUBLE,
        FLOAT,
        DECIMAL(18, 1),
        DECIMAL(38, 8),
        DECIMAL(9, 3),
        random_from=0,
    )
    check(oracle, texts, VARCHAR, source, random_from=0)


def test_random_hugeints(oracle):
    chance = random.Random(13)
    texts = [str(chance.randrange(-(2**127), 2**127) >> chance.randrange(126)) for _ in range(80)]
    table = pa.table({"c": texts})
    oracle.register("input", table)
    targets = (INTEGER, UBIGINT, DOUBLE, FLOAT, DECIMAL(18, 1), DECIMAL(38, 8), VARCHAR)
    query = ", ".join(f"TRY_CAST(c::HUGEINT AS {target})::VARCHAR" for target in targets)
    expected = oracle.execute(f"SELECT {query} FROM input").fetchall()
    huge = Cast(Column("c", VARCHAR), HUGEINT)
    got = both(
        [*(Cast(Cast(huge, target, safe=True), VARCHAR) for target in targets[:-1]), Cast(huge, VARCHAR)],
        table,
        random_from=0,
    )
    assert list(zip(*(column.to_pylist() for column in got), strict=True)) == expected


def test_random_times(oracle):
    chance = random.Random(17)
    micros = [0, -1, 2**63 - 1, -(2**63) + 1, -9223372022400000000, None]
    days = [2**31 - 1, 1 - 2**31, None]
    edges = {TIMESTAMP: len(micros), TIMESTAMPTZ: len(micros), DATE: len(days)}
    micros += [chance.randrange(-62135596800000000, 253402300799999999) for _ in range(60)]
    micros += [chance.randrange(-9223372022400000000, 2**63 - 2) for _ in range(60)]
    days += [chance.randrange(-(2**31) + 2, 2**31 - 1) for _ in range(60)] + [
        chance.randrange(-719162, 2932896) for _ in range(60)
    ]
    check(oracle, micros, TIMESTAMP, VARCHAR, DATE, TIME, TIMESTAMPTZ, random_from=edges[TIMESTAMP])
    check(oracle, micros, TIMESTAMPTZ, VARCHAR, DATE, TIMESTAMP, random_from=edges[TIMESTAMPTZ])
    check(oracle, days, DATE, VARCHAR, TIMESTAMP, TIMESTAMPTZ, random_from=edges[DATE])
    check(oracle, [chance.randrange(0, 86_400_000_000) for _ in range(60)], TIME, VARCHAR, random_from=0)


FAILURES = [
    (300, INTEGER, TINYINT), (-1, BIGINT, UBIGINT), (2**64 - 1, UBIGINT, BIGINT), (2147483647.5, DOUBLE, INTEGER),
    (math.nan, DOUBLE, BIGINT), (1e300, DOUBLE, FLOAT), (Decimal("300.0"), DECIMAL(5, 1), TINYINT),
    (1234567, INTEGER, DECIMAL(5, 2)), (Decimal("99.95"), DECIMAL(4, 2), DECIMAL(3, 1)),
    (12345.67, DOUBLE, DECIMAL(5, 2)), ("--42", VARCHAR, INTEGER), ("-1", VARCHAR, UTINYINT),
    ("1e39", VARCHAR, HUGEINT), ("on", VARCHAR, BOOLEAN), ("1,5", VARCHAR, DOUBLE), ("99.95", VARCHAR, DECIMAL(3, 1)),
    ("é", VARCHAR, BLOB), ("\\x4", VARCHAR, BLOB), ("19920101", VARCHAR, DATE), ("1992-02-30", VARCHAR, DATE),
    ("25:00:00", VARCHAR, TIME), ("x", VARCHAR, TIMESTAMP),
    ("1992-01-01 24:00:01", VARCHAR, TIMESTAMP), ("1992-01-01 10:11:12+5", VARCHAR, TIMESTAMP),
    ("1992-01-01 10:11:12 Nowhere", VARCHAR, TIMESTAMPTZ), ("1 foo", VARCHAR, INTERVAL),
    ("1-2", VARCHAR, INTERVAL), ("99999999999 hours", VARCHAR, INTERVAL), (2**31 - 2, DATE, TIMESTAMP),
    (2**63 - 1, TIMESTAMP, TIME),
]  # fmt: skip


@pytest.mark.parametrize(("value", "source", "target"), FAILURES, ids=lambda v: str(v))
def test_failures(oracle, value, source, target):
    table = pa.table({"c": pa.array([None, value], source.to_arrow())})
    oracle.register("input", table)
    with pytest.raises(duckdb.Error) as theirs:
        oracle.execute(f"SELECT CAST(c::{source} AS {target}) FROM input").fetchall()
    expected = (
        re.sub(r"^[\w ]+ Error: ", "", str(theirs.value)).split("\n")[0].split(" when casting from source column")[0]
    )
    bench = Bench([Cast(Column("c", source), target, position=7)], table)
    for interpret in (False, True):
        with pytest.raises(ExecutionError) as ours:
            bench.run(interpret)
        assert ours.value.message == expected
        assert ours.value.position == 7
    [null] = evaluate([Cast(Column("c", source), target, safe=True)], table, interpret=True)
    assert null.to_pylist() == [None, None]


def test_can_cast_is_what_duckdb_casts(oracle):
    literals = {
        BOOLEAN: "true", SMALLINT: "1", UBIGINT: "1", DOUBLE: "1", DECIMAL(5, 2): "1", VARCHAR: None, BLOB: "'a'",
        DATE: "'2020-01-01'", TIME: "'10:00:00'", TIMESTAMP: "'2020-01-01'", TIMESTAMPTZ: "'2020-01-01'",
        INTERVAL: "'1 day'",
    }  # fmt: skip
    for source, literal in literals.items():
        for target in literals:
            if literal is None:
                assert can_cast(source, target)
                continue
            try:
                oracle.execute(f"SELECT (CAST({literal} AS {source})::{target})::VARCHAR").fetchall()
                exists = True
            except duckdb.Error as error:
                exists = "Unimplemented type for cast" not in str(error)
            assert can_cast(source, target) == exists, f"{source} to {target}"


def emitted_ops(expression: Cast, table: pa.Table) -> list[str]:
    """The names of the KIR ops of a kernel that computes the expression."""
    from tsql.kernels.emit.batch import source_columns
    from tsql.kernels.emit.pipeline import ColumnarScan, Pipeline
    from tsql.kernels.expr.types import from_arrow
    from tsql.kernels.operators.collect import Collect, OutputColumn

    arrays = [c.chunk(0) for c in table.columns]
    columns = source_columns(tuple(table.column_names), tuple(from_arrow(a.type) for a in arrays), arrays)
    program = Pipeline(ColumnarScan(columns), [], Collect((OutputColumn("c0", expression, True, True),))).emit()
    return [op.name for op in program.module.functions[program.module.main].walk()]


def test_casts_that_cannot_fail_are_not_checked():
    decimals = pa.table({"d": pa.array([Decimal("0.05")], pa.decimal128(15, 2)), "n": pa.array([1], pa.int32())})
    d, n = Column("d", DECIMAL(15, 2)), Column("n", INTEGER)
    plain = emitted_ops(d, decimals)
    assert emitted_ops(Cast(d, DECIMAL(18, 2)), decimals).count("when") == plain.count("when")
    upscaled = emitted_ops(Cast(d, DECIMAL(18, 4)), decimals)
    assert upscaled.count("mul") == plain.count("mul") + 1
    assert "call" not in upscaled or upscaled.count("call") == plain.count("call")
    assert emitted_ops(Cast(n, DECIMAL(12, 2)), decimals).count("when") == emitted_ops(n, decimals).count("when")


def test_null_literal_takes_the_type():
    [got] = both([Cast(Literal(None, VARCHAR), INTEGER)])
    assert got.to_pylist() == [None]


def test_cast_inside_arithmetic():
    table = pa.table({"d": pa.array([Decimal("0.05"), None], pa.decimal128(15, 2))})
    one = Cast(Literal(1, INTEGER), DECIMAL(16, 2))
    [got] = both([Call("-", (one, Cast(Column("d", DECIMAL(15, 2)), DECIMAL(16, 2))), DECIMAL(16, 2))], table)
    assert got.to_pylist() == [Decimal("0.95"), None]
