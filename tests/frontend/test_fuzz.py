"""Any text gives statements or one error of ours: never another exception, never a hang."""

from __future__ import annotations

import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.frontend.support import FakeCatalog, catalog
from tests.frontend.test_names import EXPRESSIONS
from tests.frontend.test_parse import CORPUS
from tests.fuzz.amount import examples
from tsql.analyze.statements import analyze
from tsql.kernels.expr.errors import TsqlError
from tsql.kernels.expr.types import INTEGER

WORDS = (
    "SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT OFFSET DISTINCT ON ALL UNION INTERSECT EXCEPT VALUES "
    "WITH AS AND OR NOT IN IS NULL TRUE BETWEEN LIKE ESCAPE CASE WHEN THEN ELSE END "
    "CAST INTERVAL DAY DATE TIMESTAMP EXTRACT count sum min upper grouping ROLLUP CUBE GROUPING SETS "
    "OVER FILTER EXCLUDE REPLACE RENAME COLUMNS EXPLAIN CREATE TABLE VIEW DROP SET JOIN USING t a b s d "
    "m every c1 "
    "( ) ( ) ( ) , , , . * + - / // % ^ ** || & | << >> ~ = <> < <= > >= :: ? $1 [ ] { } : ; 1 2 1.5 1e3 "
    "'x' '' \"a\" \"\" @ # ! \\ -- /* */ /*+ x'ab' x'a' E'\\n' $$x$$ => := -> NULLS FIRST DESC ASC "
    "INTEGER VARCHAR DECIMAL(3,1)"
).split()


@cache
def tables() -> FakeCatalog:
    """One catalog for all texts: they are only analyzed."""
    return catalog()


def check(text: str) -> None:
    try:
        analyze(text, tables(), {"1": INTEGER})
    except TsqlError as error:
        assert str(error)
        assert error.position is None or 0 <= error.position <= len(text)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(WORDS), max_size=25))
def test_random_words(words):
    check(" ".join(words))
    check("SELECT " + " ".join(words))


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(st.text(max_size=40))
def test_random_text(text):
    check(text)
    check(f"SELECT {text}")


@pytest.mark.parametrize("seed", range(8))
def test_damaged_queries(seed):
    """Queries of the corpus with tokens dropped, doubled, swapped or replaced."""
    chance = random.Random(seed)
    corpus = [*CORPUS, *(f"SELECT {e} FROM t" for e in EXPRESSIONS.strip().splitlines())]
    for _ in range(150):
        words = chance.choice(corpus).replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(words))
            match chance.randrange(4):
                case 0:
                    del words[place]
                case 1:
                    words.insert(place, words[place])
                case 2:
                    words[place] = chance.choice(WORDS)
                case 3:
                    words.insert(place, chance.choice(WORDS))
            if not words:
                break
        check(" ".join(words))


def test_cut_queries():
    """Queries of the corpus, cut anywhere."""
    for text in CORPUS[::5]:
        for end in range(0, len(text), 3):
            check(text[:end])
