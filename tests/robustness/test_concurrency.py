"""One session used by many threads, several sessions at once, and tables that change while queries run."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import tsql
from tsql.kernels.expr.errors import TsqlError


def table(rows, offset=0):
    return pa.table({"a": list(range(offset, offset + rows)), "s": [str(i % 50) for i in range(rows)]})


@pytest.fixture
def db():
    with tsql.connect(threads=2) as session:
        session.register("t", table(20_000))
        yield session


def test_many_threads_share_a_session(db):
    def ask(number):
        limit = 100 + number
        assert db.sql("SELECT count(*) FROM t WHERE a < $n", {"n": limit}).fetchall() == [(limit,)]
        assert db.sql(f"SELECT sum(a + {number % 4}) FROM t").fetchall() == [
            (20_000 * 19_999 // 2 + 20_000 * (number % 4),)
        ]
        assert db.sql("SELECT s, count(*) AS n FROM t GROUP BY s ORDER BY s LIMIT 2").fetchall() == [
            ("0", 400),
            ("1", 400),
        ]
        return number

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(ask, range(48))) == list(range(48))


def test_one_relation_in_many_threads(db):
    relation = db.sql("SELECT s, sum(a) FROM t GROUP BY s ORDER BY s")
    expected = relation.fetchall()
    with ThreadPoolExecutor(8) as pool:
        assert all(
            rows == expected
            for rows in pool.map(
                lambda _: (
                    relation.arrow().num_rows and list(map(tuple, (r.values() for r in relation.arrow().to_pylist())))
                ),
                range(16),
            )
        )


def test_tables_change_while_queries_run(db):
    stop = threading.Event()
    problems = []

    def change():
        number = 0
        while not stop.is_set():
            number += 1
            db.register("moving", table(100 * (number % 3 + 1)))
            try:
                db.sql(f"CREATE OR REPLACE TABLE made AS SELECT a FROM t WHERE a < {number % 5}")
            except TsqlError as error:
                problems.append(error)

    db.register("moving", table(100))
    changer = threading.Thread(target=change)
    changer.start()
    try:
        for _ in range(30):
            assert db.sql("SELECT count(*), count(DISTINCT a) FROM moving").fetchall()[0] in [
                (100, 100),
                (200, 200),
                (300, 300),
            ]
    finally:
        stop.set()
        changer.join()
    assert not problems


def test_sessions_do_not_see_each_other():
    def work(number):
        with tsql.connect(threads=2) as session:
            session.register("t", table(1_000, number))
            return session.sql("SELECT min(a), count(*) FROM t").fetchall()

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, range(12))) == [[(number, 1_000)] for number in range(12)]


def test_a_parameter_of_limit_is_read_anew(db):
    for query in (
        "SELECT a FROM t LIMIT $n",
        "SELECT a FROM t ORDER BY a DESC LIMIT $n",
        "SELECT a FROM t LIMIT 5 OFFSET $n",
    ):
        found = [db.sql(query, {"n": n}).arrow().num_rows for n in (3, 7, 4)]
        assert found == ([5, 5, 5] if "OFFSET" in query else [3, 7, 4])
