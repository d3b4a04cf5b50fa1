"""The trees that the analyzer gets: which node stands where, with which args."""

from __future__ import annotations

import pytest
from sqlglot import exp

from tests.frontend.temporal.examples import EXAMPLES
from tsql.grammar.dialect import Temporal
from tsql.grammar.parser.statements import parse
from tsql.grammar.time import match_nodes, nodes
from tsql.grammar.time.intervals import constant_interval, shown
from tsql.grammar.time.match_nodes import (
    PatternAnchor,
    PatternChoice,
    PatternRepeat,
    PatternSequence,
    PatternVariable,
    RowMatch,
)
from tsql.grammar.time.parameters import PARAMETERS, USAGE
from tsql.grammar.time.pattern import pattern_text, read_pattern
from tsql.planner.bind.query_text import position_of
from tsql.planner.bind.syntax_nodes import CallNode


def tree(text):
    (statement,) = parse(text)
    return statement.node


def first(text):
    """The first relation of FROM."""
    return tree(text).args["from_"].this


def test_every_node_is_in_an_example():
    seen = {type(node) for text in EXAMPLES for node in tree(text).walk()}
    abstract = {nodes.TimeFunction, nodes.WindowFunction, nodes.LifetimeFunction, match_nodes.Pattern}
    wanted = {
        kind
        for module in (nodes, match_nodes)
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__
    }
    assert wanted - abstract <= seen


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_node_of_time_has_its_place(text):
    for node in tree(text).walk():
        if type(node).__module__.startswith("tsql.grammar.time"):
            place = position_of(node)
            assert place is not None and 0 <= place < len(text)


def test_parameters_are_args():
    assert set(PARAMETERS) == set(USAGE) == set(nodes.FUNCTIONS.values())
    for kind, parameters in PARAMETERS.items():
        assert {p.name for p in parameters} | {"this", "partition_by"} == set(kind.arg_types)


def test_usage_can_be_parsed():
    for usage in USAGE.values():
        for call in usage.split(" or "):
            assert isinstance(first(f"FROM {call}").this, nodes.TimeFunction)


def test_a_function_of_time_is_the_this_of_a_table():
    table = first(
        "SELECT * FROM HOP(bids b PARTITION BY k, b.ts, slide => INTERVAL '1 minute', size => INTERVAL '10 "
        "minutes') AS w(x, y) JOIN z ON TRUE"
    )
    assert isinstance(table, exp.Table)
    assert table.alias == "w"
    assert [column.name for column in table.args["alias"].args["columns"]] == ["x", "y"]
    hop = table.this
    assert isinstance(hop, nodes.Hop)
    assert isinstance(hop.this, exp.Table) and (hop.this.name, hop.this.alias) == ("bids", "b")
    assert [key.name for key in hop.args["partition_by"]] == ["k"]
    assert hop.args["time"] == exp.column("ts", "b")
    assert [constant_interval(hop.args[key]) for key in ("slide", "size")] == [(0, 0, 60_000_000), (0, 0, 600_000_000)]


def test_functions_of_time_nest():
    outer = first("FROM TUMBLE(SHIFT(LIFETIME((SELECT * FROM a), start => ts), INTERVAL '1 hour'), ts, rows => 3)").this
    assert [type(node) for node in outer.walk() if isinstance(node, nodes.TimeFunction)] == [
        nodes.Tumble,
        nodes.Shift,
        nodes.Lifetime,
    ]
    assert isinstance(outer.this.this.this.this.this, exp.Subquery)


def test_the_names_are_ordinary_outside_of_from():
    query = tree("SELECT tumble(ts), session, t.hop FROM t AS clip WHERE slide(1) = shift")
    assert [call.name for call in query.find_all(CallNode)] == ["tumble", "slide"]
    assert not list(query.find_all(nodes.TimeFunction))
    assert not list(tree('SELECT * FROM "TUMBLE"(t, ts)').find_all(nodes.TimeFunction))
    assert first("SELECT * FROM tumble").name == "tumble"


def test_asof_join():
    (join,) = tree("SELECT * FROM t ASOF LEFT JOIN q ON t.ts >= q.ts TOLERANCE INTERVAL '1 second'").args["joins"]
    assert type(join) is nodes.AsofJoin
    assert (join.method, join.side) == ("ASOF", "LEFT")
    assert constant_interval(join.args["tolerance"]) == (0, 0, 1_000_000)
    (join,) = tree("SELECT * FROM t ASOF JOIN q USING (k, ts)").args["joins"]
    assert (
        type(join) is nodes.AsofJoin
        and join.args.get("tolerance") is None
        and [name.name for name in join.args["using"]] == ["k", "ts"]
    )


def test_clip_join():
    (join, other) = tree("SELECT * FROM t CLIP JOIN q ON t.k = q.k JOIN z ON TRUE").args["joins"]
    assert type(join) is nodes.ClipJoin and join.method == "CLIP"
    assert type(other) is exp.Join


def test_as_of():
    (join,) = tree("SELECT * FROM o JOIN rates FOR VALID_TIME AS OF o.ts AS r ON TRUE").args["joins"]
    assert isinstance(join.this.args["version"], nodes.AsOf)
    assert join.this.args["version"].this == exp.column("ts", "o")
    assert (join.this.name, join.this.alias) == ("rates", "r")


def test_sequenced_is_around_the_whole_query():
    query = tree("SEQUENCED VALIDTIME SELECT a FROM t UNION SELECT b FROM u ORDER BY 1 EMIT FINAL")
    assert isinstance(query, nodes.Sequenced) and isinstance(query.this, exp.Union)
    assert query.this.args["order"] is not None and query.args["emit"].name == "FINAL"
    query = tree("WITH c AS (SELECT 1) SEQUENCED VALIDTIME WITH d AS (SELECT 2) SELECT * FROM c, d")
    assert [cte.alias for cte in query.args["with_"].expressions] == ["c"]
    assert [cte.alias for cte in query.this.args["with_"].expressions] == ["d"]


@pytest.mark.parametrize(("sql", "is_clause"), [
    ("SELECT count(*) FROM t PROGRESSIVE", True),
    ("SELECT count(*) FROM t AS u JOIN v USING (a) PROGRESSIVE", True),
    ("FROM t PROGRESSIVE", True),
    ("SELECT a FROM t WHERE a > 1 PROGRESSIVE", True),
    ("SELECT progressive.a FROM t progressive", False),
    ("SELECT a FROM t AS progressive", False),
    ('SELECT a FROM t "PROGRESSIVE"', False),
    ("SELECT a FROM t progressive WHERE a > 1", False),
    ("SELECT a FROM (SELECT a FROM t progressive)", False),
    ("SELECT 1 progressive", False),
])  # fmt: skip
def test_progressive_is_the_last_word(sql: str, is_clause: bool) -> None:
    """Behind a table it is an alias only if it can be of use as one."""
    assert (tree(sql).args.get("progressive") is not None) == is_clause


def test_emit_is_an_arg_of_the_outermost_query():
    query = tree(
        "WITH c AS (SELECT 1) SELECT a FROM t UNION SELECT b FROM u EMIT EVERY INTERVAL '1 second' BEFORE "
        "WATERMARK, CHANGES AFTER WATERMARK WITHIN INTERVAL '2 seconds'"
    )
    emit = query.args["emit"]
    assert isinstance(query, exp.Union) and emit.name == "EVERY"
    assert emit.args["before_watermark"] is emit.args["changes_after_watermark"] is True
    assert [constant_interval(emit.args[key])[2] for key in ("every", "within")] == [1_000_000, 2_000_000]
    progressive = tree("SELECT a FROM t PROGRESSIVE EVERY 5 PERCENT SEED 7 UNTIL ERROR <= 0.02").args["progressive"]
    assert {key: value.name for key, value in progressive.args.items()} == {
        "every": "5",
        "unit": "PERCENT",
        "seed": "7",
        "until_error": "0.02",
    }


def test_create_stream():
    stream = tree(EXAMPLES[0])
    assert isinstance(stream, nodes.CreateStream) and stream.this.name == "bids"
    assert [type(part) for part in stream.expressions] == [exp.ColumnDef] * 4 + [nodes.Watermark]
    mark = stream.expressions[-1]
    assert mark.this.name == "ts" and isinstance(mark.expression, exp.Sub) and mark.args["on_late"].name == "DROP"
    assert [constant_interval(mark.args[key])[2] for key in ("idle_timeout", "allowed_lateness")] == [
        30_000_000,
        60_000_000,
    ]
    assert {option.name: option.args["value"].name for option in stream.args["options"].expressions} == {
        "connector": "parquet",
        "path": "bids/*.parquet",
    }


def test_period_and_options_of_a_table():
    create = tree(
        "CREATE TABLE rates (vs TIMESTAMP, ve TIMESTAMP, PERIOD FOR valid_time (vs, ve)) WITH (path = 'x', "
        "format = 'csv')"
    )
    period = create.this.expressions[-1]
    assert isinstance(period, nodes.Period)
    assert [period.args[key].name for key in ("this", "start", "end")] == ["valid_time", "vs", "ve"]
    (options,) = create.args["properties"].expressions
    assert [option.name for option in options.expressions] == ["path", "format"]


def test_match_recognize():
    table = first(next(text for text in EXAMPLES if "start_ts" in text))
    match = table.this
    assert isinstance(match, RowMatch) and (match.this.name, table.alias) == ("trades", "m")
    assert [key.name for key in match.args["partition_by"]] == ["sym"]
    assert [measure.alias for measure in match.args["measures"]] == ["start_ts", "x", "n", "c"]
    assert [node.args["kind"].name for node in match.args["measures"][1].find_all(match_nodes.MatchSemantics)] == [
        "FINAL",
        "RUNNING",
    ]
    assert match.args["rows"].name == "ONE ROW PER MATCH"
    assert match.args["after"].name == "PAST LAST ROW"
    assert constant_interval(match.args["within"]) == (0, 0, 3_600_000_000)
    assert [(one.name, [member.name for member in one.expressions]) for one in match.args["subset"]] == [
        ("u", ["A", "B"])
    ]
    assert [one.alias for one in match.args["define"]] == ["B", "C"]
    assert [call.name for call in match.args["define"][0].find_all(CallNode)] == ["prev"]
    assert pattern_text(match.args["pattern"]) == "A B+ C"


def variable(name):
    return PatternVariable(this=exp.Identifier(this=name, quoted=False))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A", variable("A")),
        ("A B|C",
         PatternChoice(expressions=[PatternSequence(expressions=[variable("A"), variable("B")]), variable("C")])),
        ("A (B|C)",
         PatternSequence(expressions=[variable("A"), PatternChoice(expressions=[variable("B"), variable("C")])])),
        ("A*?", PatternRepeat(this=variable("A"), low=0, reluctant=True)),
        ("A+", PatternRepeat(this=variable("A"), low=1)),
        ("A??", PatternRepeat(this=variable("A"), low=0, high=1, reluctant=True)),
        ("A{2}", PatternRepeat(this=variable("A"), low=2, high=2)),
        ("A{2,}?", PatternRepeat(this=variable("A"), low=2, reluctant=True)),
        ("A{ 2 , 5 }", PatternRepeat(this=variable("A"), low=2, high=5)),
        ("A{,5}", PatternRepeat(this=variable("A"), low=0, high=5)),
        ("(A+)*", PatternRepeat(this=PatternRepeat(this=variable("A"), low=1), low=0)),
        ("(A B)+", PatternRepeat(this=PatternSequence(expressions=[variable("A"), variable("B")]), low=1)),
        ("^A$",
         PatternSequence(expressions=[PatternAnchor(this=exp.Var(this="START")), variable("A"),
                                      PatternAnchor(this=exp.Var(this="END"))])),
        ("()", PatternSequence()),
        ("()*", PatternRepeat(this=PatternSequence(), low=0)),
    ],
)  # fmt: skip
def test_pattern(text, expected):
    found, end = read_pattern(f"({text}) DEFINE", 1)
    assert found == expected
    assert end == len(text) + 1
    assert read_pattern(f"({pattern_text(found)})", 1)[0] == expected


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("INTERVAL '1 day 2 hours'", (0, 1, 7_200_000_000)),
        ("INTERVAL '10' MINUTES", (0, 0, 600_000_000)),
        ("INTERVAL 1.5 SECONDS", (0, 0, 1_500_000)),
        ("INTERVAL 1.5 HOURS", (0, 0, 3_600_000_000)),
        ("INTERVAL (3) WEEKS", (0, 21, 0)),
        ("INTERVAL '-1 hour'", (0, 0, -3_600_000_000)),
        ("-INTERVAL '1 hour'", (0, 0, -3_600_000_000)),
        ("INTERVAL -2 DAYS", (0, -2, 0)),
        ("'2 hours'::INTERVAL", (0, 0, 7_200_000_000)),
        ("INTERVAL 2 CENTURIES", (2400, 0, 0)),
        ("INTERVAL (x) DAYS", None),
        ("to_hours(3)", None),
    ],
)  # fmt: skip
def test_literal_intervals(text, parts):
    (statement,) = parse(f"SELECT {text}")
    assert constant_interval(statement.node.expressions[0]) == parts


def test_lengths_are_shown_in_the_largest_unit():
    assert [shown(us) for us in (1, 2_000, 60_000_000, 5_400_000_000, 86_400_000_000, -7_200_000_000)] == [
        "INTERVAL '1 microsecond'",
        "INTERVAL '2 milliseconds'",
        "INTERVAL '1 minute'",
        "INTERVAL '90 minutes'",
        "INTERVAL '1 day'",
        "INTERVAL '-2 hours'",
    ]


def test_question_marks_of_patterns_are_not_numbered():
    query = tree("SELECT ? FROM t MATCH_RECOGNIZE (PATTERN (A? B?? C{2}?) DEFINE A AS A.x = ?) WHERE a = ?")
    assert sorted(mark.meta["number"] for mark in query.find_all(exp.Placeholder)) == [1, 2, 3]
    assert Temporal().generate(query).count("?") == 3 + 4
