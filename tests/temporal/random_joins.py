"""Random joins of lifetimes over adversarial tables, and what the plain reference makes of them;
`test_random_joins.py` compares.

python -m tests.temporal.random_joins SEED COUNT      a longer run; it prints what differs
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa

import tsql
from tests.temporal.data import to_rows
from tests.temporal.live.lives import rows_of
from tests.temporal.reference.lifetimes import BEGIN, lifetime, shift
from tests.temporal.reference.rows import Row, Rows
from tests.temporal.reference.snapshot import anti_join, clip_join, full_join, inner_join, left_join, semi_join

INFINITY = 2**63 - 1
S = 1_000_000
On = Callable[[Row, Row], bool]


@dataclass(frozen=True)
class Form:
    """How rows of a table live: the source in FROM, for a table and an alias, and the reference."""

    source: str
    reference: Callable[[Rows], Rows]


def _ends(rows: Rows) -> Rows:
    return _closed(lifetime(rows, start="vs", end="ve"))


def _closed(rows: Rows) -> Rows:
    """Rows whose infinite ends are open ones, and whose start is a time."""
    found = [row | {"valid_to": None if row["valid_to"] == INFINITY else row["valid_to"]} for row in rows]
    return [row for row in found if row["valid_from"] != INFINITY]


def _constant(size: int) -> Callable[[Rows], Rows]:
    """Infinite times and a length of time are infinite again, so such rows are never alive."""

    def made(rows: Rows) -> Rows:
        finite = [row for row in rows if row["vs"] not in (None, BEGIN, INFINITY)]
        return lifetime(finite, start="vs", duration=size)

    return made


FORMS = (
    Form("LIFETIME({table}, start => vs, end => ve)", _ends),
    Form("LIFETIME({table}, start => vs, end => ve)", _ends),
    Form("LIFETIME({table}, start => vs, duration => INTERVAL '7 seconds')", _constant(7 * S)),
    Form("SLIDE({table}, vs, INTERVAL '3 seconds')", _constant(3 * S)),
    Form("LIFETIME({table}, start => vs, duration => INTERVAL '1 microsecond')", _constant(1)),
    Form(
        "SHIFT(SLIDE({table}, vs, INTERVAL '5 seconds'), INTERVAL '-2 seconds')",
        lambda rows: shift(_constant(5 * S)(rows), -2 * S),
    ),
    Form("LIFETIME({table}, start => vs)", lambda rows: _closed(lifetime(rows, start="vs"))),
)
CONDITIONS: tuple[tuple[str, On], ...] = (
    ("l.k = r.k", lambda a, b: a["k"] is not None and a["k"] == b["k"]),
    ("l.k IS NOT DISTINCT FROM r.k", lambda a, b: a["k"] == b["k"]),
    ("l.k = r.k AND r.v > l.v", lambda a, b: a["k"] is not None and a["k"] == b["k"] and b["v"] > a["v"]),
    ("l.k = r.k AND l.v < 3", lambda a, b: a["k"] is not None and a["k"] == b["k"] and a["v"] < 3),
    ("l.k = r.k AND r.v < 3", lambda a, b: a["k"] is not None and a["k"] == b["k"] and b["v"] < 3),
    ("l.v % 2 = r.v % 2", lambda a, b: a["v"] % 2 == b["v"] % 2),
    ("l.v <> r.v", lambda a, b: a["v"] != b["v"]),
    ("true", lambda a, b: True),
)
KINDS = ("INNER", "INNER", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI", "EXISTS", "NOT EXISTS", "CLIP")


@dataclass(frozen=True)
class Case:
    """A query over the tables `a` and `b`, the answer, and how it is asked."""

    tables: dict[str, pa.Table]
    sql: str
    expected: Rows
    settings: dict[str, Any]
    reads_back: bool

    @property
    def answer(self) -> Rows:
        with tsql.connect(**self.settings) as db:
            for name, table in self.tables.items():
                db.register(name, table)
            relation = db.sql(self.sql)
            if self.reads_back:
                return rows_of(tsql.load_plan_text(relation.plan()).run(db).arrow())
            return rows_of(relation.arrow())

    @property
    def differs(self) -> str | None:
        """How the answer differs from the reference, or None."""
        answer, expected = (sorted(map(_text, rows)) for rows in (self.answer, self.expected))
        if answer == expected:
            return None
        more, less = ([one for one in a if one not in b][:3] for a, b in ((answer, expected), (expected, answer)))
        return f"{self.sql}\n{self.settings}\ntoo much: {more}\nmissing: {less}"


def _text(row: Row) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(row.items()))


def case(seed: int) -> Case:
    """The same case for the same seed."""
    random = Random(seed)
    rows = random.choice((0, 1, 3, 12, 40, 90))
    tables = {"a": _table(random, rows), "b": _table(random, random.choice((rows, rows // 3)))}
    forms = random.choice(FORMS), random.choice(FORMS)
    condition, on = random.choice(CONDITIONS)
    kind = random.choice(KINDS)
    sides = [form.reference(to_rows(table)) for form, table in zip(forms, tables.values(), strict=True)]
    sources = [form.source.format(table=name) for form, name in zip(forms, tables, strict=True)]
    settings: dict[str, Any] = {"threads": 2, "shards": random.choice((1, 2, 3, 5))}
    for name, value, share in (
        ("spill_after", 1, 0.2),
        ("optimizer", False, 0.1),
        ("equal_hashes", True, 0.1),
        ("batch_rows", 1, 0.1),
    ):
        if random.random() < share:
            settings[name] = value
    if random.random() < 0.1 and rows <= 12:
        settings = {"backend": "interp"}
    sql, expected = _asked(kind, sources, condition, on, sides)
    return Case(tables, sql, expected, settings, random.random() < 0.2)


def _asked(kind: str, sources: list[str], condition: str, on: On, sides: list[Rows]) -> tuple[str, Rows]:
    left, right = sources
    one, other = sides
    if kind in ("EXISTS", "NOT EXISTS"):
        sql = f"SELECT l.id FROM {left} l WHERE {kind} (SELECT 1 FROM {right} r WHERE {condition})"
        return sql, _shown((semi_join if kind == "EXISTS" else anti_join)(one, other, on), "id")
    if kind in ("SEMI", "ANTI", "CLIP"):
        made = {"SEMI": semi_join, "ANTI": anti_join, "CLIP": clip_join}[kind](one, other, on)
        return f"SELECT l.id FROM {left} l {kind} JOIN {right} r ON {condition}", _shown(made, "id")
    sql = f"SELECT l.id AS id, r.id AS w FROM {left} l {kind} JOIN {right} r ON {condition}"
    other = [row | {"w": row["id"], "k2": row["k"], "v2": row["v"]} for row in other]
    right_rows = [{n: row[n] for n in ("w", "k2", "v2", "valid_from", "valid_to")} for row in other]

    def both(a: Row, b: Row) -> bool:
        return on(a, {"k": b["k2"], "v": b["v2"]})

    if kind == "INNER":
        return sql, _shown(inner_join(one, right_rows, both), "id", "w")
    if kind == "LEFT":
        return sql, _shown(left_join(one, right_rows, both, ("w",)), "id", "w")
    if kind == "RIGHT":
        return sql, _shown(left_join(right_rows, one, lambda b, a: both(a, b), ("id",)), "id", "w")
    return sql, _shown(full_join(one, right_rows, both, ("id",), ("w",)), "id", "w")


def _shown(rows: Rows, *names: str) -> Rows:
    return [{name: row.get(name) for name in (*names, "valid_from", "valid_to")} for row in rows]


def _table(random: Random, rows: int) -> pa.Table:
    """Rows with NULL and infinite times, empty lifetimes, one key or many, few times or many."""
    span, longest = random.choice((1, 10, 300)), random.choice((1, 10, 300))
    keys = random.choice((1, 1, 3, 20))
    starts, ends = [], []
    for _ in range(rows):
        start: int | None = random.randint(-span, span) * S
        chance = random.random()
        end: int | None = (start or 0) + random.randint(0, longest) * S
        if chance < 0.05:
            start = None
        elif chance < 0.08:
            start = random.choice((BEGIN, INFINITY))
        elif chance < 0.13:
            end = random.choice((None, None, INFINITY, (start or 0) - S))
        starts.append(start)
        ends.append(end)
    some = [None if random.random() < 0.1 else random.randrange(keys) for _ in range(rows)]
    times = pa.timestamp("us")
    return pa.table(
        {
            "k": pa.array(some, pa.int64()),
            "id": pa.array(range(rows), pa.int64()),
            "v": pa.array([random.randrange(5) for _ in range(rows)], pa.int64()),
            "vs": pa.array(starts, pa.int64()).cast(times),
            "ve": pa.array(ends, pa.int64()).cast(times),
        }
    )


def main() -> int:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    wrong = 0
    for seed in range(first, first + count):
        try:
            found = case(seed).differs
        except Exception as error:  # noqa: BLE001
            found = f"{case(seed).sql}\n{case(seed).settings}\n{type(error).__name__}: {error}"
        if found is not None:
            wrong += 1
            print(f"seed {seed}: {found}", flush=True)
    print(f"{count} cases, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
