"""Snapshot aggregates: every way in which a kernel follows the rows that are alive, against the reference over random
lifetimes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from tests.temporal.data import (
    EVENTS,
    NOON,
    SECOND,
    assert_same_rows,
    batches,
    event_tables,
    repeatable,
    shuffled,
    to_rows,
    to_table,
)
from tests.temporal.live.lives import CONFIGURATIONS, ask
from tests.temporal.reference.lifetimes import lifetime
from tests.temporal.reference.rows import Rows, count, distinct_count, greatest, least, median, total, values
from tests.temporal.reference.snapshot import aggregate
from tests.temporal.test_window_order import ORDERED

SOURCES: dict[str, tuple[str, Callable[[Rows], Rows]]] = {
    "in_order": ("SLIDE(events, ts, INTERVAL '4 seconds')", lambda rows: lifetime(rows, "ts", duration=4 * SECOND)),
    "none": ("LIFETIME(events, start => ts)", lambda rows: lifetime(rows, "ts")),
    "any": (
        "LIFETIME(events, start => ts, duration => (id % 7) * INTERVAL '1 second')",
        lambda rows: lifetime(rows, "ts", duration=lambda row: row["id"] % 7 * SECOND),
    ),
}
"""A source for each thing that may be known of ends."""


def average(column: str) -> Callable[[Rows], float | None]:
    return lambda rows: (
        sum(map(float, values(rows, column))) / len(values(rows, column)) if values(rows, column) else None
    )


AGGREGATES: dict[str, Callable[[Rows], Any]] = {
    "count(*)": count,
    "count(v)": lambda rows: len(values(rows, "v")),
    "count(*) FILTER (WHERE v > 0)": lambda rows: sum(1 for row in rows if row["v"] is not None and row["v"] > 0),
    "sum(v)::BIGINT": total("v"),
    "sum(v) FILTER (WHERE x IS NULL)::BIGINT": lambda rows: total("v")([row for row in rows if row["x"] is None]),
    "avg(v)": average("v"),
    "min(v)": least("v"),
    "max(v)": greatest("v"),
    "max(name)": greatest("name"),
    "min(name)": least("name"),
    "max(v) FILTER (WHERE x > 0)": lambda rows: greatest("v")(
        [row for row in rows if row["x"] is not None and row["x"] > 0]
    ),
    "sum(x)": total("x"),
    "avg(x)": average("x"),
    "bool_or(v > 3)": lambda rows: any(value > 3 for value in values(rows, "v")) if values(rows, "v") else None,
    "count(DISTINCT v)": distinct_count("v"),
    "median(x)": median("x"),
    **ORDERED,
}
"""Halves and quarters have exact sums, whatever their order."""


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("call", AGGREGATES)
@pytest.mark.in_turn(3)
def test_aggregates(source: str, call: str) -> None:
    rng = random.Random(f"{source} {call}")
    made: Rows = []
    for place in range(70):
        time = None if rng.random() < 0.05 else NOON + rng.randrange(40) * SECOND // 2
        about = {
            "k": rng.choice((None, 1, 2)),
            "name": rng.choice((None, "a", "bb", "a longer name than fits a view")),
            "v": rng.choice((None, *range(-3, 6))),
        }
        made.append({"id": place, **about, "x": rng.choice((None, 0.5, -2.0, 0.25)), "ts": time})
    check(source, call, to_table(made, EVENTS))


def test_random_tables(pytestconfig: pytest.Config) -> None:
    @repeatable(25 if pytestconfig.getoption("--all-configurations") else 13)
    @hypothesis.given(
        event_tables(),
        st.sampled_from(sorted(SOURCES)),
        st.sampled_from(sorted(AGGREGATES)),
        st.sampled_from(sorted(set(CONFIGURATIONS) - {"interp"})),
    )
    def look(table: pa.Table, source: str, call: str, configuration: str) -> None:
        check(source, call, table, configuration)

    look()


def check(source: str, call: str, table: pa.Table, configuration: str = "shards_2") -> None:
    text, living = SOURCES[source]
    rows = living(to_rows(table))
    for keys in (("k",), ()):
        shown = "".join(f"{key}, " for key in keys)
        sql = f"SELECT {shown}{call} AS result FROM {text}" + (" GROUP BY k" if keys else "")
        assert_same_rows(
            ask(sql, {"events": table}, configuration=configuration), aggregate(rows, keys, result=AGGREGATES[call])
        )


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_input_order(configuration: str) -> None:
    """The rows of a snapshot are in the order of the input, also where they pass joins: those of one lifetime, and
    those that start later but come first."""
    rows = [
        {"id": 0, "k": 1, "s": 2, "e": 4},
        {"id": 1, "k": 1, "s": 2, "e": 4},
        {"id": 2, "k": 2, "s": 3, "e": 5},
        {"id": 3, "k": 2, "s": 1, "e": 5},
    ]
    table = to_table(
        rows, pa.schema([("id", pa.int64()), ("k", pa.int64()), ("s", pa.timestamp("us")), ("e", pa.timestamp("us"))])
    )
    calls = "first(id) AS f, last(id) AS l, string_agg(id::VARCHAR, ',') AS s, mode(id) AS m, arg_max(id, k) AS a"
    found = ask(
        f'SELECT k, {calls} FROM LIFETIME(a, start => s, "end" => e) GROUP BY k',
        {"a": table},
        configuration=configuration,
    )
    expected = [(1, 0, 1, "0,1", 0, 0, 2, 4), (2, 3, 3, "3", 3, 3, 1, 3), (2, 2, 3, "2,3", 2, 2, 3, 5)]
    assert sorted(tuple(row.values()) for row in found) == sorted(expected)


@pytest.mark.parametrize("source", SOURCES)
def test_many_at_once_in_any_arrangement(source: str) -> None:
    """Several aggregates are one row as long as none of them changes; the order of the rows and their batches do not
    matter."""
    rng = random.Random(f"arrangement {source}")
    made = [
        {
            "id": i,
            "k": rng.randrange(3),
            "name": None,
            "v": rng.randrange(4),
            "x": 0.5,
            "ts": NOON + rng.randrange(30) * SECOND,
        }
        for i in range(80)
    ]
    table = to_table(made, EVENTS)
    text, living = SOURCES[source]
    sql = f"SELECT k, count(*) AS n, max(v) AS high, min(v) AS low, sum(x) AS total FROM {text} GROUP BY k"
    expected = aggregate(living(to_rows(table)), ("k",), n=count, high=greatest("v"), low=least("v"), total=total("x"))
    for shards in (1, 2, 3, 8):
        assert_same_rows(ask(sql, {"events": shuffled(table, shards)}, configuration=f"shards_{shards}"), expected)
    for size in (1, 7):
        pieces = pa.Table.from_batches(batches(table, size), schema=table.schema)
        assert_same_rows(ask(sql, {"events": pieces}), expected)


def test_the_interpreter_agrees() -> None:
    """The kernels of each way, interpreted."""
    made = [
        {"id": i, "k": i % 2, "name": "ab"[i % 2], "v": i * 5 % 4, "x": 0.5 * i, "ts": NOON + i * 3 % 7 * SECOND}
        for i in range(12)
    ]
    table = to_table(made, EVENTS)
    for source in SOURCES:
        for call in ("count(*)", "max(v)", "sum(x)", "min(name)"):
            check(source, call, table, "interp")
