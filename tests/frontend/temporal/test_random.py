"""Random combinations of the constructs: the canonical text reads back to an equal tree, whatever is nested in what."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.frontend.temporal.examples import EXAMPLES
from tests.fuzz.amount import examples
from tsql.grammar.dialect import Temporal
from tsql.grammar.generator import to_duckdb
from tsql.grammar.parser.statements import parse
from tsql.grammar.time.intervals import constant_interval, length_us
from tsql.grammar.time.pattern import pattern_text, read_pattern
from tsql.kernels.expr.errors import ParseError

SETTINGS = settings(max_examples=examples(80), deadline=None, derandomize=True)
NAMES = st.sampled_from(["a", "b", "ts", "emit", "clip", "hop", "session", "within", '"a b"', '"select"'])
UNITS = st.sampled_from(["SECOND", "minutes", "Hour", "DAYS", "week"])


@st.composite
def intervals(draw, low=1):
    count = draw(st.integers(low, 60))
    unit = draw(UNITS)
    return draw(
        st.sampled_from(
            [
                f"INTERVAL '{count} {unit.lower()}'",
                f"INTERVAL '{count}' {unit}",
                f"INTERVAL {count} {unit}",
                f"INTERVAL ({count}) {unit}",
            ]
        )
    )


def listed(draw, options, fixed=()):
    """Arguments in a random order, behind those that are given by their places."""
    return ", ".join(
        [
            *fixed,
            *(
                f"{name} {draw(st.sampled_from(['=>', ':=']))} {value}"
                for name, value in draw(st.permutations(options))
            ),
        ]
    )


@st.composite
def functions(draw, depth):
    """A function of time over a random input."""
    source = draw(relations(depth - 1, aliased=True))
    keys = draw(st.sampled_from(["", "", " PARTITION BY k", " PARTITION BY (k, a + 1)"]))
    time = draw(st.sampled_from(["ts", "b.ts", "ts + INTERVAL '1 day'", "CAST(ts AS TIMESTAMP)"]))
    length = lambda: draw(intervals())
    extra = draw(st.lists(st.sampled_from([("offset", "INTERVAL '-1 hour'"), ("timezone", "'UTC'")]), unique=True))
    match draw(
        st.sampled_from(
            [
                "tumble",
                "rows",
                "hop",
                "hop rows",
                "cumulate",
                "session",
                "lifetime",
                "end",
                "slide",
                "one",
                "chop",
                "quantize",
                "none",
                "flink",
            ]
        )
    ):
        case "tumble":
            return f"TUMBLE({source}{keys}, {listed(draw, [('size', length()), *extra], [time])})"
        case "rows":
            return f"tumble({source}{keys}, {listed(draw, [('rows', draw(st.integers(1, 9))), ('time', time)])})"
        case "hop":
            return f"HOP({source}{keys}, {listed(draw, [('slide', length()), ('size', length()), *extra], [time])})"
        case "hop rows":
            return (
                f"HOP({source}{keys}, {listed(draw, [('slide_rows', draw(st.integers(1, 9))), ('rows', 5)], [time])})"
            )
        case "cumulate":
            step = draw(st.integers(1, 9))
            return (
                f"CUMULATE({source}, {time}, INTERVAL '{step} hours', INTERVAL "
                f"'{step * draw(st.integers(1, 9))} hours')"
            )
        case "session":
            return f"SESSION({source}{keys}, {listed(draw, [('gap', length()), ('max_size', length())], [time])})"
        case "lifetime":
            return f"LIFETIME({source}, {listed(draw, [('start', time), ('duration', length() + ' * a')])})"
        case "end":
            return f"LIFETIME({source}, {time}, end => te)"
        case "slide":
            return f"SLIDE({source}, {time}, {length()})"
        case "one":
            return f"{draw(st.sampled_from(['SHIFT', 'EXTEND', 'CLIP']))}({source}, {length()})"
        case "chop":
            return f"CHOP({source}, {listed(draw, [('size', length()), ('offset', length())])})"
        case "quantize":
            return f"QUANTIZE({source}, {listed(draw, [('slide', length()), ('size', length())])})"
        case "none":
            return f"{draw(st.sampled_from(['STITCH', 'POINT_AT_END', 'LIFETIME']))}({source})"
    return f"TABLE(TUMBLE(TABLE bids{keys}, DESCRIPTOR({time}), {length()}))"


@st.composite
def patterns(draw, depth=3):
    kind = draw(
        st.sampled_from(
            ["variable", "sequence", "choice", "repeat", "group", "anchor", "empty"] if depth else ["variable"]
        )
    )
    match kind:
        case "sequence":
            return " ".join(
                f"({part})" if "|" in part else part
                for part in draw(st.lists(patterns(depth - 1), min_size=1, max_size=3))
            )
        case "choice":
            return draw(st.sampled_from(["|", " | "])).join(draw(st.lists(patterns(depth - 1), min_size=2, max_size=3)))
        case "repeat":
            low = draw(st.integers(0, 3))
            quantifier = draw(
                st.sampled_from(["*", "+", "?", f"{{{low + 1}}}", f"{{{low},}}", f"{{{low},{low + 2}}}", "{,4}"])
            )
            return f"({draw(patterns(depth - 1))}){quantifier}{draw(st.sampled_from(['', '?']))}"
        case "group":
            return f"({draw(patterns(depth - 1))})"
        case "anchor":
            return draw(st.sampled_from(["^ A", "A $"]))
        case "empty":
            return "()"
    return draw(st.sampled_from(["A", "B", "C", '"d e"']))


@st.composite
def matches(draw, depth):
    source = draw(relations(depth - 1, aliased=True))
    clauses = [
        draw(st.sampled_from(["", "PARTITION BY k", "PARTITION BY k, a + 1"])),
        draw(st.sampled_from(["", "ORDER BY ts", "ORDER BY ts DESC, a"])),
        draw(
            st.sampled_from(
                ["", "MEASURES FINAL last(A.x, 1) AS f", "MEASURES match_number() AS n, RUNNING count(A.*) + 1 AS m"]
            )
        ),
        draw(st.sampled_from(["", "ONE ROW PER MATCH", "ALL ROWS PER MATCH", "ALL ROWS PER MATCH SHOW EMPTY MATCHES"])),
        draw(
            st.sampled_from(
                [
                    "",
                    "AFTER MATCH SKIP PAST LAST ROW",
                    "AFTER MATCH SKIP TO NEXT ROW",
                    "AFTER MATCH SKIP TO A",
                    "AFTER MATCH SKIP TO FIRST A",
                ]
            )
        ),
        f"PATTERN (A {draw(patterns())})".replace("A ^", "^ A")
        if draw(st.booleans())
        else f"PATTERN (A ({draw(patterns())}))",
        draw(st.sampled_from(["", f"WITHIN {draw(intervals())}"])),
        draw(st.sampled_from(["", "SUBSET u = (A)"])),
        "DEFINE A AS prev(A.x, 2) > next(x) OR first(A.y) = classifier()",
    ]
    return f"{source} MATCH_RECOGNIZE ({' '.join(filter(None, clauses))})"


@st.composite
def relations(draw, depth, aliased=False):
    kinds = ["name"] if depth <= 0 else ["name", "function", "function", "query", "match"]
    match draw(st.sampled_from(kinds)):
        case "function":
            text = draw(functions(depth))
        case "query":
            text = f"({draw(queries(depth - 1, inner=True))})"
        case "match":
            text = draw(matches(depth))
        case _:
            text = draw(st.sampled_from(["t", "bids", "'x/*.parquet'", "read_csv('y.csv')", '"my table"']))
    return f"{text} AS {draw(NAMES)}" if aliased and draw(st.booleans()) else text


@st.composite
def joins(draw, depth):
    right = draw(relations(depth - 1))
    match draw(st.sampled_from(["asof", "clip", "as of", "plain", "comma"])):
        case "asof":
            side = draw(st.sampled_from(["", " LEFT", " INNER"]))
            condition = draw(st.sampled_from(["ON x.k = y.k AND x.ts >= y.ts", "USING (k, ts)"]))
            return f" ASOF{side} JOIN {right} AS y {condition}" + draw(
                st.sampled_from(["", f" TOLERANCE {draw(intervals(0))}"])
            )
        case "clip":
            return f" CLIP JOIN {right} AS y ON x.k = y.k"
        case "as of":
            word = draw(st.sampled_from(["VALID_TIME", "SYSTEM_TIME"]))
            return f" LEFT JOIN rates FOR {word} AS OF x.ts + {draw(intervals())} AS r ON x.k = r.k"
        case "plain":
            return f" FULL JOIN {right} AS y ON TRUE"
    return f", {right}"


@st.composite
def queries(draw, depth, inner=False):
    prefix = draw(st.sampled_from(["", "", "SEQUENCED VALIDTIME "]))
    chain = "".join(draw(st.lists(joins(depth), max_size=2))) if depth > 0 else ""
    text = f"{prefix}SELECT a, count(*) AS n FROM {draw(relations(depth))} AS x{chain}"
    text += draw(st.sampled_from(["", " WHERE a IN (SELECT 1)", " GROUP BY a", " GROUP BY ALL HAVING n > 1"]))
    text += draw(st.sampled_from(["", " UNION ALL SELECT 1, 2", " ORDER BY a", " LIMIT 3"]))
    if inner:
        return text
    if draw(st.booleans()):
        text = f"WITH c AS ({draw(queries(depth - 1, inner=True))}) {text}"
    span = draw(intervals())
    emit = [
        " EMIT FINAL",
        f" EMIT CHANGES WITHIN {span}",
        f" EMIT EVERY {span} BEFORE WATERMARK, CHANGES AFTER WATERMARK",
        f" PROGRESSIVE EVERY 2.5 PERCENT WITHIN {span} SEED 3",
    ]
    return text + draw(st.sampled_from(["", *emit]))


@SETTINGS
@given(queries(2))
def test_canonical_text_reads_back(text):
    (first,) = parse(text)
    shown = Temporal().generate(first.node)
    (second,) = parse(shown)
    assert second.node == first.node
    assert Temporal().generate(second.node) == shown


@SETTINGS
@given(patterns(4))
def test_patterns_read_back(text):
    node, end = read_pattern(f"({text})", 1)
    assert end == len(text) + 1
    shown = pattern_text(node)
    assert read_pattern(f"({shown})", 1)[0] == node
    assert pattern_text(read_pattern(f"({shown})", 1)[0]) == shown


@SETTINGS
@given(intervals(0))
def test_literal_intervals_have_the_length_that_duckdb_gives_them(text):
    import duckdb

    (statement,) = parse(f"SELECT {text}")
    theirs = duckdb.sql(to_duckdb(f"SELECT {text}")).fetchall()[0][0]
    parts = constant_interval(statement.node.expressions[0])
    assert parts is not None and length_us(parts) == round(theirs.total_seconds() * 1_000_000)


def test_damaged_statements_are_read_or_refused():
    """A word is dropped, doubled, exchanged or taken from elsewhere. What is refused is refused by the grammar: an
    error that has a cause would mean that the parser has stumbled over its own feet."""
    words = [[text[token.start : token.end + 1] for token in parse(text)[0].tokens] for text in EXAMPLES]
    anywhere = [word for statement in words for word in statement]
    choice = random.Random(7)
    refused = 0
    for _ in range(1500):
        statement = list(choice.choice(words))
        place, other = choice.randrange(len(statement)), choice.randrange(len(statement))
        match choice.randrange(4):
            case 0:
                statement.pop(place)
            case 1:
                statement.insert(place, statement[place])
            case 2:
                statement[place] = choice.choice(anywhere)
            case _:
                statement[place], statement[other] = statement[other], statement[place]
        try:
            parse(" ".join(statement))
        except ParseError as error:
            refused += 1
            assert error.position is not None and error.__cause__ is None, " ".join(statement)
    assert refused > 500
