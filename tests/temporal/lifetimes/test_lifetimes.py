"""Lifetime functions and operators per snapshot under every configuration of the engine, and over random tables."""

from __future__ import annotations

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from tests.temporal.constructs import tables
from tests.temporal.constructs.lifetimes import LIFETIMES, MORE, PERIODS, SNAPSHOTS, living
from tests.temporal.data import assert_same_rows, period_tables, repeatable, selected, to_rows
from tests.temporal.live.lives import CONFIGURATIONS, ask
from tests.temporal.reference.lifetimes import BEGIN, always, lifetime, stitch
from tests.temporal.reference.rows import Row, Rows, equal
from tests.temporal.reference.snapshot import (
    anti_join,
    clip_join,
    coalesce,
    except_all,
    full_join,
    inner_join,
    intersect_all,
    left_join,
    same_snapshots,
    semi_join,
)

LIFE = ("valid_from", "valid_to")


@pytest.mark.parametrize("sixth", range(6))
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.in_turn(6)
def test_configurations(configuration: str, sixth: int) -> None:
    """How a query runs does not change its rows. By default each configuration has every sixth construct; the
    interpreter is slow, and gets fewer rows."""
    data = tables("few_times", seed=9, rows=12 if configuration == "interp" else 40)
    for construct in (*LIFETIMES, *SNAPSHOTS)[sixth::6]:
        ours = ask(construct.sql, data, construct.setup, configuration)
        expected = construct.reference({name: to_rows(table) for name, table in data.items()})
        try:
            if construct.instants:
                assert same_snapshots(ours, expected)
            else:
                assert_same_rows(ours, expected)
        except AssertionError as problem:
            raise AssertionError(f"{construct.sql}\n{problem}") from problem


def payload(rows: Rows, *columns: str) -> Rows:
    return selected(rows, *columns, *LIFE)


def on(one: Row, other: Row) -> bool:
    """A condition that is no equality alone."""
    return one["k"] is not None and other["k"] is not None and one["k"] == other["k"] and one["v"] <= other["w"]


def test_joins_of_random_tables(pytestconfig: pytest.Config) -> None:
    tables_and_shards = hypothesis.given(period_tables(), period_tables(), st.sampled_from((1, 3)))
    repeatable(8 if pytestconfig.getoption("--all-configurations") else 5)(tables_and_shards(_check_joins))()


def _check_joins(one: pa.Table, other: pa.Table, shards: int) -> None:
    data = {"periods": one, "more": other}
    left = lifetime(to_rows(one), "vs", end="ve")
    right = [
        {"w": r["v"], "j": r["id"], "k": r["k"], "valid_from": r["valid_from"], "valid_to": r["valid_to"]}
        for r in lifetime(to_rows(other), "vs", end="ve")
    ]
    condition = "l.k = r.k AND l.v <= r.v"

    def joined(kind: str) -> Rows:
        return ask(
            f"SELECT l.id AS id, r.id AS j FROM {PERIODS} l {kind} JOIN {MORE} r ON {condition}",
            data,
            configuration=f"shards_{shards}",
        )

    assert_same_rows(joined(""), selected(inner_join(left, right, on), "id", "j", *LIFE))
    assert_same_rows(joined("LEFT"), selected(left_join(left, right, on, ("w", "j")), "id", "j", *LIFE))
    full = full_join(left, right, on, ("id",), ("w", "j"))
    assert_same_rows(joined("FULL"), selected(full, "id", "j", *LIFE))
    mirrored = left_join(right, left, lambda a, b: on(b, a), ("id", "v"))
    assert_same_rows(joined("RIGHT"), selected(mirrored, "id", "j", *LIFE))
    for word, reference in (("SEMI", semi_join), ("ANTI", anti_join)):
        ours = ask(f"SELECT l.id FROM {PERIODS} l {word} JOIN {MORE} r ON {condition}", data)
        assert_same_rows(ours, payload(reference(left, right, on), "id"))
        exists = "EXISTS" if word == "SEMI" else "NOT EXISTS"
        ours = ask(f"SELECT l.id FROM {PERIODS} l WHERE {exists} (SELECT 1 FROM {MORE} r WHERE {condition})", data)
        assert_same_rows(ours, payload(reference(left, right, on), "id"))
    for text, reference in ((condition, on), ("r.k = l.k", equal("k"))):
        ours = ask(f"SELECT l.id FROM {PERIODS} l CLIP JOIN {MORE} r ON {text}", data)
        assert_same_rows(ours, payload(clip_join(left, right, reference), "id"))


def test_sets_of_random_tables(pytestconfig: pytest.Config) -> None:
    tables_and_shards = hypothesis.given(period_tables(), period_tables(), st.sampled_from((1, 2, 8)))
    repeatable(15 if pytestconfig.getoption("--all-configurations") else 8)(tables_and_shards(_check_sets))()


def _check_sets(one: pa.Table, other: pa.Table, shards: int) -> None:
    data, configuration = {"periods": one, "more": other}, f"shards_{shards}"
    left, right = (payload(lifetime(to_rows(side), "vs", end="ve"), "k", "v") for side in (one, other))
    for operator, reference in (("INTERSECT ALL", intersect_all), ("EXCEPT ALL", except_all)):
        ours = ask(f"SELECT k, v FROM {PERIODS} {operator} SELECT k, v FROM {MORE}", data, configuration=configuration)
        assert_same_rows(ours, reference(left, right))
    assert_same_rows(
        ask(f"SELECT * FROM STITCH((SELECT k, v FROM {PERIODS}))", data, configuration=configuration), stitch(left)
    )
    assert_same_rows(
        ask(f"SELECT DISTINCT k FROM {PERIODS}", data, configuration=configuration), coalesce(payload(left, "k"))
    )


def test_a_plain_relation_is_alive_always() -> None:
    """Beside a temporal one it is there from -infinity on; so is what a temporal one leaves of it."""
    data = tables("unsorted")
    names = always([row for row in to_rows(data["names"])])
    periods = living({"periods": to_rows(data["periods"])})
    named = equal("k")
    ours = ask(f"SELECT n.title FROM names n WHERE NOT EXISTS (SELECT 1 FROM {PERIODS} p WHERE p.k = n.k)", data)
    assert_same_rows(ours, payload(anti_join(names, periods, named), "title"))
    assert any(row["valid_from"] == BEGIN for row in ours)
    ours = ask(f"SELECT n.title, p.id FROM names n LEFT JOIN {PERIODS} p ON p.k = n.k", data)
    assert_same_rows(ours, selected(left_join(names, periods, named, ("id",)), "title", "id", *LIFE))
    ours = ask(f"SELECT n.title FROM {PERIODS} p RIGHT JOIN names n ON p.k = n.k AND p.k < 0", data)
    assert_same_rows(ours, payload(names, "title"))
    ours = ask(f"SELECT k FROM {PERIODS} UNION SELECT k FROM names", data)
    assert_same_rows(ours, coalesce(payload(periods, "k") + payload(names, "k")))
    ours = ask(f"SELECT p.id FROM {PERIODS} p WHERE EXISTS (SELECT 1 FROM names n WHERE n.k = p.k)", data)
    assert_same_rows(ours, payload(semi_join(periods, names, named), "id"))
