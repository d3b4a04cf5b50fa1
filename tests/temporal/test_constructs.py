"""Our engine against the references, for every construct over every shape of data and in other arrangements of the same
rows."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pytest

from tests.temporal.asking import ask_engine
from tests.temporal.constructs import Construct, Tables, tables
from tests.temporal.constructs.joins import JOINS
from tests.temporal.constructs.lifetimes import LIFETIMES, SNAPSHOTS
from tests.temporal.constructs.patterns import PATTERNS
from tests.temporal.constructs.valid_times import VALID_TIMES
from tests.temporal.constructs.windows import WINDOWS
from tests.temporal.data import ALL_SHAPES, BATCH_ROWS, assert_same_rows, batches, shuffled, to_rows
from tests.temporal.reference.rows import Rows
from tests.temporal.reference.snapshot import same_snapshots

CONSTRUCTS = (*WINDOWS, *LIFETIMES, *SNAPSHOTS, *VALID_TIMES, *JOINS, *PATTERNS)
EACH = pytest.mark.parametrize("construct", CONSTRUCTS, ids=lambda construct: construct.name)
REARRANGED = ("unsorted", "few_times", "null_times")
ARRANGEMENTS = [(shape, mixed, rows) for mixed, rows in zip((True, False), BATCH_ROWS) for shape in REARRANGED]
"""Shapes, whether their rows are shuffled, and the sizes of batches."""


def answer(construct: Construct, data: dict[str, pa.Table]) -> Rows:
    """What the engine says."""
    return to_rows(ask_engine(construct.sql, data, construct.setup))


def assert_answers(construct: Construct, ours: Rows, expected: Rows) -> None:
    if construct.instants:
        assert same_snapshots(ours, expected)
    else:
        assert_same_rows(ours, expected)


def expected_of(construct: Construct, data: dict[str, pa.Table]) -> Rows:
    return construct.reference({name: to_rows(table) for name, table in data.items()})


@cache
def rows_of(shape: str) -> Tables:
    """The rows of `tables`, made once for all constructs: references leave them as they are."""
    return {name: to_rows(table) for name, table in tables(shape).items()}


@EACH
@pytest.mark.parametrize("sixth", range(6))
@pytest.mark.in_turn(6)
def test_engine_is_the_reference(construct: Construct, sixth: int) -> None:
    for shape in ALL_SHAPES[sixth::6]:
        data = tables(shape)
        try:
            assert_answers(construct, answer(construct, data), expected_of(construct, data))
        except AssertionError as problem:
            raise AssertionError(f"{shape}: {construct.sql}\n{problem}") from problem


@EACH
@pytest.mark.parametrize(("shape", "mixed", "rows"), ARRANGEMENTS)
@pytest.mark.in_turn(6)
def test_arrangement_does_not_matter(construct: Construct, shape: str, mixed: bool, rows: int | None) -> None:
    """Shuffled rows (ties by input order kept) and small batches give the same rows."""
    data = tables(shape, seed=5)
    arranged = (
        {name: shuffled(table, 3, construct.keep.get(name, ())) for name, table in data.items()} if mixed else data
    )
    other = {name: pa.Table.from_batches(batches(table, rows), schema=table.schema) for name, table in arranged.items()}
    assert_answers(construct, answer(construct, other), expected_of(construct, data))


@EACH
def test_reference_finds_something(construct: Construct) -> None:
    """Each reference gives rows over several shapes, with one set of columns: a construct that never finds anything
    tests nothing."""
    found = [rows for shape in ALL_SHAPES if (rows := construct.reference(rows_of(shape)))]
    assert len(found) >= 3
    assert len({tuple(row) for rows in found for row in rows}) == 1
    data = tables("few_times", seed=5)
    mixed = {name: shuffled(table, 3, construct.keep.get(name, ())) for name, table in data.items()}
    assert_answers(construct, expected_of(construct, mixed), expected_of(construct, data))


def test_names_are_unique() -> None:
    assert len({construct.name for construct in CONSTRUCTS}) == len(CONSTRUCTS)
