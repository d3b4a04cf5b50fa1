"""MATCH_RECOGNIZE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.temporal.constructs import Construct
from tests.temporal.data import selected
from tests.temporal.reference.recognize import Condition, View, less, match_recognize
from tests.temporal.reference.rows import SECOND, values


def down(m: View) -> Any:
    return less(m.last("v"), m.prev("v"))


def up(m: View) -> Any:
    return less(m.prev("v"), m.last("v"))


DEFINITIONS = {"DOWN": "DOWN AS v < PREV(v)", "UP": "UP AS v > PREV(v)"}
DEFINE = f"DEFINE {', '.join(DEFINITIONS.values())}"
MOVES: Mapping[str, Condition] = {"DOWN": down, "UP": up}
MEASURES: Mapping[str, Condition] = {
    "first_id": lambda m: m.first("id"),
    "last_id": lambda m: m.last("id"),
    "n": lambda m: len(m.mapped()),
    "number": lambda m: m.match_number,
}
MEASURED = "MEASURES FIRST(id) AS first_id, LAST(id) AS last_id, count(*) AS n, MATCH_NUMBER() AS number"


def _pattern(
    name: str,
    pattern: str,
    more: str = "",
    define: str | None = None,
    conditions: Mapping[str, Condition] = MOVES,
    **options: Any,
) -> Construct:
    """One row per match, by key; `more` stands before PATTERN, and WITHIN after it if it is in `options`. DEFINE may
    only name variables of the pattern."""
    if define is None:
        define = f"DEFINE {', '.join(text for variable, text in DEFINITIONS.items() if variable in pattern)}"
    within = f" WITHIN INTERVAL '{options['within'] // SECOND} seconds'" if "within" in options else ""
    return Construct(
        name,
        (
            "SELECT k, first_id, last_id, n, number FROM events MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts "
            f"{MEASURED} {more} PATTERN ({pattern}){within} {define})"
        ),
        lambda t: match_recognize(t["events"], pattern, conditions, MEASURES, "ts", ("k",), **options),
        keep={"events": ("k", "ts")},
    )


PATTERNS = (
    _pattern("a fall and a rise", "S DOWN+ UP+"),
    _pattern("reluctant", "S DOWN+? UP*? UP"),
    _pattern("alternatives", "(DOWN | UP UP) S"),
    _pattern("bounds", "S UP{1,2} DOWN{,2}?"),
    _pattern("optional parts", "S? DOWN UP?"),
    _pattern("empty matches", "UP*"),
    _pattern("at the start", "^ S UP*"),
    _pattern("at the end", "S DOWN* $"),
    _pattern("to the next row", "S DOWN* UP", "ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW", skip="TO NEXT ROW"),
    _pattern("to the first of a variable", "S UP+", "AFTER MATCH SKIP TO FIRST UP", skip="TO FIRST UP"),
    _pattern("to the last of a variable", "S UP+", "AFTER MATCH SKIP TO LAST UP", skip="TO LAST UP"),
    _pattern("within", "S (UP | DOWN)*", within=5 * SECOND),
    _pattern(
        "aggregates in conditions",
        "A B*",
        define="DEFINE B AS sum(B.v) < 20 AND B.v >= FIRST(A.v)",
        conditions={
            "B": lambda m: (
                less(sum(values(m.mapped("B"), "v")) if values(m.mapped("B"), "v") else None, 20)
                and _at_least(m.last("v", "B"), m.first("v", "A"))
            )
        },
    ),
    _pattern(
        "steps forwards and back",
        "A B",
        define="DEFINE A AS NEXT(v) > v, B AS PREV(v, 2) IS NULL OR v > PREV(v, 2)",
        conditions={
            "A": lambda m: less(m.last("v"), m.next("v")),
            "B": lambda m: m.prev("v", 2) is None or less(m.prev("v", 2), m.last("v")),
        },
    ),
    Construct(
        "all rows per match",
        "SELECT id, symbol, low, top, so_far FROM events MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts "
        "MEASURES CLASSIFIER() AS symbol, LAST(DOWN.v) AS low, FINAL LAST(UP.v) AS top, count(UP.v) AS so_far "
        f"ALL ROWS PER MATCH PATTERN (S DOWN+ UP+) {DEFINE})",
        lambda t: selected(
            match_recognize(
                t["events"],
                "S DOWN+ UP+",
                MOVES,
                {
                    "symbol": lambda m: m.classifier(),
                    "low": lambda m: m.last("v", "DOWN"),
                    "top": lambda m: m.final.last("v", "UP"),
                    "so_far": lambda m: len(values(m.mapped("UP"), "v")),
                },
                "ts",
                ("k",),
                all_rows=True,
            ),
            "id",
            "symbol",
            "low",
            "top",
            "so_far",
        ),
        keep={"events": ("k", "ts")},
    ),
)


def _at_least(one: Any, other: Any) -> bool | None:
    return None if one is None or other is None else one >= other
