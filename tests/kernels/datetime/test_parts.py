"""date_part and its shortcuts against DuckDB."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.kernels.datetime.times import make_times
from tests.kernels.harness import both
from tests.kernels.oracle import call, check, col, lit
from tsql.kernels.expr.errors import BindError, ExecutionError
from tsql.kernels.expr.types import DATE, INTERVAL, TIMESTAMP, VARCHAR
from tsql.kernels.functions.datetime.parts import ALL_PARTS, CLOCK, MONTHS_PER, SHORTCUTS, ZONE_PARTS

TABLE = make_times()


def c(name):
    return col(TABLE, name)


@pytest.mark.parametrize("column", ["d", "ts", "tz"])
def test_parts_of_dates_and_timestamps(column):
    check(
        [
            (f"date_part('{part}', {column})", call("date_part", lit(part), c(column)))
            for part in ALL_PARTS
            if column != "d" or part not in ZONE_PARTS
        ],
        TABLE,
    )


def test_parts_of_times_and_intervals():
    pairs = [
        (f"date_part('{part}', tm)", call("date_part", lit(part), c("tm"))) for part in ("epoch", *CLOCK, *ZONE_PARTS)
    ]
    pairs += [
        (f"date_part('{part}', iv)", call("date_part", lit(part), c("iv")))
        for part in ("epoch", "month", "quarter", "day", *MONTHS_PER, *CLOCK)
    ]
    check(pairs, TABLE)


@pytest.mark.parametrize("column", ["d", "ts"])
def test_shortcuts(column):
    check(
        [(f"{name}({column})", call(name, c(column))) for name in SHORTCUTS if column != "d" or name not in ZONE_PARTS],
        TABLE,
    )


def test_parts_of_infinity_are_null():
    infinite = [
        call("date_part", lit("year"), lit(2**31 - 1, DATE)),
        call("date_part", lit("epoch"), lit(-(2**63) + 1, TIMESTAMP)),
        call("month", lit(2**63 - 1, TIMESTAMP)),
    ]
    assert [a.to_pylist() for a in both(infinite)] == [[None], [None], [None]]


def test_a_part_from_a_column():
    table = pa.table(
        {
            "p": ["year", "MONTH", "epoch", None, "doy"],
            "ts": pa.array([10**15, 10**15 + 1, 10**15 + 500_000, 0, None], pa.int64()).cast(pa.timestamp("us")),
        }
    )
    check([("date_part(p, ts)", call("date_part", col(table, "p"), col(table, "ts")))], table)


def test_bad_parts():
    with pytest.raises(BindError, match='extract specifier "foo" not recognized'):
        call("date_part", lit("foo"), c("d"))
    with pytest.raises(BindError, match='"interval" units "doy" not recognized'):
        both([call("date_part", lit("doy"), lit((0, 1, 0), INTERVAL))])
    with pytest.raises(ExecutionError, match='extract specifier "foo" not recognized'):
        table = pa.table({"p": pa.array(["foo"]), "d": pa.array([0], pa.int32()).cast(pa.date32())})
        both([call("date_part", col(table, "p"), col(table, "d"))], table)
    assert both([call("date_part", lit(None, VARCHAR), lit(0, DATE))])[0].to_pylist() == [None]
