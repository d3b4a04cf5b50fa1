"""Random queries over windows in time, and tables for them; `test_random_windows.py` asks our engine and DuckDB.

python -m tests.temporal.random_windows SEED COUNT      a longer run; it prints what differs
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa

import tsql
from tests.duck import empty_duckdb
from tsql.grammar.generator import to_duckdb
from tsql.tpch.measure import difference

CALLS = (
    "count(*)", "sum(v)", "min(v)", "max(s)", "min(s)", "avg(x)", "stddev(x)", "count(v)", "bool_or(v > 0)",
    "median(v)", "count(DISTINCT s)", "sum(v) FILTER (WHERE x > 0)", "max(ts)", "var_pop(v)", "bit_xor(v)",
)  # fmt: skip
UNITS = ("milliseconds", "seconds", "minutes")


@dataclass(frozen=True)
class Case:
    """A query over the table `t`, and how it is asked."""

    table: pa.Table
    sql: str
    settings: dict[str, Any]
    blocks: bool


def case(seed: int) -> Case:
    """The same case for the same seed."""
    random = Random(seed)
    table = _table(random, random.choice((0, 1, 5, 40, 400, 3000)))
    settings: dict[str, Any] = {"threads": 2, "shards": random.choice((1, 2, 3, 5))}
    if random.random() < 0.2:
        settings["spill_after"] = 1
    if random.random() < 0.15:
        settings["optimizer"] = False
    return Case(table, _query(random), settings, random.random() < 0.5)


def _table(random: Random, rows: int) -> pa.Table:
    span, keys = random.choice((10, 1000, 100_000)), random.choice((1, 5, 50))
    times: list[int | None] = [
        None if random.random() < 0.05 else random.randint(-span, span) * random.choice((1_000, 500_000, 1_000_000))
        for _ in range(rows)
    ]
    if random.random() < 0.4:
        times = sorted(time or 0 for time in times)

    def some(value: Any) -> list[Any]:
        return [None if random.random() < 0.1 else value() for _ in range(rows)]

    return pa.table(
        {
            "k": pa.array(some(lambda: random.randint(0, keys)), pa.int64()),
            "s": pa.array(some(lambda: random.choice("abcdef") * random.randint(0, 3)), pa.string()),
            "ts": pa.array(times, pa.timestamp("us")),
            "v": pa.array(some(lambda: random.randint(-1000, 1000)), pa.int32()),
            "x": pa.array([random.randint(-100, 100) / 4 for _ in range(rows)], pa.float64()),
        }
    )


def _query(random: Random) -> str:
    unit, small, large = random.choice(UNITS), random.randint(1, 20), random.randint(1, 60)
    source = random.choice(("t", "t", "(SELECT k, s, ts, v, x FROM t WHERE v > -500)"))
    kind = random.choice(("tumble", "hop", "cumulate", "session", "session"))
    keys = random.choice(((), ("k",), ("s",), ("k", "s"), ("k % 2",) if kind != "session" else ("k",)))
    offset = f", offset => {_interval(random.randint(-5, 5), unit)}" if random.random() < 0.3 else ""
    step = _interval(small, unit)
    windows = {
        "tumble": f"TUMBLE({source}, ts, {_interval(large, unit)}{offset})",
        "hop": f"HOP({source}, ts, slide => {step}, size => {_interval(min(large, 40 * small), unit)}{offset})",
        "cumulate": (
            f"CUMULATE({source}, ts, step => {step}, size => {_interval(small * random.randint(1, 12), unit)}{offset})"
        ),
        "session": _session(source, keys, step),
    }[kind]
    where = random.choice(("", " WHERE v > 0", " WHERE k IS NOT NULL AND x < 20"))
    if random.random() < 0.15:
        return f"SELECT * FROM {windows}{where}"
    groups = ", ".join((*keys, *random.choice((("window_start", "window_end"), ("window_start",), ("window_end",)))))
    calls = ", ".join(f"{call} AS a{number}" for number, call in enumerate(random.sample(CALLS, random.randint(1, 4))))
    return (
        f"SELECT {groups}, {calls} FROM {windows}{where} GROUP BY "
        f"{groups}{random.choice(('', '', ' HAVING count(*) > 1'))}"
    )


def _session(source: str, keys: tuple[str, ...], gap: str) -> str:
    by = f" PARTITION BY ({', '.join(keys)})" if keys else ""
    return f"SESSION({source}{by}, ts, gap => {gap})"


def _interval(amount: int, unit: str) -> str:
    return f"INTERVAL '{amount} {unit}'"


def differs(asked: Case, **given: Any) -> str | None:
    """How our answer differs from DuckDB's; None if it does not. `given`: more settings of our session."""
    with empty_duckdb() as oracle:
        oracle.register("t", asked.table)
        expected = oracle.sql(to_duckdb(asked.sql)).to_arrow_table()
    with tsql.connect(**asked.settings, **given) as db:
        db.register("given" if asked.blocks else "t", asked.table)
        if asked.blocks:
            db.execute("CREATE TABLE t AS SELECT * FROM given")
        return difference(expected, db.sql(asked.sql).arrow(), ordered=False)


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    found = 0
    for seed in range(first, first + count):
        asked = case(seed)
        why = differs(asked)
        if why is not None:
            found += 1
            print(f"seed {seed}: {asked.settings} {asked.sql}\n  {why}")
    print(f"{count} queries from seed {first} on, {found} differ")
