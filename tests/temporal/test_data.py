"""The generators give what they say, and the comparison of rows sees every difference."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.temporal.data import (
    ALL_SHAPES,
    EVENTS,
    NOON,
    PERIODS,
    arrangements,
    assert_same_rows,
    batches,
    event_tables,
    events,
    period_tables,
    periods,
    pieces,
    repeatable,
    shuffled,
    to_rows,
    to_table,
    write_pieces,
)


@pytest.mark.parametrize("shape", ALL_SHAPES)
def test_shapes(shape: str) -> None:
    table = events(shape, seed=1)
    assert table.schema == EVENTS and table.num_rows == {"empty": 0, "one_row": 1}.get(shape, 60)
    assert table.equals(events(shape, seed=1))
    assert shape == "empty" or not table.equals(events(shape, seed=2))
    assert_same_rows(to_table(to_rows(table), EVENTS), table)
    assert periods(shape, seed=1).schema == PERIODS
    assert None not in [row["ve"] for row in to_rows(periods(shape, closed=True)) if row["vs"] is not None]


def test_shapes_are_what_they_say() -> None:
    times = {shape: [row["ts"] for row in to_rows(events(shape))] for shape in ALL_SHAPES}
    keys = {shape: [row["k"] for row in to_rows(events(shape))] for shape in ALL_SHAPES}
    assert times["ordered"] == sorted(times["ordered"]) and times["unsorted"] != sorted(times["unsorted"])
    assert set(times["equal_times"]) == {NOON} and len(set(times["few_times"])) == 4
    assert max(times["before_1970"]) < 0 and min(times["around_1970"]) < 0 < max(times["around_1970"])
    assert None in times["null_times"] and set(times["all_null_times"]) == {None} and None in keys["null_keys"]
    assert sum(time % 1_000_000 == 0 for time in times["on_bounds"]) > 10
    assert keys["skewed"].count(7) > 30 and len(set(keys["skewed"])) > 5
    duplicates = [tuple(row.values())[1:] for row in to_rows(events("duplicates"))]
    assert len(set(duplicates)) < len(duplicates) / 2
    ends = [(row["vs"], row["ve"]) for row in to_rows(periods("unsorted"))]
    assert any(end is None for _, end in ends) and any(end is not None and end <= start for start, end in ends)


def test_same_rows() -> None:
    table = events("null_keys")
    assert_same_rows(shuffled(table, 3), table)
    assert_same_rows([{"a": 1}, {"a": float("nan")}], [{"a": float("nan")}, {"a": 1}])


@pytest.mark.parametrize(
    ("ours", "expected", "message"),
    [
        ([{"a": 1}], [{"a": 1}, {"a": 1}], "1 missing"),
        ([{"a": 1}, {"a": 2}], [{"a": 1}], "1 too many"),
        ([{"a": 1}], [{"a": 1.0}], "1 too many, 1 missing"),
        ([{"a": True}], [{"a": 1}], "1 too many, 1 missing"),
        ([{"a": None}], [{"a": 0}], "1 too many, 1 missing"),
        ([{"a": 1}], [{"b": 1}], r"columns \['a'\]"),
        (pa.table({"a": pa.array([1], pa.int32())}), pa.table({"a": pa.array([1], pa.int64())}), "int32"),
        (pa.table({"a": pa.array([], pa.int32())}), pa.table({"b": pa.array([], pa.int32())}), "columns"),
    ],
)
def test_different_rows(ours: object, expected: object, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_same_rows(ours, expected)


def test_shuffled_keeps_ties() -> None:
    """Rows of equal key and time stay in their order: what is decided by input order does not change."""
    table = events("few_times", rows=200)
    mixed = shuffled(table, 5, keep=("k", "ts"))
    assert mixed["id"].to_pylist() != table["id"].to_pylist()
    assert_same_rows(mixed, table)
    for key in {(row["k"], row["ts"]) for row in to_rows(table)}:
        order = [[row["id"] for row in to_rows(side) if (row["k"], row["ts"]) == key] for side in (table, mixed)]
        assert order[0] == order[1]


@pytest.mark.parametrize("shape", ["empty", "one_row", "unsorted"])
def test_pieces(shape: str, tmp_path: Path) -> None:
    table = events(shape)
    for parts in (1, 2, 3, 8):
        cut = pieces(table, parts, seed=parts)
        assert len(cut) == parts and pa.concat_tables(cut).equals(table)
        assert pa.concat_tables(
            [pq.read_table(path) for path in write_pieces(table, parts, tmp_path / str(parts))]
        ).equals(table)
    assert [batch.num_rows for batch in batches(table, 7)] == [
        min(7, table.num_rows - start) for start in range(0, table.num_rows, 7)
    ]
    for name, same in arrangements(table):
        assert same.num_rows == table.num_rows, name
        assert_same_rows(same, table)


def test_strategies_reach_the_hard_cases() -> None:
    """Each of them is among the examples, so that the properties over these tables are not empty."""
    seen: set[str] = set()

    @repeatable(150)
    @hypothesis.given(event_tables(), period_tables())
    def look(some: pa.Table, others: pa.Table) -> None:
        times, lifetimes = (
            [row["ts"] for row in to_rows(some)],
            [(row["k"], row["vs"], row["ve"]) for row in to_rows(others)],
        )
        seen.update(
            case
            for case, found in {
                "empty": not times,
                "on a bound": any(time is not None and time > 0 and time % 10_000_000 == 0 for time in times),
                "before 1970": any(time is not None and time < 0 for time in times),
                "no time": None in times,
                "equal times": len(set(times)) < len(times),
                "open": any(start is not None and end is None for _, start, end in lifetimes),
                "never alive": any(
                    start is not None and end is not None and end <= start for _, start, end in lifetimes
                ),
                "meeting": any(
                    one[2] is not None and one[0] == other[0] and one[2] == other[1]
                    for one in lifetimes
                    for other in lifetimes
                ),
            }.items()
            if found
        )

    look()
    assert len(seen) == 8, seen


@repeatable(60)
@hypothesis.given(event_tables(), period_tables(closed=True))
def test_strategies_give_tables(some: pa.Table, others: pa.Table) -> None:
    assert some.schema == EVENTS and others.schema == PERIODS
    assert_same_rows(to_table(to_rows(some), EVENTS), some)
    assert None not in others["ve"].to_pylist()
