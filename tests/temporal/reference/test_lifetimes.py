"""The lifetime functions of the references: worked out by hand, and against windows and snapshots."""

from __future__ import annotations

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from tests.temporal.data import (
    ALL_SHAPES,
    SIZE,
    assert_same_rows,
    event_tables,
    events,
    period_tables,
    repeatable,
    shuffled,
    to_rows,
)
from tests.temporal.reference.lifetimes import (
    alive,
    chop,
    clip,
    extend,
    lifetime,
    point_at_end,
    points,
    quantize,
    shift,
    slide,
    stitch,
)
from tests.temporal.reference.rows import SECOND, Rows, count, group_by, total
from tests.temporal.reference.snapshot import aggregate, alive_at, coalesce, same_snapshots
from tests.temporal.reference.windows import cumulate, hop, tumble


def living(*lifetimes: tuple[int, int | None], v: int = 0) -> Rows:
    return [{"v": v, "valid_from": start, "valid_to": end} for start, end in lifetimes]


def ends(rows: Rows) -> list[tuple[int, int | None]]:
    return sorted(
        ((row["valid_from"], row["valid_to"]) for row in rows),
        key=lambda pair: (pair[0], pair[1] is None, pair[1] or 0),
    )


def test_lifetime() -> None:
    rows = [
        {"s": 1, "e": 4, "d": 2},
        {"s": 5, "e": None, "d": None},
        {"s": None, "e": 9, "d": 1},
        {"s": 7, "e": 7, "d": 0},
        {"s": 8, "e": 3, "d": -1},
    ]
    # The row without a start, the one that ends where it starts and the one that ends before are never alive.
    assert ends(lifetime(rows, "s", end="e")) == [(1, 4), (5, None)]
    assert ends(lifetime(rows, "s", duration="d")) == [(1, 3), (5, None)]
    assert ends(lifetime(rows, "s")) == [(1, None), (5, None), (7, None), (8, None)]
    assert ends(lifetime(rows, lambda row: row["s"] and row["s"] * 10, duration=5)) == [
        (10, 15),
        (50, 55),
        (70, 75),
        (80, 85),
    ]
    assert ends(slide(rows, "s", 3)) == [(1, 4), (5, 8), (7, 10), (8, 11)]
    assert ends(points(rows, "s")) == [(1, 2), (5, 6), (7, 8), (8, 9)]


def test_moved_ends() -> None:
    rows = living((0, 5), (3, None))
    assert ends(shift(rows, -10)) == [(-10, -5), (-7, None)]
    assert ends(extend(rows, 2)) == [(0, 7), (3, None)]
    assert ends(extend(rows, -5)) == [(3, None)]
    assert ends(clip(rows, 4)) == [(0, 4), (3, 7)]
    assert ends(clip(rows, 9)) == [(0, 5), (3, 12)]
    assert ends(point_at_end(rows)) == [(5, 6)]


def test_chop() -> None:
    """Cut at 0, 10, 20: a lifetime that starts or ends on the grid has no empty piece."""
    assert ends(chop(living((-3, 25)), 10)) == [(-3, 0), (0, 10), (10, 20), (20, 25)]
    assert ends(chop(living((10, 20)), 10)) == [(10, 20)]
    assert ends(chop(living((10, 21)), 10, offset=5)) == [(10, 15), (15, 21)]
    with pytest.raises(ValueError, match="open lifetime"):
        chop(living((0, None)), 10)


def test_stitch() -> None:
    assert ends(stitch(living((5, 9), (0, 5), (9, None)))) == [(0, None)]
    # Overlapping and distant rows stay as they are; so do rows that differ.
    assert ends(stitch(living((0, 5), (4, 9), (10, 12)))) == [(0, 5), (4, 9), (10, 12)]
    assert ends(stitch(living((0, 5)) + living((5, 9), v=1))) == [(0, 5), (5, 9)]
    # Two end at 5 and one starts: the one that has lived longest goes on. Two start: it goes on with the one that ends
    # first.
    assert ends(stitch(living((2, 5), (0, 5), (5, 9)))) == [(0, 9), (2, 5)]
    assert ends(stitch(living((0, 5), (5, None), (5, 7)))) == [(0, 7), (5, None)]
    # Two of each: two rows.
    assert ends(stitch(living((0, 5), (0, 5), (5, 6), (5, 6)))) == [(0, 6), (0, 6)]


def test_quantize() -> None:
    """Grid of 10. Points: 3 and 9 live in [0, 10), 10 in [10, 20), -1 in [-10, 0). A lifetime goes from the grid below
    to the grid above."""
    assert ends(quantize(living((3, 4), (9, 10), (10, 11), (-1, 0)), 10, 10)) == [(-10, 0), (0, 10), (0, 10), (10, 20)]
    assert ends(quantize(living((3, 20), (3, 21), (3, None)), 10, 10)) == [(0, 20), (0, 30), (0, None)]
    # Size 30 every 10: a point lives for three slides from the start of its own.
    assert ends(quantize(living((12, 13)), 10, 30)) == [(10, 40)]
    # A step of 2 within 10: from its step to the end of its window.
    assert ends(quantize(living((3, 4)), 10, 10, step=2)) == [(2, 10)]


@pytest.mark.parametrize("shape", ALL_SHAPES)
@pytest.mark.parametrize("offset", [0, 3 * SECOND])
def test_quantize_then_group_by_is_tumble(shape: str, offset: int) -> None:
    """A window in which something is alive gives one row; snapshots merge neighbours with equal results, so they are
    cut again at the grid."""
    rows = to_rows(events(shape))
    windows = group_by(tumble(rows, "ts", SIZE, offset), ("k", "window_start", "window_end"), n=count, total=total("v"))
    quantized = aggregate(quantize(points(rows, "ts"), SIZE, SIZE, offset), ("k",), n=count, total=total("v"))
    assert_same_rows(_named(chop(quantized, SIZE, offset)), windows)


@repeatable(60)
@hypothesis.given(event_tables(max_rows=12), st.integers(1, 4), st.integers(1, 4), st.integers(-20, 20))
def test_quantize_then_group_by_is_hop(table: pa.Table, seconds: int, times: int, offset: int) -> None:
    """What is alive in the last slide of a window is what HOP puts into it."""
    rows, every, size = to_rows(table), seconds * SECOND, seconds * times * SECOND
    quantized = quantize(points(rows, "ts"), every, size, offset)
    windows = hop(rows, "ts", every, size, offset)
    filled = {row["window_end"] for row in windows}
    for end in filled | {end + every for end in filled} | {end - every for end in filled}:
        alive_then = sorted(row["id"] for row in alive_at(quantized, end - every))
        assert alive_then == sorted(row["id"] for row in alive_at(quantized, end - 1))
        assert alive_then == sorted(row["id"] for row in windows if row["window_end"] == end)


@repeatable(60)
@hypothesis.given(event_tables(max_rows=12), st.integers(1, 3), st.integers(1, 4))
def test_quantize_by_steps_is_cumulate(table: pa.Table, seconds: int, times: int) -> None:
    rows, step, size = to_rows(table), seconds * SECOND, seconds * times * SECOND
    quantized = quantize(points(rows, "ts"), size, size, step=step)
    windows = cumulate(rows, "ts", step, size)
    for end in {row["window_end"] for row in windows}:
        assert sorted(row["id"] for row in alive_at(quantized, end - step)) == sorted(
            row["id"] for row in windows if row["window_end"] == end
        )


@repeatable(100)
@hypothesis.given(period_tables(closed=True), st.integers(1, 5), st.integers(-3, 3))
def test_stitch_undoes_chop(table: pa.Table, period: int, offset: int) -> None:
    """A chopped row is whole again, if no equal row is beside it; in any case nothing changes at any instant."""
    rows = lifetime(to_rows(table), "vs", end="ve")
    pieces = chop(rows, period, offset)
    assert same_snapshots(rows, pieces)
    assert_same_rows(stitch(pieces), rows)  # `id` keeps rows apart
    without_id = [{"v": row["v"], "valid_from": row["valid_from"], "valid_to": row["valid_to"]} for row in rows]
    assert same_snapshots(stitch(chop(without_id, period, offset)), without_id)
    assert_same_rows(coalesce(stitch(chop(without_id, period, offset))), coalesce(without_id))


@repeatable(100)
@hypothesis.given(period_tables())
def test_stitch_does_not_depend_on_order(table: pa.Table) -> None:
    plain = [
        {name: row[name] for name in ("v", "valid_from", "valid_to")}
        for row in lifetime(to_rows(table), "vs", end="ve")
    ]
    mixed = [
        {name: row[name] for name in ("v", "valid_from", "valid_to")}
        for row in lifetime(to_rows(shuffled(table, 4)), "vs", end="ve")
    ]
    assert_same_rows(stitch(plain), stitch(mixed))
    assert same_snapshots(stitch(plain), plain)
    assert (
        len(
            {(row["v"], row["valid_to"]) for row in stitch(plain)}
            & {(row["v"], row["valid_from"]) for row in stitch(plain)}
        )
        == 0
    )


@repeatable(60)
@hypothesis.given(period_tables(), st.integers(-5, 5), st.integers(1, 6))
def test_changes_of_lifetimes(table: pa.Table, by: int, longest: int) -> None:
    rows = lifetime(to_rows(table), "vs", end="ve")
    assert_same_rows(shift(shift(rows, by), -by), rows)
    assert all(row["valid_to"] - row["valid_from"] <= longest for row in clip(rows, longest))
    assert_same_rows(
        clip(extend(clip(rows, longest), 100), longest),
        [row | {"valid_to": row["valid_from"] + longest} for row in rows],
    )
    assert alive(rows) == rows


def _named(rows: Rows) -> Rows:
    return [
        {
            "k": row["k"],
            "window_start": row["valid_from"],
            "window_end": row["valid_to"],
            "n": row["n"],
            "total": row["total"],
        }
        for row in rows
    ]
