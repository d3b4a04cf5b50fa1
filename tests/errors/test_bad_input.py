"""Absurd, broken and hostile SQL: one clear error or a right answer, never a crash, a hang or a traceback."""

import pyarrow as pa
import pytest

import tsql
from tsql.cli.command import main
from tsql.kernels.expr.errors import TsqlError

MANY = 2_000


@pytest.fixture(scope="module")
def db():
    with tsql.connect(threads=2) as session:
        session.register("t", pa.table({"a": list(range(100)), "s": [str(i) for i in range(100)]}))
        yield session


LONG = {
    "or": ("SELECT count(*) FROM t WHERE " + " OR ".join(f"a = {i}" for i in range(MANY)), [(100,)]),
    "and": ("SELECT count(*) FROM t WHERE " + " AND ".join(f"a <> {i}" for i in range(50, MANY)), [(50,)]),
    "in numbers": (f"SELECT count(*) FROM t WHERE a IN ({','.join(map(str, range(50, 10_000)))})", [(50,)]),
    "in texts": ("SELECT count(*) FROM t WHERE s IN (" + ",".join(f"'{i}'" for i in range(50, 10_000)) + ")", [(50,)]),
    "case": (
        "SELECT sum(CASE " + " ".join(f"WHEN a = {i} THEN {i + 1}" for i in range(500)) + " END) FROM t",
        [(5050,)],
    ),
    "union": ("SELECT count(*) FROM (" + " UNION ALL ".join(["SELECT a FROM t"] * 60) + ")", [(6000,)]),
    "literal": (f"SELECT length('{'x' * 200_000}')", [(200_000,)]),
    "nul": ("SELECT length('a\0b')", [(3,)]),
    "byte order mark": ("\ufeffSELECT 1", [(1,)]),
    "comments": ("/* a */ -- b\nSELECT 1 -- c\n;;", [(1,)]),
    "limit": ("SELECT count(*) FROM (SELECT a FROM t LIMIT 9223372036854775807)", [(100,)]),
    "limit and offset": (
        "SELECT count(*) FROM (SELECT a FROM t LIMIT 9223372036854775807 OFFSET 9223372036854775807)",
        [(0,)],
    ),
    "limit null": ("SELECT count(*) FROM (SELECT a FROM t LIMIT NULL)", [(100,)]),
    "sorted limit": ("SELECT a FROM t ORDER BY a LIMIT 9223372036854775807 OFFSET 99", [(99,)]),
    "repeated names": ("SELECT a, a FROM t WHERE a = 7", [(7, 7)]),
    "long padding": ("SELECT length(lpad('x', 3000000, 'y'))", [(3_000_000,)]),
}


@pytest.mark.parametrize("name", LONG)
def test_long_or_odd_queries_work(db, name):
    query, expected = LONG[name]
    assert db.sql(query).fetchall() == expected


REFUSED = [
    "SELECT " + "+".join(["a"] * 10_000) + " FROM t",
    "SELECT " + "||".join(["s"] * 10_000) + " FROM t",
    "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
    "SELECT " + "- " * 5_000 + "1",
    "SELECT " + "abs(" * 5_000 + "a" + ")" * 5_000 + " FROM t",
    "SELECT * FROM (" * 1_000 + "SELECT a FROM t" + ")" * 1_000,
    "SELECT a FROM t LIMIT -1", "SELECT a FROM t OFFSET -1", "SELECT a FROM t LIMIT 'x'", "SELECT a FROM t LIMIT a",
    "SELECT a FROM t LIMIT 99999999999999999999999",
    "", ";;;", "-- nothing", "/* nothing */ ;", "SELECT 'abc", 'SELECT "abc', "SELECT /* abc", "SELECT '\ud800'",
    "SELECT \0 1",
    "SET nonsense = 3", "SET threads = -5", "SET memory_limit = 'abc'", "SET", "PRAGMA foo", "INSERT INTO t VALUES (1)",
    "asdf",
    "SELECT length(repeat('x', 9223372036854775807))", "SELECT $1", "SELECT *",
    "SELECT regexp_matches(s, '(((') FROM t",
    "SELECT " + "a" * 100_000 + " FROM t", "SELECT 1; SELEC 2; SELECT 3",
]  # fmt: skip


@pytest.mark.parametrize("query", REFUSED, ids=lambda q: repr(q[:40]))
def test_bad_queries_get_one_clear_error(db, query):
    with pytest.raises(TsqlError) as raised:
        db.sql(query).arrow()
    assert raised.value.message and len(raised.value.message) < 300_000
    assert db.sql("SELECT 1").fetchall() == [(1,)]


def test_names_of_any_kind(db):
    names = ['a"b', "x\ny", "#", "p=q", " ", "select", "é\u2028"]
    quoted = [f'"{name.replace(chr(34), chr(34) * 2)}"' for name in names]
    relation = db.sql("SELECT " + ", ".join(f"{i} AS {name}" for i, name in enumerate(quoted)))
    assert relation.columns == names
    db.register("odd", relation)
    assert db.sql(f"SELECT {', '.join(quoted)} FROM odd").fetchall() == [tuple(range(len(names)))]


def test_tables_without_rows_or_columns(db):
    db.register("none", pa.table({"a": pa.array([], pa.int64()), "s": pa.array([], pa.string())}))
    assert db.sql("SELECT count(*), sum(a), max(s) FROM none").fetchall() == [(0, None, None)]
    assert db.sql("SELECT s, count(*) FROM none GROUP BY s ORDER BY s").fetchall() == []
    assert db.sql("SELECT * FROM none ORDER BY a LIMIT 3").fetchall() == []
    try:
        db.register("bare", pa.table({}))
        db.sql("SELECT count(*) FROM bare").fetchall()
    except TsqlError as error:
        assert error.message


def test_many_columns(db):
    count = 2_000
    db.register("wide", pa.table({f"c{i}": [i] for i in range(count)}))
    assert db.sql("SELECT c0, c1999 FROM wide").fetchall() == [(0, 1999)]
    assert db.sql("SELECT * FROM wide").arrow().num_columns == count


def test_text_that_is_not_utf8(db):
    bad = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\3\0\0\0\5\0\0\0"), pa.py_buffer(b"a\xff\xfebc")]
    )
    try:
        db.register("broken", pa.table({"s": bad}))
        for query in (
            "upper(s)",
            "length(s)",
            "reverse(s)",
            "s || 'x'",
            "substr(s, 2)",
            "s LIKE '%b%'",
            "max(s)",
            "regexp_matches(s, 'a')",
        ):
            db.sql(f"SELECT {query} FROM broken").arrow()
    except TsqlError as error:
        assert "UTF" in str(error)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT " + "(" * 300 + "1" + ")" * 300,
        "SELECT a FROM nowhere",
        "SELECT CAST('x' AS INT)",
        "-- nothing",
        "SET nonsense = 1",
        "SELECT 1; SELECT 'x",
    ],
)
def test_the_command_says_it_once_and_fails(query, capfd):
    assert main(["run", query]) == 1
    said = capfd.readouterr().err
    assert said.count("error") == 1 and "Traceback" not in said
