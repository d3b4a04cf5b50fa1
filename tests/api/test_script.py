"""Cutting scripts into statements."""

import pytest

from tsql.grammar.script import is_complete, split
from tsql.kernels.expr.errors import BindError


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("select 1", ["select 1"]),
        ("select 1;", ["select 1"]),
        ("select 1; select 2", ["select 1", "select 2"]),
        (";;select 1;;", ["select 1"]),
        ("select ';'; select 2", ["select ';'", "select 2"]),
        ("select 'it''s;'; select 2", ["select 'it''s;'", "select 2"]),
        (r"select e'\';'; select 2", [r"select e'\';'", "select 2"]),
        ('select "a;b""c"; select 2', ['select "a;b""c"', "select 2"]),
        ("select $$a;b$$; select $x$;$$;$x$", ["select $$a;b$$", "select $x$;$$;$x$"]),
        ("select 1 /* ; /* ; */ ; */; select 2", ["select 1 /* ; /* ; */ ; */", "select 2"]),
        ("select 1 -- ;\n; select 2", ["select 1 -- ;", "select 2"]),
        ("-- nothing\n;/* nothing */", []),
        ("", []),
        ("select 'open; select 2", ["select 'open; select 2"]),
        ("select /* open ; select 2", ["select /* open ; select 2"]),
    ],
)
def test_split(text, pieces):
    found = split(text)
    assert [piece.text.strip() for piece in found] == pieces
    assert all(text[p.start : p.start + len(p.text)] == p.text for p in found)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("select ?, ?, $x, ?", ("1", "2", "x", "3")),
        ("select $1 + $2 + $1", ("1", "2")),
        ("select '$x', \"?\", $$?$$ -- $y", ()),
        ("select $a::int", ("a",)),
    ],
)
def test_parameters_of_a_statement(text, names):
    assert split(text)[0].parameters == names


def test_positional_parameters_start_again_in_each_statement():
    assert [piece.parameters for piece in split("select ?; select ?, ?")] == [("1",), ("1", "2")]


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True), ("select 1", False), ("select 1;", True), ("select 1; -- done", True), ("select ';", False),
        ("select 1; select", False), ("/* open ;", False), ("select $$;", False), ("select 1 -- ;", False),
        ("select '';", True), ("select '''';", True), ("select ''';", False),
    ],
)  # fmt: skip
def test_is_complete(text, complete):
    assert is_complete(text) is complete


def test_an_error_points_into_the_whole_script():
    piece = split("select 1;\n  select nope", "q.sql")[1]
    error = piece.relocate(BindError("unknown column nope", position=piece.text.index("nope"), text=piece.text))
    assert str(error).splitlines() == ["q.sql:2:10: unknown column nope", "    select nope", "           ^"]
    assert piece.relocate(error).line_column == (2, 10)
