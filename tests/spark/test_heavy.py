"""Joins by keys that most rows share: their rows stay spread over the shards, and the answer is DuckDB's."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import tsql
from tests.spark.cluster import InProcess
from tsql.backends.spark.heavy import heavy_keys
from tsql.kernels.expr.errors import PlanError

PLAN = """plan version 1
target spark shards=4

l     = scan l columns=(k, s, i)
keyed = rekey l key=(k, s)
there = redistribute keyed scope=global shards=4 heavy={left}
r     = scan r columns=(k2, s2, j)
other = rekey r key=(k2, s2)
here  = redistribute other scope=global shards=4 heavy={right}
pairs = hash_join there here kind={kind} on=(k = k2, s = s2) build={build}
last  = gather pairs
output last ({columns})
"""


def tables(seed: int) -> dict[str, pa.Table]:
    rng = random.Random(seed)

    def key() -> int | None:
        return rng.choice([7] * 40 + [None] * 3 + list(range(12)))

    left = [(key(), rng.choice(["a", "a", "a", None])) for _ in range(600)]
    right = [(rng.choice([7, None, *range(14)]), rng.choice(["a", "b", None])) for _ in range(60)]
    return {
        "l": pa.table(
            {
                "k": pa.array([k for k, _ in left], pa.int64()),
                "s": pa.array([s for _, s in left], pa.string()),
                "i": list(range(600)),
            }
        ),
        "r": pa.table(
            {
                "k2": pa.array([k for k, _ in right], pa.int64()),
                "s2": pa.array([s for _, s in right], pa.string()),
                "j": list(range(60)),
            }
        ),
    }


class Watched(InProcess):
    """Remembers the rows that enter each shard of a movement."""

    def placed(self, inputs: list[Any], shards: int, tasks: int | None = None) -> Any:
        found = super().placed(inputs, shards, tasks)
        self.bytes = [sum(len(row[3]) for row in part) for part in found()]
        return found


@pytest.mark.parametrize(
    ("kind", "build", "sides"),
    [
        ("inner", "right", ("split", "copy")),
        ("inner", "left", ("copy", "split")),
        ("left", "right", ("split", "copy")),
        ("left", "left", ("split", "copy")),
        ("semi", "right", ("split", "copy")),
        ("anti", "left", ("split", "copy")),
    ],
)
def test_answers(kind: str, build: str, sides: tuple[str, str]) -> None:
    given = tables(3)
    columns = "i" if kind in ("semi", "anti") else "i, j"
    text = PLAN.format(kind=kind, build=build, left=sides[0], right=sides[1], columns=columns)
    with tsql.connect(spark=InProcess(4)) as db, duckdb.connect() as duck:
        for name, table in given.items():
            db.register(name, table)
            duck.register(name, table)
        ours = tsql.load_plan_text(text).run(db).fetchall()
        sql = f"SELECT {columns} FROM l {kind.upper()} JOIN r ON k = k2 AND s = s2"
        assert sorted(map(str, ours)) == sorted(map(str, duck.sql(sql).fetchall()))
        assert ours


def test_rows_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsql.backends.spark.wire.encode_batches.__defaults__", (1000, False))
    given = tables(5)
    # Nine of ten rows have one key: without the split they are all in one shard.
    keys = [7] * 9000 + list(range(1000, 2000))
    given["l"] = pa.table({"k": keys, "s": ["a"] * 10000, "i": list(range(10000))})
    sizes = {}
    for heavy in ("split", None):
        text = PLAN.format(kind="inner", build="right", left=heavy, right="copy", columns="i")
        text = text if heavy else text.replace(" heavy=None", "").replace(" heavy=copy", "")
        with tsql.connect(spark=(cluster := Watched(4))) as db:
            for name, table in given.items():
                db.register(name, table)
            tsql.load_plan_text(text).run(db).fetchall()
        sizes[heavy] = max(cluster.bytes) / sum(cluster.bytes)
    assert sizes["split"] < 0.5 and sizes[None] > 0.8


def test_the_planner_looks_for_heavy_keys_in_large_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsql.planner.cost.constants.BROADCAST_BYTES", -1)
    sql = "SELECT count(*), sum(i * j) FROM l JOIN r ON k = k2"
    given = tables(8)
    with tsql.connect(spark=InProcess(3)) as db, duckdb.connect() as duck:
        for name, table in given.items():
            db.register(name, table)
            duck.register(name, table)
        assert "heavy" not in db.sql(sql).plan()
        monkeypatch.setattr("tsql.planner.cost.constants.SKEW_BYTES", 1)
        relation = db.sql(sql + " ")
        assert "heavy=split" in relation.plan() and "heavy=copy" in relation.plan()
        assert relation.fetchall() == duck.sql(sql).fetchall()
        grouped = "SELECT k, count(*), sum(j) FROM l JOIN r ON k = k2 GROUP BY k"
        assert sorted(db.sql(grouped).fetchall()) == sorted(duck.sql(grouped).fetchall())
        assert "heavy" not in db.sql("SELECT count(*) FROM l FULL JOIN r ON k = k2").plan()


def test_heavy_keys() -> None:
    sample = [(1,)] * 50 + [(2,)] * 9 + [(n,) for n in range(3, 44)]
    assert heavy_keys(sample, 4) == []
    assert heavy_keys(sample, 10) == [(1,)]
    assert heavy_keys(sample, 100) == [(1,), (2,)]
    assert heavy_keys([], 4) == []


@pytest.mark.parametrize(
    ("left", "right", "kind"),
    [("split", "split", "inner"), ("copy", "split", "left"), ("split", "copy", "full"), ("copy", "copy", "inner")],
)
def test_sides_that_do_not_belong_together(left: str, right: str, kind: str) -> None:
    text = PLAN.format(kind=kind, build="right", left=left, right=right, columns="i, j")
    with tsql.connect(spark=InProcess(4)) as db:
        for name, table in tables(1).items():
            db.register(name, table)
        with pytest.raises(PlanError):
            tsql.load_plan_text(text).run(db).fetchall()
