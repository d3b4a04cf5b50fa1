"""Compiling from several threads: a kernel is made once, one that is slow does not keep another waiting, and work can
be ended."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kernels.test_compile_cache import square_plus
from tsql.kernels.codegen import llvm
from tsql.kernels.codegen.kir import Module
from tsql.kernels.codegen.llvm import FULL, QUICK, Compiler
from tsql.kernels.codegen.object_cache import flush
from tsql.kernels.expr.errors import CancelledError


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    monkeypatch.setenv("TSQL_CACHE", "")
    return Compiler()


def test_a_kernel_is_made_once(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    build = Compiler._build
    monkeypatch.setattr(Compiler, "_build", lambda self, *arguments: (made.append(1), build(self, *arguments))[1])
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda _: compiler.compile(square_plus(1)), range(12)))
    assert len(made) == 1 and all(one is found[0] for one in found)


def test_a_slow_kernel_does_not_keep_others_waiting(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    ready, go_on = threading.Event(), threading.Event()
    build = Compiler._build

    def slow(self: Compiler, module: Module, *arguments: object) -> bytes:
        if threading.current_thread().name == "slow":
            ready.set()
            assert go_on.wait(30)
        return build(self, module, *arguments)

    monkeypatch.setattr(Compiler, "_build", slow)
    thread = threading.Thread(target=lambda: compiler.compile(square_plus(2)), name="slow")
    thread.start()
    assert ready.wait(30)
    other = compiler.compile(square_plus(3))
    assert compiler.compile(square_plus(3)) is other
    go_on.set()
    thread.join(30)
    assert compiler.compile(square_plus(2)).origin == "llvm"


def test_work_that_is_ended_can_be_done_again(compiler: Compiler) -> None:
    def cancelled() -> None:
        raise CancelledError("the query was cancelled")

    with pytest.raises(CancelledError):
        compiler.compile(square_plus(4), FULL, cancelled)
    assert compiler.compile(square_plus(4)).origin == "llvm"


def test_code_that_was_found_on_disk_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query may find code on disk just before the thread that wrote it there links it: both have the same code, and a
    function keeps it."""
    monkeypatch.setenv("TSQL_CACHE", str(tmp_path))
    compiler, module, found = Compiler(), square_plus(5), []
    write = llvm.write_later
    monkeypatch.setattr(
        llvm,
        "write_later",
        lambda kind, key, make, made_by: (
            write(kind, key, make, made_by),
            flush(),
            found.append(compiler.known(module)),
        ),
    )
    made = compiler.compile(module)
    assert found == [made] and found[0] is made
    assert made.function.tracker is made.tracker


def test_threads_are_in_llvm_at_the_same_time(compiler: Compiler) -> None:
    """The calls that take long are not behind llvmlite's lock, and threads that make different kernels do not disturb
    each other."""
    assert not [name for name in llvm._UNLOCKED if hasattr(getattr(llvm.ffi.lib, name), "_lock")]
    alone = {
        (number, level): compiler._build(square_plus(number), level, lambda: None)
        for number in range(20)
        for level in (QUICK, FULL)
    }
    with ThreadPoolExecutor(4) as threads:
        wanted = [*alone] * 5
        assert list(threads.map(lambda one: compiler._build(square_plus(one[0]), one[1], lambda: None), wanted)) == [
            alone[one] for one in wanted
        ]
