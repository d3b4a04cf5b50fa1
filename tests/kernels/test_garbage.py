"""The search for garbage pauses while queries are made, and goes on as it was before."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import tsql
from tests.patience import wait_until
from tsql.kernels.codegen.kir import Op
from tsql.kernels.emit import pipeline
from tsql.kernels.process import garbage


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was(enabled: bool) -> None:
    try:
        gc.enable() if enabled else gc.disable()
        with garbage.paused():
            with garbage.paused():
                assert not gc.isenabled()
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
        with pytest.raises(ValueError, match="inside"), garbage.paused():
            raise ValueError("inside")
        assert gc.isenabled() is enabled
    finally:
        gc.enable()


def test_threads_that_overlap() -> None:
    together = threading.Barrier(4)

    def inside(number: int) -> bool:
        with garbage.paused():
            together.wait(30)
            return gc.isenabled()

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(inside, range(4))) == [False] * 4
    assert gc.isenabled()


def test_it_pauses_while_a_pipeline_is_emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    emitted = pipeline.Pipeline._emitted
    monkeypatch.setattr(pipeline.Pipeline, "_emitted", lambda self: (seen.append(gc.isenabled()), emitted(self))[1])
    assert tsql.connect().sql("SELECT sum(range * 3) FROM range(7)").fetchall() == [(63,)]
    assert seen and not any(seen) and gc.isenabled()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a % 7 AS b, sum(a) AS s FROM t WHERE a > 5 GROUP BY b",
        "SELECT t.a, u.a AS b FROM t JOIN t u ON t.a = u.a + 1 ORDER BY 1",
    ],
)
def test_the_code_of_a_plan_goes_with_it(sql: str) -> None:
    """A plan has thousands of operations, and who asks many questions would wait for the collector to look at all of
    them."""
    _asked(sql)  # routines that all kernels share are made once, and stay
    gc.collect()
    gc.disable()
    try:
        before = _operations()
        _asked(sql)
        assert wait_until(lambda: _operations() <= before, 5.0)
    finally:
        gc.enable()


def _asked(sql: str) -> None:
    with tsql.connect() as session:
        session.sql("CREATE TABLE t AS SELECT range AS a FROM range(100)")
        session.sql(sql).arrow()


def _operations() -> int:
    return sum(type(one) is Op for one in gc.get_objects())
