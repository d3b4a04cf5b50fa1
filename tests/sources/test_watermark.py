"""Watermarks and late rows: batches of any size give what the row-by-row reference gives, for every policy."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from tests.temporal.arrivals import HOW, Punctuation, arrivals
from tests.temporal.data import event_tables, repeatable, to_rows
from tests.temporal.reference.lateness import SlowLateness
from tests.temporal.reference.rows import SECOND, Rows
from tsql.backends.io.watermark import Lateness, Watermark
from tsql.backends.live.watermark_values import marks_of
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT, DATE, TIMESTAMP, TIMESTAMPTZ
from tsql.planner.bind.binder import parse_expression

SCHEMA = Schema.of(("id", BIGINT), ("ts", TIMESTAMP))


def lateness(text: str = "ts", schema: Schema = SCHEMA, partitions: int = 1, **parts: Any) -> Lateness:
    watermark = Watermark("ts", text, parse_expression(text, schema), **parts)
    return Lateness(watermark, marks_of(watermark), partitions)


def batch_of(times: list[int | None], first: int = 0) -> pa.RecordBatch:
    ids = pa.array(range(first, first + len(times)), pa.int64())
    return pa.RecordBatch.from_arrays([ids, pa.array(times, pa.timestamp("us"))], names=["id", "ts"])


def rows_of(batch: pa.RecordBatch) -> list[tuple[int, int | None]]:
    return list(zip(batch.column(0).to_pylist(), batch.column(1).cast(pa.int64()).to_pylist(), strict=True))


def test_a_row_is_held_against_the_rows_before_it() -> None:
    """The watermark after 100 is 100: 99 is late, 100 is not. A row never makes itself late, nor those before it in its
    batch."""
    late = lateness()
    arrived = late.consume(batch_of([50, 100, 99, 100, 101]))
    assert rows_of(arrived.batch) == [(0, 50), (1, 100), (3, 100), (4, 101)]
    assert (arrived.watermark, arrived.punctuation, arrived.late) == (101, 101, None)
    assert (late.counts.rows, late.counts.late, late.counts.without_time) == (5, 1, 0)


def test_delay_and_allowed_lateness() -> None:
    """The watermark is 10 behind, and rows may be 5 behind it: after 100 the bound is 85."""
    late = lateness("ts - INTERVAL '10 microseconds'", allowed_lateness_us=5)
    assert late.current is late.punctuation is None
    arrived = late.consume(batch_of([100, 85, 84]))
    assert rows_of(arrived.batch) == [(0, 100), (1, 85)]
    assert (arrived.watermark, arrived.punctuation) == (90, 85)


def test_rows_without_a_time_are_never_late_and_are_counted() -> None:
    late = lateness()
    arrived = late.consume(batch_of([None, 10, None, 5]))
    assert rows_of(arrived.batch) == [(0, None), (1, 10), (2, None)]
    assert late.counts.without_time == 2


def test_adjust_moves_late_rows_to_the_bound() -> None:
    late = lateness(on_late="ADJUST", allowed_lateness_us=10)
    arrived = late.consume(batch_of([100, 95, 20, None, 200, 90]))
    assert rows_of(arrived.batch) == [(0, 100), (1, 95), (2, 90), (3, None), (4, 200), (5, 190)]
    assert arrived.late is None and late.counts.late == 2


def test_into_hands_late_rows_over_as_they_came() -> None:
    late = lateness(on_late="INTO", into="late_rows")
    arrived = late.consume(batch_of([100, 20, 101, 30]))
    assert rows_of(arrived.batch) == [(0, 100), (2, 101)]
    assert rows_of(arrived.late) == [(1, 20), (3, 30)]


def test_error_names_the_row_and_the_bound() -> None:
    late = lateness(on_late="ERROR")
    late.consume(batch_of([SECOND]))
    with pytest.raises(
        SourceError,
        match=(
            r'a row is late: its "ts" is 1970-01-01 00:00:00, and rows before 1970-01-01 00:00:01 are no '
            r"longer expected"
        ),
    ):
        late.consume(batch_of([0]))


def test_dates_are_moved_to_a_whole_day_and_zones_are_kept() -> None:
    day = dt.date(2024, 1, 5)
    late = lateness("ts + INTERVAL '1 hour'", Schema.of(("ts", DATE)), on_late="ADJUST")
    arrived = late.consume(pa.RecordBatch.from_arrays([pa.array([day, dt.date(2024, 1, 1)])], names=["ts"]))
    assert arrived.batch.column(0).to_pylist() == [day, dt.date(2024, 1, 6)]
    zoned = pa.array([200, 100], pa.timestamp("us", "UTC"))
    arrived = lateness("ts", Schema.of(("ts", TIMESTAMPTZ)), on_late="ADJUST").consume(
        pa.RecordBatch.from_arrays([zoned], names=["ts"])
    )
    assert arrived.batch.column(0).type == zoned.type and arrived.batch.column(0).cast(pa.int64()).to_pylist() == [
        200,
        200,
    ]


def test_any_expression_may_be_the_watermark() -> None:
    """One that is no plain delay is compiled; months differ in length, and NULL says nothing."""
    late = lateness("CASE WHEN id = 1 THEN NULL ELSE ts - INTERVAL '1 month' END")
    march = int(dt.datetime(2024, 3, 31, tzinfo=dt.UTC).timestamp()) * SECOND
    february = int(dt.datetime(2024, 2, 29, tzinfo=dt.UTC).timestamp()) * SECOND
    arrived = late.consume(batch_of([march, march * 2, february, february - 1]))
    assert [row[0] for row in rows_of(arrived.batch)] == [0, 1, 2]
    assert arrived.watermark == february


def test_partitions_wait_for_each_other_until_one_idles() -> None:
    late = lateness(partitions=2, idle_timeout_us=10)
    assert late.consume(batch_of([100]), 0, clock_us=1).watermark is None
    assert late.consume(batch_of([70]), 1, clock_us=2).watermark == 70
    assert late.consume(batch_of([200]), 0, clock_us=5).watermark == 70
    assert late.tick(11) == 70
    assert late.tick(12) == 200
    arrived = late.consume(batch_of([80, 250]), 1, clock_us=13)
    assert rows_of(arrived.batch) == [(1, 250)] and arrived.watermark == 200
    assert late.tick(100) == 200


def test_a_watermark_out_of_range_is_an_error() -> None:
    with pytest.raises(SourceError, match="out of the range"):
        lateness("ts - INTERVAL '1 day'").consume(batch_of([-(2**63) + 5]))


def test_state_goes_on_where_it_was() -> None:
    first, whole = lateness(allowed_lateness_us=3), lateness(allowed_lateness_us=3)
    one, two = batch_of([10, 5, 20]), batch_of([17, 16, 30], 3)
    whole.consume(one)
    first.consume(one)
    second = lateness(allowed_lateness_us=3)
    second.restore(first.state())
    assert rows_of(second.consume(two).batch) == rows_of(whole.consume(two).batch) == [(3, 17), (5, 30)]
    assert second.counts == whole.counts


@repeatable(60)
@hypothesis.given(
    event_tables(max_rows=25),
    st.sampled_from(HOW),
    st.integers(0, 50),
    st.sampled_from((0, 1, 3)),
    st.sampled_from((0, 1, 2)),
    st.sampled_from(("DROP", "ADJUST", "INTO")),
    st.integers(1, 3),
)
def test_any_arrival_is_as_the_reference_says(
    table: pa.Table, how: str, seed: int, delay: int, allowed: int, policy: str, partitions: int
) -> None:
    """Rows in disorder, in batches of any size, over several partitions with a clock; batches make no difference, and
    promises are kept."""
    messages = [
        message
        for message in arrivals(to_rows(table), "ts", how, seed, disorder=12)
        if not isinstance(message, Punctuation)
    ]
    rng = random.Random(seed)
    came: list[tuple[Rows, int, int]] = []
    clock = 0
    for message in messages:
        clock += rng.choice((0, 1, 4))
        came.append((message, rng.randrange(partitions), clock))
    slow = SlowLateness(delay * SECOND, allowed * SECOND, policy, partitions, 6)
    fast = lateness(
        f"ts - INTERVAL '{delay} seconds'",
        partitions=partitions,
        idle_timeout_us=6,
        allowed_lateness_us=allowed * SECOND,
        on_late=policy,
    )
    kept: list[tuple[Any, Any]] = []
    left: list[tuple[Any, Any]] = []
    promised = float("-inf")
    for message, partition, at in came:
        for row in message:
            slow.take(row, partition, at)
        ids, times = [row["id"] for row in message], [row["ts"] for row in message]
        batch = pa.RecordBatch.from_arrays(
            [pa.array(ids, pa.int64()), pa.array(times, pa.timestamp("us"))], names=["id", "ts"]
        )
        arrived = fast.consume(batch, partition, at)
        assert all(time is None or time >= promised for _, time in rows_of(arrived.batch))
        kept += rows_of(arrived.batch)
        left += rows_of(arrived.late) if arrived.late is not None else []
        assert arrived.watermark == slow.current
        promised = float("-inf") if arrived.punctuation is None else arrived.punctuation
    assert kept == [(row["id"], row["ts"]) for row in slow.kept]
    assert left == ([(row["id"], row["ts"]) for row in slow.late] if policy == "INTO" else [])
    assert fast.counts.late == len(slow.late)
