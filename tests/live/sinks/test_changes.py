"""Folding changes: the same bag of rows as adding and taking away one by one."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from tests.live.sinks.jobs import rows_of
from tests.live.sinks.targets import rows_in
from tsql.backends.live.sinks.changes import by_key, fold, net
from tsql.kernels.expr.errors import TsqlError

HOUR = pa.MonthDayNano([0, 0, 3_600_000_000_000])
VALUES = [
    [None, 1, 2],
    [None, "", "a"],
    [None, 1.5, float("inf")],
    [None, HOUR, pa.MonthDayNano([-1, 2, -3])],
]
KINDS = [pa.int32(), pa.string(), pa.float64(), pa.month_day_nano_interval()]


def table(rows: list[tuple[object, ...]], kinds: list[pa.DataType]) -> pa.Table:
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate([*kinds, pa.int8()])]
    return pa.Table.from_arrays(columns, names=["k", *("v" for _ in kinds[1:]), "change"])


@pytest.mark.parametrize("seed", range(20))
def test_fold_is_a_bag(seed: int) -> None:
    made = random.Random(seed)
    bag: Counter[tuple[object, ...]] = Counter()
    changes: list[tuple[object, ...]] = []
    for _ in range(made.choice((0, 1, 30, 300))):
        there = [row for row, count in bag.items() if count > 0]
        if there and made.random() < 0.45:
            row, change = made.choice(there), -1
        else:
            row, change = tuple(made.choice(values) for values in VALUES), 1
        bag[row] += change
        changes.append((*row, change))
    made.shuffle(changes)
    folded = rows_in(fold(table(changes, KINDS)))
    assert Counter(folded) == +bag
    assert len(rows_in(net(table(changes, KINDS)))) == len(+bag)


def test_rows_in_the_order_in_which_they_came() -> None:
    changes = table([(3, 1), (1, 1), (3, 1), (2, 1), (1, -1)], KINDS[:1])
    assert rows_in(fold(changes)) == [(3,), (3,), (2,)]


def test_nan_is_equal_to_itself() -> None:
    nan = float("nan")
    assert rows_in(fold(table([(nan, 1), (nan, -1)], [pa.float64()]))) == []


def test_a_row_that_is_not_there() -> None:
    with pytest.raises(TsqlError, match="take away a row that is not there: {'k': 2}"):
        fold(table([(1, 1), (2, -1)], KINDS[:1]))


def test_by_key() -> None:
    changes = table([(1, "a", -1), (1, "b", 1), (2, "a", -1), (None, "a", 1), (3, "x", 1), (3, "x", -1)], KINDS[:2])
    put, gone = by_key(changes, ["k"])
    assert rows_in(put) == [(1, "b"), (None, "a")]
    assert rows_in(gone) == [(2,)]


def test_by_key_with_interval() -> None:
    changes = table([(HOUR, -1), (None, 1)], [KINDS[3]])
    put, gone = by_key(changes, ["k"])
    assert (rows_in(put), rows_in(gone)) == ([(None,)], [(HOUR,)])


def test_two_rows_of_a_key() -> None:
    with pytest.raises(TsqlError, match="several rows of the key {'k': 1}"):
        by_key(table([(1, "a", 1), (1, "b", 1)], KINDS[:2]), ["k"])


def test_rows_of_epochs_differ() -> None:
    assert len({row for epoch in range(1, 9) for row in rows_of(epoch)}) == sum(len(rows_of(e)) for e in range(1, 9))
