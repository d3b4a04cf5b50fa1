"""Random uses of MATCH_RECOGNIZE: each a text in our dialect, and what the brute-force reference says to the same.

A condition or a measure is written twice, as SQL and as a function of the reference's `View`; `Case` draws some of
them, a pattern and options by a seeded generator, so that a seed names a test."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tests.temporal.reference.recognize import SkipError, View, match_recognize
from tests.temporal.reference.rows import SECOND, Rows

Value = Callable[[View], Any]
VARIABLES = ("A", "B", "C")
SCHEMA = pa.schema(
    [("id", pa.int64()), ("k", pa.int64()), ("v", pa.int64()), ("s", pa.string()), ("ts", pa.timestamp("us"))]
)


def _values(m: View, name: str, variable: str | None = None) -> list[Any]:
    return [row[name] for row in m.mapped(variable) if row[name] is not None]


def _sum(m: View, variable: str | None = None) -> Any:
    found = _values(m, "v", variable)
    return sum(found) if found else None


def _compared(one: Any, sign: str, other: Any) -> bool | None:
    if one is None or other is None:
        return None
    return {"<": one < other, ">": one > other, "<=": one <= other, "=": one == other, "<>": one != other}[sign]


def _least(values: list[Any]) -> Any:
    return min(values, default=None)


ROW_WISE: dict[str, Value] = {
    "v > 3": lambda m: _compared(m.last("v"), ">", 3),
    "v <= 5": lambda m: _compared(m.last("v"), "<=", 5),
    "v < PREV(v)": lambda m: _compared(m.last("v"), "<", m.prev("v")),
    "v > PREV(v, 2)": lambda m: _compared(m.last("v"), ">", m.prev("v", 2)),
    "v <> NEXT(v)": lambda m: _compared(m.last("v"), "<>", m.next("v")),
    "PREV(s) IS NULL OR s < 'd'": lambda m: m.prev("s") is None or _compared(m.last("s"), "<", "d"),
    "id % 3 <> 0": lambda m: m.last("id") % 3 != 0,
}
OF_THE_MATCH: dict[str, Value] = {
    "v >= FIRST(v)": lambda m: _compared(m.first("v"), "<=", m.last("v")),
    "sum(v) < 14": lambda m: _compared(_sum(m), "<", 14),
    "count(*) <= 4": lambda m: len(m.mapped()) <= 4,
    "count(A.v) <= 2": lambda m: len(_values(m, "v", "A")) <= 2,
    "v <> A.v": lambda m: _compared(m.last("v"), "<>", m.last("v", "A")),
    "LAST(B.v, 1) IS NULL OR v > LAST(B.v, 1)": lambda m: (
        m.last("v", "B", 1) is None or _compared(m.last("v"), ">", m.last("v", "B", 1))
    ),
    "FIRST(A.v, 1) IS NULL OR v <= FIRST(A.v, 1)": lambda m: (
        m.first("v", "A", 1) is None or _compared(m.last("v"), "<=", m.first("v", "A", 1))
    ),
    "PREV(FIRST(v)) IS NULL OR v <> PREV(FIRST(v))": lambda m: (
        m.prev("v", 1, None, ("first", 0)) is None or _compared(m.last("v"), "<>", m.prev("v", 1, None, ("first", 0)))
    ),
    "v > 2 AND min(B.v) < 6": lambda m: (
        _compared(m.last("v"), ">", 2) and _compared(_least(_values(m, "v", "B")), "<", 6)
    ),
    "MATCH_NUMBER() % 3 > 0": lambda m: m.match_number % 3 > 0,
    "count(DISTINCT s) <= 2": lambda m: len(set(_values(m, "s"))) <= 2,
    "max(s) <= 'e'": lambda m: _compared(max(_values(m, "s"), default=None), "<=", "e"),
}
MEASURES: dict[str, Value] = {
    "FIRST(id)": lambda m: m.first("id"),
    "LAST(id)": lambda m: m.last("id"),
    "id": lambda m: m.last("id"),
    "A.v": lambda m: m.last("v", "A"),
    "LAST(B.id, 1)": lambda m: m.last("id", "B", 1),
    "FIRST(C.id, 2)": lambda m: m.first("id", "C", 2),
    "FIRST(s, 1)": lambda m: m.first("s", None, 1),
    "PREV(A.id)": lambda m: m.prev("id", 1, "A"),
    "NEXT(LAST(B.s, 1), 2)": lambda m: m.next("s", 2, "B", ("last", 1)),
    "PREV(FIRST(id), 1)": lambda m: m.prev("id", 1, None, ("first", 0)),
    "CLASSIFIER()": lambda m: m.classifier(),
    "MATCH_NUMBER()": lambda m: m.match_number,
    "count(*)": lambda m: len(m.mapped()),
    "count(B.*)": lambda m: len(m.mapped("B")),
    "CAST(sum(A.v) AS BIGINT) + 1": lambda m: None if _sum(m, "A") is None else _sum(m, "A") + 1,
    "min(C.s)": lambda m: _least(_values(m, "s", "C")),
    "max(v)": lambda m: max(_values(m, "v"), default=None),
    "count(DISTINCT v)": lambda m: len(set(_values(m, "v"))),
    "string_agg(s, '')": lambda m: "".join(_values(m, "s")) or None,
    "count(v) FILTER (WHERE v > 4)": lambda m: sum(v > 4 for v in _values(m, "v")),
    "FINAL LAST(id)": lambda m: m.final.last("id"),
    "FINAL LAST(A.id, 1)": lambda m: m.final.last("id", "A", 1),
    "FINAL count(B.v)": lambda m: len(_values(m.final, "v", "B")),
    "CAST(RUNNING sum(v) AS BIGINT)": lambda m: _sum(m),
    "CAST(FINAL sum(v) AS BIGINT)": lambda m: _sum(m.final),
    "PREV(FINAL LAST(C.id), 1)": lambda m: m.final.prev("id", 1, "C"),
    "string_agg(CLASSIFIER(), '')": lambda m: "".join(m.labels[: m.current + 1]) or None,
}
QUANTIFIERS = ("", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{,2}?", "{2,}", "{1,3}?")
OUTPUTS: dict[str, dict[str, Any]] = {
    "ONE ROW PER MATCH": {},
    "ALL ROWS PER MATCH": {"all_rows": True},
    "ALL ROWS PER MATCH OMIT EMPTY MATCHES": {"all_rows": True, "empty": False},
    "ALL ROWS PER MATCH WITH UNMATCHED ROWS": {"all_rows": True, "unmatched": True},
}
SKIPS = ("PAST LAST ROW", "PAST LAST ROW", "TO NEXT ROW", "TO FIRST B", "TO LAST C")


def _pattern(rng: random.Random, leaves: int) -> str:
    """A pattern of so many variables."""
    if leaves <= 1:
        return f"{rng.choice(VARIABLES)}{rng.choice(QUANTIFIERS)}"
    cut = rng.randint(1, leaves - 1)
    left, right = _pattern(rng, cut), _pattern(rng, leaves - cut)
    if rng.random() < 0.3:
        return f"({left} | {right}){rng.choice(QUANTIFIERS)}"
    return f"({left} {right}){rng.choice(QUANTIFIERS)}" if rng.random() < 0.3 else f"{left} {right}"


def rows_of(rng: random.Random) -> Rows:
    """A few rows of up to three keys, at times that repeat and are NULL now and then."""
    rows = [
        {
            "id": number,
            "k": rng.choice((1, 2, None)),
            "v": rng.choice((None, *range(8))),
            "s": rng.choice((None, "a", "b", "cc", "d", "e", "f")),
            "ts": None if rng.random() < 0.05 else rng.randrange(20) * SECOND,
        }
        for number in range(rng.choice((0, 1, 5, 12, 20)))
    ]
    return rows


@dataclass
class Case:
    """The match with a seed over rows; `history`: conditions may depend on the match so far."""

    seed: int
    history: bool
    rows: Rows = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        self.rows = rows_of(rng)
        self.pattern = _pattern(rng, rng.randint(1, 4 if self.history else 6))
        if rng.random() < 0.15:
            self.pattern = f"^ ({self.pattern})" if rng.random() < 0.5 else f"({self.pattern}) $"
        # DEFINE and MEASURES name all variables: those that the pattern lacks are in a part that never matches.
        missing = [v for v in VARIABLES if v not in self.pattern]
        self.full_pattern = f"({self.pattern}) | {' '.join(missing)} Z" if missing else self.pattern
        known = ROW_WISE | OF_THE_MATCH if self.history else ROW_WISE
        self.define = {v: rng.choice(list(known)) for v in VARIABLES if rng.random() < 0.8}
        self.measures = {f"m{number}": text for number, text in enumerate(rng.sample(list(MEASURES), 6))}
        self.output = rng.choice(list(OUTPUTS))
        self.skip = rng.choice(SKIPS)
        self.within = rng.choice((None, None, 3, 8))
        self.keyed = rng.random() < 0.7

    def sql(self) -> str:
        measures = ", ".join(f"{text} AS {name}" for name, text in self.measures.items())
        define = (
            ", ".join(
                [
                    *(f"{v} AS {text}" for v, text in self.define.items()),
                    *(["Z AS false"] if "Z" in self.full_pattern else []),
                ]
            )
            or "A AS true"
        )
        within = "" if self.within is None else f"WITHIN INTERVAL '{self.within} seconds'"
        shown = ", ".join(
            [*(["k"] if self.keyed else []), *(["id"] if self.output != "ONE ROW PER MATCH" else []), *self.measures]
        )
        keys = "PARTITION BY k " if self.keyed else ""
        clauses = (
            f"{keys}ORDER BY ts MEASURES {measures} {self.output} AFTER MATCH SKIP {self.skip} PATTERN "
            f"({self.full_pattern}) {within} DEFINE {define}"
        )
        return f"SELECT {shown} FROM t MATCH_RECOGNIZE ({clauses})"

    def expected(self, rows: Rows | None = None) -> Rows | None:
        """The reference's rows; None if SKIP names a row that a match does not have."""
        known = ROW_WISE | OF_THE_MATCH
        define = {v: known[text] for v, text in self.define.items()} | {"Z": lambda m: False}
        keys = ("k",) if self.keyed else ()
        options = OUTPUTS[self.output] | {
            "skip": self.skip,
            "within": None if self.within is None else self.within * SECOND,
        }
        measures = {name: MEASURES[text] for name, text in self.measures.items()}
        try:
            found = match_recognize(
                self.rows if rows is None else rows, self.full_pattern, define, measures, "ts", keys, **options
            )
        except SkipError:
            return None
        shown = (*keys, *(("id",) if self.output != "ONE ROW PER MATCH" else ()), *self.measures)
        return [{name: row[name] for name in shown} for row in found]
