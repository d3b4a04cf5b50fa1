"""The memory pool: blocks are used again, what is idle is bounded and given up, and whatever ends a query gives
everything back."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import tsql
import tsql.backends.local  # Which brings the compiler that the pool is made by.
from tests.patience import wait_until
from tsql.kernels.codegen import memory
from tsql.kernels.codegen.interp import Interpreter
from tsql.kernels.runtime import pool

pytestmark = pytest.mark.usefixtures("settled")

LARGE = pool.SMALLEST + 1


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nothing of other tests is in the pool's free lists."""
    gc.collect()
    memory.trim()
    yield
    gc.collect()
    memory.trim()


def test_classes_hold_what_is_asked_for() -> None:
    sizes = [pool.class_size(number) for number in range(pool.CLASSES)]
    holds = [size - pool.SHIFT_BYTES for size in sizes]
    assert sizes == sorted(sizes) and holds[-1] == pool.LARGEST
    used = memory.usage().used
    for bytes in (LARGE, holds[0], holds[0] + 1, holds[3], holds[3] + 1, holds[9] - 1):
        block = memory.allocate(bytes)
        assert memory.is_pooled(block) and memory.usage().used - used == min(
            s for s, held in zip(sizes, holds, strict=True) if held >= bytes
        )
        memory.free(block)
    assert memory.usage().used == used


def test_blocks_begin_in_different_lines_of_their_pages() -> None:
    blocks = [memory.allocate(LARGE) for _ in range(2 * pool.SHIFTS)]
    for block in blocks:
        memory.free(block)
    # Which of them were handed out depends on what others have freed.
    assert len({block % pool.SHIFT_BYTES for block in blocks}) > pool.SHIFTS // 4
    assert all(block % pool.LINE == 0 for block in blocks)
    apart = sorted(blocks)
    assert all(b - a >= LARGE for a, b in zip(apart, apart[1:], strict=False))


def test_blocks_keep_what_was_written_when_they_grow() -> None:
    """Each block of a class begins elsewhere, and none reaches into the next."""
    size = pool.class_size(0) - pool.SHIFT_BYTES
    blocks = [memory.allocate(size) for _ in range(70)]
    for number, block in enumerate(blocks):
        ctypes.memset(block, number + 1, size)
    grown = [memory.reallocate(block, size * 3) for block in blocks]
    for number, block in enumerate(grown):
        assert ctypes.string_at(block, size) == bytes([number + 1]) * size
        memory.free(block)


@pytest.mark.parametrize("bytes", [1, pool.SMALLEST])
def test_small_blocks_are_the_c_librarys(bytes: int) -> None:
    block = memory.allocate(bytes)
    assert not memory.is_pooled(block)
    memory.free(block)


def test_a_freed_block_is_used_again() -> None:
    before = memory.usage()
    first = memory.allocate(LARGE)
    memory.free(first)
    assert memory.usage().idle > before.idle
    assert memory.allocate(LARGE + 100) == first
    assert memory.usage().recycled > before.recycled
    memory.free(first)


def test_a_larger_block_serves_where_no_other_is_warm() -> None:
    large = memory.allocate(2 * LARGE)
    memory.free(large)
    assert memory.allocate(LARGE) == large
    other = memory.allocate(LARGE)
    assert other != large
    memory.free(other)
    memory.free(large)


def test_zeroed_memory_is_zero_whoever_had_it() -> None:
    block = memory.allocate_zeroed(LARGE)
    ctypes.memset(block, 7, LARGE)
    memory.free(block)
    assert memory.allocate_zeroed(LARGE) == block
    assert ctypes.string_at(block, LARGE) == bytes(LARGE)
    ctypes.memset(block, 7, LARGE)
    memory.free(block)
    memory.trim()
    assert memory.usage().idle == 0
    assert memory.allocate_zeroed(LARGE) == block
    assert ctypes.string_at(block, LARGE) == bytes(LARGE)
    memory.free(block)


@pytest.mark.parametrize("sizes", [(100, LARGE, 40 * LARGE), (LARGE, LARGE + 1, 100), (10 * LARGE, LARGE), (1, 2, 3)])
def test_a_block_that_grows_keeps_its_bytes(sizes: tuple[int, ...]) -> None:
    used = memory.usage().used
    block, least = memory.allocate(sizes[0]), sizes[0]
    content = np.random.default_rng(3).bytes(least)
    ctypes.memmove(block, content, least)
    for size in sizes[1:]:
        block, least = memory.functions().realloc(block, size), min(least, size)
        assert ctypes.string_at(block, least) == content[:least]
    memory.free(block)
    assert memory.usage().used == used


def test_what_is_idle_is_bounded() -> None:
    most = memory.usage().used + 20 * LARGE
    memory.bound(most)
    try:
        blocks = [memory.allocate(LARGE) for _ in range(30)]
        for block in blocks:
            memory.free(block)
        usage = memory.usage()
        assert 0 < usage.idle and usage.used + usage.idle <= most
        # A block of another class takes the place of idle ones.
        large = memory.allocate(15 * LARGE)
        usage = memory.usage()
        assert usage.used + usage.idle <= most
        memory.free(large)
    finally:
        memory.unbound(most)


def test_idle_memory_goes_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    memory.free(memory.allocate(LARGE))
    trimmed = threading.Event()
    monkeypatch.setattr(memory, "REST_SECONDS", 0.0)
    monkeypatch.setattr(memory, "_resting", threading.Lock())
    monkeypatch.setattr(memory, "trim", lambda: trimmed.set())
    memory.rest()
    assert trimmed.wait(60)


def test_threads_share_the_pool() -> None:
    used = memory.usage().used
    failures: list[int] = []

    def work(number: int) -> None:
        random = np.random.default_rng(number)
        held: list[np.ndarray] = []
        for _ in range(300):
            if len(held) > 5:
                array = held.pop(int(random.integers(len(held))))
                if not (array == array[0]).all():
                    failures.append(number)
                del array
            held.append(memory.empty(int(random.integers(LARGE, 8 * LARGE)) // 8, np.int64))
            held[-1][:] = random.integers(1 << 40)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and memory.usage().used == used


def test_the_interpreter_gives_the_same_blocks() -> None:
    """The pool as the kernel language defines it, over the same state."""
    run = Interpreter(pool.pool_module())
    block = run("pool_malloc", LARGE)
    assert memory.is_pooled(block)
    run("pool_free", block)
    assert memory.allocate(LARGE) == block
    grown = run("pool_realloc", block, 3 * LARGE)
    run("pool_free", grown)
    assert run("pool_calloc", 3, LARGE) == grown and ctypes.string_at(grown, 3 * LARGE) == bytes(3 * LARGE)
    run("pool_free", grown)
    run("pool_trim", 0)
    assert memory.usage().idle == 0


QUERY = (
    "SELECT range % 300000 AS k, range AS v, count(*) OVER (PARTITION BY range % 7 ORDER BY range) AS n "
    "FROM range(600000)"
)


def test_results_keep_their_memory() -> None:
    used = memory.usage().used
    with tsql.connect() as session:
        table = session.sql(QUERY).arrow()
        total = sum(table["v"].to_numpy())
    column = table["v"]
    del table, session
    gc.collect()
    assert memory.usage().used > used
    for _ in range(3):
        with tsql.connect() as other:
            other.sql(QUERY).arrow()
    assert sum(column.to_numpy()) == total
    del column, other
    gc.collect()
    assert memory.usage().used == used


def test_a_query_that_fails_gives_everything_back() -> None:
    with tsql.connect() as session:
        session.sql(QUERY).arrow()
        gc.collect()
        used = memory.usage().used
        with pytest.raises(tsql.ExecutionError):
            session.sql("SELECT k, sum(CAST(v AS VARCHAR)::TINYINT) FROM (" + QUERY + ") GROUP BY k").arrow()
        gc.collect()
        assert memory.usage().used == used


def test_a_cancelled_query_gives_everything_back() -> None:
    with tsql.connect() as session:
        session.sql(QUERY).arrow()
        gc.collect()
        used = memory.usage().used
        relation = session.sql("SELECT k, sum(v) FROM (" + QUERY + ") GROUP BY k, v % 1000003")
        threading.Timer(0.02, relation.cancel).start()
        with contextlib.suppress(tsql.CancelledError):
            # It may have been faster: then there is nothing to give back either.
            relation.arrow()
        del relation

        def is_back() -> bool:
            gc.collect()
            return memory.usage().used == used

        assert wait_until(is_back)


def test_a_limit_bounds_what_the_pool_keeps() -> None:
    with tsql.connect() as session:
        session.sql(QUERY).arrow()
        gc.collect()
        assert memory.usage().idle > 1 << 20
        session.sql("SET memory_limit = '1MB'")
        session.sql("SELECT 1").arrow()
        usage = memory.usage()
        assert usage.idle + usage.used <= max(1 << 20, usage.used)


def test_explain_analyze_shows_the_memory() -> None:
    with tsql.connect() as session:
        text = session.sql(QUERY).explain("analyze")
    assert "MiB at most" in text and "MiB used again" in text


def test_few_rows_take_no_block() -> None:
    """A result of few rows has little room at first, however wide it is; one of more rows comes in chunks of more."""
    sums = ", ".join(f"sum(x + {n}) AS s{n}" for n in range(12))
    with tsql.connect(threads=2) as db:
        db.sql("CREATE TABLE t AS SELECT range AS x FROM range(20000)")
        for groups in (6, 5000):
            query = f"SELECT x % {groups} AS g, {sums} FROM t GROUP BY g"
            before = memory.usage()
            rows = db.sql(query).arrow()
            after = memory.usage()
            assert sorted(rows["g"].to_pylist()) == list(range(groups))
            assert sum(rows["s1"].to_pylist()) == sum(range(20000)) + 20000
            if groups == 6:
                assert (after.fresh, after.recycled) == (before.fresh, before.recycled)
            del rows
