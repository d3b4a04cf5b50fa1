"""Recursion, series, samples, windows, subqueries and tables that change, through the Spark backend's tasks in this
process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tsql
from tests.spark.cluster import InProcess
from tests.spark.queries import CHANGES, QUERIES, bag, changed, files, fill, oracle


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return files(tmp_path_factory.mktemp("rows"))


@pytest.fixture(scope="module")
def duck(path: str) -> Iterator[Any]:
    with oracle(path) as connection:
        yield connection


@pytest.fixture
def db(path: str) -> Iterator[Any]:
    with tsql.connect(spark=InProcess()) as session:
        yield fill(session, path)


@pytest.mark.parametrize("name", QUERIES)
def test_queries(db: Any, duck: Any, name: str) -> None:
    assert bag(db.sql(QUERIES[name]).fetchall()) == bag(duck.sql(QUERIES[name]).fetchall())


@pytest.mark.parametrize("name", QUERIES)
def test_queries_of_large_tables(db: Any, duck: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No side of a join is small enough for a broadcast: rows are placed by their keys."""
    monkeypatch.setattr("tsql.planner.cost.constants.BROADCAST_BYTES", -1)
    assert bag(db.sql(QUERIES[name]).fetchall()) == bag(duck.sql(QUERIES[name]).fetchall())


def test_changes(db: Any, path: str) -> None:
    with oracle(path) as duck:
        for statement in CHANGES:
            db.execute(statement)
            duck.execute(statement)
        assert changed(db) == changed(duck)


@pytest.mark.parametrize(
    "clause", ["TABLESAMPLE bernoulli(30%) REPEATABLE (7)", "TABLESAMPLE system(50%) REPEATABLE (3)"]
)
def test_a_seed_chooses_the_same_rows_everywhere(db: Any, path: str, clause: str) -> None:
    """A sample of files does not depend on who reads which of them."""
    with tsql.connect(threads=1) as local:
        fill(local, path)
        sql = f"SELECT k, v FROM f {clause}"
        given = bag(db.sql(sql).fetchall())
        assert given == bag(local.sql(sql).fetchall())
        assert 0 < len(given) < 400


def test_an_exact_sample_repeats(db: Any) -> None:
    sql = "SELECT k, v FROM f TABLESAMPLE reservoir(25 ROWS) REPEATABLE (7)"
    first = bag(db.sql(sql).fetchall())
    assert len(first) == 25 and first == bag(db.sql(sql).fetchall())


@pytest.mark.parametrize(
    "steps",
    [
        "rows = scan t columns=(k, v)",
        "all = scan t columns=(k, v)\nkeyed = rekey all key=(v)\nrows = redistribute keyed scope=global shards=8",
    ],
    ids=["scanned", "moved"],
)
def test_shards_are_sampled_independently(path: str, steps: str) -> None:
    """Each of eight shards is one run of rows, kept or left out as a whole: not all of them may draw the same
    number."""
    text = (
        "plan version 1\ntarget spark shards=8\n{}\nsome = sample rows method=system percent=50.0 "
        "seed={}\nlast = gather some\noutput last (k, v)\n"
    )
    with tsql.connect(spark=InProcess(8)) as db:
        fill(db, path)
        counts = [tsql.load_plan_text(text.format(steps, seed)).run(db).arrow().num_rows for seed in range(6)]
    assert sum(0 < count < 400 for count in counts) >= 5


def test_an_unseeded_sample_has_a_seed_in_its_tasks(db: Any) -> None:
    """Spark may run a task again: it must choose the same rows then."""
    from tsql.backends.spark.cut import Cut

    plan = tsql.load_plan_text(db.sql("SELECT v FROM f TABLESAMPLE bernoulli(10%)").plan()).bind(db)
    assert "seed=" not in plan.text()
    assert "seed=" in Cut(plan).travelling().text()


def test_progress_does_not_go_back(db: Any) -> None:
    """What the driver does with the few rows that come from the cluster is no new beginning."""
    relation = db.sql("SELECT k, count(*) FROM f GROUP BY k ORDER BY k")
    relation.arrow()
    assert relation.progress == 1.0
