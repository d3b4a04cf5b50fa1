"""Series and recursion at run time: what they hold in memory, that they end when they are told to, and their plans."""

from __future__ import annotations

import threading
from itertools import islice

import pytest

import tsql
from tests.patience import PATIENCE_SECONDS, wait_until
from tsql.backends.local.join.tables import JoinTables
from tsql.kernels.expr.errors import ExecutionError

ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n % 1000 + 1 FROM r) SELECT count(*) FROM r"


def test_a_long_series_streams() -> None:
    """Twelve million rows pass through a limit that could not hold two columns of them."""
    db = tsql.connect(threads=2, memory_limit="100MB")
    rows = total = 0
    for batch in db.sql("SELECT range, range * 2 AS d FROM range(12000000)").batches():
        rows += batch.num_rows
        total += batch.column(1)[batch.num_rows - 1].as_py()
    assert rows == 12_000_000
    assert total > 0
    assert db.sql("SELECT sum(range)::BIGINT, count(*) FROM range(40000000)").fetchall() == [
        (799_999_980_000_000, 40_000_000)
    ]
    assert db.sql(
        "SELECT count(*) FROM (SELECT range % 1000 AS g, count(*) FROM range(8000000) GROUP BY g)"
    ).fetchall() == [(1000,)]


def test_a_limit_ends_a_series_and_a_recursion() -> None:
    db = tsql.connect(threads=2)
    assert db.sql("SELECT * FROM range(1000000000000) LIMIT 3").fetchall() == [(0,), (1,), (2,)]
    assert db.sql(
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT * FROM r LIMIT 3"
    ).fetchall() == [(1,), (2,), (3,)]


def test_the_rows_of_a_series_are_in_order() -> None:
    db = tsql.connect(threads=2)
    values = [row[0] for row in islice(db.sql("SELECT * FROM range(3000000)").fetchall(), 0, 3_000_000, 1000)]
    assert values == list(range(0, 3_000_000, 1000))


@pytest.mark.parametrize("query", [ENDLESS, "SELECT count(*) FROM range(1000000) a(x), range(x) b(y), range(y) c(z)"])
def test_what_does_not_end_can_be_cancelled(query: str) -> None:
    db = tsql.connect(threads=2)
    relation = db.sql(query)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            relation.arrow()
        except BaseException as error:
            failures.append(error)

    worker = threading.Thread(target=run)
    worker.start()
    assert wait_until(lambda: bool(relation._runs))
    relation.cancel()
    worker.join(PATIENCE_SECONDS)
    assert not worker.is_alive()
    assert len(failures) == 1
    assert "cancel" in str(failures[0]).lower()


def test_a_recursion_that_grows_meets_the_memory_limit() -> None:
    db = tsql.connect(threads=2, memory_limit="60MB")
    with pytest.raises(ExecutionError, match="memory"):
        db.sql(
            "WITH RECURSIVE r(n, s) AS (SELECT 1, 'x' UNION ALL SELECT n + 1, s || s FROM r) SELECT "
            "max(length(s)) FROM r"
        ).arrow()
    with pytest.raises(ExecutionError, match="memory"):
        db.sql(
            "WITH RECURSIVE r(n) AS (SELECT * FROM range(200000) UNION SELECT n + 200000 FROM r) SELECT count(*) FROM r"
        ).arrow()
    assert db.sql("SELECT 1").fetchall() == [(1,)]


def test_rounds_leave_nothing_behind() -> None:
    """A thousand rounds with a join, a grouping and a sort in each need no more memory than one of them."""
    db = tsql.connect(threads=2, memory_limit="40MB")
    db.execute("CREATE TABLE e AS SELECT range AS s, (range + 1) % 1000 AS d FROM range(1000)")
    query = """WITH RECURSIVE r(n, k) AS (SELECT 0, 0 UNION ALL
        (SELECT max(d), max(k) + 1 FROM r JOIN e ON s = n GROUP BY n % 7 HAVING max(k) < 1000 ORDER BY 1 LIMIT 5))
        SELECT count(*), max(k) FROM r"""
    assert db.sql(query).fetchall() == [(1001, 1000)]


def test_invariant_joins_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of 300,000 rows that every round looks up does not depend on the round."""
    db = tsql.connect(threads=2)
    db.execute("CREATE TABLE e AS SELECT range AS s, range + 1000 AS d FROM range(300000)")
    built = []
    build = JoinTables.built
    monkeypatch.setattr(
        JoinTables, "built", lambda self, *args, **kwargs: (built.append(1), build(self, *args, **kwargs))[1]
    )
    assert db.sql(
        "WITH RECURSIVE r(n) AS (SELECT 0 UNION SELECT d FROM r JOIN e ON n = s) SELECT count(*), max(n) FROM r"
    ).fetchall() == [(301, 300000)]
    assert len(built) == 1


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM generate_series(1, 10, 3)",
        "SELECT * FROM range(TIMESTAMP '2024-01-31', TIMESTAMP '2024-06-01', INTERVAL 1 MONTH)",
        "SELECT a.x, b.y FROM range(4) a(x), range(x) b(y)",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION SELECT (n * 3) % 17 FROM r) SELECT * FROM r",
        (
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 4), s(n) AS (SELECT 1 "
            "UNION ALL SELECT n + 2 FROM s WHERE n < 4) SELECT * FROM r JOIN s USING (n)"
        ),
    ],
)
def test_plans_print_and_run_again(query: str) -> None:
    db = tsql.connect(threads=2)
    text = db.sql(query).plan()
    plan = tsql.load_plan_text(text)
    assert sorted(plan.run(db).fetchall()) == sorted(db.sql(query).fetchall())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a = series column=i from=(0) to=(5) by=('x')", "a series from"),
        ("a = series column=i from=(0) to=(5) by=(1) inclusive=maybe", "inclusive=maybe"),
        ("a = working table=r columns=(n BIGINT)", "belongs to no recursive step"),
        ("v = values columns=(n BIGINT) rows=((1))\na = sample v method=some rows=3", "method=some"),
        ("v = values columns=(n BIGINT) rows=((1))\na = sample v rows=3 percent=4", "rows or percent"),
        (
            (
                "v = values columns=(n BIGINT) rows=((1))\nw = working table=r columns=(n VARCHAR)\na = "
                "recursive v w table=r"
            ),
            "other types",
        ),
    ],
)
def test_bad_plan_files(line: str, message: str) -> None:
    db = tsql.connect()
    with pytest.raises(tsql.TsqlError, match=message):
        tsql.load_plan_text(
            f"plan version 1\ntarget local shards=1\n{line}\noutput a ({'i' if 'series' in line else 'n'})\n"
        ).run(db).arrow()


def test_parameters_bound_a_series() -> None:
    db = tsql.connect()
    assert db.sql("SELECT count(*) FROM range(?, ?)", [3, 10]).fetchall() == [(7,)]
    assert db.sql("SELECT count(*) FROM range(?, ?)", [3, 11]).fetchall() == [(8,)]
