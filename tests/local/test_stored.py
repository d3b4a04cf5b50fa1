"""Versions of a table under random changes, with small blocks so that extents, tails and merges all take part: against
a list of rows."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tsql
from tsql.kernels.blocks import encode, reencode, stored, table, zones
from tsql.kernels.blocks.stored import StoredTable
from tsql.kernels.expr.schema import Schema

SCHEMA = pa.schema(
    [
        ("a", pa.int32()), ("s", pa.string()), ("d", pa.decimal128(38, 0)), ("f", pa.float64()), ("b", pa.bool_()),
        ("t", pa.timestamp("us")), ("u", pa.uint64()), ("x", pa.string()), ("i", pa.month_day_nano_interval()),
    ]
)  # fmt: skip
QUERIES = (
    "SELECT * FROM {}",
    "SELECT s, count(*), sum(a), min(d), max(u), min(x) FROM {} GROUP BY s ORDER BY s",
    "SELECT sum(d), sum(u), sum(a), count(*), count(b), max(f) FROM {} WHERE a > 3 AND s < 'd'",
    "SELECT a, t, x FROM {} WHERE s IN ('a', 'b1') ORDER BY x, a, t",
    "SELECT d, b, u, count(*) FROM {} GROUP BY d, b, u ORDER BY d, b, u",
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (encode, reencode, stored, table):
        monkeypatch.setattr(module, "BLOCK_ROWS", 256)
    monkeypatch.setattr(stored, "MERGED_ROWS", 64 * 256)
    assert not hasattr(zones, "BLOCK_ROWS")


def some_row(chance: random.Random, number: int) -> dict[str, Any]:
    row = {
        "a": chance.choice(
            [number, chance.randrange(-10, 10), chance.randrange(-(2**31), 2**31) if chance.random() < 0.3 else number]
        ),
        "s": chance.choice("abcdefgh") + (str(chance.randrange(50)) if chance.random() < 0.1 else ""),
        "d": Decimal(chance.randrange(-(10**30), 10**30) if chance.random() < 0.01 else chance.randrange(1000)),
        "f": chance.random(),
        "b": chance.random() < 0.5,
        "t": dt.datetime(2020, 1, 1) + dt.timedelta(days=chance.randrange(3000)),
        "u": chance.randrange(2**64) if chance.random() < 0.01 else chance.randrange(100),
        "x": f"long text {chance.randrange(10**9)}",
        "i": pa.MonthDayNano([chance.randrange(5), chance.randrange(30), 0]),
    }
    return {name: None if chance.random() < 0.05 else value for name, value in row.items()}


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.all_configurations) for seed in (2, 3))])
def test_random_changes(seed: int) -> None:
    chance = random.Random(seed)
    version, model, number = StoredTable(Schema.from_arrow(SCHEMA)), [], 0
    versions = []
    for step in range(40):
        kind = chance.random()
        if kind < 0.6 or not model:
            rows = [some_row(chance, number + i) for i in range(chance.choice([1, 1, 1, 5, 100, 300, 1000]))]
            number += len(rows)
            version = version.append(pa.Table.from_pylist(rows, schema=SCHEMA).to_batches())
            model = model + rows
        elif kind < 0.8:
            places = sorted(
                chance.sample(range(len(model)), chance.randrange(min(len(model), chance.choice([3, 50, 2000]))))
            )
            version = version.delete(np.array(places, np.int64))
            gone = set(places)
            model = [row for i, row in enumerate(model) if i not in gone]
        else:
            places = sorted(chance.sample(range(len(model)), chance.randrange(min(len(model), chance.choice([3, 50])))))
            names = chance.sample(SCHEMA.names, 2)
            changed = [some_row(chance, number) for _ in places]
            version = version.update(
                np.array(places, np.int64),
                {n: pa.array([row[n] for row in changed], SCHEMA.field(n).type) for n in names},
            )
            model = list(model)
            for place, row in zip(places, changed, strict=True):
                model[place] = {**model[place], **{name: row[name] for name in names}}
        versions.append((version, model))
        if step % 13 == 12:
            check_queries(version, model)
    for kept, rows in versions[::7]:
        found = pa.Table.from_batches(list(kept.batches(tuple(SCHEMA.names))), schema=SCHEMA).to_pylist()
        assert found == rows


def check_queries(version: StoredTable, model: list[dict[str, Any]]) -> None:
    with tsql.connect(threads=2) as db:
        db.catalog.add("t", version)
        db.register("expected", pa.Table.from_pylist(model, schema=SCHEMA))
        for query in QUERIES:
            assert db.sql(query.format("t")).fetchall() == db.sql(query.format("expected")).fetchall(), query
