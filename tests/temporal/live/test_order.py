"""first, last, string_agg and list over rows that arrive: they follow the order of arrival, in whatever batches the
rows come and however often the states of a group are made anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.temporal.live.test_live import plan_of
from tsql.backends import Run
from tsql.backends.live.query import LiveQuery

START = datetime(2024, 1, 1)
SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int32()), ("v", pa.int32())])
SECONDS = [3, 0, 2, 1, 5, 4, 9, 8, 6, 7, 11, 10, 20, 21, 23, 22]
ROWS = [{"ts": START + timedelta(seconds=at), "k": number % 2, "v": number} for number, at in enumerate(SECONDS)]
TIME = "TABLE t, DESCRIPTOR(ts)"

Windows = Callable[[int], Iterator[tuple[int, int]]]


def tumbles(at: int) -> Iterator[tuple[int, int]]:
    yield at // 4 * 4, at // 4 * 4 + 4


def hops(at: int) -> Iterator[tuple[int, int]]:
    for start in range(-4, at + 1, 2):
        if start <= at < start + 4:
            yield start, start + 4


def cumulates(at: int) -> Iterator[tuple[int, int]]:
    start = at // 6 * 6
    for end in range(start + 2, start + 7, 2):
        if at < end:
            yield start, end


def sessions(at: int) -> Iterator[tuple[int, int]]:
    yield (0, 14) if at < 20 else (20, 26)


WINDOWS: dict[str, tuple[str, Windows]] = {
    "tumble": (f"TUMBLE({TIME}, INTERVAL '4 s')", tumbles),
    "hop": (f"HOP({TIME}, INTERVAL '2 s', INTERVAL '4 s')", hops),
    "cumulate": (f"CUMULATE({TIME}, INTERVAL '2 s', INTERVAL '6 s')", cumulates),
    "session": (f"SESSION({TIME}, INTERVAL '3 s')", sessions),
}


def expected(windows: Windows) -> list[tuple[Any, ...]]:
    """By the definition: each group's values in the order in which they came; those of a session in the order of their
    times."""
    groups: dict[tuple[int, int], list[int]] = {}
    for at, row in (
        sorted(zip(SECONDS, ROWS, strict=True), key=lambda pair: pair[0])
        if windows is sessions
        else zip(SECONDS, ROWS, strict=True)
    ):
        for window in windows(at):
            groups.setdefault(window, []).append(row["v"])
    return sorted((start, end, vs[0], vs[-1], ",".join(map(str, vs))) for (start, end), vs in groups.items())


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("times", [1, 5_000])
@pytest.mark.parametrize("strings", [False, True])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.in_turn(3)
def test_order_of_arrival(window: str, strings: bool, times: int, size: int, shards: int) -> None:
    """strings: with string_agg, which needs all rows of a group at once; without it groups and panes are partial
    states. times: how many rows the plan was made for; many become panes. Batches of five rows go to a query that was
    restored at another number of shards."""
    text, windows = WINDOWS[window]
    calls = "first(v) AS f, last(v) AS l" + ", string_agg(v::VARCHAR, ',') AS s" * strings
    sql = f"SELECT window_start AS a, window_end AS b, {calls} FROM TABLE({text}) GROUP BY ALL"
    table = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    with tsql.connect(threads=2, shards=shards) as session:
        session.register("t", pa.concat_tables([table] * times).combine_chunks())
        query = LiveQuery(plan_of(session, sql), {"t": "ts"}, Run(), shards=shards)
        found = []
        for start in range(0, len(ROWS), size):
            if size == 5 and start >= 5:
                state = query.state()
                query = LiveQuery(query.plan, {"t": "ts"}, Run(), shards=4 - shards)
                query.restore(state)
            found += query.consume("t", table.slice(start, size))
        found += query.punctuate("t")
    rows = [row for batch in found for row in batch.to_pylist()]
    wanted = expected(windows) if strings else [one[:-1] for one in expected(windows)]
    assert sorted((_second(r.pop("a")), _second(r.pop("b")), *r.values()) for r in rows) == wanted


def _second(time: datetime) -> int:
    return (time - START) // timedelta(seconds=1)
