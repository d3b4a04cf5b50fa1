"""Snapshot semantics of the references: worked out by hand, the example of Trill's paper, DuckDB, and the definition
itself at every instant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import hypothesis
import pyarrow as pa
import pytest

from tests.duck import empty_duckdb
from tests.temporal.data import ALL_SHAPES, assert_same_rows, period_tables, periods, repeatable, to_rows
from tests.temporal.reference.lifetimes import always, content, lifetime, points, slide
from tests.temporal.reference.rows import (
    MINUTE,
    On,
    Row,
    Rows,
    count,
    distinct_count,
    equal,
    greatest,
    group_by,
    total,
    us,
)
from tests.temporal.reference.snapshot import (
    aggregate,
    alive_at,
    anti_join,
    clip_join,
    coalesce,
    distinct,
    elementary,
    except_all,
    except_distinct,
    full_join,
    inner_join,
    intersect_all,
    intersect_distinct,
    left_join,
    per_snapshot,
    same_snapshots,
    semi_join,
    union_all,
    union_distinct,
)

K = equal("k")


def rel(*rows: tuple[object, int, int | None], names: tuple[str, ...] = ("k",)) -> Rows:
    """Rows of (values .., start, end)."""
    return [dict(zip((*names, "valid_from", "valid_to"), row)) for row in rows]


def listed(rows: Rows) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in rows), key=repr)


def test_elementary() -> None:
    """Ends at 0, 3, 5, 8 and an open one: [0, 3) [3, 5) [5, 8) [8, ..)."""
    assert elementary(rel(("a", 0, 5), ("b", 3, 8)), rel(("c", 8, None))) == [(0, 3), (3, 5), (5, 8), (8, None)]
    assert elementary(rel(("a", 0, 5))) == [(0, 5)]
    assert elementary([]) == []


def test_count() -> None:
    """a: [0, 5) and [3, 8) give 1, 2, 1. b: [1, 4) and [4, 6) meet: the count stays 1 and is one row. Nothing lives in
    [8, 9)."""
    rows = rel(("a", 0, 5), ("a", 3, 8), ("b", 1, 4), ("b", 4, 6), ("a", 9, None))
    assert listed(aggregate(rows, ("k",), n=count)) == [
        ("a", 1, 0, 3),
        ("a", 1, 5, 8),
        ("a", 1, 9, None),
        ("a", 2, 3, 5),
        ("b", 1, 1, 6),
    ]
    assert listed(aggregate(rows, (), n=count)) == [(1, 0, 1), (1, 6, 8), (1, 9, None), (2, 1, 3), (2, 5, 6), (3, 3, 5)]


def test_results_that_do_not_change_are_one_row() -> None:
    """max stays 7 when the 3 comes and goes; the sum does not."""
    rows = rel(("a", 7, 0, 9), ("a", 3, 2, 4), names=("k", "v"))
    assert listed(aggregate(rows, ("k",), high=greatest("v"))) == [("a", 7, 0, 9)]
    assert listed(aggregate(rows, ("k",), total=total("v"))) == [("a", 10, 2, 4), ("a", 7, 0, 2), ("a", 7, 4, 9)]


def test_trill_example() -> None:
    """Section 2 of Trill's paper: clicks per ad over the last 5 minutes, for users whose number ends in 00 .. 04.

    Ad 1 is clicked at 0, 2 and 7 minutes by users of the sample (and at 3 by user 17, who is not), ad 2 at 1 minute. Ad
    1: one click from 0, two from 2, one from 5 (the first has left), at 7 the second leaves as the third comes: still
    one, until 12."""
    clicks = [(0, 100, 1), (2, 204, 1), (3, 17, 1), (7, 3, 1), (1, 301, 2)]
    rows = [{"click_time": minute * MINUTE, "user_id": user, "ad_id": ad} for minute, user, ad in clicks]
    sample = [row for row in rows if row["user_id"] % 100 < 5]
    result = aggregate(slide(sample, "click_time", 5 * MINUTE), ("ad_id",), n=count)
    in_minutes = [(row["ad_id"], row["n"], row["valid_from"] // MINUTE, row["valid_to"] // MINUTE) for row in result]
    assert sorted(in_minutes) == [(1, 1, 0, 2), (1, 1, 5, 12), (1, 2, 2, 5), (2, 1, 1, 6)]


def test_joins() -> None:
    """Orders a [0, 10) and b [0, 10); rates for a: 5 in [2, 4), 6 in [4, 7). b has none, and c has no order."""
    orders = rel(("a", 0, 10), ("b", 0, 10))
    rates = rel(("a", 5, 2, 4), ("a", 6, 4, 7), ("c", 9, 0, None), names=("r", "rate"))
    on: On = lambda order, rate: order["k"] == rate["r"]
    pairs = [("a", 2, 4, "a", 5), ("a", 4, 7, "a", 6)]
    assert listed(inner_join(orders, rates, on)) == pairs
    padded = [("a", 0, 2, None, None), ("a", 7, 10, None, None), ("b", 0, 10, None, None)]
    assert listed(left_join(orders, rates, on, ("r", "rate"))) == sorted(pairs + padded, key=repr)
    alone = [(None, "c", 9, 0, None)]
    full = full_join(orders, rates, on, ("k",), ("r", "rate"))
    assert (
        listed(full[: len(pairs) + len(padded)]) == sorted(pairs + padded, key=repr)
        and listed(full[len(pairs) + len(padded) :]) == alone
    )
    assert listed(semi_join(orders, rates, on)) == [("a", 2, 7)]
    assert listed(anti_join(orders, rates, on)) == [("a", 0, 2), ("a", 7, 10), ("b", 0, 10)]


def test_an_untimed_relation_is_alive_always() -> None:
    names = always([{"k": "a", "name": "Anna"}])
    assert listed(inner_join(rel(("a", 0, None), ("b", 0, 5)), names, K)) == [("a", 0, None, "Anna")]
    assert listed(anti_join(rel(("a", 0, None), ("b", 0, 5)), names, K)) == [("b", 0, 5)]


def test_null_keys_match_nothing() -> None:
    left = right = rel((None, 0, 5))
    assert inner_join(left, right, K) == semi_join(left, right, K) == []
    assert anti_join(left, right, K) == left
    assert listed(aggregate(left + right, ("k",), n=count)) == [(None, 2, 0, 5)]


def test_anti_join_splits() -> None:
    """A session [0, 20) with purchases in [3, 5), [4, 8), [8, 9) and [15, 30): what is left is [0, 3) and [9, 15)."""
    purchases = rel(("a", 3, 5), ("a", 4, 8), ("a", 8, 9), ("a", 15, 30))
    assert listed(anti_join(rel(("a", 0, 20)), purchases, K)) == [("a", 0, 3), ("a", 9, 15)]
    assert listed(semi_join(rel(("a", 0, 20)), purchases, K)) == [("a", 15, 20), ("a", 3, 9)]
    assert listed(anti_join(rel(("a", 0, None)), rel(("a", 2, None)), K)) == [("a", 0, 2)]
    assert anti_join(rel(("a", 3, None)), rel(("a", 2, None)), K) == []


def test_clip_join() -> None:
    """A login at 0 ends at the logout at 5, not at the one at 0, which is no later than it; one at 6 has no later
    logout."""
    logouts = rel(("a", 5, None), ("a", 0, None), ("a", 9, None), ("b", 1, None))
    assert listed(clip_join(rel(("a", 0, None), ("a", 9, None), ("a", 2, 4)), logouts, K)) == [
        ("a", 0, 5),
        ("a", 2, 4),
        ("a", 9, None),
    ]


def test_set_operations() -> None:
    left, right = rel(("a", 0, 5), ("a", 3, 8), ("b", 0, 2)), rel(("a", 4, 6), ("c", 1, 2))
    assert listed(distinct(left)) == [("a", 0, 8), ("b", 0, 2)]
    assert listed(union_all(left, right)) == listed(left + right)
    assert listed(union_distinct(left, right)) == [("a", 0, 8), ("b", 0, 2), ("c", 1, 2)]
    assert listed(intersect_distinct(left, right)) == [("a", 4, 6)]
    assert listed(except_distinct(left, right)) == [("a", 0, 4), ("a", 6, 8), ("b", 0, 2)]
    assert listed(intersect_all(left, right)) == [("a", 4, 6)]
    # Copies of a: 1 in [0, 3), 2 in [3, 5), 1 in [5, 8); less one in [4, 6): 1, 2 in [3, 4), 1 in [4, 5), 0 in [5, 6),
    # 1 in [6, 8).
    assert listed(except_all(left, right)) == [("a", 0, 5), ("a", 3, 4), ("a", 6, 8), ("b", 0, 2)]


def test_top_k_per_snapshot() -> None:
    """Any function of plain rows can be evaluated per snapshot: the two largest."""
    rows = rel((1, 0, 9), (5, 2, 4), (7, 3, None), names=("v",))
    top = coalesce(per_snapshot(lambda living: sorted(living, key=lambda row: -row["v"])[:2], rows))
    assert listed(top) == [(1, 0, 3), (1, 4, 9), (5, 2, 4), (7, 3, None)]


def test_coalesce_merges_what_overlaps() -> None:
    assert listed(coalesce(rel(("a", 0, 5), ("a", 3, 4), ("a", 5, 6), ("a", 8, None), ("a", 9, 12), ("b", 5, 6)))) == [
        ("a", 0, 6),
        ("a", 8, None),
        ("b", 5, 6),
    ]


def test_points_count_equal_times() -> None:
    rows = points([{"k": 1, "ts": us("12:00")}, {"k": 1, "ts": us("12:00")}], "ts")
    assert listed([{"n": row["n"], "valid_to": row["valid_to"]} for row in aggregate(rows, (), n=count)]) == [
        (2, us("12:00") + 1)
    ]


SQL = """
WITH alive AS (SELECT k, v, vs, coalesce(ve, TIMESTAMP 'infinity') AS ve FROM periods
               WHERE vs IS NOT NULL AND (ve IS NULL OR vs < ve)),
     cuts AS (SELECT vs AS t FROM alive UNION SELECT ve FROM alive),
     spans AS (SELECT t AS valid_from, lead(t) OVER (ORDER BY t) AS valid_to FROM cuts)
SELECT k, count(*) AS n, sum(v)::BIGINT AS total, max(v) AS high, count(DISTINCT v) AS kinds,
       valid_from, CASE WHEN valid_to < TIMESTAMP 'infinity' THEN valid_to END AS valid_to
FROM spans JOIN alive ON vs <= valid_from AND valid_from < ve WHERE valid_from < TIMESTAMP 'infinity'
GROUP BY k, valid_from, valid_to
"""
JOIN = """
SELECT l.id AS id, r.id AS id_1, greatest(l.vs, r.vs) AS valid_from,
       CASE WHEN l.ve IS NULL THEN r.ve WHEN r.ve IS NULL THEN l.ve ELSE least(l.ve, r.ve) END AS valid_to
FROM periods l JOIN others r ON l.k = r.k AND l.vs < coalesce(r.ve, TIMESTAMP 'infinity')
 AND r.vs < coalesce(l.ve, TIMESTAMP 'infinity')
WHERE (l.ve IS NULL OR l.vs < l.ve) AND (r.ve IS NULL OR r.vs < r.ve)
"""


@pytest.mark.parametrize("shape", ALL_SHAPES)
def test_against_duckdb(shape: str) -> None:
    """Aggregates over the intervals between neighbouring ends, and the join by overlap, as one writes them in plain
    SQL."""
    table, other = periods(shape), periods(shape, seed=1)
    with empty_duckdb() as connection:
        connection.register("periods", table)
        connection.register("others", other)
        aggregated, joined = connection.sql(SQL).to_arrow_table(), connection.sql(JOIN).to_arrow_table()
    rows, more = (lifetime(to_rows(side), "vs", end="ve") for side in (table, other))
    functions = {"n": count, "total": total("v"), "high": greatest("v"), "kinds": distinct_count("v")}
    assert_same_rows(per_snapshot(lambda living: group_by(living, ("k",), **functions), rows), aggregated)
    assert same_snapshots(aggregate(rows, ("k",), **functions), to_rows(aggregated))
    right = [
        {"k": row["k"], "id_1": row["id"], "valid_from": row["valid_from"], "valid_to": row["valid_to"]} for row in more
    ]
    pairs = inner_join(rows, right, K)
    assert_same_rows([{name: row[name] for name in ("id", "id_1", "valid_from", "valid_to")} for row in pairs], joined)


def plain_join(left: Rows, right: Rows, on: On, pad_left: bool = False, pad_right: bool = False) -> Rows:
    pairs = [one | other for one in left for other in right if on(one, other)]
    if pad_left:
        pairs += [one | {"r": None, "w": None} for one in left if not any(on(one, other) for other in right)]
    if pad_right:
        pairs += [{"k": None, "v": None} | other for other in right if not any(on(one, other) for one in left)]
    return pairs


def multiset(operation: Callable[[Counter, Counter], Counter]) -> Callable[[Rows, Rows], Rows]:
    return lambda one, other: [
        dict(row) for row in operation(Counter(map(content, one)), Counter(map(content, other))).elements()
    ]


def on_r(one: Row, other: Row) -> bool:
    return one["k"] is not None and one["k"] == other["r"]


PLAIN: dict[str, tuple[Callable[[Rows, Rows], Rows], Callable[[Rows, Rows], Rows]]] = {
    "inner": (lambda a, b: inner_join(a, b, on_r), lambda a, b: plain_join(a, b, on_r)),
    "left": (lambda a, b: left_join(a, b, on_r, ("r", "w")), lambda a, b: plain_join(a, b, on_r, True)),
    "full": (
        lambda a, b: full_join(a, b, on_r, ("k", "v"), ("r", "w")),
        lambda a, b: plain_join(a, b, on_r, True, True),
    ),
    "semi": (
        lambda a, b: semi_join(a, b, on_r),
        lambda a, b: [one for one in a if any(on_r(one, other) for other in b)],
    ),
    "anti": (
        lambda a, b: anti_join(a, b, on_r),
        lambda a, b: [one for one in a if not any(on_r(one, other) for other in b)],
    ),
}
SETS: dict[str, tuple[Callable[[Rows, Rows], Rows], Callable[[Rows, Rows], Rows]]] = {
    "union all": (union_all, lambda a, b: a + b),
    "union": (union_distinct, lambda a, b: [dict(row) for row in dict.fromkeys(map(content, a + b))]),
    "intersect all": (intersect_all, multiset(lambda a, b: a & b)),
    "intersect": (intersect_distinct, lambda a, b: [dict(row) for row in set(map(content, a)) & set(map(content, b))]),
    "except all": (except_all, multiset(lambda a, b: a - b)),
    "except": (except_distinct, lambda a, b: [dict(row) for row in set(map(content, a)) - set(map(content, b))]),
}


@repeatable(60)
@hypothesis.given(period_tables(max_rows=8), period_tables(max_rows=8))
def test_every_operator_is_the_plain_one_at_every_instant(one: pa.Table, other: pa.Table) -> None:
    """The definition: what is alive of the result is the plain operator over what is alive of the inputs. Ends of
    results are ends of inputs."""
    left = [_kept(row, "k", "v") for row in lifetime(to_rows(one), "vs", end="ve")]
    same = [_kept(row, "k", "v") for row in lifetime(to_rows(other), "vs", end="ve")]
    right = [
        {"r": row["k"], "w": row["v"], "valid_from": row["valid_from"], "valid_to": row["valid_to"]} for row in same
    ]
    for operators, second in ((PLAIN, right), (SETS, same)):
        for name, (temporal, plain) in operators.items():
            result = temporal(left, second)
            expected = per_snapshot(plain, left, second)
            for start, _ in elementary(left, second, result):
                found, wanted = (
                    Counter(frozenset(row.items()) for row in alive_at(side, start)) for side in (result, expected)
                )
                assert found == wanted, f"{name} at {start}"
    assert same_snapshots(
        aggregate(left, ("k",), n=count), per_snapshot(lambda living: group_by(living, ("k",), n=count), left)
    )


@repeatable(60)
@hypothesis.given(period_tables(max_rows=10))
def test_coalesced_rows_are_maximal(table: pa.Table) -> None:
    rows = [_kept(row, "k", "v") for row in lifetime(to_rows(table), "vs", end="ve")]
    once = distinct(rows)
    assert listed(distinct(once)) == listed(once)
    ends = {(content(row), row["valid_to"]) for row in once}
    assert not any((content(row), row["valid_from"]) in ends for row in once)


def _kept(row: Row, *names: str) -> Row:
    return {name: row[name] for name in (*names, "valid_from", "valid_to")}
