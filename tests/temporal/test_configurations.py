"""Every construct under every configuration of the engine: shards, batches, spilling, no optimizer, plans read back
from their text, tables in blocks, the interpreter, Spark. The rows are those of the reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.spark.cluster import InProcess
from tests.temporal.constructs import Construct, tables
from tests.temporal.data import to_rows
from tests.temporal.reference.rows import Rows
from tests.temporal.test_constructs import CONSTRUCTS, assert_answers, expected_of

SHAPES = ("unsorted", "few_times")
SETTINGS: dict[str, dict[str, Any]] = {
    "one shard": {"shards": 1},
    "three shards": {"shards": 3},
    "eight shards": {"shards": 8},
    "rows one by one": {"batch_rows": 1},
    "equal hashes": {"equal_hashes": True},
    "no optimizer": {"optimizer": False},
    "spill": {"spill_after": 1},
    "interpreter": {"backend": "interp"},
    "plan text": {},
    "blocks": {},
    "Spark, in this process": {},
}
EVERY = 11
"""There are so many settings: by default a construct runs under one of them, over one of the shapes, and each setting
with some of the constructs and with both shapes; `--all-configurations` runs all."""


def ask(construct: Construct, data: dict[str, pa.Table], settings: str) -> Rows:
    options = {"spark": InProcess()} if settings.startswith("Spark") else {"backend": "local", **SETTINGS[settings]}
    with tsql.connect(**options) as db:
        for name, table in data.items():
            db.register(f"{name}_arrow" if settings == "blocks" else name, table)
            if settings == "blocks":
                db.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_arrow")
        for statement in construct.setup:
            db.sql(statement)
        relation = db.sql(construct.sql)
        if settings == "plan text":
            return to_rows(tsql.load_plan_text(relation.plan()).run(db).arrow())
        return to_rows(relation.arrow())


def _cases() -> Iterator[Any]:
    for number, construct in enumerate(CONSTRUCTS):
        for place, settings in enumerate(SETTINGS):
            for turn, shape in enumerate(SHAPES):
                # A setting meets every eleventh construct: with an odd number of settings it is over the one shape and
                # over the other in turns.
                marks = (
                    ()
                    if (number + place) % EVERY == 0 and number % len(SHAPES) == turn
                    else pytest.mark.all_configurations
                )
                yield pytest.param(construct, settings, shape, marks=marks, id=f"{construct.name}-{settings}-{shape}")


@pytest.mark.parametrize(("construct", "settings", "shape"), list(_cases()))
def test_construct(construct: Construct, settings: str, shape: str) -> None:
    data = tables(shape, seed=11)
    assert_answers(construct, ask(construct, data, settings), expected_of(construct, data))
