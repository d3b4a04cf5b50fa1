"""Temporal SQL through a session: what has no plan, and what stands where it means nothing, is one error with its place."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

import tsql
from tests.frontend.temporal.examples import EXAMPLES
from tsql.kernels.errors import BindError, TsqlError
from tsql.parser import parse
from tsql.script import split
from tsql.temporal.refuse import WITHOUT_PLAN, check_time, refuse


@pytest.fixture(scope="module")
def db():
    with tsql.connect(threads=1) as session:
        session.register("bids", pa.table({"id": [1, 2], "k": ["a", "b"], "ts": [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 2)]}))
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
