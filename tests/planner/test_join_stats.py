"""Estimates of joins: foreign keys, composite keys, tests of existence, and distinct counts that pass through joins."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.planner.plantext import read_plan
from tsql.backends.io.arrow import ArrowSource
from tsql.planner.cost import constants as cost
from tsql.planner.cost import stats

BIG, SMALL = 600, 40


class Counted(ArrowSource):
    """A table that also knows the distinct counts of its columns."""

    def _column_statistics(self, name: str):  # type: ignore[no-untyped-def]
        known = super()._column_statistics(name)
        return type(known)(
            known.minimum, known.maximum, known.nulls, len(set(self.table().column(name).to_pylist())), known.exact
        )


TABLES = {
    "big": Counted(
        pa.table({"k": [i % 40 for i in range(BIG)], "h": [i % 7 for i in range(BIG)], "v": list(range(BIG))})
    ),
    "small": Counted(pa.table({"id": list(range(SMALL)), "g": [i % 5 for i in range(SMALL)]})),
    "pairs": Counted(pa.table({"a": [i // 7 for i in range(280)], "b": [i % 7 for i in range(280)]})),
}


def estimate(text: str) -> float:
    return stats.rows(read_plan(text, TABLES))


def test_foreign_key() -> None:
    assert estimate("inner join on k = id\n  scan big\n  scan small") == BIG
    assert estimate("inner join on k = id\n  scan big\n  filter g = 1\n    scan small") == pytest.approx(BIG / 5)
    assert estimate("inner join\n  scan big\n  scan small") == BIG * SMALL


def test_composite_key() -> None:
    """A key of two columns is not two keys: there are no more values of it than rows."""
    assert estimate("inner join on (k = a) AND (h = b)\n  scan big\n  scan pairs") == pytest.approx(BIG)


def test_outer_joins_keep_rows() -> None:
    assert estimate("left join on v = id\n  scan big\n  filter g = 1\n    scan small") == BIG
    assert estimate("full join on v = id\n  scan big\n  filter g = 1\n    scan small") == BIG
    assert estimate("single join on k = id\n  scan big\n  scan small") == BIG
    assert estimate("mark join m=k = id\n  scan big\n  scan small") == BIG


def test_existence() -> None:
    assert estimate("semi join on k = id\n  scan big\n  scan small") == BIG
    assert estimate("semi join on k = id\n  scan big\n  filter g = 1\n    scan small") == pytest.approx(BIG / 5)
    assert estimate("anti join on k = id\n  scan big\n  scan small") == pytest.approx(BIG * cost.LEAST_ANTI_PART)
    assert estimate("semi join on k < id\n  scan big\n  scan small") == pytest.approx(BIG * cost.SEMI_SELECTIVITY)


def test_distinct_counts_pass_joins() -> None:
    assert estimate("aggregate by=(g) n=count(*)\n  inner join on k = id\n    scan big\n    scan small") == 5
    assert estimate("limit 2 by (g)\n  inner join on k = id\n    scan big\n    scan small") == 10


def test_deep_joins_are_estimated_once() -> None:
    """Each node is asked once: sixteen joins take no time."""
    text, depth = "scan small", 16
    for i in range(depth):
        text = f"inner join on id = k{i}\n  " + text.replace("\n", "\n  ") + f"\n  project k{i}=k\n    scan big"
    assert estimate(text) > 0
