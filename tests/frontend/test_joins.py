"""FROM with several relations: plans, names and errors. Rows are checked in `test_corpus.py`."""

from __future__ import annotations

import pytest

from tests.duck import empty_duckdb
from tests.frontend.relations import TABLES, catalog, kinds, plan_of, read_golden, write_golden, wrong_names
from tests.frontend.support import FakeView
from tsql.analyze.statements import analyze
from tsql.kernels.expr.errors import BindError
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.nodes import show

PLANS = read_golden("joins")


@pytest.mark.parametrize("text", PLANS)
def test_plan(text, regen):
    if regen:
        write_golden("joins", list(PLANS))
    assert show(plan_of(text)) == read_golden("joins")[text]


ERRORS = [
    ("SELECT k FROM a, b", 8, 'column "k" is ambiguous', "use a.k or b.k"),
    ("SELECT x FROM a JOIN d USING (k)", 8, 'column "x" is ambiguous', "use a.x or d.x"),
    ("SELECT * FROM a JOIN b ON k = 1", 27, 'column "k" is ambiguous', "use a.k or b.k"),
    ("SELECT c.x FROM a, b", 8, 'there is no table "c" in FROM', "there is a, b"),
    ("SELECT emps.x FROM a AS emp, b", 8, 'there is no table "emps" in FROM', 'did you mean "emp"?'),
    ("SELECT a.y FROM a, b", 10, 'table "a" has no column "y"', None),
    ("SELECT zzz FROM a, b", 8, 'column "zzz" does not exist', None),
    ("SELECT b.y FROM a SEMI JOIN b USING (k)", 8, 'there is no table "b" in FROM', None),
    ("SELECT a.x FROM a, a", 8, 'table "a" is ambiguous: it is twice in FROM', "a AS a_2"),
    ("SELECT * FROM a, a", None, 'table "a" is ambiguous: it is twice in FROM', None),
    ("SELECT * FROM a JOIN nosuch ON true", 22, 'table "nosuch" does not exist', None),
    ("SELECT * FROM a JOIN b", 22, "a JOIN needs ON or USING", None),
    ("SELECT * FROM a LEFT JOIN b", 27, "a JOIN needs ON or USING", None),
    ("SELECT * FROM a CROSS JOIN b ON true", 28, "a CROSS JOIN takes no ON", None),
    ("SELECT * FROM a JOIN b USING (z)", 31, 'Column "z" does not exist on left side of join!', None),
    ("SELECT * FROM a JOIN b USING (x)", 31, 'Column "x" does not exist on right side of join!', None),
    ("SELECT * FROM a JOIN b ON true JOIN d USING (k)", 46,
     'column "k" is ambiguous: it is more than once on the left side', None),
    ("SELECT * FROM a NATURAL JOIN (SELECT 1 AS z) q", None, "No columns found to join on in NATURAL JOIN",
     "Left candidates: k, x"),
    ("SELECT * FROM a JOIN b ON sum(x) > 1", 27, "an aggregate is not allowed in JOIN conditions", None),
    ("SELECT * FROM a POSITIONAL JOIN b ON x = y", 33, "a POSITIONAL JOIN takes neither a kind nor ON or USING", None),
    ("SELECT * FROM a POSITIONAL JOIN b USING (x)", 33, "a POSITIONAL JOIN takes neither a kind nor ON or USING", None),
    ("SELECT * FROM a POSITIONAL LEFT JOIN b", 38, "a POSITIONAL JOIN takes neither a kind nor ON or USING", None),
    ("SELECT * FROM a LEFT SEMI JOIN b ON true", 32, "LEFT SEMI JOIN is not supported", None),
    ("SELECT * FROM a RIGHT JOIN LATERAL (SELECT y FROM b WHERE b.k = a.k) q ON true", None,
     "The combining JOIN type must be INNER or LEFT for a LATERAL", None),
    ("SELECT * FROM a SEMI JOIN (SELECT y FROM b WHERE b.k = a.k) q ON true", None,
     "The combining JOIN type must be INNER or LEFT for a LATERAL", None),
    ("SELECT * FROM (SELECT a.x) q, a", 23, 'there is no table "a" in FROM', None),
    ("SELECT * FROM a, LATERAL (SELECT sum(a.x)) q", 34, "an aggregate is not allowed in FROM", None),
    ("SELECT b.k, count(*) FROM a JOIN b USING (k) GROUP BY k", 8, 'column "k" must appear in the GROUP BY clause',
     "any_value(k)"),
    ("SELECT * EXCLUDE (z) FROM a, b", 19, 'column "z" in EXCLUDE does not exist', None),
    ("SELECT * EXCLUDE (a.z) FROM a, b", 21, 'table "a" has no column "z"', None),
    ("SELECT q.* FROM a, b", 8, 'there is no table "q" in FROM', None),
    ("SELECT * FROM (a JOIN b USING (k)) j(p, q, r, s)", 36, '"j" has 3 columns, but 4 names are given', None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "column", "message", "hint"), ERRORS, ids=[e[0] for e in ERRORS])
def test_error(text, column, message, hint):
    with pytest.raises(BindError) as caught:
        analyze(text, catalog())
    error = caught.value
    assert error.message.startswith(message)
    assert error.line_column is not None
    if column is not None:
        assert error.line_column == (1, column)
    if hint is not None:
        assert hint in (error.hint or "")


def test_a_cte_that_is_used_twice_is_one_node():
    plan = plan_of(
        "WITH c AS (SELECT k, sum(x) AS s FROM a GROUP BY k) SELECT * FROM c JOIN c c2 ON c.s = c2.s JOIN "
        "c c3 ON c3.k = c.k"
    )
    assert sum(isinstance(n, logical.Aggregate) for n in plan.walk()) == 1
    assert logical.show(plan).count("aggregate") == 3


def test_materialized_is_accepted():
    for word in ("MATERIALIZED", "NOT MATERIALIZED"):
        assert kinds(plan_of(f"WITH c AS {word} (SELECT k FROM a) SELECT * FROM c, c c2")) == ["inner"]


def test_columns_that_an_outer_join_pads_are_nullable():
    tables = catalog()
    for source in tables.entries.values():
        for field in source.schema:
            object.__setattr__(field, "nullable", False)
    columns = {
        kind: analyze(f"SELECT a.x, b.y FROM a {kind} JOIN b ON a.k = b.k", tables)[0].plan.schema
        for kind in ("INNER", "LEFT", "RIGHT", "FULL")
    }
    assert {kind: [f.nullable for f in schema] for kind, schema in columns.items()} == {
        "INNER": [False, False],
        "LEFT": [False, True],
        "RIGHT": [True, False],
        "FULL": [True, True],
    }


def test_a_view_joined_with_its_table_has_names_of_its_own():
    tables = catalog()
    tables.entries["v"] = FakeView("SELECT k, max(x) AS x FROM a GROUP BY k")
    plan = analyze("SELECT a.x, v.x, a.k FROM a JOIN v ON a.k = v.k", tables)[0].plan
    assert plan.names == ("x", "x", "k")
    assert plan.columns == ("x", "x_1", "k")


def test_a_subquery_of_on_does_not_take_a_name_inside_of_the_lateral_side():
    text = (
        "SELECT * FROM a LEFT JOIN LATERAL (SELECT y FROM b WHERE b.k = a.k AND y IN (SELECT y FROM d)) q ON "
        "1 IN (SELECT k FROM d)"
    )
    plan = plan_of(text)
    assert wrong_names(plan) is None
    assert sorted(n.mark for n in plan.walk() if isinstance(n, logical.Apply) and n.kind == "mark") == [
        "is_in",
        "is_in_1",
    ]


def test_every_join_of_a_plan_has_disjoint_sides():
    wide = ", ".join(f"a a{i}" for i in range(12))
    plan = plan_of(f"SELECT * FROM {wide}")
    assert len(plan.columns) == 24
    assert len(set(plan.columns)) == 24
    assert len(plan.input.schema) == 24


@pytest.mark.parametrize(
    "kind",
    [
        "JOIN",
        "LEFT JOIN",
        "RIGHT JOIN",
        "FULL JOIN",
        "NATURAL JOIN",
        "NATURAL LEFT JOIN",
        "NATURAL RIGHT JOIN",
        "NATURAL FULL JOIN",
    ],
)
@pytest.mark.parametrize(
    "select", ["*", "k", "a.*, d.*", "* EXCLUDE (k)", "d.k, a.k, k", "* REPLACE (k + 1 AS k)", "COLUMNS('k')"]
)
def test_names_and_types_of_merged_columns(kind, select):
    connection = empty_duckdb()
    for name, columns in TABLES.items():
        connection.execute(f"CREATE TABLE {name} ({', '.join(f'{c} {t}' for c, t in columns)})")
    for right in ("b", "d"):
        using = "" if kind.startswith("NATURAL") else "USING (k)"
        text = f"SELECT {select.replace('d.', f'{right}.')} FROM a {kind} {right} {using}"
        theirs = connection.sql(text)
        plan = plan_of(text)
        assert list(plan.names) == theirs.columns
        assert [str(f.type) for f in plan.schema] == [str(t) for t in theirs.types]
