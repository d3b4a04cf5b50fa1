"""BROADCAST, LEADING and JOIN: the plan is what they demand, with DuckDB's rows, and `explain` says where each was
applied."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.duck import empty_duckdb
from tests.planner.support import assert_same_rows, physical_plan, run_plan
from tsql.kernels.expr.errors import PlanError
from tsql.planner.physical.planfile import parse_plan

TABLES = {
    "sales": pa.table(
        {
            "shop": [i % 7 for i in range(60)],
            "item": [None if i % 9 == 0 else i % 5 for i in range(60)],
            "paid": [i * 7 % 50 for i in range(60)],
        }
    ),
    "shops": pa.table({"id": [0, 1, 2, 3, 4, None], "town": [0, 1, 0, 2, 1, 2], "opened": [3, 9, 14, 22, 41, 5]}),
    "towns": pa.table({"town_id": [0, 1, 3], "size": [10, 20, 30]}),
    "items": pa.table({"item_id": [0, 1, 2, 3], "weight": [5, 6, 7, 8]}),
}


@pytest.fixture(scope="module")
def db() -> Any:
    session = tsql.connect(threads=2, shards=3)
    for name, table in TABLES.items():
        session.register(name, table)
    return session


@pytest.fixture(scope="module")
def duck() -> Any:
    connection = empty_duckdb()
    for name, table in TABLES.items():
        connection.register(name, table)
    return connection


THREE = "* FROM sales s, shops AS h, towns t WHERE s.shop = h.id AND h.town = t.town_id"

QUERIES = [
    ("BROADCAST(s)", "* FROM sales s JOIN shops h ON s.shop = h.id"),
    ("BROADCAST(shops)", "* FROM sales s JOIN shops h ON s.shop = h.id"),
    ("BROADCAST(h, scope => 'global')", "* FROM sales s LEFT JOIN shops h ON s.shop = h.id"),
    ("BROADCAST(s)", "* FROM sales s LEFT JOIN shops h ON s.shop = h.id"),
    ("BROADCAST(s)", "* FROM sales s FULL JOIN shops h ON s.shop = h.id"),
    ("BROADCAST(h)", "* FROM sales s RIGHT JOIN shops h ON s.shop = h.id"),
    ("BROADCAST(items, scope => 'global')", "* FROM sales s WHERE s.item NOT IN (SELECT item_id FROM items)"),
    (
        "BROADCAST(s, scope => 'global')",
        "* FROM (SELECT shop, sum(paid) AS paid FROM sales s GROUP BY shop) g JOIN shops ON g.shop = shops.id",
    ),
    ("BROADCAST(s), BROADCAST(t)", THREE),
    ("LEADING(t, h)", THREE),
    ("LEADING(t, s, h)", THREE),
    ("LEADING(s, h)", "* FROM sales s JOIN shops h ON s.shop = h.id"),
    (
        "LEADING(i, s)",
        (
            "h.id, i.weight FROM sales s, shops h, items i WHERE s.shop = h.id AND i.item_id = s.item AND "
            "h.town IN (SELECT town_id FROM towns)"
        ),
    ),
    ("LEADING(t, h), BROADCAST(s, scope => 'global'), JOIN(t, h, 'loop')", THREE),
    ("JOIN(s, h, 'hash')", THREE),
    ("JOIN(h, s, 'loop')", "* FROM sales s LEFT JOIN shops h ON s.shop = h.id"),
    ("JOIN(h, s, 'loop')", "* FROM sales s FULL JOIN shops h ON s.shop = h.id AND s.paid > h.opened"),
    ("JOIN(h, s, 'range')", "* FROM sales s LEFT JOIN shops h ON s.shop = h.id AND s.paid > h.opened"),
    ("JOIN(s, items, 'loop')", "* FROM sales s WHERE s.item NOT IN (SELECT item_id FROM items)"),
]

OPTIMIZED = [
    ("BROADCAST(s)", "* FROM sales s WHERE s.item IN (SELECT item_id FROM items)"),
    (
        "JOIN(s, items, 'range')",
        "* FROM sales s WHERE EXISTS (SELECT 1 FROM items WHERE weight < paid AND item_id = item)",
    ),
]
"""These need a rule to make a semi join of the subquery: without it they are refused."""


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(
    ("hints", "query", "optimizer"),
    [*((*q, o) for q in QUERIES for o in (True, False)), *((*q, True) for q in OPTIMIZED)],
)
def test_rows(hints: str, query: str, shards: int, optimizer: bool, db: Any, duck: Any) -> None:
    plan = physical_plan(db, f"SELECT /*+ {hints} */ {query}", shards=shards, optimizer=optimizer)
    assert len(plan.notes) >= hints.count("(")
    expected = duck.sql(f"SELECT {query}").to_arrow_table()
    assert_same_rows(run_plan(db, plan), expected)
    read = parse_plan(plan.text(), db.catalog)
    assert read == plan
    assert_same_rows(run_plan(db, read), expected)


def joins(db: Any, hints: str, query: str, target: str = "local") -> list[str]:
    """The joins of the plan and the steps below them, without names: `(a, b)` joined, `(a, [b])` with b broadcast."""
    lines = physical_plan(db, f"SELECT /*+ {hints} */ {query}", target=target).text().split("\n\n", 1)[1].splitlines()
    shown: dict[str, str] = {}
    found = []
    for line in lines:
        if " = " not in line:
            continue
        name, words = line.split(" = ", 1)[0].strip(), line.split(" = ", 1)[1].split()
        match words[0]:
            case "scan":
                shown[name] = words[1]
            case "hash_join":
                shown[name] = f"({shown[words[1]]}, {shown[words[2]]})"
                found.append(shown[name] + " " + " ".join(w for w in words[3:] if w.startswith(("build=", "kind="))))
            case "broadcast":
                shown[name] = f"[{shown[words[1]]} {words[2].removeprefix('scope=')}]"
            case "redistribute":
                shown[name] = f"{shown[words[1]]} placed"
            case _:
                shown[name] = shown[words[1]]
    return found


def test_broadcast_chooses_the_built_side(db: Any) -> None:
    pair = "* FROM sales s JOIN shops h ON s.shop = h.id"
    assert joins(db, "BROADCAST(s)", pair) == ["([sales local], shops) kind=inner build=left"]
    assert joins(db, "BROADCAST(h)", pair) == ["(sales, [shops local]) kind=inner build=right"]
    assert joins(db, "BROADCAST(h, scope => 'global')", pair) == ["(sales, [shops global]) kind=inner build=right"]


def test_broadcast_on_a_cluster(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A side that is too large to be broadcast is, if the hint says so."""
    monkeypatch.setattr("tsql.planner.cost.constants.BROADCAST_BYTES", -1)
    pair = "* FROM sales s JOIN shops h ON s.shop = h.id"
    assert joins(db, "SHARDS(3)", pair, target="spark") == ["(sales placed, shops placed) kind=inner build=right"]
    assert joins(db, "SHARDS(3), BROADCAST(s)", pair, target="spark") == [
        "([sales global], shops) kind=inner build=left"
    ]


def test_broadcast_is_about_the_join_that_brings_a_table_in(db: Any) -> None:
    """Not about joins above that one, nor about subqueries that filter the table."""
    assert joins(db, "BROADCAST(h), LEADING(s, h, t)", THREE)[0] == "(sales, [shops local]) kind=inner build=right"
    filtered = "* FROM sales s JOIN shops h ON s.shop = h.id WHERE h.town IN (SELECT town_id FROM towns)"
    found = joins(db, "BROADCAST(h)", filtered)
    assert found[0].startswith("(shops, [towns local]) kind=semi")
    assert found[1] == "(sales, [(shops, [towns local]) local]) kind=inner build=right"


def test_leading_orders(db: Any) -> None:
    for first, second, third in (("t", "h", "s"), ("s", "h", "t"), ("s", "t", "h"), ("t", "s", "h")):
        names = {"t": "towns", "h": "shops", "s": "sales"}
        plain = [
            re.sub(r"[\[\]]| local| kind.*", "", line)
            for line in joins(db, f"LEADING({first}, {second}, {third})", THREE)
        ]
        assert plain == [f"({names[first]}, {names[second]})", f"(({names[first]}, {names[second]}), {names[third]})"]
        assert re.sub(r"[\[\]]| local| kind.*", "", joins(db, f"LEADING({first}, {second})", THREE)[0]) == plain[0]


def test_leading_takes_the_table_before_a_grouping_of_it(db: Any) -> None:
    query = (
        "s.paid FROM sales s, shops h, (SELECT shop AS best, max(paid) AS most FROM sales GROUP BY shop) "
        "WHERE s.shop = h.id AND best = h.id AND paid < most"
    )
    plan = physical_plan(db, f"SELECT /*+ LEADING(sales, h) */ {query}").text()
    first = next(line for line in plan.splitlines() if "hash_join" in line)
    assert "kind=inner on=(shop = id)" in first and "total" not in first


def test_alias_before_table(db: Any) -> None:
    """A name is that of an alias first: here `towns` is called `shops`."""
    query = "* FROM sales s JOIN shops AS h ON s.shop = h.id JOIN towns AS shops ON shops.town_id = s.item"
    assert any("[towns global]" in line for line in joins(db, "BROADCAST(shops, scope => 'global')", query))


def test_a_subquery_that_stays_a_mark(db: Any) -> None:
    for hints, query in OPTIMIZED:
        with pytest.raises(PlanError, match="cannot hold"):
            physical_plan(db, f"SELECT /*+ {hints} */ {query}", optimizer=False)


def test_explain(db: Any) -> None:
    shown = db.sql(f"SELECT /*+ LEADING(t, h), BROADCAST(s, scope => 'global'), JOIN(t, h, 'loop') */ {THREE}").explain(
        "physical"
    )
    assert [line for line in shown.splitlines() if line.startswith("# hint")] == [
        "# hint LEADING(t, h): t, h are joined first, in this order",
        (
            "# hint BROADCAST(s, scope => 'global'): s is built and broadcast at hash_join kind=inner on=(shop "
            "= id) build=left"
        ),
        "# hint JOIN(t, h, 'loop'): at hash_join kind=inner where=(town_id = town) build=left",
    ]
