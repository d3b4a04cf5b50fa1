"""Python iterables: what replays and what does not, tables of all kinds, errors of the user's code."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.live.sources.polling import check_close_wakes, check_restarts, poll_until, rows_of, steps
from tests.patience import PATIENCE_SECONDS, wait_until
from tsql.backends.live.sources.connectors import open_reader
from tsql.backends.live.sources.iterator import IteratorReader
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT, VARCHAR

SCHEMA = Schema.of(("id", BIGINT), ("name", VARCHAR))


def opened(data: Any, schema: Schema | None = SCHEMA) -> IteratorReader:
    reader = open_reader("python", {"data": data}, schema, "s")
    assert isinstance(reader, IteratorReader)
    return reader


def tables(rng: random.Random) -> tuple[list[pa.Table], list[dict[str, Any]]]:
    rows = [{"id": i, "name": f"n{i}"} for i in range(300)]
    cuts = sorted(rng.sample(range(300), 12))
    parts = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, 300])]
    parts.insert(rng.randrange(len(parts)), [])
    return [pa.Table.from_pylist(part, schema=SCHEMA.to_arrow()) for part in parts], rows


@pytest.mark.parametrize("kind", ["list", "function", "carried"])
def test_any_offset(kind: str) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    items, rows = tables(rng)

    def carried(offset: Any) -> Iterator[Any]:
        """Offsets are letters, which only this function understands."""
        begin = "abcdefghijklmnopqrstuvwxyz".index(offset) + 1 if offset else 0
        for number, item in enumerate(items[begin:], begin):
            yield item, "abcdefghijklmnopqrstuvwxyz"[number]

    data = {"list": items, "function": lambda n: iter(items[n:]), "carried": carried}[kind]
    assert opened(data).replays
    check_restarts(lambda: opened(data), rows, rng)
    assert rows_of(steps(opened(data, None), lambda: 1000)) == rows


def test_iterator_is_read_once() -> None:
    items, rows = tables(random.Random(1))
    reader = opened(iter(items), None)
    assert not reader.replays
    assert rows_of(steps(reader, lambda: 7)) == rows
    again = opened(iter(items[:2]))
    assert rows_of(steps(again, lambda: 7, {"items": [5, 1]})) == items[0].to_pylist() + items[1].to_pylist()


def test_kinds_of_tables() -> None:
    """Arrow, frames, dicts and lists; other orders, types and spellings of columns; columns that nobody asked for."""
    items = [
        pa.table({"id": [1], "name": ["a"]}),
        pa.record_batch({"NAME": ["b"], "Id": pa.array([2], pa.int8())}),
        pd.DataFrame({"id": [3], "x": [0.5], "name": ["c"]}),
        pl.DataFrame({"name": ["d"], "id": [4]}),
        {"id": [5, 6], "name": ["e", None]},
        [{"id": 7, "name": "f"}, {"id": None, "name": "g"}],
        pa.table({"id": [8], "name": pa.array(["h"]).dictionary_encode()}),
    ]
    found = [(row["id"], row["name"]) for row in rows_of(steps(opened(items), lambda: 1))]
    assert found == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e"), (6, None), (7, "f"), (None, "g"), (8, "h")]


def test_rows_come_while_the_iterator_waits() -> None:
    more = threading.Event()

    def items() -> Iterator[Any]:
        yield {"id": [1], "name": ["a"]}
        more.wait(PATIENCE_SECONDS)
        yield {"id": [2], "name": ["b"]}

    reader = opened(items())
    reader.open({})
    assert len(poll_until(reader, lambda rows: len(rows) == 1)[0]) == 1
    assert reader.poll(10, 0.01) == []
    more.set()
    assert len(poll_until(reader, lambda rows: len(rows) == 1)[0]) == 1
    assert wait_until(lambda: reader.poll(10, 0.01) is None)


def test_close_wakes() -> None:
    released, closed = threading.Event(), threading.Event()

    def items() -> Iterator[Any]:
        try:
            while True:
                released.wait(PATIENCE_SECONDS)
                yield {"id": [1], "name": ["a"]}
        finally:
            closed.set()

    check_close_wakes(opened(items()))
    released.set()
    assert closed.wait(PATIENCE_SECONDS), "the iterator is closed when it gives its next item"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([{"id": [1]}], "item 1 of s: there is no column name"),
        ([{"id": ["x"], "name": ["a"]}], "item 1 of s: column id cannot be read as BIGINT: could not convert 'x'"),
        ([{"id": [1], "name": ["a"]}, 7], "item 2 of s: a int is no Arrow data"),
        ([[1, 2]], "item 1 of s does not make a table"),
        (map(lambda n: 1 // n, [0]), "the iterable of s failed: ZeroDiv"),
        (lambda n: 1 // n, "the iterable of s failed: ZeroDivisionError"),
        (lambda n: [({"id": [1], "name": ["a"]}, object())], "an offset must be a JSON value"),
        (7.5, "option data is a Python object"),
        ({"id": [1]}, "the data of s is a dict"),
        ("os.system('x')", "option data is a Python object"),
    ],
)
def test_errors(data: Any, message: str) -> None:
    with pytest.raises(SourceError, match=message.replace("(", r"\(")):
        steps(opened(data), lambda: 10)


def test_errors_while_the_columns_are_looked_for() -> None:
    for data, message in ((lambda n: 1 // n, "the iterable of s failed: ZeroDivisionError"), ([], "s has no items")):
        with pytest.raises(SourceError, match=message):
            opened(data, None)


def test_an_item_that_became_shorter() -> None:
    with pytest.raises(SourceError, match="the item behind 0 had more rows"):
        steps(opened([{"id": [1], "name": ["a"]}]), lambda: 10, {"items": [0, 5]})
