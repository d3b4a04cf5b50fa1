"""Samples: how many rows they give, that all rows are as likely, and that a seed gives the same rows again."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tsql

ROWS = 200_000


@pytest.fixture(scope="module")
def numbers() -> pa.Table:
    return pa.table({"i": pa.array(range(ROWS), pa.int64()), "s": pa.array([f"text {i % 100}" for i in range(ROWS)])})


@pytest.fixture(params=["arrow", "blocks"])
def db(request: pytest.FixtureRequest, numbers: pa.Table) -> tsql.Session:
    session = tsql.connect(threads=2)
    session.register("numbers", numbers)
    if request.param == "blocks":
        session.execute("CREATE TABLE held AS SELECT * FROM numbers")
    else:
        session.register("held", session.sql("SELECT * FROM numbers").arrow())
    return session


def values(db: tsql.Session, clause: str) -> list[int]:
    return db.sql(f"SELECT i FROM held {clause}").arrow()["i"].to_pylist()


@pytest.mark.parametrize(
    "clause",
    ["TABLESAMPLE bernoulli(10%)", "USING SAMPLE 10 PERCENT (bernoulli)", "TABLESAMPLE system(10%)", "TABLESAMPLE 10%"],
)
def test_a_percentage_gives_about_so_many(db: tsql.Session, clause: str) -> None:
    """Ten samples together: 200,000 rows expected. A system sample takes or leaves runs of 2,048 rows, so it varies
    more."""
    counts = [len(values(db, clause)) for _ in range(10)]
    most = 0.03 if "bernoulli" in clause else 0.5
    assert abs(sum(counts) / ROWS - 1) < most
    assert len(set(counts)) > 1


@pytest.mark.parametrize(
    "clause",
    [
        "TABLESAMPLE 500 ROWS",
        "USING SAMPLE 500",
        "USING SAMPLE reservoir(500 ROWS)",
        "TABLESAMPLE reservoir(0.25%)",
        "TABLESAMPLE system(500 ROWS)",
    ],
)
def test_a_number_of_rows_is_exact(db: tsql.Session, clause: str) -> None:
    found = values(db, clause)
    assert len(found) == len(set(found)) == 500
    assert set(values(db, clause)) != set(found)


@pytest.mark.parametrize("clause", ["TABLESAMPLE bernoulli(5%)", "TABLESAMPLE 10000 ROWS", "TABLESAMPLE 150000 ROWS"])
def test_rows_are_as_likely(db: tsql.Session, clause: str) -> None:
    """Each tenth of the table has about a tenth of the sample, and even numbers about half of it."""
    found = values(db, clause)
    tenths = [0] * 10
    for value in found:
        tenths[value * 10 // ROWS] += 1
    assert all(abs(count / len(found) - 0.1) < 0.02 for count in tenths)
    assert abs(sum(value % 2 for value in found) / len(found) - 0.5) < 0.03


@pytest.mark.parametrize(
    "clause", ["bernoulli(5%)", "system(20%)", "reservoir(100 ROWS)", "reservoir(1%)", "reservoir(150000 ROWS)"]
)
def test_a_seed_gives_the_same_rows(db: tsql.Session, clause: str) -> None:
    first = values(db, f"TABLESAMPLE {clause} REPEATABLE (42)")
    assert sorted(first) == sorted(values(db, f"TABLESAMPLE {clause} REPEATABLE (42)"))
    assert sorted(first) != sorted(values(db, f"TABLESAMPLE {clause} REPEATABLE (43)"))


def test_two_samples_of_one_query_differ(db: tsql.Session) -> None:
    a, b = (set(values(db, "TABLESAMPLE 100 ROWS")) for _ in range(2))
    assert a != b
    pairs = db.sql(
        "SELECT count(*) FROM (SELECT i FROM held TABLESAMPLE 1000 ROWS) a JOIN (SELECT i FROM held "
        "TABLESAMPLE 1000 ROWS) b USING (i)"
    )
    assert pairs.fetchall()[0][0] < 500


def test_the_extremes(db: tsql.Session) -> None:
    assert values(db, "TABLESAMPLE 0 ROWS") == values(db, "TABLESAMPLE bernoulli(0%)") == []
    assert len(values(db, "TABLESAMPLE bernoulli(100%)")) == len(values(db, "TABLESAMPLE 1000000 ROWS")) == ROWS
    assert len(values(db, "TABLESAMPLE reservoir(100%)")) == ROWS


def test_using_sample_comes_before_where(db: tsql.Session) -> None:
    """As in DuckDB: the sample is of what FROM gives."""
    assert len(values(db, "WHERE i < 1000 USING SAMPLE 2000 ROWS")) < 200
    assert db.sql("SELECT count(*) FROM held a JOIN held b USING (i) USING SAMPLE 70 ROWS").fetchall() == [(70,)]
    assert (
        db.sql("SELECT count(*), count(DISTINCT i) FROM held, range(3) USING SAMPLE 300000 ROWS").fetchall()[0][0]
        == 300_000
    )


def test_rows_of_a_join_are_chosen_one_by_one(db: tsql.Session) -> None:
    """Rows that come from one row of a table are not taken or left together."""
    counts = db.sql("SELECT i, count(*) AS n FROM held, range(4) WHERE i < 5000 GROUP BY i").fetchall()
    assert {n for _, n in counts} == {4}
    sampled = db.sql(
        "SELECT i, count(*) AS n FROM (SELECT i FROM held, range(4) WHERE i < 5000) TABLESAMPLE "
        "bernoulli(50%) GROUP BY i"
    ).fetchall()
    assert {1, 2, 3} <= {n for _, n in sampled}


def test_the_plan_prints_and_runs_again(db: tsql.Session) -> None:
    text = db.sql("SELECT i FROM held TABLESAMPLE reservoir(50 ROWS) REPEATABLE (7)").plan()
    assert "sample" in text
    assert "seed=7" in text
    again = tsql.load_plan_text(text).run(db).fetchall()
    assert sorted(again) == sorted(
        db.sql("SELECT i FROM held TABLESAMPLE reservoir(50 ROWS) REPEATABLE (7)").fetchall()
    )


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("TABLESAMPLE 200%", "out of range"),
        ("TABLESAMPLE bernoulli(10 ROWS)", "cannot be used with a discrete sample count"),
        ("TABLESAMPLE nope(10%)", '(?i)unknown sample method "nope"'),
    ],
)
def test_errors(db: tsql.Session, clause: str, message: str) -> None:
    with pytest.raises(tsql.TsqlError, match=message):
        db.sql(f"SELECT i FROM held {clause}")
