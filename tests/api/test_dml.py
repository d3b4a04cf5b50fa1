"""Statements that change tables, through the Python API: results, snapshots, threads, many small changes, plans."""

from __future__ import annotations

import random
import threading

import numpy as np
import pyarrow as pa
import pytest

import tsql
from tsql.kernels.blocks.encode import BLOCK_ROWS
from tsql.kernels.expr.errors import BindError, CatalogError, ConstraintError, TransactionError


@pytest.fixture
def db():
    with tsql.connect(threads=2) as session:
        yield session


def test_changes_tell_their_rows(db):
    created = db.sql("CREATE TABLE t (a INTEGER, b VARCHAR)")
    assert (created.columns, created.message) == ([], "ok")
    inserted = db.sql("INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    assert (inserted.columns, inserted.types, inserted.fetchall(), inserted.message) == (
        ["Count"],
        ["BIGINT"],
        [(2,)],
        "2 rows",
    )
    assert db.sql("UPDATE t SET b = 'z' WHERE a = 1").fetchall() == [(1,)]
    assert db.sql("DELETE FROM t").fetchall() == [(2,)]


def test_statements_run_once_however_often_they_are_read(db):
    relation = db.sql("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1) RETURNING a")
    assert relation.fetchall() == relation.fetchall() == [(1,)]
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(1,)]


def test_errors_have_a_place(db):
    db.execute("CREATE TABLE t (a INTEGER)")
    with pytest.raises(BindError) as caught:
        db.execute("INSERT INTO t VALUES (1);\nUPDATE t SET a = nope")
    assert caught.value.line_column == (2, 18)
    with pytest.raises(tsql.ExecutionError) as failed:
        db.execute("INSERT INTO t VALUES (1), ('x1')")
    assert failed.value.line_column == (1, 28)


def test_parameters(db):
    db.execute("CREATE TABLE t (a BIGINT, b VARCHAR, d DATE)")
    db.execute(
        "INSERT INTO t VALUES ($a, $b, $d), (?, 'q', NULL)".replace("?", "$a + 1"),
        {"a": 5, "b": None, "d": "2024-01-31"},
    )
    assert db.sql("SELECT a, b, CAST(d AS VARCHAR) FROM t ORDER BY a").fetchall() == [
        (5, None, "2024-01-31"),
        (6, "q", None),
    ]
    db.execute("UPDATE t SET b = ? WHERE a = ?", ["new", 5])
    db.execute("DELETE FROM t WHERE a > ?", [5])
    assert db.sql("SELECT b FROM t").fetchall() == [("new",)]
    with pytest.raises(tsql.ExecutionError):
        db.execute("INSERT INTO t VALUES (?, 'x', NULL)", ["not a number"])


def test_registered_data_is_not_changed(db):
    db.register("r", {"a": [1]})
    for text in (
        "INSERT INTO r VALUES (2)",
        "DELETE FROM r",
        "UPDATE r SET a = 2",
        "TRUNCATE r",
        "ALTER TABLE r ADD COLUMN b INTEGER",
    ):
        with pytest.raises(CatalogError, match="data that was registered"):
            db.execute(text)


def test_readers_keep_their_snapshot(db):
    db.register("numbers", {"a": list(range(BLOCK_ROWS * 2))})
    db.execute("CREATE TABLE t AS SELECT a FROM numbers")
    batches = db.sql("SELECT a FROM t").batches()
    first = next(batches)
    relation = db.sql("SELECT count(*), sum(a) FROM t")
    db.execute("DELETE FROM t WHERE a % 2 = 0; UPDATE t SET a = -1; INSERT INTO t SELECT a FROM numbers")
    rows = pa.Table.from_batches([first, *batches])
    assert rows.column("a").to_pylist() == list(range(BLOCK_ROWS * 2))
    assert relation.fetchall() == [(BLOCK_ROWS * 2, BLOCK_ROWS * (BLOCK_ROWS * 2 - 1))]
    assert db.sql("SELECT count(*), min(a) FROM t").fetchall() == [(BLOCK_ROWS * 3, -1)]


def test_a_cached_plan_sees_the_new_rows(db):
    db.execute("CREATE TABLE t (a INTEGER)")
    for count in range(4):
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(count,)]
        db.execute("INSERT INTO t VALUES (1)")


def test_many_small_inserts(db):
    db.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, s VARCHAR)")
    for number in range(2000):
        db.execute("INSERT INTO t VALUES (?, ?)", [number, f"name {number}"])
    assert db.sql("SELECT count(*), sum(a), max(s) FROM t").fetchall() == [(2000, 1999000, "name 999")]
    assert len(db.catalog.lookup("t").pieces) < 16
    with pytest.raises(ConstraintError):
        db.execute("INSERT INTO t VALUES (1234, 'again')")


def test_blocks_are_shared_between_versions(db):
    db.register("numbers", {"a": list(range(BLOCK_ROWS * 4)), "b": [0] * (BLOCK_ROWS * 4)})
    db.execute("CREATE TABLE t AS SELECT a, b FROM numbers")
    before = db.catalog.lookup("t")
    db.execute(f"UPDATE t SET b = 1 WHERE a = {BLOCK_ROWS * 2 + 5}")
    after = db.catalog.lookup("t")
    assert [piece.rows for piece in after.pieces] == [BLOCK_ROWS * 2, BLOCK_ROWS, BLOCK_ROWS]
    old = before.pieces[0].columns["a"].data
    assert all(np.shares_memory(piece.columns["a"].data, old) for piece in after.pieces)
    assert [np.shares_memory(p.columns["b"].data, before.pieces[0].columns["b"].data) for p in after.pieces] == [
        True,
        False,
        True,
    ]


def test_random_changes_equal_a_model(db):
    """Inserts, updates and deletes of all sizes, checked against lists in Python; blocks, tails and their merges take
    part."""
    chance = random.Random(11)
    db.execute("CREATE TABLE t (id INTEGER, s VARCHAR, n BIGINT)")
    model: dict[int, tuple[str | None, int]] = {}
    next_id = 0
    for _ in range(25):
        match chance.randrange(4):
            case 0 | 1:
                count = chance.choice([1, 7, 3000, 40_000])
                ids = list(range(next_id, next_id + count))
                db.register("given", {"id": ids})
                factor = chance.choice([1, 3, 10**9])
                db.execute(
                    "INSERT INTO t SELECT id, CASE WHEN id % 10 > 0 THEN 's' || (id % 7) END, id * $f FROM given",
                    {"f": factor},
                )
                model |= {i: (f"s{i % 7}" if i % 10 else None, i * factor) for i in ids}
                next_id += count
            case 2:
                low = chance.randrange(next_id + 1)
                high = low + chance.choice([1, 50, 20_000])
                db.execute("DELETE FROM t WHERE id >= ? AND id < ?", [low, high])
                model = {i: row for i, row in model.items() if not low <= i < high}
            case 3:
                rest = chance.randrange(50)
                db.execute("UPDATE t SET s = 'updated ' || ?, n = n - 5 WHERE id % 50 = ?", [rest, rest])
                model = {i: (f"updated {rest}", row[1] - 5) if i % 50 == rest else row for i, row in model.items()}
    assert db.sql("SELECT id, s, n FROM t").fetchall() == [(i, *row) for i, row in model.items()]
    texts = sorted({s for s, _ in model.values() if s is not None})
    expected = [
        (s, sum(1 for r in model.values() if r[0] == s), sum(r[1] for r in model.values() if r[0] == s)) for s in texts
    ]
    assert db.sql("SELECT s, count(*), sum(n) FROM t WHERE s IS NOT NULL GROUP BY s ORDER BY s").fetchall() == expected


def test_concurrent_changes(db):
    """Threads that change one table wait for each other, and no change is lost."""
    db.execute("CREATE TABLE t (who INTEGER, n INTEGER); INSERT INTO t VALUES (-1, 0)")
    problems: list[Exception] = []

    def work(who: int) -> None:
        try:
            for number in range(15):
                db.execute("INSERT INTO t VALUES (?, ?)", [who, number])
                db.execute("UPDATE t SET n = n + 1 WHERE who = -1")
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert db.sql("SELECT n FROM t WHERE who = -1").fetchall() == [(60,)]
    assert db.sql("SELECT count(*), count(DISTINCT who) FROM t").fetchall() == [(61, 5)]


def test_a_failed_statement_ends_the_transaction(db):
    db.execute("CREATE TABLE t (a INTEGER); BEGIN; INSERT INTO t VALUES (1)")
    with pytest.raises(BindError):
        db.sql("SELECT nope FROM t")
    with pytest.raises(TransactionError, match="Current transaction is aborted"):
        db.sql("SELECT a FROM t")
    db.execute("COMMIT")  # there is nothing left to commit
    assert db.sql("SELECT a FROM t").fetchall() == []


def test_a_query_that_fails_while_it_runs_ends_the_transaction(db):
    db.execute("CREATE TABLE t (s VARCHAR); BEGIN; INSERT INTO t VALUES ('x')")
    with pytest.raises(tsql.ExecutionError):
        db.sql("SELECT CAST(s AS INTEGER) FROM t").fetchall()
    with pytest.raises(TransactionError):
        db.execute("INSERT INTO t VALUES ('y')")
    db.execute("ROLLBACK")
    assert db.tables() == ["t"]


def test_default_expressions_are_computed_when_a_row_is_stored(db):
    db.execute("CREATE TABLE t (a INTEGER, r TIMESTAMPTZ DEFAULT now(), s VARCHAR DEFAULT upper('abc'))")
    db.register("numbers", {"a": list(range(50))})
    db.execute("INSERT INTO t (a) SELECT a FROM numbers")
    db.execute("INSERT INTO t (a) VALUES (50), (51)")
    assert db.sql("SELECT count(DISTINCT r), count(r), count(DISTINCT s), min(s) FROM t").fetchall() == [
        (2, 52, 1, "ABC")
    ]


def test_a_repeated_insert_follows_the_table(db):
    """An INSERT of constants is not parsed again, unless what it means has changed."""
    text = "INSERT INTO t VALUES (?, twice(?))"
    db.execute("CREATE TABLE t (a INTEGER, b INTEGER); CREATE MACRO twice(x) AS x * 2")
    for number in range(3):
        db.execute(text, [number, number])
    db.execute("CREATE OR REPLACE MACRO twice(x) AS x * 100")
    db.execute(text, [3, 3])
    db.execute("ALTER TABLE t ALTER b TYPE VARCHAR")
    db.execute(text, [4, 4])
    assert db.sql("SELECT a, b FROM t ORDER BY a").fetchall() == [(0, "0"), (1, "2"), (2, "4"), (3, "300"), (4, "400")]
    with pytest.raises(BindError, match="no value for the parameter"):
        db.execute(text, [1])
    db.execute("ALTER TABLE t ADD COLUMN c INTEGER")
    with pytest.raises(BindError, match="has 3 columns but 2 values"):
        db.execute(text, [5, 5])
    db.execute("DROP TABLE t")
    with pytest.raises(CatalogError, match="does not exist"):
        db.execute(text, [6, 6])


def test_show_describe_summarize(db):
    db.execute(
        "CREATE TABLE t (a INTEGER PRIMARY KEY, s VARCHAR DEFAULT 'x', d DATE, x DOUBLE); CREATE VIEW v AS "
        "SELECT a FROM t; CREATE TEMP TABLE u (z INTEGER)"
    )
    assert [row[2:] for row in db.sql("SHOW ALL TABLES").fetchall()] == [
        ("t", "[a, s, d, x]", "[INTEGER, VARCHAR, DATE, DOUBLE]", False),
        ("u", "[z]", "[INTEGER]", True),
        ("v", "[a]", "[INTEGER]", False),
    ]
    db.execute(
        "INSERT INTO t VALUES (1, 'p', '2024-01-01', 0.5), (2, 'q', '2024-01-03', 1.5), (3, NULL, NULL, "
        "2.5), (4, 'q', '2024-01-05', NULL)"
    )
    rows = {row[0]: row[1:] for row in db.sql("SUMMARIZE t").fetchall()}
    assert rows["a"][:3] == ("INTEGER", "1", "4") and rows["a"][4] == "2.5" and rows["a"][9] == 4
    assert rows["s"][1:4] == ("p", "q", 2) and str(rows["s"][10]) == "25.00" and rows["s"][4] is None
    assert rows["d"][1:3] == ("2024-01-01", "2024-01-05") and rows["d"][7] == "2024-01-03"
    assert rows["x"][4:6] == ("1.5", "1.0") and rows["x"][7] == "1.5"
    assert [row[0] for row in db.sql("SUMMARIZE SELECT a + 1 AS b FROM t WHERE a > 1").fetchall()] == ["b"]
