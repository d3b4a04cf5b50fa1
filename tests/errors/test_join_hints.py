"""Hints about joins that are wrong or cannot hold: each is one error, at the hint, that says why."""

import pyarrow as pa
import pytest

import tsql
from tsql.kernels.expr.errors import PlanError


@pytest.fixture(scope="module")
def db():
    with tsql.connect(threads=2, shards=3) as session:
        for name in "abc":
            session.register(
                name, pa.table({f"{name}1": [1, 2, None], f"{name}2": [1, 2, 3], f"{name}s": ["x", "y", "z"]})
            )
        yield session


PAIR = "* FROM a JOIN b ON a1 = b1"
OUTER = "* FROM a LEFT JOIN b ON a1 = b1 JOIN c ON a2 = c2"


@pytest.mark.parametrize(
    ("hint", "query", "message", "fix"),
    [
        ("BROADCAST(a)", "* FROM a", "BROADCAST needs a join, and this query has none", None),
        ("BROADCAST", PAIR, "BROADCAST takes one table: BROADCAST(d)", None),
        ("BROADCAST(a, b)", PAIR, "BROADCAST takes one table: BROADCAST(d)", None),
        ("BROADCAST(c)", PAIR, "BROADCAST(c): the query reads no table c", "it reads a, b"),
        ("BROADCAST(1)", PAIR, "BROADCAST(1): the query reads no table 1", "it reads a, b"),
        (
            "BROADCAST(q)",
            "* FROM a AS x JOIN b ON a1 = b1",
            "BROADCAST(q): the query reads no table q",
            "it reads a AS x, b",
        ),
        (
            "BROADCAST(a, scope => 'near')",
            PAIR,
            "BROADCAST(a, scope => 'near'): the scope is 'local' or 'global'",
            None,
        ),
        ("BROADCAST(a, shards => 2)", PAIR, "BROADCAST has no option shards", None),
        (
            "BROADCAST(b), BROADCAST(a)",
            PAIR,
            "BROADCAST(a) cannot hold: BROADCAST(b) asks for the same join, which broadcasts one side",
            None,
        ),
        (
            "BROADCAST(a, scope => 'global')",
            "* FROM a LEFT JOIN b ON a1 = b1",
            (
                "BROADCAST(a, scope => 'global') cannot hold: a left join that builds a marks its rows, and "
                "copies on several machines would each have marks of their own"
            ),
            "broadcast the other side",
        ),
        (
            "BROADCAST(b, scope => 'global')",
            "* FROM a FULL JOIN b ON a1 = b1",
            (
                "BROADCAST(b, scope => 'global') cannot hold: a full join that builds b marks its rows, and "
                "copies on several machines would each have marks of their own"
            ),
            None,
        ),
        (
            "BROADCAST(a)",
            "* FROM a WHERE a1 NOT IN (SELECT b1 FROM b)",
            "BROADCAST(a) cannot hold: a is the outer relation of a subquery, whose join builds the other side",
            None,
        ),
        (
            "BROADCAST(a)",
            "* FROM a x JOIN a y ON x.a1 = y.a1",
            "BROADCAST(a) cannot hold: both sides of a join are a",
            "name one of them by its alias",
        ),
        (
            "BROADCAST(b)",
            "a1 FROM (SELECT a1 FROM a LEFT JOIN (SELECT DISTINCT b1 FROM b) ON a1 = b1)",
            "BROADCAST(b) cannot hold: no join of the plan brings b in",
            None,
        ),
        ("LEADING(a, b)", "* FROM a", "LEADING needs a join, and this query has none", None),
        (
            "LEADING(a)",
            PAIR,
            "LEADING takes two tables or more, in the order in which they are joined: LEADING(a, b)",
            None,
        ),
        ("LEADING(a, a)", PAIR, "LEADING(a, a): a table is given twice", None),
        ("LEADING(a, c)", PAIR, "LEADING(a, c): the query reads no table c", "it reads a, b"),
        ("LEADING(a, b, scope => 'local')", PAIR, "LEADING has no option scope", None),
        (
            "LEADING(b, c)",
            OUTER,
            "LEADING(b, c) cannot hold: b lies below a left join, which inner joins do not cross",
            None,
        ),
        (
            "LEADING(c, a)",
            OUTER,
            "LEADING(c, a) cannot hold: a lies below a left join, which inner joins do not cross",
            None,
        ),
        (
            "LEADING(b, a)",
            OUTER,
            "LEADING(b, a) cannot hold: b and a meet at a left join, and only inner joins have an order",
            None,
        ),
        (
            "LEADING(b, a)",
            "* FROM a WHERE a1 IN (SELECT b1 FROM b)",
            "LEADING(b, a) cannot hold: b and a meet at a semi join, and only inner joins have an order",
            None,
        ),
        (
            "LEADING(a, b)",
            "a1 FROM a JOIN c ON a1 = c1 UNION ALL SELECT b1 FROM b",
            "LEADING(a, b) cannot hold: a and b do not meet at a join of the plan",
            None,
        ),
        (
            "LEADING(a, b)",
            "* FROM b, (SELECT max(a1) AS m FROM a JOIN c ON a1 = c1 GROUP BY c2) WHERE m = b1",
            "LEADING(a, b) cannot hold: a lies below a grouping, which inner joins do not cross",
            None,
        ),
        (
            "LEADING(a, b)",
            "* FROM b, (SELECT a1, c1 FROM a JOIN c ON a1 = c1 LIMIT 2) WHERE a1 = b1",
            "LEADING(a, b) cannot hold: a lies below a limit, which inner joins do not cross",
            None,
        ),
        (
            "LEADING(a, b)",
            "* FROM a x, a y, b WHERE x.a1 = b1 AND y.a1 = b2",
            "LEADING(a, b) cannot hold: a is joined more than once",
            "name one of them by its alias",
        ),
        (
            "LEADING(a, b), LEADING(b, c)",
            "* FROM a, b, c WHERE a1 = b1 AND b1 = c1",
            "LEADING(b, c) cannot hold: another LEADING says which relations of the same joins come first",
            None,
        ),
        ("JOIN(a, b, 'hash')", "* FROM a", "JOIN needs a join, and this query has none", None),
        (
            "JOIN(a, b)",
            PAIR,
            "JOIN takes two tables and one of 'hash', 'merge', 'loop', 'range': JOIN(a, b, 'hash')",
            None,
        ),
        (
            "JOIN(a, b, 'magic')",
            PAIR,
            "JOIN takes two tables and one of 'hash', 'merge', 'loop', 'range': JOIN(a, b, 'hash')",
            None,
        ),
        ("JOIN(a, a, 'hash')", PAIR, "JOIN(a, a, 'hash'): a table is given twice", None),
        ("JOIN(a, c, 'hash')", PAIR, "JOIN(a, c, 'hash'): the query reads no table c", "it reads a, b"),
        (
            "JOIN(a, b, 'merge')",
            "* FROM a JOIN b ON a1 < b1",
            "JOIN(a, b, 'merge') cannot hold: a merge join needs one equality of the two sides",
            None,
        ),
        (
            "JOIN(a, b, 'hash')",
            "* FROM a JOIN b ON a1 < b1",
            "JOIN(a, b, 'hash') cannot hold: a hash join needs an equality of the two sides",
            None,
        ),
        (
            "JOIN(a, b, 'range')",
            PAIR,
            "JOIN(a, b, 'range') cannot hold: a range join needs a comparison of a number of one side with the other",
            None,
        ),
        (
            "JOIN(a, b, 'range')",
            '* FROM a JOIN b ON "as" < bs',
            "JOIN(a, b, 'range') cannot hold: a range join needs a comparison of a number of one side with the other",
            None,
        ),
        (
            "JOIN(a, b, 'range')",
            "* FROM a WHERE a1 > ANY (SELECT b1 FROM b) IS NULL",
            (
                "JOIN(a, b, 'range') cannot hold: a range join does not tell false from NULL, as a subquery's "
                "mark needs it"
            ),
            None,
        ),
        (
            "JOIN(a, b, 'hash'), JOIN(b, a, 'loop')",
            PAIR,
            "JOIN(b, a, 'loop') cannot hold: JOIN(a, b, 'hash') asks for the same join",
            None,
        ),
        (
            "JOIN(a, b, 'hash')",
            "a1 FROM a JOIN c ON a1 = c1 UNION ALL SELECT b1 FROM b",
            "JOIN(a, b, 'hash') cannot hold: a and b do not meet at a join of the plan",
            None,
        ),
    ],
)
def test_refused(db, hint, query, message, fix):
    sql = f"SELECT /*+ {hint} */ {query}"
    with pytest.raises(PlanError) as caught:
        db.sql(sql).arrow()
    assert caught.value.message == message
    assert caught.value.hint == fix
    last = hint.rsplit("), ", 1)[-1]
    assert caught.value.line_column == (1, sql.rindex(last) + 1)


def test_a_local_broadcast_on_a_cluster():
    from tests.planner.support import physical_plan

    with tsql.connect() as session:
        session.register("a", pa.table({"a1": [1]}))
        session.register("b", pa.table({"b1": [1]}))
        with pytest.raises(PlanError) as caught:
            physical_plan(
                session, "SELECT /*+ BROADCAST(b, scope => 'local') */ * FROM a JOIN b ON a1 = b1", target="spark"
            )
    assert (
        caught.value.message
        == "BROADCAST(b, scope => 'local') cannot hold: a local broadcast does not reach the shards of other machines"
    )
    assert caught.value.hint == "use scope => 'global'"
