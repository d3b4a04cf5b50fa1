"""Random physical plans: steps and movement in any order, with names reused. A plan that the check accepts must give
the same rows as its steps on one shard, where nothing can be misplaced.

    python -m tests.plans.random_steps CASES [SEED]      runs as many as you like, and prints what it finds
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa

import tsql
from tsql.kernels.expr.errors import PlanError

ROWS = 40
NAMES = ("a", "b", "c", "d", "e")
TIMES = [1_709_251_200_000_000 + 60_000_000 * (i * 7 % ROWS) for i in range(ROWS)]
TABLES = {
    "t": pa.table(
        {
            "a": pa.array([None if i % 11 == 10 else i * 3 % 7 for i in range(ROWS)], pa.int64()),
            "b": pa.array([None if i % 13 == 12 else i * 5 % 4 for i in range(ROWS)], pa.int64()),
            "f": pa.array(TIMES, pa.timestamp("us")),
            "g": pa.array([time + 90_000_000 for time in TIMES], pa.timestamp("us")),
        }
    ),
    "u": pa.table(
        {
            "c": pa.array([i % 9 for i in range(12)], pa.int64()),
            "d": pa.array([None if i == 5 else i % 5 for i in range(12)], pa.int64()),
        }
    ),
}


def session(**settings: Any) -> Any:
    db = tsql.connect(**{"threads": 2, "small_rows": 0, **settings})
    for name, table in TABLES.items():
        db.register(name, table)
    db.execute("CREATE TABLE o AS SELECT a, b FROM t WHERE a IS NOT NULL ORDER BY a")
    return db


class Maker:
    """The lines of one random plan."""

    def __init__(self, db: Any, seed: int):
        self.random = Random(seed)
        self.data = [db.sharded("t", shards=3), db.sharded("t", ["a", "b"], shards=3), db.sharded("u", shards=3)]
        self.made = 0

    def plan(self) -> str | None:
        """The text of a plan, or None if its last step is one that nothing accepts."""
        for _ in range(self.random.randrange(3, 10)):
            data = self.random.choice(self.data)
            try:
                self.data.append(self.next(data))
            except PlanError:
                continue
        try:
            return self.random.choice(self.data[-3:]).plan()
        except PlanError:
            return None

    def numbers(self, data: Any) -> list[str]:
        return [f.name for f in data._step.schema if f.type.is_integer]

    def some(self, names: list[str], most: int = 2) -> list[str]:
        return self.random.sample(names, min(len(names), self.random.randrange(1, most + 1)))

    def next(self, data: Any) -> Any:
        """The dataset after one more step. Some steps are given what they require first, others are left to chance."""
        random, numbers = self.random, self.numbers(data)
        if not numbers:
            return data
        key = self.some(numbers)
        x, y, new = random.choice(numbers), random.choice(numbers), random.choice(NAMES)
        keys = f"({', '.join(key)})"
        match random.choice(STEPS):
            case "filter":
                return data.step("filter", where=f"({x} {random.choice(('>', '<>', '<='))} {random.randrange(4)})")
            case "project":
                kept = random.sample(list(data.columns), random.randrange(1, len(data.columns) + 1))
                renamed = dict(zip(random.sample(NAMES, min(len(kept), len(NAMES))), kept, strict=False))
                computed = {
                    n: f"({c} + 1)" if random.random() < 0.2 and c in numbers else c for n, c in renamed.items()
                }
                times = {n: n for n in ("f", "g") if n in data.columns}
                return data.step("project", **{**computed, **times})
            case "move":
                return self.moved(data, key)
            case "scatter":
                return random.choice(
                    (
                        lambda: data.broadcast(shards=random.choice((None, 2, 1))),
                        lambda: data.broadcast(scope="global"),
                        data.gather,
                        lambda: data.reshard(shards=random.choice((None, 2, 5))),
                        lambda: data.rekey(*key),
                    )
                )()
            case "group":
                data = self.placed(data, key)
                return data.step(
                    "aggregate",
                    by=self.by(key),
                    **{new: random.choice(("count(*)", f"sum({x})", f"max({y})", f"median({x})"))},
                )
            case "phases":
                call = {new: random.choice(("count(*)", f"sum({x})", f"max({y})", f"avg({y})"))}
                data = data.step("aggregate", phase="partial", by=f"({', '.join(dict.fromkeys([*key, y]))})", **call)
                if random.random() < 0.3:
                    data = data.step("aggregate", phase="merge", by=f"({', '.join(dict.fromkeys([*key, y]))})", **call)
                return self.placed(data, key).step("aggregate", phase="final", by=self.by(key), **call)
            case "partial":
                # Groups of rows that are placed by some of their keys are whole in each phase.
                return self.moved(data, self.some(key)).step("aggregate", phase="partial", by=self.by(key))
            case "window":
                return self.placed(data, key).step(
                    "window", by=keys, order="()", **{new: random.choice(("count(*)", f"max({x})"))}
                )
            case "snapshot":
                return self.placed(data, key).step(
                    "snapshot", by=keys, lifetime="(f, g)", span="(f, g)", **{new: "count(*)"}
                )
            case "union":
                return data.step("union", random.choice(self.data))
            case "expand":
                return data.step("expand", keys=keys, sets=f"({keys}, ())")
            case "replicate":
                return data.step("replicate", times=f"({x} % 3)")
            case "series":
                return data.step("series", column=new, **{"from": "(0)", "to": f"({x} % 4)", "by": "(1)"})
            case "sort":
                return self.placed(data, ()).step("sort", by=f"({x} asc nulls last)")
            case "join":
                return self.joined(data, x)
            case "tops":
                return data.step("sort", phase="partial", by=f"({x} asc nulls last)", limit="(1000)")
        raise AssertionError

    def by(self, key: list[str]) -> str:
        """Keys, some by other names."""
        names = [self.random.choice(NAMES) if self.random.random() < 0.4 else c for c in key]
        return (
            f"({', '.join(f'{n}={c}' for n, c in zip(names, key, strict=True))})"
            if len(set(names)) == len(names)
            else f"({', '.join(key)})"
        )

    def moved(self, data: Any, key: Any) -> Any:
        return data.rekey(*key).redistribute(
            shards=self.random.choice((None, None, 2, 4)), scope=self.random.choice(("local", "global"))
        )

    def placed(self, data: Any, key: Any) -> Any:
        if self.random.random() < 0.4:
            return data
        return self.moved(data, self.some(list(key))) if key and self.random.random() < 0.7 else data.gather()

    def joined(self, data: Any, x: str) -> Any:
        random = self.random
        other = random.choice(self.data)
        if set(other.columns) & set(data.columns):
            self.made += 1
            other = other.step("project", **{f"j{self.made}_{i}": c for i, c in enumerate(other.columns)})
        y = random.choice(self.numbers(other) or [""])
        match random.randrange(4):
            case 0:
                other = other.broadcast()
            case 1:
                data, other = data.rekey(x).redistribute(), other.rekey(y).redistribute()
            case 2:
                data, other = data.gather(), other.gather()
        kind = random.choice(("inner", "inner", "left", "full", "semi", "anti", "mark"))
        mark = {"mark": "m"} if kind == "mark" else {}
        return data.step(
            random.choice(("hash_join", "hash_join", "merge_join")),
            other,
            kind=kind,
            on=f"({x} = {y})",
            build=random.choice(("left", "right")),
            **mark,
        )


STEPS = (
    "filter",
    "project",
    "project",
    "move",
    "scatter",
    "group",
    "group",
    "phases",
    "partial",
    "window",
    "snapshot",
    "union",
    "expand",
    "replicate",
    "series",
    "sort",
    "join",
    "join",
    "join",
    "tops",
)


def on_one_shard(text: str) -> str:
    """The same steps where everything is in one shard."""
    return re.sub(r"^target local", "target local shards=1", re.sub(r" shards=\d+", "", text), flags=re.MULTILINE)


def rows(relation: Any) -> Counter[str]:
    return Counter(map(repr, relation.fetchall()))


def compare(text: str, db: Any, one: Any) -> str | None:
    """How the rows of a plan differ from those on one shard; None if they do not."""
    found, expected = rows(tsql.load_plan_text(text).run(db)), rows(tsql.load_plan_text(on_one_shard(text)).run(one))
    if found == expected:
        return None
    return (
        f"{found.total()} rows, {expected.total()} on one shard: too many "
        f"{list((found - expected).items())[:3]}, missing {list((expected - found).items())[:3]}"
    )


def main() -> None:
    cases, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    db, one = session(), session(threads=1)
    ran: Counter[str] = Counter()
    for number in range(seed, seed + cases):
        print(number, file=sys.stderr, flush=True)
        text = Maker(db, number).plan()
        ran["refused" if text is None else "ran"] += 1
        wrong = None if text is None else compare(text, db, one)
        if wrong is not None:
            ran["wrong"] += 1
            print(f"case {number}: {wrong}\n{text}\n", flush=True)
    print(dict(ran))


if __name__ == "__main__":
    main()
