"""Joins in time of the references: worked out by hand, and against DuckDB where it has the construct."""

from __future__ import annotations

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from tests.duck import empty_duckdb
from tests.temporal.data import (
    ALL_SHAPES,
    assert_same_rows,
    event_tables,
    events,
    periods,
    repeatable,
    selected,
    shuffled,
    to_rows,
)
from tests.temporal.reference.joins import as_of, asof_join, band_join, join_as_of
from tests.temporal.reference.rows import SECOND, Rows, equal

K = equal("k")
SHAPES = pytest.mark.parametrize("shape", ALL_SHAPES)
INEQUALITIES = pytest.mark.parametrize("inequality", [">=", ">", "<=", "<"])


def duck(sql: str, **tables: pa.Table) -> pa.Table:
    with empty_duckdb() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(sql).to_arrow_table()


def trades(*times: int | None, k: str | None = "a") -> Rows:
    return [{"k": k, "t": time} for time in times]


def quotes(*quoted: tuple[int | None, str], k: str | None = "a") -> Rows:
    return [{"k": k, "q": time, "bid": bid} for time, bid in quoted]


def right_of(rows: Rows) -> Rows:
    """The right side with names of its own."""
    return [{"k": row["k"], "rid": row["id"], "rts": row["ts"]} for row in rows]


def bids(rows: Rows) -> list[tuple[int, str | None]]:
    return [(row["t"], row["bid"]) for row in rows]


def test_asof() -> None:
    """Quotes at 1, 5 and 9. A trade at 5 takes the quote at 5 with >=, that at 1 with >; forwards it takes 5 with <=
    and 9 with <."""
    left, right = trades(5), quotes((9, "z"), (1, "x"), (5, "y"))
    answers = {">=": "y", ">": "x", "<=": "y", "<": "z"}
    assert {inequality: asof_join(left, right, K, "t", "q", inequality)[0]["bid"] for inequality in answers} == answers
    assert bids(asof_join(trades(0, 1, 10), right, K, "t", "q")) == [(1, "x"), (10, "z")]
    assert bids(asof_join(trades(0, 1, 10), right, K, "t", "q", outer=("q", "bid"))) == [(0, None), (1, "x"), (10, "z")]


def test_asof_ties_go_to_the_last() -> None:
    right = quotes((5, "first"), (5, "second"), (4, "older"), (5, "third"), (4, "older still"))
    assert [bids(asof_join(trades(5), right, K, "t", "q", inequality)) for inequality in (">=", "<=")] == [
        [(5, "third")]
    ] * 2
    assert bids(asof_join(trades(5), right, K, "t", "q", ">")) == [(5, "older still")]


def test_asof_tolerance_is_inclusive() -> None:
    right = quotes((0, "x"))
    assert bids(asof_join(trades(3, 4), right, K, "t", "q", tolerance=3, outer=("q", "bid"))) == [(3, "x"), (4, None)]
    assert bids(asof_join(trades(-3, -4), right, K, "t", "q", "<=", tolerance=3)) == [(-3, "x")]


def test_asof_nulls() -> None:
    """No NULL time and no NULL key matches; the left row stays in the LEFT join."""
    assert asof_join(trades(None), quotes((1, "x")), K, "t", "q") == []
    assert bids(asof_join(trades(5), quotes((None, "n"), (1, "x")), K, "t", "q")) == [(5, "x")]
    assert asof_join(trades(5, k=None), quotes((1, "x"), k=None), K, "t", "q") == []
    assert bids(asof_join(trades(None), quotes((1, "x")), K, "t", "q", outer=("q", "bid"))) == [(None, None)]


def test_band() -> None:
    """From 1 before to 2 after, both included."""
    left = [{"k": 1, "a": 10}, {"k": 2, "a": 10}, {"k": 1, "a": None}]
    right = [{"k": 1, "b": time} for time in (8, 9, 10, 12, 13, None)]
    assert [(row["a"], row["b"]) for row in band_join(left, right, K, "a", "b", -1, 2)] == [(10, 9), (10, 10), (10, 12)]


def test_as_of() -> None:
    """Rates [0, 5), [5, open), one without a start, and one that ends where it starts. The end is not included."""
    rates = [
        {"k": 1, "rate": rate, "vs": start, "ve": end}
        for rate, start, end in ((10, 0, 5), (11, 5, None), (12, None, 9), (13, 4, 4))
    ]
    assert [[row["rate"] for row in as_of(rates, instant)] for instant in (-1, 0, 4, 5, 100, None)] == [
        [],
        [10],
        [10],
        [11],
        [11],
        [],
    ]
    orders = [{"k": 1, "ts": 4}, {"k": 1, "ts": -1}, {"k": 2, "ts": 4}]
    assert [row["rate"] for row in join_as_of(orders, rates, K, "ts")] == [10]
    assert [row["rate"] for row in join_as_of(orders, rates, K, "ts", outer=("rate", "vs", "ve"))] == [10, None, None]


@SHAPES
@INEQUALITIES
@pytest.mark.parametrize("kind", ["", "LEFT"])
@pytest.mark.in_turn(2)
def test_asof_against_duckdb(shape: str, inequality: str, kind: str) -> None:
    """DuckDB does not say which of several equal times it takes, so the right side has each time once."""
    left, right = events(shape), events(shape, seed=1)
    once = {(row["k"], row["ts"]): row for row in to_rows(right)}
    unique = right.filter(
        pa.array([row["id"] in {one["id"] for one in once.values()} for row in to_rows(right)], pa.bool_())
    )
    sql = f"SELECT l.id, r.id AS rid FROM l ASOF {kind} JOIN r ON l.k = r.k AND l.ts {inequality} r.ts"
    ours = asof_join(
        to_rows(left), right_of(to_rows(unique)), K, "ts", "rts", inequality, outer=("rid", "rts") if kind else None
    )
    assert_same_rows(selected(ours, "id", "rid"), duck(sql, l=left, r=unique))


@SHAPES
@INEQUALITIES
@pytest.mark.parametrize("tolerance", [None, 2 * SECOND])
@pytest.mark.in_turn(2)
def test_asof_by_row_number(shape: str, inequality: str, tolerance: int | None) -> None:
    """All pairs that match, numbered by their distance and, where it is equal, from the last right row backwards."""
    left, right = events(shape), events(shape, seed=2)
    near = "" if tolerance is None else f"AND abs(epoch_us(l.ts) - epoch_us(r.ts)) <= {tolerance}"
    sql = f"""SELECT l.id AS id, r.id AS rid FROM l JOIN r ON l.k = r.k AND l.ts {inequality} r.ts {near}
              QUALIFY row_number() OVER (PARTITION BY l.id
                                            ORDER BY abs(epoch_us(l.ts) - epoch_us(r.ts)), r.id DESC) = 1"""
    ours = asof_join(to_rows(left), right_of(to_rows(right)), K, "ts", "rts", inequality, tolerance)
    assert_same_rows(selected(ours, "id", "rid"), duck(sql, l=left, r=right))


@SHAPES
def test_band_against_duckdb(shape: str) -> None:
    left, right = events(shape), events(shape, seed=3)
    sql = (
        "SELECT l.id, r.id AS rid FROM l JOIN r ON l.k = r.k AND r.ts BETWEEN l.ts - INTERVAL '1 second' AND "
        "l.ts + INTERVAL '4 seconds'"
    )
    ours = band_join(to_rows(left), right_of(to_rows(right)), K, "ts", "rts", -SECOND, 4 * SECOND)
    assert_same_rows(selected(ours, "id", "rid"), duck(sql, l=left, r=right))


@SHAPES
@pytest.mark.parametrize("kind", ["", "LEFT"])
def test_as_of_against_duckdb(shape: str, kind: str) -> None:
    left, right = events(shape), periods(shape, seed=4)
    sql = (
        f"SELECT l.id, r.id AS rid FROM l {kind} JOIN r ON l.k = r.k AND r.vs <= l.ts AND (l.ts < r.ve OR r.ve IS NULL)"
    )
    rates = [{"k": row["k"], "rid": row["id"], "vs": row["vs"], "ve": row["ve"]} for row in to_rows(right)]
    ours = join_as_of(to_rows(left), rates, K, "ts", outer=("rid", "vs", "ve") if kind else None)
    assert_same_rows(selected(ours, "id", "rid"), duck(sql, l=left, r=right))


@repeatable(60)
@hypothesis.given(event_tables(max_rows=12), event_tables(max_rows=12), st.sampled_from([">=", ">", "<=", "<"]))
def test_asof_does_not_depend_on_order(left: pa.Table, right: pa.Table, inequality: str) -> None:
    """As long as right rows of equal key and time stay in their order. A tolerance of for ever is none."""
    expected = asof_join(to_rows(left), right_of(to_rows(right)), K, "ts", "rts", inequality)
    mixed = asof_join(
        to_rows(shuffled(left, 1)), right_of(to_rows(shuffled(right, 2, keep=("k", "ts")))), K, "ts", "rts", inequality
    )
    assert_same_rows(mixed, expected)
    assert_same_rows(
        asof_join(to_rows(left), right_of(to_rows(right)), K, "ts", "rts", inequality, tolerance=2**62), expected
    )
    assert len({row["id"] for row in expected}) == len(expected)
