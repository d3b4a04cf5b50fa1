"""The search for garbage pauses while queries are made, and goes on as it was before."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import tsql
from tsql.kernels import garbage, pipeline


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
