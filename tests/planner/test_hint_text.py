"""The text of hints: names, arguments, options and positions, and what cannot be read."""

from __future__ import annotations

import pytest

from tsql.grammar.hint_text import HintReader
from tsql.kernels.expr.errors import ParseError
from tsql.planner.hints.constraints import Hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" SHARDS(16) ", [Hint("SHARDS", (16,), (), 1)]),
        ("shards ( 16 )", [Hint("SHARDS", (16,), (), 0)]),
        ("A B(), C", [Hint("A", (), (), 0), Hint("B", (), (), 2), Hint("C", (), (), 7)]),
        ("JOIN(b, d, 'hash')", [Hint("JOIN", ("b", "d", "hash"), (), 0)]),
        ("R(t, \"my col\", scope => 'local')", [Hint("R", ("t", "my col"), (("scope", "local"),), 0)]),
        ("R(t, Scope='it''s', n = -1.5)", [Hint("R", ("t",), (("scope", "it's"), ("n", -1.5)), 0)]),
        ("", []),
    ],
)
def test_read(text: str, expected: list[Hint]) -> None:
    found = HintReader(text, 0).read()
    assert found == expected
    assert [h.position for h in found] == [h.position for h in expected]


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("f(", 2),
        ("f(a", 3),
        ("f(a b)", 4),
        ("(a)", 0),
        ("f(a,)", 4),
        ("f(a =>)", 6),
        ("1", 0),
        ("f(),, g", 4),
        ("f(a.b)", 3),
        ("f('x)", 2),
    ],
)
def test_cannot_read(text: str, at: int) -> None:
    with pytest.raises(ParseError, match="cannot read this hint") as caught:
        HintReader(text, 10).read()
    assert caught.value.position == 10 + at
