"""Rows that arrive in disorder: promises are kept, and the out-of-order band join gives the band join's rows and
forgets what it may."""

from __future__ import annotations

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from tests.temporal.arrivals import HOW, Punctuation, arrivals, interleaved, keeps_promises
from tests.temporal.data import ALL_SHAPES, assert_same_rows, event_tables, events, repeatable, to_rows
from tests.temporal.reference.joins import band_join
from tests.temporal.reference.progress import OutOfOrderBandJoin
from tests.temporal.reference.rows import SECOND, Rows, equal

K = equal("k")


def right_of(rows: Rows) -> Rows:
    return [{"k": row["k"], "other": row["id"], "rts": row["ts"]} for row in rows]


@pytest.mark.parametrize("shape", ALL_SHAPES)
@pytest.mark.parametrize("how", HOW)
def test_arrivals(shape: str, how: str) -> None:
    """Every row comes once, promises are kept, equal times stay in their order, and the input ends."""
    rows = to_rows(events(shape))
    messages = arrivals(rows, "ts", how, seed=3)
    assert messages == arrivals(rows, "ts", how, seed=3) and messages[-1] == Punctuation(None)
    came = [row for message in messages if not isinstance(message, Punctuation) for row in message]
    assert_same_rows(came, rows)
    assert keeps_promises(messages, "ts")
    for time in {row["ts"] for row in rows} - {None}:
        assert [row["id"] for row in came if row["ts"] == time] == [row["id"] for row in rows if row["ts"] == time]
    if how == "every row" and shape == "unsorted":
        assert sum(isinstance(message, Punctuation) for message in messages) == len(rows)
        assert [row["ts"] for row in came] != sorted(row["ts"] for row in rows)


def test_broken_promises_are_seen() -> None:
    row = {"ts": 5}
    assert keeps_promises([Punctuation(5), [row]], "ts")
    assert not keeps_promises([Punctuation(6), [row]], "ts")
    assert not keeps_promises([Punctuation(None), [row]], "ts")


def test_purge() -> None:
    """Right rows from 2 before to 3 after the left one. When the left input has reached 10, a right row at 7 is too
    old; one at 8 is not.

    Then the right input has reached 20: a left row at 17 could still meet 20, one at 16 not, and neither is kept when
    it comes late."""
    join = OutOfOrderBandJoin(lambda left, right: True, ("a", "b"), (3, 2))
    assert join.consume(1, {"b": 7}) == join.consume(1, {"b": 8}) == []
    assert join.punctuate(0, 10) == (float("-inf"), float("-inf"))
    assert join.rows == ([], [{"b": 8}])
    assert join.consume(0, {"a": 10}) == [{"a": 10, "b": 8}]
    # Later results have a left row from 10 on, since the left input has said so; their right row is at least 10 - 2.
    assert join.punctuate(1, 20) == (10, 8)
    assert join.rows[0] == []
    assert join.consume(0, {"a": 16}) == [] and join.rows[0] == []
    assert join.consume(0, {"a": 17}) == [] and join.rows[0] == [{"a": 17}]
    assert join.consume(1, {"b": 20}) == [{"a": 17, "b": 20}]


@repeatable(80)
@hypothesis.given(
    event_tables(max_rows=15),
    event_tables(max_rows=15),
    st.sampled_from(HOW),
    st.integers(0, 50),
    st.integers(-4, 12),
    st.integers(-4, 12),
)
def test_any_arrival_gives_the_band_join(
    left: pa.Table, right: pa.Table, how: str, seed: int, ahead: int, back: int
) -> None:
    """Whatever the order of arrival and the punctuations; at the end nothing is kept, and no result breaks what was
    promised of it."""
    rows, others = to_rows(left), right_of(to_rows(right))
    join = OutOfOrderBandJoin(K, ("ts", "rts"), (ahead * SECOND, back * SECOND))
    found: Rows = []
    promised = (float("-inf"), float("-inf"))
    for side, message in interleaved([arrivals(rows, "ts", how, seed), arrivals(others, "rts", how, seed + 1)], seed):
        if isinstance(message, Punctuation):
            promised = join.punctuate(side, float("inf") if message.time_us is None else message.time_us)
            continue
        for row in message:
            pairs = join.consume(side, row)
            assert all(pair["ts"] >= promised[0] and pair["rts"] >= promised[1] for pair in pairs)
            found.extend(pairs)
    assert_same_rows(_sorted(found), _sorted(band_join(rows, others, K, "ts", "rts", -back * SECOND, ahead * SECOND)))
    assert join.rows == ([], [])


def _sorted(rows: Rows) -> Rows:
    return [dict(sorted(row.items())) for row in rows]
