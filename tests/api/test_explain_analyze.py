"""EXPLAIN ANALYZE shows for each step how many rows it gave beside how many were expected; the counts are DuckDB's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.duck import empty_duckdb

ORDERS = pa.table(
    {"id": range(1000), "customer": [i * 7 % 90 for i in range(1000)], "price": [i % 50 for i in range(1000)]}
)
CUSTOMERS = pa.table({"key": range(100), "country": [f"c{i % 9}" for i in range(100)]})

JOIN = "SELECT * FROM orders JOIN customers ON customer = key WHERE price < 20 AND country <> 'c3'"
CASES = {
    # query: for each kind of step, in the order of the plan, the subquery whose rows it gives
    "SELECT id FROM orders WHERE price < 20": {"filter": ["SELECT 1 FROM orders WHERE price < 20"]},
    "SELECT price, count(*) AS n FROM orders WHERE customer > 10 GROUP BY price": {
        "filter": ["SELECT 1 FROM orders WHERE customer > 10"],
        "aggregate": [None, "SELECT DISTINCT price FROM orders WHERE customer > 10"],
    },
    f"SELECT country, sum(price) AS s FROM ({JOIN}) GROUP BY country ORDER BY s LIMIT 4": {
        "filter": ["SELECT 1 FROM orders WHERE price < 20", "SELECT 1 FROM customers WHERE country <> 'c3'"],
        "hash_join": [JOIN],
        "aggregate": [None, f"SELECT DISTINCT country FROM ({JOIN})"],
    },
    "SELECT id FROM orders WHERE NOT EXISTS (SELECT 1 FROM customers WHERE key = customer AND country < 'c5')": {
        "filter": ["SELECT 1 FROM customers WHERE country < 'c5'"],
        "hash_join": ["SELECT 1 FROM orders WHERE customer NOT IN (SELECT key FROM customers WHERE country < 'c5')"],
    },
    "SELECT id, rank() OVER (PARTITION BY customer ORDER BY price) AS r FROM orders QUALIFY r < 3": {
        "window": ["SELECT 1 FROM orders"],
        "filter": [
            "SELECT 1 FROM (SELECT rank() OVER (PARTITION BY customer ORDER BY price) AS r FROM orders) WHERE r < 3"
        ],
    },
    "SELECT customer, price, count(*) AS n FROM orders GROUP BY GROUPING SETS ((customer, price), (price))": {
        "expand": ["SELECT 1 FROM orders, range(2)"]
    },
    "SELECT price FROM orders UNION ALL SELECT key FROM customers": {"union": ["SELECT 1 FROM range(1100)"]},
}


@pytest.fixture(scope="module")
def duck() -> Iterator[Any]:
    with empty_duckdb() as connection:
        connection.register("orders", ORDERS)
        connection.register("customers", CUSTOMERS)
        yield connection


def steps(text: str) -> list[tuple[str, int | None, str | None]]:
    """(operator, actual rows, expected rows) of each step of an analyzed plan."""
    found = []
    for line in text.split("\noutput ")[0].splitlines():
        step = re.match(r"\w+ += (\w+) ", line)
        if step:
            counts = re.search(r"#(?: ([\d,]+) rows?,)? ~([\d.]+(?: [kMG])?)(?: rows?)? expected", line)
            assert counts, f"no rows beside the step: {line}"
            found.append(
                (
                    step.group(1),
                    None if counts.group(1) is None else int(counts.group(1).replace(",", "")),
                    counts.group(2),
                )
            )
    return found


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("query", CASES)
def test_actual_rows_are_those_of_the_oracle(duck: Any, query: str, threads: int) -> None:
    with tsql.connect(threads=threads) as db:
        db.register("orders", ORDERS)
        db.register("customers", CUSTOMERS)
        text = db.sql(query).explain("analyze")
        given = steps(text)
    for operator, subqueries in CASES[query].items():
        actual = [rows for name, rows, _ in given if name == operator]
        if operator == "aggregate" and len(actual) == 1:
            subqueries = subqueries[-1:]  # one shard needs one phase
        assert len(actual) == len(subqueries), text
        for rows, subquery in zip(actual, subqueries, strict=True):
            if subquery is not None:
                assert rows == duck.sql(f"SELECT count(*) FROM ({subquery})").fetchall()[0][0], (operator, text)


def test_the_sum_and_the_times(duck: Any) -> None:
    query = next(iter(CASES))
    with tsql.connect(threads=2) as db:
        db.register("orders", ORDERS)
        text = db.sql(f"EXPLAIN ANALYZE {query}").fetchall()[0][1]
    assert all(
        re.search(rf"^{word} +[\d,.]+ ms", text, re.MULTILINE) for word in ("parse", "plan", "compile", "run", "total")
    )
    assert text.rstrip().endswith(f"{duck.sql(f'SELECT count(*) FROM ({query})').fetchall()[0][0]} rows")
