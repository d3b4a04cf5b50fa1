"""Errors of binding: one message, its place in the text, and the nearest names."""

from __future__ import annotations

import pytest

import tsql
from tests.frontend.support import catalog
from tsql.analyze.statements import analyze
from tsql.kernels.expr.errors import BindError, ParseError, TsqlError

CASES = [
    ("SELECT zz FROM t", 8, 'column "zz" does not exist', None),
    ("SELECT flg FROM t", 8, 'column "flg" does not exist', 'did you mean "flag"?'),
    ("SELECT t.zz FROM t", 10, 'table "t" has no column "zz"', None),
    ("SELECT u.a FROM t", 8, 'there is no table "u" in FROM', "there is t"),
    ("SELECT t.a FROM t AS q", 8, 'there is no table "t" in FROM', "there is q"),
    ("SELECT a FROM evry", 15, 'table "evry" does not exist', 'did you mean "every"?'),
    ("SELECT a FROM x.t", 15, 'schema "x" does not exist', None),
    ("SELECT nosuchfunction(a) FROM t", 8, "function nosuchfunction does not exist", None),
    ("SELECT uper(s) FROM t", 8, "function uper does not exist", 'did you mean "upper"'),
    ("SELECT upper(s, s) FROM t", 8, "no overload of upper takes (VARCHAR, VARCHAR)", "there is upper("),
    ("SELECT upper(a) FROM t", 8, "no overload of upper takes (INTEGER)", "there is upper("),
    ("SELECT s + 1 FROM t", 10, "there is no operator + for VARCHAR and INTEGER", "an explicit cast may be needed"),
    ("SELECT a FROM t WHERE d < s", 25, "cannot compare DATE with VARCHAR", None),
    ("SELECT CASE WHEN flag THEN a ELSE s END FROM t", 8, "cannot mix values of types INTEGER, VARCHAR in CASE", None),
    ("SELECT CAST(d AS INTEGER) FROM t", 8, "there is no cast from DATE to INTEGER", None),
    ("SELECT CAST(a AS THING) FROM t", 18, "unknown type THING", None),
    ("SELECT a LIKE 'x' FROM t", 8, "LIKE takes VARCHAR, not INTEGER", None),
    ("SELECT a FROM t WHERE sum(a) > 1", 23, "an aggregate is not allowed in WHERE", None),
    ("SELECT sum(sum(a)) FROM t", 12, "an aggregate is not allowed in an argument of an aggregate", None),
    ("SELECT a FROM t GROUP BY sum(a)", 26, "an aggregate is not allowed in GROUP BY", None),
    ("SELECT a, sum(b) FROM t", 8,
     'column "a" must appear in the GROUP BY clause or must be part of an aggregate function', "any_value(a)"),
    ("SELECT s FROM t GROUP BY a ORDER BY b", 8, 'column "s" must appear in the GROUP BY clause', None),
    ("SELECT a FROM t GROUP BY 3", 26, "GROUP BY position 3 is out of range: it is between 1 and 1", None),
    ("SELECT a FROM t ORDER BY 0", 26, "ORDER BY position 0 is out of range", None),
    ("SELECT a FROM t UNION SELECT b FROM t ORDER BY 2", 48, "ORDER BY position 2 is out of range", None),
    ("SELECT a FROM t ORDER BY -1", 26, "ORDER BY position -1 is out of range", None),
    ("SELECT a FROM t LIMIT 'x'", 23, "LIMIT takes a number", None),
    ("SELECT a, count(*) + a FROM t GROUP BY ALL", 11, "GROUP BY ALL cannot mix aggregates and other columns", None),
    ("SELECT nosuch(a ORDER BY b) FROM t", 8, "function nosuch does not exist", None),
    ("SELECT nosuch(a) FILTER (WHERE flag) FROM t", 8, "function nosuch does not exist", None),
    ("SELECT a FROM t ORDER BY 'x'", 26, "a constant in ORDER BY has no effect", None),
    ("SELECT y + 1 AS z, a AS y FROM t", 8, 'alias "y" cannot be used before it is defined', None),
    ("SELECT a FROM t WHERE random() < 0.5", 23, "random() is not supported in WHERE",
     "put it into a column first: FROM (SELECT *, random() AS r FROM t)"),
    ("SELECT a::TIMESTAMP_S FROM t", 11, "TIMESTAMP_S is not supported: every time is in microseconds",
     "TIMESTAMP has microseconds; date_trunc('second', x) cuts the rest off"),
    ("SELECT CAST(a AS timestamp_ns) FROM t", 18, "TIMESTAMP_NS is not supported: every time is in microseconds",
     "TIMESTAMP has microseconds"),
    ("SELECT a FROM t LIMIT -1", 23, "LIMIT cannot be negative", None),
    ("SELECT a FROM t LIMIT a", 23, 'LIMIT takes constants: column "a" is not allowed', None),
    ("SELECT a FROM t LIMIT 101%", 23, "Limit percent out of range, should be between 0% and 100%", None),
    ("SELECT a FROM t LIMIT a%", 23, 'LIMIT takes constants: column "a" is not allowed', None),
    ("SELECT * EXCLUDE (zz) FROM t", 19, 'column "zz" in EXCLUDE does not exist', None),
    ("SELECT * REPLACE (a AS zz) FROM t", 19, 'column "zz" in REPLACE does not exist', None),
    ("SELECT *", 8, "* needs a FROM clause", None),
    ("SELECT a FROM t UNION SELECT a, b FROM t", 30, "UNION needs the same number of columns on both sides: 1 and 2",
     None),
    ("VALUES (1, 2), (3)", 17, "all rows of VALUES need the same number of columns: 2, not 1", None),
    ("SELECT * FROM (SELECT 1) v(x, y)", 26, '"v" has 1 columns, but 2 names are given', None),
    ("WITH c AS (SELECT 1), c AS (SELECT 2) SELECT * FROM c", 23, 'WITH defines "c" twice', None),
    ("WITH RECURSIVE c AS (SELECT * FROM c UNION ALL SELECT 1) SELECT * FROM c", 16, 'Circular reference to CTE "c"',
     None),
    ("SELECT a FROM t WHERE sum(a) OVER () > 1", 23, "WHERE cannot contain window functions", None),
    ("SELECT sum(a) OVER (ROWS BETWEEN CURRENT ROW AND 1 PRECEDING) FROM t", 8,
     "Frame starting from current row cannot have preceding rows", None),
    ("SELECT a, row_number() FROM t", 11, "row_number is a window function: it needs OVER (..)", None),
    ("SELECT sum(a) OVER w FROM t", 20, 'window "w" does not exist', None),
    ("SELECT a FROM t QUALIFY a > 1", 25,
     "at least one window function must appear in the SELECT column or QUALIFY clause", "use WHERE or HAVING"),
    ("SELECT grouping(a) FROM t", 8, "GROUPING cannot be used without GROUP BY", None),
    ("SELECT grouping(b) FROM t GROUP BY a", 17, "an argument of GROUPING must be one of the GROUP BY expressions",
     None),
    ("SELECT date_trunc('yaer', ts) FROM t", 8, '"yaer" is no part of a date or time', 'did you mean "year"'),
    ("SELECT extract(moth FROM ts) FROM t", 8, '"moth" is no part of a date or time', 'did you mean "month"'),
    ("SELECT X'abc'", 8, "X'abc' is not a BLOB", None),
    ("SELECT nullif(a) FROM t", 8, "nullif takes 2 arguments, not 1", None),
    ("SELECT upper(DISTINCT s) FROM t", 8, "DISTINCT and ORDER BY are for aggregates: upper is none", None),
    ("SELECT upper(s) FILTER (WHERE flag) FROM t", 8, "FILTER and WITHIN GROUP are for aggregates", None),
    ("SELECT [1, 2]", 8, "a list is not supported", None),
    ("SELECT a[1] FROM t", 8, "there is no subscript [..] of INTEGER", None),
    ("SELECT a < 1 < 2 FROM t", 14, "Chained comparisons are not supported, use AND to combine comparisons", None),
    ("SELECT s COLLATE nocase FROM t", 8, "COLLATE is supported in comparisons and in ORDER BY only",
     "lower(x), strip_accents(x) and nfc_normalize(x) do the same to a value"),
    ("SELECT count(*) FROM t GROUP BY s COLLATE nocase", 33, "COLLATE is supported in comparisons and in ORDER BY only",
     "lower(x), strip_accents(x) and nfc_normalize(x) do the same to a value"),
    ("SELECT year('2020-01-01')", 8,
     "Could not choose a best candidate function for year(a string literal): add an explicit type cast", None),
    ("CREATE VIEW n", 13, "CREATE VIEW needs AS and a query", None),
    ("CREATE INDEX i ON t (a)", None, "CREATE INDEX is not supported", None),
    ("DROP SCHEMA s", None, "DROP SCHEMA is not supported", None),
    ("SELECT * FROM nothing('x')", 15, "table function nothing does not exist", None),
    ("SELECT * FROM read_csv(1)", 15, "read_csv takes a path or a list of paths", None),
    ("SELECT * FROM read_csv('a', 'b')", 29, "read_csv takes one path, or a list of them", None),
    ("SELECT $1", 8, "no value is given for parameter $1", None),
    ("SELECT a, a AS x FROM t WHERE x.y = 1", 31, 'there is no table "x" in FROM', None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "column", "message", "hint"), CASES, ids=[c[0] for c in CASES])
def test_error(text, column, message, hint):
    with pytest.raises(BindError) as caught:
        analyze(text, catalog())
    error = caught.value
    assert error.message.startswith(message)
    assert error.line_column is not None
    assert error.line_column[0] == 1
    if column is not None:
        assert error.line_column[1] == column
    if hint is not None:
        assert hint in (error.hint or "")


def test_errors_show_the_line_and_a_caret():
    with pytest.raises(TsqlError) as caught:
        analyze("SELECT a\nFROM t\nWHERE flg", catalog(), origin="q.sql")
    assert (
        str(caught.value)
        == 'q.sql:3:7: column "flg" does not exist\n  WHERE flg\n        ^\nhint: did you mean "flag"?'
    )


def test_an_unknown_level_of_explain_names_the_others():
    with pytest.raises(ParseError) as caught:
        analyze("EXPLAIN FOO SELECT 1", catalog())
    assert (caught.value.message, caught.value.line_column) == ("EXPLAIN has no level FOO", (1, 9))
    assert caught.value.hint == "the levels are LOGICAL, PHYSICAL, PIPELINES, KIR, LLVM, ASM, ANALYZE"


def test_a_file_that_copy_does_not_find_is_shown_in_its_line():
    with tsql.connect(threads=1) as db:
        db.sql("CREATE TABLE t (a INTEGER)")
        with pytest.raises(TsqlError) as caught:
            db.sql("SELECT 1;\nCOPY t FROM 'nope.csv'")
    assert str(caught.value) == "line 2, column 13: nope.csv: no such file\n  COPY t FROM 'nope.csv'\n              ^"


def test_a_subquery_over_unnest_beside_lifetimes_is_refused_with_its_place():
    with tsql.connect(threads=1) as db:
        db.sql("CREATE TABLE t (ts TIMESTAMP)")
        with pytest.raises(BindError) as caught:
            db.sql("SELECT unnest([1, 2]) IN (SELECT 1) FROM LIFETIME(t, ts)")
    assert (caught.value.message, caught.value.line_column) == (
        "a subquery cannot depend on UNNEST or a window function here",
        (1, 8),
    )
