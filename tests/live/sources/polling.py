"""What the tests of readers share: reading to the end or until something is there, and restarting in between."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from tests.patience import PATIENCE_SECONDS, wait_until
from tsql.backends.live.sources.reader import Offset, StreamReader

Step = tuple[list[dict[str, Any]], dict[str, Offset]]
"""Rows, and the offsets behind them."""


def steps(
    reader: StreamReader, rows: Callable[[], int], offsets: Mapping[str, Offset] | None = None, most: int | None = None
) -> list[Step]:
    """The rows of a reader that ends (or `most` of them), arrival by arrival, each with all offsets behind it."""
    reader.open(offsets or {})
    behind = dict(offsets or {})
    found: list[Step] = []
    count = 0

    def polled() -> bool:
        nonlocal count
        arrivals = reader.poll(rows(), 0.02)
        if arrivals is None:
            return True
        for arrival in arrivals:
            assert arrival.rows.schema == reader.schema.to_arrow()
            arrival.rows.validate(full=True)
            behind[arrival.partition] = json.loads(json.dumps(arrival.offset))
            found.append((arrival.rows.to_pylist(), dict(behind)))
            count += arrival.rows.num_rows
        return most is not None and count >= most

    assert wait_until(polled), f"{count} rows came"
    return found


def rows_of(found: list[Step]) -> list[dict[str, Any]]:
    return [row for rows, _ in found for row in rows]


def check_restarts(
    opened: Callable[[], StreamReader],
    expected: list[dict[str, Any]],
    rng: random.Random,
    all_at_once: bool = True,
    restarts: int = 12,
) -> None:
    """The rows are those expected, and a reader that begins at any of the offsets gives the rest. Readers that do not
    end are read until all rows are there."""
    most = None if all_at_once else len(expected)
    first = _read(opened, lambda: rng.randint(1, 50), None, most)
    assert rows_of(first) == expected
    chosen = first if len(first) <= restarts else rng.sample(first, restarts)
    for _, offsets in chosen:
        done = 0
        for rows, at in first:
            done += len(rows)
            if at is offsets:
                break
        rest = _read(opened, lambda: rng.randint(1, 50), offsets, None if all_at_once else len(expected) - done)
        assert rows_of(rest) == expected[done:], offsets


def _read(
    opened: Callable[[], StreamReader], rows: Callable[[], int], offsets: Mapping[str, Offset] | None, most: int | None
) -> list[Step]:
    reader = opened()
    try:
        return steps(reader, rows, offsets, most)
    finally:
        reader.close()
        reader.close()


def poll_until(reader: StreamReader, enough: Callable[[list[dict[str, Any]]], bool]) -> Step:
    """Poll until the rows are enough."""
    rows: list[dict[str, Any]] = []
    offsets: dict[str, Offset] = {}

    def polled() -> bool:
        for arrival in reader.poll(1000, 0.02) or ():
            rows.extend(arrival.rows.to_pylist())
            offsets[arrival.partition] = arrival.offset
        return enough(rows)

    assert wait_until(polled), f"{len(rows)} rows came"
    return rows, offsets


def check_close_wakes(reader: StreamReader) -> None:
    """A poll that waits returns when another thread closes the reader, and later polls give nothing."""
    import threading

    reader.open({})
    drained = threading.Event()
    results: list[Any] = []

    def wait() -> None:
        while not drained.is_set():
            if reader.poll(1000, 0.01) == []:
                drained.set()
        results.append(reader.poll(1000, 10 * PATIENCE_SECONDS))

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert drained.wait(PATIENCE_SECONDS)
    reader.close()
    waiting.join(PATIENCE_SECONDS)
    assert not waiting.is_alive()
    assert results == [[]]
    assert reader.poll(1000, 0.0) == []


def table_of(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema)
