"""Text to tree and back: the canonical text reads back to an equal tree, and two spellings of one thing give one
tree."""

from __future__ import annotations

import pytest

from tests.frontend.temporal.examples import EXAMPLES
from tsql.grammar.dialect import Temporal
from tsql.grammar.parser.statements import parse
from tsql.kernels.expr.errors import ParseError


def tree(text):
    (statement,) = parse(text)
    return statement.node


def canonical(text):
    return Temporal().generate(tree(text))


@pytest.mark.parametrize("text", EXAMPLES)
def test_canonical_text_reads_back(text):
    shown = canonical(text)
    assert tree(shown) == tree(text)
    assert canonical(shown) == shown


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_tree_is_a_copy_of_itself(text):
    assert tree(text).copy() == tree(text)


@pytest.mark.parametrize("text", EXAMPLES)
def test_a_statement_that_ends_anywhere_is_read_or_refused(text):
    (statement,) = parse(text)
    for token in statement.tokens[:-1]:
        part = text[: token.end + 1]
        try:
            parse(part)
        except ParseError as error:
            assert error.position is not None
            assert error.message and "\n" not in error.message and "sqlglot" not in error.message


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("FROM TABLE(TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '10' MINUTES))",
         "TUMBLE(b, ts, size => INTERVAL '10' MINUTES)"),
        ("FROM TABLE(HOP(TABLE b, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '2' HOUR))",
         "HOP(b, ts, slide => INTERVAL '1' HOUR, size => INTERVAL '2' HOUR)"),
        ("FROM TABLE(CUMULATE(TABLE b, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '2' HOUR))",
         "CUMULATE(b, ts, step => INTERVAL '1' HOUR, size => INTERVAL '2' HOUR)"),
        ("FROM TABLE(SESSION(TABLE b PARTITION BY x, DESCRIPTOR(ts), INTERVAL '1' HOUR))",
         "SESSION(b PARTITION BY x, ts, gap => INTERVAL '1' HOUR)"),
        ("FROM TABLE(SESSION(TABLE b PARTITION BY (x, y), DESCRIPTOR(ts), INTERVAL '1' HOUR))",
         "SESSION(b PARTITION BY (x, y), ts, gap => INTERVAL '1' HOUR)"),
        ("FROM TABLE(SESSION(TABLE b PARTITION BY x, y, DESCRIPTOR(ts), INTERVAL '1' HOUR))",
         "SESSION(b PARTITION BY (x, y), ts, gap => INTERVAL '1' HOUR)"),
        ("FROM tumble(b, size => INTERVAL '1 hour', time => ts)", "TUMBLE(b, ts, size => INTERVAL '1 hour')"),
        ("FROM TUMBLE(b PARTITION BY (x), ts, ROWS := 3)", "TUMBLE(b PARTITION BY x, ts, rows => 3)"),
        ("FROM LIFETIME(b, ts, INTERVAL '1 hour')", "LIFETIME(b, start => ts, duration => INTERVAL '1 hour')"),
        ("FROM a JOIN b FOR SYSTEM_TIME AS OF a.ts r ON TRUE", "a JOIN b FOR VALID_TIME AS OF a.ts AS r ON TRUE"),
        ("FROM t MATCH_RECOGNIZE (AFTER MATCH SKIP TO A PATTERN ((A) ((B C))) DEFINE A AS TRUE)",
         "t MATCH_RECOGNIZE (AFTER MATCH SKIP TO LAST A PATTERN (A B C) DEFINE A AS TRUE)"),
        ("FROM t MATCH_RECOGNIZE (PATTERN ((A|B)|C{1,}D{0,1}E{0,}) DEFINE A AS TRUE)",
         "t MATCH_RECOGNIZE (PATTERN (A | B | C+ D? E*) DEFINE A AS TRUE)"),
    ],
)  # fmt: skip
def test_other_spellings(text, shown):
    assert canonical(text) == f"SELECT * FROM {shown}"


@pytest.mark.parametrize("text", [text for text in EXAMPLES if '"' not in text])
def test_words_are_read_in_any_case(text):
    parts = text.split("'")
    lowered = "'".join(part if place % 2 else part.lower() for place, part in enumerate(parts))
    assert canonical(lowered).lower() == canonical(text).lower()


def test_comments_and_lines_between_the_words():
    spread = """SELECT * FROM t MATCH_RECOGNIZE ( PARTITION
        BY a ORDER
        BY ts -- order
        PATTERN /* the pattern */ ( A -- first
        B /* then | */ + ? ) DEFINE A AS TRUE ) AS m EMIT
        FINAL"""
    assert tree(spread) == tree(
        "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY a ORDER BY ts PATTERN (A B+?) DEFINE A AS TRUE) AS m EMIT FINAL"
    )
