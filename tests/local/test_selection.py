"""Filters that decide runs of rows at once (`how=select`) against the same filters written in numpy."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import tsql

SEED = 20261116


def table(rows: int) -> tuple[tsql.Session, np.ndarray, np.ndarray]:
    print(f"seed {SEED}")
    random = np.random.default_rng(SEED)
    numbers = random.integers(0, 20, rows)
    names = np.array([f"{'n' * (i % 4)}{i}" for i in random.integers(0, 5000, rows)])
    db = tsql.connect(threads=2)
    db.register("t", pa.table({"id": np.arange(rows), "n": numbers, "s": names}))
    db.sql("CREATE TABLE stored AS SELECT * FROM t")
    return db, numbers, names


@pytest.mark.parametrize("source", ["t", "stored"])
@pytest.mark.parametrize("rows", [0, 1, 7, 8, 4095, 4096, 4097, 70_000, 200_001])
def test_rows_that_pass(source: str, rows: int) -> None:
    db, numbers, names = table(rows)
    wanted = names[rows // 2] if rows else "x"
    hits = np.flatnonzero(numbers == 3)
    both = np.flatnonzero((numbers == 3) & (names == wanted))
    relation = db.sql(f"SELECT id FROM {source} WHERE n = 3")
    assert rows < 8 or "how=select" in relation.explain()
    assert relation.arrow()["id"].to_pylist() == hits.tolist()
    assert db.sql(f"SELECT id FROM {source} WHERE n = 3 AND s = '{wanted}'").arrow()["id"].to_pylist() == both.tolist()
    assert db.sql(f"SELECT count(*) AS n, sum(id) AS s FROM {source} WHERE s = '{wanted}'").arrow().to_pylist() == [
        {
            "n": int((names == wanted).sum()),
            "s": int(np.flatnonzero(names == wanted).sum()) if (names == wanted).any() else None,
        }
    ]


def test_a_filter_after_a_branching_one_still_filters() -> None:
    """Only the selecting filters directly above the scan are decided at once; one above a branching filter is not."""
    db, numbers, names = table(10_000)
    text = db.sql("SELECT id FROM t WHERE n = 3 AND id // 2 > 5 AND n = 4").explain()
    assert text.count("how=select") == 2 and "filter filtered where" in text
    assert db.sql("SELECT id FROM t WHERE n = 3 AND id // 2 > 5 AND n = 4").arrow().num_rows == 0


def test_failures_count_only_for_rows_that_come_so_far() -> None:
    db, numbers, _ = table(10_000)
    found = db.sql("SELECT id FROM t WHERE n <> 0 AND 19 // n = 19").arrow()["id"].to_pylist()
    assert found == np.flatnonzero(numbers == 1).tolist()


@pytest.mark.parametrize("strings", [3, 255, 256, 257])
@pytest.mark.parametrize("nulls", [False, True], ids=["", "nulls"])
def test_equality_of_codes(strings: int, nulls: bool) -> None:
    """Codes are compared as they are stored; the code of a string that does not occur is none of them, nor is that of
    NULL."""
    codes = np.arange(20_000) * 7919 % strings
    values = [None if nulls and i % 11 == 5 else f"s{code:03}" for i, code in enumerate(codes)]
    with tsql.connect(threads=2, small_rows=0) as db:
        db.register("t", pa.table({"id": np.arange(len(values)), "s": values}))
        db.execute("CREATE TABLE stored AS SELECT * FROM t")
        for wanted in ("s000", f"s{strings - 1:03}", "s128", "missing", ""):
            for operator, passes in (("=", lambda s, w=wanted: s == w), ("<>", lambda s, w=wanted: s != w)):
                expected = [i for i, s in enumerate(values) if s is not None and passes(s)]
                relation = db.sql(f"SELECT id FROM stored WHERE s {operator} '{wanted}'")
                assert sorted(relation.arrow()["id"].to_pylist()) == expected, (operator, wanted)
                assert db.sql(f"SELECT count(*) FROM stored WHERE s {operator} '{wanted}' AND id >= 0").fetchall() == [
                    (len(expected),)
                ]


CONDITIONS = {
    "id >= 0": lambda i: True,
    "id < 0": lambda i: False,
    "id & 1 = 0": lambda i: i & 1 == 0,
    "id & 4095 < 4095": lambda i: i & 4095 < 4095,
    "id = 8191": lambda i: i == 8191,
    "id & 7 <> 3": lambda i: i & 7 != 3,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_runs_of_rows_that_all_pass_or_none(condition: str) -> None:
    ids = np.arange(20_000)
    with tsql.connect(threads=2, small_rows=0) as db:
        db.register("t", pa.table({"id": ids, "n": ids}))
        assert db.sql(f"SELECT n FROM t WHERE {condition}").arrow()["n"].to_pylist() == [
            i for i in ids.tolist() if CONDITIONS[condition](i)
        ]
