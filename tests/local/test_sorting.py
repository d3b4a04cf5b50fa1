"""The order of rows: packed words, radix and numpy's sorts agree with a plain sort; codes of values are dense and in
order."""

from __future__ import annotations

import ctypes
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tsql.backends.local.sort import sorting
from tsql.kernels.codegen.interp import Interpreter
from tsql.kernels.expr.nodes import SortKey
from tsql.kernels.runtime.radix import BUCKETS, radix_module
from tsql.kernels.runtime.sort_groups import sort_groups_module


def keys(random: np.random.Generator, rows: int) -> list[np.ndarray]:
    kinds = [
        lambda: random.integers(-(2**63), 2**63 - 1, rows, endpoint=True),
        lambda: random.integers(0, 5, rows),
        lambda: random.integers(-(10**6), 10**6, rows),
        lambda: random.integers(-128, 127, rows).astype(np.int8),
        lambda: random.integers(0, 2**64 - 1, rows, dtype=np.uint64, endpoint=True),
        lambda: np.zeros(rows, np.int32),
    ]
    return [kinds[random.integers(0, len(kinds))]() for _ in range(random.integers(1, 4))]


@pytest.mark.parametrize("radix", [True, False])
def test_orders_agree(radix: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "MANY_ROWS", 2 if radix else 1 << 40)
    monkeypatch.setattr(sorting, "FEW_ROWS", 0)
    random = np.random.default_rng(11)
    for trial in range(150):
        rows = int(random.integers(1, 200))
        ranks = keys(random, rows)
        order = sorting._order(ranks)
        given = np.arange(rows) if order is None else order
        assert (given == np.lexsort(ranks[::-1])).all(), f"trial {trial} of seed 11"


def test_rows_in_order_are_left_alone() -> None:
    array = pa.array([1, 1, 2, None])
    assert sorting.sorted_order([(array, SortKey(None))]) is None
    assert sorting.sorted_order([(array, SortKey(None, nulls_first=True))]).tolist() == [3, 0, 1, 2]
    assert sorting.sort_indices([(pa.array([], pa.int64()), SortKey(None))]).tolist() == []


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        (pa.array([30, 10, None, 10, 20]), [2, 0, 3, 0, 1]),
        (pa.array(["b", "a", "b", None]), [1, 0, 1, 2]),
        (pa.array([0.0, -0.0, float("nan"), float("nan"), -1.5]), [1, 1, 2, 2, 0]),
        (pa.array([Decimal(10**30), Decimal(-(10**30)), Decimal(0)], pa.decimal128(38, 0)), [2, 0, 1]),
        (pa.array([True, False, None]), [1, 0, 2]),
    ],
)
def test_codes(values: pa.Array, codes: list[int]) -> None:
    given, samples = sorting.value_codes([values])
    assert given.tolist() == codes
    for code in set(codes):
        assert given[samples[code]] == code


def test_radix_interpreter_agrees() -> None:
    """The kernel of the radix sort means the same to the interpreter."""
    random = np.random.default_rng(5)
    for bits in (1, 11, 12, 40, 64):
        words = random.integers(0, 2**bits - 1, 50, dtype=np.uint64, endpoint=True)
        sorted_words, numbers = words.copy(), np.arange(50, dtype=np.int32)
        spare, spare_numbers, counts = np.empty_like(sorted_words), np.empty_like(numbers), np.empty(BUCKETS, np.int64)
        plan = (ctypes.c_int64 * 5)(
            sorted_words.ctypes.data, spare.ctypes.data, numbers.ctypes.data, spare_numbers.ctypes.data, bits
        )
        Interpreter(radix_module())("main", ctypes.addressof(plan), counts.ctypes.data, 50)
        assert (sorted_words == np.sort(words)).all()
        assert (numbers == sorting._radix_order(words.copy(), bits)).all()


@pytest.mark.parametrize("few", [0, 1000])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
@pytest.mark.parametrize("longest", [0, 1, 7, 8, 9, 16, 17, 40])
def test_strings(kind: pa.DataType, longest: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "FEW_ROWS", few)
    random = np.random.default_rng(longest)
    texts = [
        "".join(random.choice(list("\0ab\u00e9\x7f"), random.integers(0, longest + 1)))[:longest]
        .encode()[:longest]
        .decode(errors="ignore")
        for _ in range(300)
    ]
    values: list[str | None] = [*texts, None, *texts[:50], "x" * longest]
    array = pa.array([v if v is None or kind != pa.binary() else v.encode() for v in values], kind).slice(3)
    wanted = sorted(
        range(len(array)),
        key=lambda i: (array[i].as_py() is None, values[i + 3].encode() if values[i + 3] is not None else b"", i),
    )
    order = sorting.sort_indices([(array, SortKey(None))])
    assert order.tolist() == wanted
    known = [values[i + 3] for i in wanted]
    assert sorting.changes([array.take(pa.array(order))]).tolist() == [
        True,
        *(a != b for a, b in zip(known, known[1:], strict=False)),
    ]


@pytest.mark.parametrize("workers", [1, 4])
def test_any_number_of_workers_finds_the_same_order(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "PARALLEL_ROWS", 10)
    random = np.random.default_rng(3)
    team = sorting.Workers(workers, lambda work, tasks: [work(task) for task in range(tasks)])
    words = pa.array(random.integers(-(2**63), 2**63 - 1, 5000) // 4 * 4)
    few = pa.array([None if v == 0 else f"a long string, number {v}" for v in random.integers(0, 40, 5000)])
    given = [(few, SortKey(None, descending=True)), (words, SortKey(None))]
    assert (sorting.sorted_order(given, team) == sorting.sorted_order(given)).all()
    assert sorting.taken([few, words], np.arange(5000)[::-1], team) == [few[::-1], words[::-1]]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("values", [1, 5, 1000])
def test_rows_of_few_keys_are_placed_in_their_order(workers: int, values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting gives what the order of the keys gives, for values of every width, with and without strings and
    NULLs."""
    monkeypatch.setattr(sorting, "PARALLEL_ROWS", 10)
    random = np.random.default_rng(values)
    rows = sorting.MANY_ROWS + 7
    team = sorting.Workers(workers, lambda work, tasks: [work(task) for task in range(tasks)])
    keys = pa.array(random.integers(-values, values, rows) * 3)
    numbers = np.arange(rows)
    plain = [pa.array(numbers.astype(kind)) for kind in ("i1", "u2", "i4", "i8", "f8")] + [
        pa.array(numbers).cast(pa.decimal128(20, 0))
    ]
    others = [pa.array([None if n % 7 == 0 else f"{n}" for n in range(rows)]), pa.array(numbers % 3 == 0)]
    for columns in (plain, [*plain, *others], [c.slice(5) for c in plain]):
        key = keys.slice(5) if len(columns[0]) < rows else keys
        order = pa.array(sorting.sort_indices([(key, SortKey(None))]))
        assert sorting.sorted_columns(columns, [(key, SortKey(None))], team) == [c.take(order) for c in columns]


@pytest.mark.parametrize("shape", ["random", "in order", "two runs", "equal", "extremes"])
@pytest.mark.parametrize("rows_per_key", [1, 2, 15, 16, 17, 40, 63])
def test_rows_of_many_keys_over_time(rows_per_key: int, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are put into groups by their keys, and each group is sorted by itself, in runs of 16 that are merged."""
    monkeypatch.setattr(sorting, "MANY_ROWS", 2)
    random = np.random.default_rng([12, rows_per_key])
    rows = 3000 * min(rows_per_key, 10) + 7
    key = random.integers(0, max(2048, rows // rows_per_key), rows)
    times = {
        "random": random.integers(-(10**12), 10**12, rows),
        "in order": np.sort(random.integers(0, 10**12, rows)) * np.where(np.arange(rows) == 0, 2, 1),
        "two runs": np.concatenate(
            [np.sort(random.integers(0, 10**6, part)) for part in (rows // 2, rows - rows // 2)]
        ),
        "equal": random.integers(0, 3, rows),
        "extremes": random.choice(np.array([-(2**63), -1, 0, 2**63 - 1]), rows),
    }[shape]
    times[0] = times.max()  # not in order by themselves
    order = sorting._grouped_order([key, times], sorting.SERIAL)
    assert order is not None
    assert (order == np.lexsort([times, key])).all(), f"seed 12, {rows_per_key}"


def test_large_groups_are_sorted_otherwise() -> None:
    random = np.random.default_rng(13)
    few, many = random.integers(0, 16, 50_000), random.integers(0, 2048, 200_000)
    assert sorting._grouped_order([few, random.permutation(50_000)], sorting.SERIAL) is None
    assert sorting._grouped_order([many, random.permutation(200_000)], sorting.SERIAL) is None
    assert sorting._grouped_order([np.zeros(50_000, np.int64), random.permutation(50_000)], sorting.SERIAL) is None


def test_sort_groups_interpreter_agrees() -> None:
    random = np.random.default_rng(14)
    rows = 100
    words, numbers = np.sort(random.integers(0, 3, rows)), random.permutation(rows).astype(np.int32)
    times = random.integers(0, 20, rows)
    expected = np.concatenate(
        [part[np.argsort(times[part], kind="stable")] for part in (numbers[words == w] for w in np.unique(words))]
    )
    spare = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int32)
    plan = np.array([a.ctypes.data for a in (words, numbers, times, *spare)], np.int64)
    Interpreter(sort_groups_module())("main", plan.ctypes.data, 0, rows)
    assert (numbers == expected).all(), "seed 14"
