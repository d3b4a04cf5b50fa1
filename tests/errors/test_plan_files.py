"""Plan files with odd names and texts, cut short, and damaged: they run, or one error says what is wrong."""

import random

import pyarrow as pa
import pytest

import tsql
from tsql.kernels.expr.errors import TsqlError
from tsql.loaded import LoadedPlan


@pytest.fixture(scope="module")
def db():
    with tsql.connect(threads=2) as session:
        session.register(
            "t", pa.table({"a": list(range(20)), "s": [str(i) for i in range(20)], 'we"ird\n#=x': [1] * 20})
        )
        yield session


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 'a\nb' AS x FROM t",
        "SELECT 'it''s # = \" \r\n \t \\ é x' AS x, 1 AS \"p\nq\" FROM t",
        'SELECT "we""ird\n#=x" FROM t WHERE "we""ird\n#=x" = 1',
        "SELECT s LIKE '%\n%' FROM t",
        "SELECT string_agg(s, '\n') FROM t",
        "SELECT s FROM t WHERE s IN ('\n', '1', 'a\"#')",
    ],
)
def test_texts_and_names_with_line_ends_and_quotes(db, query):
    relation = db.sql(query)
    assert LoadedPlan(relation.plan(), None).run(db).fetchall() == relation.fetchall()


def attempt(db, text):
    try:
        LoadedPlan(text, None).run(db).fetchall()
    except TsqlError as error:
        assert error.message
        return False
    return True


PLANNED = [
    "SELECT s, count(*) AS n FROM t WHERE a > 3 AND s <> 'x' GROUP BY s ORDER BY n DESC LIMIT 3",
    "SELECT DISTINCT a % 3 FROM t UNION ALL SELECT a FROM t WHERE s LIKE '1%'",
]


@pytest.mark.parametrize("query", PLANNED)
def test_a_plan_that_is_cut_anywhere(db, query):
    text = db.sql(query).plan().rstrip()
    last_line = text.rindex("\n")
    for length in range(0, last_line, 3):
        assert not attempt(db, text[:length])
    assert attempt(db, text)


@pytest.mark.parametrize("query", PLANNED)
def test_a_plan_with_random_edits(db, query):
    text = db.sql(query).plan()
    generator = random.Random(query)
    for _ in range(100):
        changed = list(text)
        for _ in range(generator.randint(1, 3)):
            at = generator.randrange(len(changed))
            changed[at : at + generator.randint(0, 1)] = generator.choice([*"()=,'\"#\n 0aZ-", "\0", "é", ""])
        attempt(db, "".join(changed))
