"""No clause is ignored: the tables of `tsql/grammar/clauses/` know each argument of each syntax node, and what is not
read is refused at its place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlglot import exp

import tsql
from tests.frontend.support import catalog
from tsql.analyze.statements import analyze
from tsql.grammar.clauses import FAMILIES, NODES, check_statement
from tsql.grammar.dialect import Temporal
from tsql.grammar.parser.statements import parse
from tsql.kernels.expr.errors import BindError, ParseError, TsqlError
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import INTEGER
from tsql.planner.bind import clauses as bind_clauses
from tsql.planner.bind.binder import parse_aggregate
from tsql.planner.bind.clauses import Clauses, Refusal
from tsql.planner.bind.query_text import tokenize
from tsql.planner.bind.syntax import parse_scalar

REFUSED = [
    ("SELECT sum(x) OVER (w FIRST ORDER BY x) FROM t", 23, "FIRST is not supported"),
    ("SELECT sum(x) OVER (w LAST ORDER BY x) FROM t", 23, "LAST is not supported"),
    ("SELECT * FROM t FORCE INDEX (i)", 17, "FORCE INDEX is not supported"),
    ("SELECT * FROM t WITH (NOLOCK)", 17, "WITH (..) behind a table is not supported"),
    ("SELECT * FROM t CROSS APPLY (SELECT 1) q", 17, "CROSS APPLY is not supported"),
    ("SELECT * FROM t LATERAL VIEW explode(x) q AS y", 17, "LATERAL VIEW is not supported"),
    ("SELECT * FROM t FOR UPDATE", 17, "FOR UPDATE is not supported"),
    ("SELECT * FROM t CONNECT BY PRIOR g = x", 17, "CONNECT BY is not supported"),
    ("SELECT * FROM t CLUSTER BY x", 17, "CLUSTER BY is not supported"),
    ("SELECT * FROM t DISTRIBUTE BY x", 17, "DISTRIBUTE BY is not supported"),
    ("SELECT * INTO q FROM t", 10, "INTO is not supported"),
    ("SELECT AS STRUCT g FROM t", 1, "SELECT AS is not supported"),
    ("SELECT * FROM ONLY t", 15, "ONLY is not supported"),
    ("SELECT * FROM t NOT INDEXED", 17, "NOT INDEXED is not supported"),
    ("SELECT * FROM t CHANGES (INFORMATION => DEFAULT)", 17, "CHANGES is not supported"),
    ("SELECT * FROM ROWS FROM (range(3))", 15, "ROWS FROM is not supported"),
    ("SELECT g, sum(x) FROM t GROUP BY DISTINCT g", 34, "GROUP BY DISTINCT is not supported"),
    ("SELECT g, sum(x) FROM t GROUP BY g WITH ROLLUP", 36, "WITH ROLLUP is not supported"),
    ("SELECT g, sum(x) FROM t GROUP BY g WITH CUBE", 36, "WITH CUBE is not supported"),
    ("SELECT g, sum(x) FROM t GROUP BY g WITH TOTALS", 36, "WITH TOTALS is not supported"),
    ("SELECT g, sum(x) FROM t GROUP BY g GROUPING SETS ((g))", 36, "GROUPING SETS is not supported behind keys"),
    ("(SELECT 1 AS a) WHERE a = 2", 17, "WHERE stands behind FROM, not behind a whole query"),
    ("(SELECT 1 AS a) GROUP BY a", 17, "GROUP BY stands behind FROM, not behind a whole query"),
    ("SELECT * FROM (t WHERE x = 1)", 18, "WHERE is not supported here"),
    ("SELECT * FROM (t ORDER BY x LIMIT 1)", 18, "ORDER BY is not supported here"),
    ("SELECT 1 LEFT UNION ALL BY NAME SELECT 2", 10, "LEFT is not supported"),
    ("SELECT 1 AS a UNION ALL CORRESPONDING SELECT 2 AS a", 25, "CORRESPONDING is not supported"),
    (("WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r WHERE n<3) SEARCH DEPTH FIRST BY n SET o SELECT * "
      "FROM r"), 73, "SEARCH is not supported"),
    ("ALTER TABLE t ADD COLUMN z INTEGER FIRST", 36, "FIRST is not supported"),
    ("CREATE TABLE q (a INTEGER CHECK (a > 1) ENFORCED)", 41, "a CHECK is always enforced"),
    ("CREATE TABLE q (a INTEGER PRIMARY KEY DESC)", 39, "a key has no order"),
    ("CREATE TABLE q (a INTEGER, PRIMARY KEY (a) INCLUDE (b))", 44, "INCLUDE is not supported"),
    ("CREATE TABLE q (a INTEGER UNIQUE ON CONFLICT IGNORE)", 34, "ON CONFLICT is not supported"),
    ("CREATE TABLE q (a INTEGER UNIQUE DEFERRABLE INITIALLY DEFERRED)", 34,
     "a key takes no options: it is checked with each statement"),
    ("CREATE TABLE q (a INTEGER UNIQUE USING BTREE)", 34, "USING is not supported"),
    ("CREATE TABLE q (a INTEGER COMMENT 'x')", 27, "COMMENT is not supported"),
    ("CREATE TABLE q (a VARCHAR COLLATE nocase)", 27, "COLLATE is not supported"),
    ("CREATE TABLE q (a VARCHAR CHARACTER SET utf8)", 27, "CHARACTER SET is not supported"),
    ("CREATE TABLE q (a INTEGER AUTO_INCREMENT)", 27, "AUTO_INCREMENT is not supported"),
    ("CREATE TABLE q (a INTEGER GENERATED ALWAYS AS IDENTITY)", 27, "a generated column is not supported"),
    ("CREATE TABLE q (a INTEGER) ENGINE = x", 28, "ENGINE is not supported"),
    ("CREATE TABLE q (a INTEGER) COMMENT 'x'", 28, "COMMENT is not supported"),
    ("CREATE TABLE q STORED AS parquet AS SELECT 1 AS a", 16, "STORED is not supported"),
    ("CREATE TABLE q (a INTEGER) INHERITS (t)", 28, "INHERITS is not supported"),
    ("CREATE TABLE q (LIKE t)", 17, "LIKE is not supported"),
    ("CREATE TABLE q CLONE t", 16, "CLONE is not supported"),
    ("CREATE UNLOGGED TABLE q (a INTEGER)", 8, "UNLOGGED is not supported"),
    ("CREATE TRANSIENT TABLE q (a INTEGER)", 8, "TRANSIENT is not supported"),
    ("CREATE EXTERNAL TABLE q (a INTEGER)", 8, "EXTERNAL is not supported"),
    ("CREATE GLOBAL TEMPORARY TABLE q (a INTEGER)", 8, "GLOBAL is not supported"),
    ("CREATE TEMPORARY TABLE q (a INTEGER) ON COMMIT PRESERVE ROWS", 38, "ON COMMIT is not supported"),
    ("CREATE VIEW q AS SELECT 1 WITH NO SCHEMA BINDING", 27, "WITH NO SCHEMA BINDING is not supported"),
    ("CREATE SECURE VIEW q AS SELECT 1", 8, "SECURE is not supported"),
    ("CREATE ALGORITHM = MERGE VIEW q AS SELECT 1", 8, "ALGORITHM is not supported"),
    ("CREATE VIEW q (a COMMENT 'x') AS SELECT 1", 18, "COMMENT is not supported"),
    ("CREATE TABLE q AS SELECT 1 AS a WITH DATA AND STATISTICS", 43, "AND STATISTICS is not supported"),
    ("CREATE UNIQUE INDEX i ON t (x)", 8, "UNIQUE is not supported"),
    ("CREATE TABLE q AS (SELECT 1) UNIQUE PRIMARY INDEX (a)", 45, "INDEX is not supported"),
    ("DROP TABLE t CASCADE CONSTRAINTS", 22, "CONSTRAINTS is not supported"),
    ("DROP TABLE t PURGE", 14, "PURGE is not supported"),
    ("DROP TABLE t SYNC", 14, "SYNC is not supported"),
    ("DROP TEMPORARY TABLE t", 6, "TEMPORARY is not supported"),
    ("DROP INDEX CONCURRENTLY i", 12, "CONCURRENTLY is not supported"),
    ("DROP TABLE t FORCE", 14, "FORCE is not supported"),
    ("DROP FUNCTION f(INTEGER)", 16, "DROP takes a name without arguments"),
    ("TRUNCATE TABLE IF EXISTS t", 16, "IF EXISTS is not supported"),
    ("TRUNCATE t RESTART IDENTITY", 12, "RESTART IDENTITY is not supported"),
    ("TRUNCATE t CASCADE", 12, "TRUNCATE takes no CASCADE or RESTRICT: no table depends on another"),
    ("TRUNCATE DATABASE t", 10, "DATABASE is not supported"),
    ("TRUNCATE t PARTITION (p)", 12, "PARTITION is not supported"),
    ("INSERT INTO t IF EXISTS SELECT 1", 15, "IF EXISTS is not supported"),
    ("INSERT INTO t (k) VALUES (9) ON DUPLICATE KEY UPDATE x = 1", 30, "ON DUPLICATE KEY is not supported"),
    ("INSERT INTO t (k) VALUES (9) ON CONFLICT ON CONSTRAINT c DO NOTHING", 42, "ON CONSTRAINT is not supported"),
    ("INSERT INTO t (k) VALUES (9) ON CONFLICT (k) WHERE x > 1 DO NOTHING", 46,
     "WHERE in a conflict target is not supported"),
    ("INSERT INTO t (k) VALUES (9) ON CONFLICT (k DESC) DO NOTHING", 45, "DESC is not supported here"),
    ("INSERT INTO t (k) VALUES (9) RETURNING k INTO z", 42, "INTO is not supported"),
    ("INSERT INTO t REPLACE WHERE x = 1 SELECT 1", 15, "REPLACE WHERE is not supported"),
    ("INSERT INTO FUNCTION f() VALUES (1)", 13, "FUNCTION is not supported"),
    ("UPDATE t SET x = 1 ORDER BY k", 20, "UPDATE takes no ORDER BY"),
    ("UPDATE t SET x = 1 LIMIT 1", 20, "UPDATE takes no LIMIT"),
    ("UPDATE t TABLESAMPLE 10% SET x = 1", 10, "TABLESAMPLE is not supported here"),
    ("UPDATE /*+ x */ t SET x = 1", 8, "a hint here has no effect"),
    ("UPDATE t WITH (NOLOCK) SET x = 1", 10, "WITH (..) behind a table is not supported"),
    ("UPDATE t JOIN v ON true SET x = 1", 10, "JOIN is not supported here"),
    ("UPDATE t, v SET x = 1", 9, '"," is not supported here'),
    ("DELETE FROM t ORDER BY k", 15, "DELETE takes no ORDER BY"),
    ("DELETE FROM t LIMIT 1", 15, "DELETE takes no LIMIT"),
    ("DELETE t FROM t", 1, "DELETE takes one table, behind FROM"),
    ("DELETE FROM t TABLESAMPLE 10%", 15, "TABLESAMPLE is not supported here"),
    ("DELETE FROM t PIVOT (sum(x) FOR g IN (1))", 15, "PIVOT is not supported here"),
    ("COPY t TO 'a.csv' CREDENTIALS 'x'", 19, "CREDENTIALS is not supported"),
    ("SELECT CAST('2020' AS DATE FORMAT 'YYYY')", 28, "FORMAT is not supported"),
    ("SELECT CAST(1 AS INT DEFAULT 2 ON CONVERSION ERROR)", 22, "DEFAULT is not supported"),
    ("SELECT x IN UNNEST([1]) FROM t", 13, "IN takes a list or a query in parentheses"),
    ("SELECT x FROM t TABLESAMPLE (BUCKET 1 OUT OF 2 ON x)", 30, "BUCKET is not supported"),
    ("SELECT x FROM t ORDER BY x LIMIT 1 WITH TIES", 36, "WITH TIES is not supported"),
    ("SELECT x FROM t ORDER BY x LIMIT 1 PERCENT WITH TIES", 44, "WITH TIES is not supported"),
    ("SELECT x FROM t ORDER BY x LIMIT 10% WITH TIES OFFSET 1", 38, "WITH TIES is not supported"),
    ("SELECT x FROM t ORDER BY x FETCH FIRST 1 ROWS WITH TIES", 47, "WITH TIES is not supported"),
    ("SELECT * FROM (SELECT x FROM t ORDER BY x LIMIT 1 WITH TIES) q", 51, "WITH TIES is not supported"),
    ("CREATE VIEW q AS SELECT x FROM t ORDER BY x LIMIT 1 WITH TIES", 53, "WITH TIES is not supported"),
    ("SELECT x FROM t LIMIT 1 ROWS ONLY", 25, 'syntax error at "ROWS"'),
    ("SELECT 'abab' SIMILAR TO '(ab)+' ESCAPE '!'", 34, "ESCAPE stands behind LIKE or ILIKE"),
    ("SELECT 'abab' NOT SIMILAR TO '(ab)+' ESCAPE '!'", 38, "ESCAPE stands behind LIKE or ILIKE"),
    ("SELECT 'a' GLOB 'a' ESCAPE '!'", 21, "ESCAPE stands behind LIKE or ILIKE"),
    ("SELECT 'a' ^@ 'a' ESCAPE '!'", 19, "ESCAPE stands behind LIKE or ILIKE"),
    ("SELECT * SIMILAR TO 'a' ESCAPE '!' FROM t", 25, "ESCAPE stands behind LIKE or ILIKE"),
    ("SELECT 'a' ~ 'a' ESCAPE '!'", 25, 'syntax error at "!"'),
    ("SELECT DATE '2020-01-01' OVERLAPS DATE '2020-01-01'", 26, "OVERLAPS is not supported"),
    ("SELECT any_value(x HAVING MAX g) FROM t", 20, "HAVING MAX is not supported"),
    ("SELECT sum(x LIMIT 1) FROM t", 14, "an aggregate takes no LIMIT"),
    ("PIVOT t ON g USING sum(x) GROUP BY ALL", 36, "ALL is not supported here"),
    ("(SELECT 1 AS a) HAVING a > 1", 17, "HAVING stands behind FROM, not behind a whole query"),
    ("(SELECT 1 AS a) QUALIFY a > 1", 17, "QUALIFY stands behind FROM, not behind a whole query"),
    ("(SELECT 1 AS a) WINDOW w AS (ORDER BY a)", 17, "WINDOW stands behind FROM, not behind a whole query"),
    ("(SELECT 1 AS a) UNION (SELECT 2) USING SAMPLE 1 ROWS", 34, "a sample is taken from what FROM gives"),
    ("(SELECT 1 AS a) UNION (SELECT 2) CLUSTER BY a", 34, "CLUSTER BY is not supported"),
    ("(SELECT 1 AS a) UNION (SELECT 2) DISTRIBUTE BY a", 34, "DISTRIBUTE BY is not supported"),
    ("(SELECT 1 AS a) UNION (SELECT 2) LATERAL VIEW explode(x) q AS y", 34, "LATERAL VIEW is not supported"),
    ("(SELECT 1 AS a) UNION (SELECT 2) JOIN t ON true", 34, "JOIN stands behind FROM, not behind a whole query"),
    ("(SELECT 1 AS a) CLUSTER BY a", 17, "CLUSTER BY is not supported"),
    ("(SELECT 1 AS a) DISTRIBUTE BY a", 17, "DISTRIBUTE BY is not supported"),
    ("(SELECT 1 AS a) LATERAL VIEW explode(x) q AS y", 17, "LATERAL VIEW is not supported"),
    ("SELECT 1 UNION ALL BY NAME ON (a) SELECT 2", 28, "BY NAME takes no list of columns"),
    ("SELECT * FROM t JOIN t b ON true PIVOT (sum(x) FOR g IN (1))", 34, "PIVOT is not supported"),
    ("INSERT INTO t STORED AS x SELECT 1", 15, "STORED is not supported"),
    ("INSERT INTO t SETTINGS a = 1 VALUES (1)", 15, "SETTINGS is not supported"),
    ("INSERT INTO t REPLACE USING (k) SELECT 1", 15, "REPLACE USING is not supported"),
    ("COPY t TO 'a.csv' STORAGE_INTEGRATION = x", 19, "STORAGE_INTEGRATION is not supported"),
    ("COPY t TO 'a.csv' IAM_ROLE 'x'", 19, "IAM_ROLE is not supported"),
    ("COPY t TO 'a.csv' REGION 'x'", 19, "REGION is not supported"),
    ("COPY t TO 'a.csv' FILE_FORMAT = (FORMAT_NAME = x)", 19, "FILE_FORMAT is not supported"),
    ("DROP ICEBERG TABLE t", 6, "ICEBERG is not supported"),
    ("CREATE INDEX CONCURRENTLY i ON t (x)", 14, "CONCURRENTLY is not supported"),
    ("CREATE TABLE q (a INTEGER, PRIMARY KEY (a) USING INDEX TABLESPACE x)", 56, "TABLESPACE is not supported"),
    ("CREATE TABLE q (a INTEGER, PRIMARY KEY (a) WITH (x = 1))", 44, "WITH is not supported"),
    ("CREATE TABLE q (a INTEGER, PRIMARY KEY (a) USING btree)", 44, "USING is not supported"),
    ("CREATE TABLE q (a INTEGER, PRIMARY KEY (a) PARTITION BY (a))", 44, "PARTITION BY is not supported"),
    ("CREATE TABLE q (a INTEGER, PRIMARY KEY (a) WHERE a > 1)", 44, "WHERE is not supported"),
    ("CREATE TABLE q (a INTEGER, PRIMARY KEY (a) ON x)", 44, "ON is not supported"),
    ("SELECT * FROM LATERAL VIEW OUTER explode(x) q AS y", 15, "LATERAL VIEW is not supported"),
    ("CREATE TABLE q (a INTEGER, b INTEGER AS (a + 1))", 38, "a generated column is not supported"),
]  # fmt: skip
"""A statement for each refusal of the tables, and for some classes that are in none: where the error points, and its
message."""

REFUSED_LATER = {
    exp.Struct: "SELECT {'a': 1}",
    exp.Lambda: "SELECT upper(lambda x: x)",
    exp.PivotAny: "SELECT * FROM t PIVOT (sum(a) FOR b IN (ANY))",
    exp.Index: "CREATE INDEX i ON t (a)",
    exp.ForeignKey: "CREATE TABLE q (a INTEGER, FOREIGN KEY (a) REFERENCES t (a))",
    exp.Reference: "CREATE TABLE q (a INTEGER REFERENCES t (a))",
}
"""The classes that the analysis refuses with words of its own."""

ABSTRACT = {"Pattern", "TimeFunction", "WindowFunction", "LifetimeFunction"}
"""Classes of this dialect that no parser makes."""


def _kinds(base: type[exp.Expr] = exp.Expr) -> Iterator[type[exp.Expr]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)


KNOWN = {kind: clauses for kind, clauses in NODES.items() if isinstance(clauses, Clauses)}


@pytest.mark.parametrize("kind", KNOWN, ids=lambda kind: kind.__name__)
def test_every_argument_of_a_known_class_is_in_the_table(kind: type[exp.Expr]) -> None:
    """Fails when another version of sqlglot has another argument: read it, or say how it is refused."""
    clauses = KNOWN[kind]
    assert clauses.arguments - clauses.extra == set(kind.arg_types)
    assert not clauses.fine & clauses.foreign
    assert not set(clauses.idle) & clauses.read
    assert clauses.fine & set(clauses.refused) <= clauses.when_false, (
        "an argument is read and refused only if False means something"
    )


def test_every_node_of_this_dialect_is_in_the_table() -> None:
    own = {kind for kind in _kinds() if kind.__module__.startswith("tsql.")}
    assert {kind.__name__ for kind in own - set(NODES)} == ABSTRACT


def test_a_class_is_in_one_table() -> None:
    assert sum(map(len, FAMILIES.values())) == len(NODES)


def test_what_places_allow_is_read() -> None:
    for clauses in KNOWN.values():
        for kinds in clauses.places.values():
            for kind, allowed in kinds.items():
                assert allowed <= KNOWN[kind].fine


def _refused(node: exp.Expr) -> str:
    source = tokenize("SELECT 1", Temporal)
    with pytest.raises(ParseError) as caught:
        check_statement(node, source.tokens, source.text)
    assert caught.value.line_column == (1, 1)
    return caught.value.message


@pytest.mark.parametrize("kind", KNOWN, ids=lambda kind: kind.__name__)
def test_an_argument_that_nothing_reads_is_refused(kind: type[exp.Expr]) -> None:
    clauses = KNOWN[kind]
    whole = {"this": exp.Null()} if "this" in clauses.read else {}
    for argument in (*clauses.foreign, *set(clauses.refused) - clauses.fine, "of_another_version"):
        assert _refused(kind(**whole, **{argument: True}))
        assert _refused(kind(**whole, **{argument: [exp.Null()]}))
    for argument in clauses.when_false:
        assert _refused(kind(**whole, **{argument: False}))
    source = tokenize("SELECT 1", Temporal)
    check_statement(kind(**dict.fromkeys(clauses.foreign)), source.tokens, source.text)


def test_a_class_that_is_not_known_is_refused_by_its_name() -> None:
    assert _refused(exp.Select(expressions=[exp.GroupConcat(this=exp.Null())])) == "GROUP CONCAT is not supported"
    assert _refused(exp.JSONExtract(this=exp.Null(), expression=exp.Null())) == "JSON EXTRACT is not supported"
    assert _refused(exp.Merge()) == "MERGE is not supported"


@pytest.mark.parametrize(("text", "column", "message"), REFUSED, ids=[text for text, _, _ in REFUSED])
def test_a_clause_is_refused_at_its_place(text: str, column: int, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert (caught.value.message, caught.value.line_column) == (message, (1, column))


def test_every_refusal_has_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal that no statement reaches belongs to `foreign`, which has no words of its own."""
    used: set[int] = set()
    error = bind_clauses._error

    def noted(node: exp.Expr, value: object, refusal: Refusal, *rest: object) -> ParseError:
        used.add(id(refusal))
        return error(node, value, refusal, *rest)

    monkeypatch.setattr(bind_clauses, "_error", noted)
    for text, _, _ in REFUSED:
        with pytest.raises(ParseError):
            parse(text)
    missing = [
        kind.__name__ for kind, refusal in NODES.items() if isinstance(refusal, Refusal) and id(refusal) not in used
    ]
    missing += [
        f"{kind.__name__}.{name}"
        for kind, clauses in KNOWN.items()
        for name, refusal in clauses.refused.items()
        if id(refusal) not in used
    ]
    assert missing == []


def test_classes_that_the_analysis_refuses() -> None:
    assert {kind for kind, clauses in NODES.items() if clauses is None} == set(REFUSED_LATER)
    for kind, text in REFUSED_LATER.items():
        assert parse(text)[0].node.find(kind) is not None
        with pytest.raises(TsqlError) as caught:
            analyze(text, catalog())
        assert caught.value.line_column is not None


def test_the_first_clause_of_several_is_named() -> None:
    with pytest.raises(ParseError) as caught:
        parse("SELECT *\nFROM t WITH (NOLOCK)\nCLUSTER BY x\nFOR UPDATE")
    assert str(caught.value) == (
        "line 2, column 8: WITH (..) behind a table is not supported\n  FROM t WITH (NOLOCK)\n         "
        "^\nhint: hints stand behind SELECT: /*+ .. */"
    )


def test_a_clause_of_a_later_statement_is_shown_in_its_line() -> None:
    with pytest.raises(ParseError) as caught:
        parse("SELECT 1 FROM t;\nSELECT 1 FROM t FOR UPDATE")
    assert caught.value.line_column == (2, 17)


def test_expressions_that_stand_alone_are_checked_too() -> None:
    """Defaults, macros and plan files are read with `parse_scalar`."""
    with pytest.raises(ParseError, match="DEFAULT is not supported"):
        parse_scalar("CAST(a AS INTEGER DEFAULT 1 ON CONVERSION ERROR)")
    with pytest.raises(BindError, match="LIMIT is not supported"):
        parse_aggregate("sum(x LIMIT 1)", Schema((Field("x", INTEGER),)))


def test_what_macros_and_views_make_passes() -> None:
    with tsql.connect(threads=1) as db:
        db.sql("CREATE MACRO twice(x, y := 2) AS CASE WHEN x IS NULL THEN 0 ELSE x::INTEGER * y END")
        db.sql("CREATE TABLE t (a INTEGER CHECK (twice(a) >= 0), b INTEGER DEFAULT 1 + 1)")
        db.sql("INSERT INTO t (a) VALUES (3), (4)")
        db.sql("CREATE VIEW v AS SELECT twice(a) AS d, * FROM t")
        assert db.sql("SELECT d, twice(twice(d), 3) AS e, b FROM v ORDER BY d").arrow().to_pydict() == {
            "d": [6, 8],
            "e": [36, 48],
            "b": [2, 2],
        }
        assert db.sql("PIVOT v ON a USING sum(d) GROUP BY b").arrow().to_pydict() == {"b": [2], "3": [6], "4": [8]}
