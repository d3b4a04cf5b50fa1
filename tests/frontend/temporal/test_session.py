"""Temporal SQL through a session: what has no plan, and what stands where it means nothing, is one error with its
place."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

import tsql
from tests.frontend.temporal.examples import EXAMPLES
from tsql.analyze.time.refuse import WITHOUT_PLAN, check_time, refuse
from tsql.grammar.parser.statements import parse
from tsql.grammar.script import split
from tsql.kernels.expr.errors import BindError, ExecutionError, TsqlError


@pytest.fixture(scope="module")
def db():
    with tsql.connect(threads=1) as session:
        session.register(
            "bids", pa.table({"id": [1, 2], "k": ["a", "b"], "ts": [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 2)]})
        )
        yield session


@pytest.mark.parametrize("text", EXAMPLES)
def test_what_has_no_plan_is_refused_by_name_with_its_place(text):
    (statement,) = parse(text)
    constructs = [node for node in statement.node.walk() if type(node) in WITHOUT_PLAN]
    if not constructs:
        return
    with pytest.raises(BindError) as caught:
        check_time(statement.node)
    assert caught.value.position is not None
    assert caught.value.message in {f"there is no plan for {WITHOUT_PLAN[type(node)]}" for node in constructs}


def test_the_error_for_what_has_no_plan():
    (statement,) = parse("SELECT * FROM t CLIP JOIN u ON t.k = u.k")
    error = refuse("CLIP JOIN", statement.node.args["joins"][0])
    assert error.message == "there is no plan for CLIP JOIN"
    assert error.position == 16


@pytest.mark.parametrize(
    ("text", "column", "name"),
    [
        ("SELECT TUMBLE(ts, INTERVAL '1 hour') FROM bids", 8, "TUMBLE"),
        ("SELECT count(*) FROM bids GROUP BY hop(ts, INTERVAL '1 minute', INTERVAL '1 hour')", 36, "HOP"),
        ("SELECT id FROM bids WHERE session(ts) > 1", 27, "SESSION"),
    ],
)  # fmt: skip
def test_a_window_function_outside_of_from(db, text, column, name):
    with pytest.raises(BindError) as caught:
        db.sql(text)
    assert caught.value.message == f"{name} is a table function: it stands in FROM"
    assert caught.value.line_column == (1, column)
    assert caught.value.hint.startswith(f"FROM {name}(t")


def test_the_names_are_free_for_columns_tables_and_macros(db):
    db.sql("CREATE OR REPLACE MACRO hop(x) AS x + 1")
    db.sql("CREATE OR REPLACE TABLE emit AS SELECT 1 AS tumble, 2 AS within")
    assert db.sql("SELECT hop(tumble), clip.within FROM emit AS clip WHERE tumble = 1").fetchall() == [(2, 2)]
    assert db.sql("SELECT tumble emit FROM emit session ORDER BY emit").fetchall() == [(1,)]
    db.sql("DROP TABLE emit")
    db.sql("DROP MACRO hop")


def test_question_marks_in_patterns_are_no_parameters():
    text = "SELECT ?, $x FROM t MATCH_RECOGNIZE (PATTERN (A? (B??) C{2}?) DEFINE A AS A.x = ?); SELECT pattern(?)"
    first, second = split(text)
    assert first.parameters == ("1", "x", "2")
    assert second.parameters == ("1",)


def test_errors_of_a_script_point_into_the_script(db):
    with pytest.raises(TsqlError) as caught:
        db.sql("SELECT 1;\nSELECT * FROM TUMBLE(bids, INTERVAL '1' HOUR, ts)")
    assert caught.value.line_column == (2, 28)
    assert caught.value.hint == "TUMBLE(bids, ts, INTERVAL '1' HOUR)"


def test_statements_without_time_are_not_searched():
    (plain,) = parse("SELECT a FROM t WHERE b > 1")
    (timed,) = parse("SELECT a FROM t EMIT FINAL")
    assert "time" not in plain.node.meta
    assert timed.node.meta["time"] is True


@pytest.mark.parametrize(
    ("text", "value", "column", "message"),
    [
        ("SELECT * FROM EXTEND(LIFETIME(bids, ts, INTERVAL '1 minute'), $1)", dt.timedelta(seconds=-20), 63,
         "by of EXTEND cannot be negative"),
        ("SELECT * FROM EXTEND(LIFETIME(bids, ts, INTERVAL '1 minute'), $1)", "-20 seconds", 63,
         "by of EXTEND cannot be negative"),
        ("SELECT * FROM CLIP(LIFETIME(bids, ts), $1)", dt.timedelta(seconds=-2), 40,
         "duration of CLIP must be more than zero"),
        ("SELECT * FROM CLIP(LIFETIME(bids, ts), to_seconds($1))", -2, 40, "duration of CLIP must be more than zero"),
        ("SELECT * FROM LIFETIME(bids, ts, $1)", dt.timedelta(0), 34, "duration of LIFETIME must be more than zero"),
        ("SELECT * FROM SLIDE(bids, ts, $1)", dt.timedelta(days=-1), 31, "size of SLIDE must be more than zero"),
    ],
)  # fmt: skip
def test_an_interval_that_a_literal_cannot_be_is_none_that_a_parameter_can_be(db, text, value, column, message):
    with pytest.raises(ExecutionError) as caught:
        db.sql(text, [value]).fetchall()
    assert message in caught.value.message
    assert caught.value.line_column == (1, column)


@pytest.mark.parametrize("value", [dt.timedelta(seconds=20), "20 seconds"])
def test_parameters_in_the_place_of_intervals(db, value):
    extended = db.sql("SELECT valid_from, valid_to FROM EXTEND(CLIP(LIFETIME(bids, ts), $1), $1) WHERE id = 1", [value])
    assert extended.fetchall() == [(dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 0, 0, 40))]
    shifted = db.sql(
        "SELECT valid_from, valid_to FROM SHIFT(LIFETIME(bids, ts), -($1::INTERVAL)) WHERE id = 1", [value]
    )
    assert shifted.fetchall() == [(dt.datetime(2019, 12, 31, 23, 59, 40), None)]
    assert (
        db.sql("SELECT id FROM EXTEND(LIFETIME(bids, ts), $1)", [None]).fetchall()
        == db.sql("SELECT id FROM EXTEND(LIFETIME(bids, ts), NULL)").fetchall()
    )


@pytest.mark.parametrize(
    ("text", "value", "column", "name"),
    [
        ("SELECT * FROM TUMBLE(bids, ts, $1)", dt.timedelta(days=1), 32, "size of TUMBLE"),
        ("SELECT * FROM HOP(bids, ts, $1, INTERVAL '1 day')", dt.timedelta(days=1), 29, "slide of HOP"),
        ("SELECT * FROM SESSION(bids, ts, $1)", dt.timedelta(days=1), 33, "gap of SESSION"),
        ("SELECT * FROM TUMBLE(bids, ts, rows => $1)", 3, 40, "rows of TUMBLE"),
        ("SELECT * FROM CHOP(LIFETIME(bids, ts), $1)", dt.timedelta(days=1), 40, "size of CHOP"),
    ],
)  # fmt: skip
def test_what_the_plan_depends_on_is_no_parameter(db, text, value, column, name):
    with pytest.raises(BindError) as caught:
        db.sql(text, [value])
    assert caught.value.message == f"{name} cannot be a parameter: the plan of the query depends on it"
    assert caught.value.line_column == (1, column)


def test_an_instant_that_names_no_column(db):
    db.sql(
        "CREATE OR REPLACE TABLE rates (rate INTEGER, since TIMESTAMP, until TIMESTAMP, PERIOD FOR "
        "valid_time (since, until))"
    )
    with pytest.raises(BindError) as caught:
        db.sql("SELECT * FROM bids JOIN rates FOR VALID_TIME AS OF bids.nope ON TRUE")
    assert (
        caught.value.message
        == 'column "nope" does not exist: AS OF takes constants and columns of the relations around it'
    )
    assert caught.value.line_column == (1, 52)
