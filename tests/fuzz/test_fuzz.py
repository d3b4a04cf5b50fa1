"""Random expressions and random queries give what DuckDB gives; equivalent plans agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.compare import EXAMPLES, assert_same, expected, fuzz
from tests.fuzz.expressions import KINDS, MIXED, checked_arithmetic, expression
from tests.fuzz.queries import Query, queries


@pytest.mark.parametrize("kind", KINDS)
def test_expressions(kind: str) -> None:
    @fuzz
    @given(st.lists(expression(kind, MIXED), min_size=1, max_size=3))
    def check(texts: list[str]) -> None:
        listed = ", ".join(f"{text} AS c{i}" for i, text in enumerate(texts))
        assert_same(f"SELECT id, {listed} FROM mixed ORDER BY id", ordered=True)

    check()


@fuzz
@given(expression("bool", MIXED, 4))
def test_predicates(text: str) -> None:
    """A row is kept where the predicate is true, and only there; NULL is neither."""
    assert_same(f"SELECT id FROM mixed WHERE {text} ORDER BY id", ordered=True)


@fuzz
@given(checked_arithmetic(), st.lists(st.integers(0, 11), min_size=1, max_size=4))
def test_errors_are_the_same(text: str, ids: list[int]) -> None:
    """Overflow, division by zero and bad casts fail in both engines or in none."""
    assert_same(
        f"SELECT id, {text} AS c FROM all_types WHERE id IN ({', '.join(map(str, ids))}) ORDER BY id", ordered=True
    )


@fuzz
@given(queries())
def test_queries(query: Query) -> None:
    assert_same(query.sql, ordered=query.ordered)


@pytest.mark.parametrize("config", ["no_optimizer", "shards_3", "batch_rows_1", "equal_hashes", "plan_text", "blocks"])
def test_queries_under(config: str) -> None:
    """Less often than the default configuration: the corpus runs under these too."""

    @given(queries())
    def check(query: Query) -> None:
        assert_same(query.sql, config, ordered=query.ordered)

    fuzz(check, max(1, EXAMPLES // 3))()


@fuzz
@given(queries(), expression("text", MIXED), checked_arithmetic())
def test_strategies_make_sql_that_binds(query: Query, text: str, arithmetic: str) -> None:
    """The strategies alone, on DuckDB: what they make is SQL, and queries do not fail at run time."""
    assert expected(query.sql) is not None, query.sql
    assert expected(f"SELECT {text} AS c FROM mixed") is not None, text
    expected(f"SELECT {arithmetic} AS c FROM all_types")
