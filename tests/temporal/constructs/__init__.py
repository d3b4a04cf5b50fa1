"""Every temporal construct as a query in our dialect with its reference; `test_constructs.py` runs each over all shapes
of data.

A construct that the engine does not support yet is skipped with the engine's message. To add one, write its text and
its reference here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa

from tests.temporal.data import events, periods
from tests.temporal.reference.rows import Rows

Tables = dict[str, Rows]


@dataclass(frozen=True)
class Construct:
    """A query and what it means. `keep`: the columns of a table that decide ties by input order (`data.shuffled`).
    `instants`: only what is alive at each instant is defined, not how lifetimes are cut. `setup`: statements that run
    before it."""

    name: str
    sql: str
    reference: Callable[[Tables], Rows]
    keep: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    instants: bool = False
    setup: tuple[str, ...] = ()


@cache
def tables(shape: str, seed: int = 0, rows: int = 40, closed: bool = False) -> dict[str, pa.Table]:
    """`events` and `others` are points in time, `periods` and `more` have lifetimes (`vs`, `ve`), `names` has no
    time."""
    return {
        "events": events(shape, seed, rows),
        "others": events(shape, seed + 1, rows),
        "periods": periods(shape, seed, rows // 2, closed),
        "more": periods(shape, seed + 1, rows // 2, closed),
        "names": pa.table(
            {"k": pa.array([0, 1, 2, None, 2], pa.int64()), "title": ["zero", "one", "two", "none", "too"]}
        ),
    }
