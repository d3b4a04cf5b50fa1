"""MATCH_RECOGNIZE of the references: the order of preference, navigation, output, skipping and WITHIN, worked out by
hand; regular expressions as an oracle."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.duck import empty_duckdb
from tests.temporal.data import assert_same_rows, repeatable
from tests.temporal.reference.pattern import Alternatives, Anchor, Pattern, Repeat, Sequence, Variable, parse
from tests.temporal.reference.recognize import SkipError, View, less, match_recognize
from tests.temporal.reference.rows import Rows

A, B, C = Variable("A"), Variable("B"), Variable("C")


def prices(*values: int | None, k: str = "x", step: int = 10) -> Rows:
    """A price every `step` from 0 on."""
    return [{"k": k, "ts": place * step, "price": value} for place, value in enumerate(values)]


def letters(text: str) -> Rows:
    return [{"ts": place, "letter": letter} for place, letter in enumerate(text)]


def is_letter(letter: str) -> Callable[[View], bool]:
    return lambda m: m.last("letter") == letter


LETTERS = {letter.upper(): is_letter(letter) for letter in "abc"}
SPAN = {"first": lambda m: m.first("ts"), "last": lambda m: m.last("ts"), "n": lambda m: len(m.mapped())}


def spans(pattern: str, text: str, **options: Any) -> list[tuple[int | None, int | None, int]]:
    """(first time, last time, rows) of each match; a variable accepts its own letter."""
    found = match_recognize(letters(text), pattern, options.pop("define", LETTERS), SPAN, "ts", **options)
    return [(row["first"], row["last"], row["n"]) for row in found]


def down(m: View) -> bool | None:
    return less(m.last("price"), m.prev("price"))


def up(m: View) -> bool | None:
    return less(m.prev("price"), m.last("price"))


V_SHAPE: dict[str, Any] = {"pattern": "S DOWN+ UP+", "define": {"DOWN": down, "UP": up}, "order_by": "ts"}


def test_parse() -> None:
    assert parse("A B") == Sequence((A, B))
    assert parse("A | B C") == Alternatives((A, Sequence((B, C))))
    assert parse("A* B+? C?") == Sequence((Repeat(A, 0, None), Repeat(B, 1, None, greedy=False), Repeat(C, 0, 1)))
    assert parse("A{2} B{2,} C{,3}? (A){1, 2}") == Sequence(
        (Repeat(A, 2, 2), Repeat(B, 2, None), Repeat(C, 0, 3, greedy=False), Repeat(A, 1, 2))
    )
    assert parse("^ A $") == Sequence((Anchor(False), A, Anchor(True)))
    assert parse("()") == parse("") == Sequence(())
    assert parse("PERMUTE(A, B)") == Alternatives((Sequence((A, B)), Sequence((B, A))))
    for bad in ("A)", "(A", "* A", "A ; B"):
        with pytest.raises(ValueError, match="bad pattern"):
            parse(bad)


def test_v_shape() -> None:
    """Prices 10, 8, 7, 9, 12, 11, 13. S at 10, down to 7, up to 12. The search goes on past it: S at 11 has nothing
    below it and 13 ends the partition."""
    measures = {
        "start": lambda m: m.last("ts", "S"),
        "bottom": lambda m: m.last("price", "DOWN"),
        "top": lambda m: m.last("price", "UP"),
        "number": lambda m: m.match_number,
        "average": lambda m: sum(row["price"] for row in m.mapped("UP")) / len(m.mapped("UP")),
    }
    found = match_recognize(prices(10, 8, 7, 9, 12, 11, 13), measures=measures, partition_by=("k",), **V_SHAPE)
    assert found == [{"k": "x", "start": 0, "bottom": 7, "top": 12, "number": 1, "average": 10.5}]
    # From the next row after the start: 8, 7, 9, 12 as well, and 12, 11, 13.
    found = match_recognize(
        prices(10, 8, 7, 9, 12, 11, 13), measures=measures, partition_by=("k",), skip="TO NEXT ROW", **V_SHAPE
    )
    assert [(row["start"], row["bottom"], row["top"], row["number"]) for row in found] == [
        (0, 7, 12, 1),
        (10, 7, 12, 2),
        (40, 11, 13, 3),
    ]


def test_all_rows() -> None:
    """Running and final values, CLASSIFIER, and a running sum, row by row of 10, 8, 9."""
    measures = {
        "symbol": lambda m: m.classifier(),
        "low": lambda m: m.last("price", "DOWN"),
        "top": lambda m: m.final.last("price", "UP"),
        "so_far": lambda m: sum(row["price"] for row in m.mapped()),
    }
    found = match_recognize(prices(10, 8, 9), measures=measures, all_rows=True, **V_SHAPE)
    assert [tuple(row.values())[1:] for row in found] == [
        (0, 10, "S", None, 9, 10),
        (10, 8, "DOWN", 8, 9, 18),
        (20, 9, "UP", 8, 9, 27),
    ]


def test_preference() -> None:
    """Greedy takes what it can, reluctant what it must, and alternatives go from left to right even where a later one
    would be longer."""
    assert spans("A+ B", "aab") == [(0, 2, 3)]
    every = {name: lambda m: True for name in "AB"}
    assert spans("A+ B+", "xxxx", define=every) == [(0, 3, 4)]
    labels = {"labels": lambda m: "".join(m.labels)}

    def preferred(pattern: str, rows: int) -> str:
        return match_recognize(letters("x" * rows), pattern, every, labels, "ts")[0]["labels"]

    assert preferred("A+ B+", 4) == "AAAB"
    assert preferred("A+? B+", 4) == "ABBB"
    assert preferred("A+? B+?", 4) == "AB"
    assert preferred("A* B*?", 3) == "AAA"
    assert preferred("A{2,3}? B", 4) == "AAB"
    assert preferred("A{,2} B", 4) == "AAB"
    assert preferred("A | A A", 2) == "A"
    assert preferred("(A | B)+", 2) == "AA"
    assert preferred("A A | A", 1) == "A"
    assert preferred("PERMUTE(B, A)", 2) == "BA"


def test_backtracking() -> None:
    """A greedy part gives rows back until the rest fits."""
    assert spans("A* A B", "aaab") == [(0, 3, 4)]
    assert spans("(A | A B) C", "abc") == [(0, 2, 3)]
    assert spans("(A B)+ A C", "ababac") == [(0, 5, 6)]


def test_conditions_see_what_is_mapped_so_far() -> None:
    """A second row must be above the average of the rows of B before it and itself; a NULL condition is no match."""
    define = {"B": lambda m: sum(row["price"] for row in m.mapped("B")) / len(m.mapped("B")) < 10}
    found = match_recognize(prices(5, 10, 12, 30), "A B+", define, {"n": lambda m: len(m.mapped("B"))}, "ts")
    assert found == []  # 10 alone is not below 10
    found = match_recognize(prices(5, 6, 12, 30), "A B+", define, {"n": lambda m: len(m.mapped("B"))}, "ts")
    assert found == [{"n": 2}]  # 6, then (6 + 12) / 2 = 9, then 16
    assert match_recognize(prices(5, None, 3), "S DOWN", {"DOWN": down}, {"n": lambda m: 1}, "ts") == []


def test_navigation() -> None:
    """Over 1, 2, 3, 4, 5 with A A B as the first match: rows outside of the match and of the partition."""
    rows = prices(1, 2, 3, 4, 5)
    measures = {
        "a": lambda m: m.last("price", "A"),
        "a_first": lambda m: m.first("price", "A"),
        "a_second": lambda m: m.first("price", "A", 1),
        "a_before_last": lambda m: m.last("price", "A", 1),
        "none": lambda m: m.last("price", "A", 2),
        "missing": lambda m: m.last("price", "Z"),
        "before": lambda m: m.prev("price", 1, "A", ("first", 0)),
        "after": lambda m: m.next("price"),
        "after_two": lambda m: m.next("price", 2, "A"),
        "nested": lambda m: m.prev("price", 2, "B"),
    }
    found = match_recognize(rows, "A{2} B", {}, measures, "ts")
    assert [tuple(row.values()) for row in found] == [(2, 1, 2, 1, None, None, None, 4, 4, 1)]
    moved = match_recognize(rows, "A{2} B", {"A": lambda m: m.last("price") > 1}, measures, "ts")
    assert moved[0]["before"] == 1 and moved[0]["after"] == 5


def test_order_and_partitions() -> None:
    """Rows are sorted, NULL times last, ties as they come; NULL keys are one partition; numbers start at 1 in each."""
    rows = [
        {"k": None, "ts": 2, "v": "c"},
        {"k": 1, "ts": 1, "v": "x"},
        {"k": None, "ts": None, "v": "d"},
        {"k": None, "ts": 1, "v": "a"},
        {"k": None, "ts": 1, "v": "b"},
    ]
    measures = {"text": lambda m: "".join(row["v"] for row in m.mapped()), "number": lambda m: m.match_number}
    found = match_recognize(rows, "A{1,2}", {}, measures, "ts", ("k",))
    assert_same_rows(
        found,
        [
            {"k": None, "text": "ab", "number": 1},
            {"k": None, "text": "cd", "number": 2},
            {"k": 1, "text": "x", "number": 1},
        ],
    )


def test_anchors() -> None:
    assert spans("^ A", "aa") == [(0, 0, 1)]
    assert spans("A $", "aa") == [(1, 1, 1)]
    assert spans("^ A+ $", "aaa") == [(0, 2, 3)]
    assert spans("^ A $", "aa") == []
    assert spans("^ A", "aa", skip="TO NEXT ROW") == [(0, 0, 1)]


def test_empty_matches() -> None:
    """A* over b, a: the empty match at b has a number and a row of its own, with NULLs; then a is matched."""
    measures = {"n": lambda m: len(m.mapped()), "number": lambda m: m.match_number, "symbol": lambda m: m.classifier()}
    rows = letters("ba")
    assert [tuple(row.values()) for row in match_recognize(rows, "A*", LETTERS, measures, "ts")] == [
        (0, 1, None),
        (1, 2, "A"),
    ]
    shown = match_recognize(rows, "A*", LETTERS, measures, "ts", all_rows=True)
    assert [tuple(row.values()) for row in shown] == [(0, "b", 0, 1, None), (1, "a", 1, 2, "A")]
    omitted = match_recognize(rows, "A*", LETTERS, measures, "ts", all_rows=True, empty=False)
    assert [tuple(row.values()) for row in omitted] == [(1, "a", 1, 2, "A")]
    assert spans("(A*)*", "aab") == [(0, 1, 2), (None, None, 0)]
    assert spans("(A?){2,3}", "a") == [(0, 0, 1)]
    assert spans("(A*? | A)*", "aa") == [(0, 1, 2)]
    assert spans("()", "ab") == [(None, None, 0), (None, None, 0)]


def test_unmatched_rows() -> None:
    measures = {"number": lambda m: m.match_number}
    found = match_recognize(letters("abca"), "A B", LETTERS, measures, "ts", all_rows=True, unmatched=True)
    assert_same_rows(
        found,
        [
            {"ts": t, "letter": letter, "number": n}
            for t, letter, n in ((0, "a", 1), (1, "b", 1), (2, "c", None), (3, "a", None))
        ],
    )


def test_skip() -> None:
    """A B+ over a b b a b: where the search goes on after [0, 2]."""
    text = "abbab"
    assert spans("A B+", text) == [(0, 2, 3), (3, 4, 2)]
    assert spans("A B+", text, skip="TO NEXT ROW") == [(0, 2, 3), (3, 4, 2)]
    assert spans("X B+", "abbb", skip="TO NEXT ROW") == [(0, 3, 4), (1, 3, 3), (2, 3, 2)]
    assert spans("X B+", "abbb", skip="TO FIRST B") == [(0, 3, 4), (1, 3, 3), (2, 3, 2)]
    assert spans("X B+", "abbb", skip="TO LAST B") == [(0, 3, 4)]
    assert spans("X B C+", "abccb", skip="TO LAST C") == [(0, 3, 4)]
    assert spans("X B", "abb", skip="TO B") == [(0, 1, 2), (1, 2, 2)]


def test_skip_that_cannot_be() -> None:
    with pytest.raises(SkipError, match="first row of the match"):
        spans("A B", "ab", skip="TO FIRST A")
    with pytest.raises(SkipError, match="mapped to C"):
        spans("A B C?", "ab", skip="TO LAST C")
    with pytest.raises(SkipError, match="first row of the match"):
        spans("A+", "a", skip="TO A")
    assert spans("A*", "b", skip="TO A") == [(None, None, 0)]  # an empty match goes on at the next row


def test_within() -> None:
    """Rows every 10. A row 30 after the first is outside of 30; within 31 it is inside. The search takes the longest
    match inside, not the first that fails."""
    rows = prices(1, 2, 3, 4, 5)
    count = {"n": lambda m: len(m.mapped()), "from": lambda m: m.first("ts")}
    assert [tuple(row.values()) for row in match_recognize(rows, "A+", {}, count, "ts", within=30)] == [(3, 0), (2, 30)]
    assert [tuple(row.values()) for row in match_recognize(rows, "A+", {}, count, "ts", within=31)] == [(4, 0), (1, 40)]
    assert match_recognize(rows, "A{4}", {}, count, "ts", within=30) == []
    # A match of one row lasts no time; a row without a time is in none.
    assert len(match_recognize(rows, "A", {}, count, "ts", within=1)) == 5
    assert match_recognize([{"ts": None}], "A", {}, count, "ts", within=1) == []
    assert len(match_recognize([{"ts": None}], "A", {}, count, "ts")) == 1


SYMBOLS = st.sampled_from(["A", "B", "C"])
QUANTIFIERS = st.sampled_from(["", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{,2}?"])
PATTERNS = st.recursive(
    SYMBOLS,
    lambda part: (
        st.builds(lambda one, quantifier: f"({one}){quantifier}", part, QUANTIFIERS)
        | st.lists(part, min_size=1, max_size=3).map(" ".join)
        | st.lists(part, min_size=2, max_size=3).map(lambda parts: f"({' | '.join(parts)})")
    ),
    max_leaves=5,
)


def _may_be_empty(pattern: Pattern) -> bool:
    match pattern:
        case Variable():
            return False
        case Sequence(parts):
            return all(map(_may_be_empty, parts))
        case Alternatives(parts):
            return any(map(_may_be_empty, parts))
        case Repeat(part, least):
            return least == 0 or _may_be_empty(part)
    return True


def _repeats_nothing(pattern: Pattern) -> bool:
    """Whether a repetition may take no row. Regular expressions differ there: Python's ends at it, ECMAScript's and
    ours goes on to the next alternative, as an automaton does."""
    match pattern:
        case Sequence(parts) | Alternatives(parts):
            return any(map(_repeats_nothing, parts))
        case Repeat(part):
            return _may_be_empty(part) or _repeats_nothing(part)
    return False


@repeatable(300)
@hypothesis.given(PATTERNS, st.text("abc", max_size=7), st.booleans(), st.booleans())
def test_preference_is_that_of_regular_expressions(pattern: str, text: str, at_start: bool, at_end: bool) -> None:
    """Where a variable accepts one letter, the preferred match is that of a backtracking regular expression with the
    same text."""
    anchored = f"{'^' if at_start else ''} ({pattern}) {'$' if at_end else ''}"
    expression = re.compile(anchored.lower().replace(" ", "").replace("$", r"\Z").replace("{,", "{0,"))
    hypothesis.assume(not _repeats_nothing(parse(anchored)))
    expected, position = [], 0
    while position < len(text):
        match = expression.match(text, position)
        if match is None or (at_start and position):
            position += 1
            continue
        expected.append((position, match.end() - position))
        position = max(match.end(), position + 1)
    found = match_recognize(
        letters(text), anchored, LETTERS, {"start": lambda m: m.start, "n": lambda m: len(m.labels)}, "ts"
    )
    assert [(row["start"], row["n"]) for row in found] == expected


def test_v_shape_against_duckdb() -> None:
    """S DOWN UP (one row each) with TO NEXT ROW is what LAG and LEAD say."""
    values = [(place * 7919) % 23 for place in range(60)]
    rows = prices(*values)
    found = match_recognize(
        rows, "S DOWN UP", {"DOWN": down, "UP": up}, {"ts": lambda m: m.last("ts", "S")}, "ts", skip="TO NEXT ROW"
    )
    with empty_duckdb() as connection:
        connection.execute("CREATE TABLE p (ts BIGINT, price BIGINT)")
        connection.executemany("INSERT INTO p VALUES (?, ?)", [(row["ts"], row["price"]) for row in rows])
        expected = connection.sql(
            "SELECT ts FROM p QUALIFY lead(price) OVER (ORDER BY ts) < price AND lead(price, 2) OVER "
            "(ORDER BY ts) > lead(price) OVER (ORDER BY ts)"
        ).to_arrow_table()
    assert len(found) > 5
    assert_same_rows(found, expected)
