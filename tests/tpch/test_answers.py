"""Answers of TPC-H: what counts as the same, as the same order, and what a report of a difference says."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tsql.tpch.answers import TIES, differences, same, without_limit
from tsql.tpch.check import tables_of
from tsql.tpch.queries import NUMBERS, query

MONEY = pa.decimal128(38, 4)


@pytest.mark.parametrize(
    ("expected", "found", "equal"),
    [
        (1, 1, True),
        (1, Decimal("1.00"), True),
        (None, None, True),
        (None, 0, False),
        (0.0, None, False),
        ("a", "a", True),
        ("a", "A", False),
        (date(1995, 1, 1), date(1995, 1, 1), True),
        (Decimal("10.10"), Decimal("10.1000"), True),
        (Decimal("10.10"), Decimal("10.11"), False),  # decimals are exact, however near
        (Decimal("123456789012345678901234.01"), Decimal("123456789012345678901234.02"), False),
        (1e12, 1e12 + 1, True),
        (1.0, 1.000001, False),
        (float("nan"), float("nan"), True),
        (float("nan"), 1.0, False),
        (0.333333333, Decimal("0.333333"), True),  # an engine's decimal for DuckDB's double: one unit in its last place
        (0.333333333, Decimal("0.333331"), False),
        (0.5, "0.5", False),
    ],
)
def test_same_value(expected: Any, found: Any, equal: bool) -> None:
    assert same(expected, found) is equal


def answer(rows: list[tuple[int, str]]) -> pa.Table:
    """Query 3's shape, with two of its columns."""
    keys, revenues = zip(*rows)
    return pa.table(
        {
            "l_orderkey": keys,
            "revenue": pa.array([Decimal(r) for r in revenues], MONEY),
            "o_orderdate": [date(1995, 1, 1)] * len(rows),
        }
    )


EXPECTED = answer([(1, "9.0000"), (2, "8.0000"), (3, "8.0000"), (4, "7.0000"), (5, "7.0000")])
WHOLE = answer(
    [(1, "9.0000"), (2, "8.0000"), (3, "8.0000"), (4, "7.0000"), (5, "7.0000"), (6, "7.0000"), (7, "6.0000")]
)


def compare(found: pa.Table, number: int = 3) -> list[str]:
    return differences(number, EXPECTED, found, types=True, unlimited=lambda: WHOLE)


def test_tied_rows_come_in_any_order() -> None:
    found = EXPECTED.take([0, 2, 1, 4, 3])
    assert compare(found) == []
    assert compare(found, number=1)[0] == "row 2, column l_orderkey: 3, expected 2", (
        "an order that is total must be kept"
    )


def test_order_of_keys() -> None:
    assert compare(EXPECTED.take([1, 0, 2, 3, 4])) == [
        "row 1, column revenue: 8.0000, expected 9.0000",
        "row 2, column revenue: 9.0000, expected 8.0000",
    ]


def test_rows_that_tie_for_the_last_place() -> None:
    assert compare(answer([(1, "9"), (2, "8"), (3, "8"), (6, "7"), (4, "7")])) == []
    wrong = compare(answer([(1, "9"), (2, "8"), (3, "8"), (4, "7"), (99, "7")]))
    assert wrong == ["row (99, 7.0000, 1995-01-01) ties for the last places and is not in the answer without LIMIT"]
    assert compare(answer([(1, "9"), (2, "8"), (3, "8"), (4, "7"), (4, "7")])), "the same row twice"


def test_rows_that_tie_before_the_last_place_are_fixed() -> None:
    assert compare(answer([(1, "9"), (2, "8"), (6, "8"), (4, "7"), (5, "7")])) == [
        "row 3, column l_orderkey: 6, expected 3"
    ]


def test_shape() -> None:
    assert compare(EXPECTED.slice(0, 4)) == ["4 rows, expected 5"]
    assert compare(EXPECTED.rename_columns(["k", "revenue", "o_orderdate"])) == [
        "columns are k, revenue, o_orderdate, expected l_orderkey, revenue, o_orderdate"
    ]
    wide = EXPECTED.set_column(1, "revenue", EXPECTED["revenue"].cast(pa.decimal256(40, 4)))
    assert compare(wide) == ["column revenue has type decimal256(40, 4), expected decimal128(38, 4)"]
    assert differences(3, EXPECTED, wide, types=False) == []
    nothing = EXPECTED.slice(0, 0)
    assert differences(3, nothing, nothing, types=True) == []


def test_long_reports_are_cut() -> None:
    left, right = pa.table({"x": range(20)}), pa.table({"x": range(1, 21)})
    report = differences(1, left, right, types=True)
    assert report[0] == "row 1, column x: 1, expected 0" and report[-1] == "and 15 more values" and len(report) == 6


def test_queries_whose_order_can_tie() -> None:
    """The columns are those of the text's last ORDER BY."""
    for number, columns in TIES.items():
        order = query(number).rpartition("ORDER BY ")[2].partition("\n")[0]
        assert tuple(part.split()[0] for part in order.split(", ")) == columns


def test_limit() -> None:
    limited = {number for number in NUMBERS if without_limit(query(number)) is not None}
    assert limited == {2, 3, 10, 18, 21}
    assert without_limit(query(3)).endswith("ORDER BY revenue DESC, o_orderdate")


def test_tables_of_a_query() -> None:
    assert tables_of(query(1)) == ["lineitem"]
    assert tables_of(query(13)) == ["customer", "orders"]
    assert tables_of(query(16)) == ["supplier", "part", "partsupp"]
    assert len(tables_of(query(8))) == 7
