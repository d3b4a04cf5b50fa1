"""Recompiles quickly compiled code in full, in the background, once the query that needed it is done.

A first run should not wait for LLVM longer than the better code would save; later runs should have that code. One
thread compiles one kernel after the other, and lets queries that compile go first. At the end of the process it is
stopped and joined, because LLVM must not be interrupted."""

from __future__ import annotations

import atexit
import queue
import threading
import time
import warnings
from collections.abc import Callable

from tsql.kernels.codegen import levels
from tsql.kernels.codegen.kir import Module
from tsql.kernels.codegen.llvm import FULL, Compiled, compiler
from tsql.kernels.process import forks

Job = tuple[Module, Callable[[Compiled], None]]
POLITE_SECONDS = 0.005
QUIET_SECONDS = 0.25
"""The thread starts once no query has compiled anything for this long. LLVM cannot pause, so the next query would wait
for it."""


LONGEST_TEXT = 400_000
"""Modules with a longer text are not recompiled, such as those of queries with hundreds of columns. LLVM takes two
seconds for one of this length and more than twice that for twice the length, and the end of the process waits for
it."""


class Promoter:
    """The background thread; it starts with its first job."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.thread: threading.Thread | None = None
        self.lock = forks.lock()
        self.stopped = False

    def add(self, module: Module, done: Callable[[Compiled], None]) -> None:
        """Compile a module in full in the background thread and pass the result to `done` there, unless
        TSQL_BETTER_CODE says that nothing is compiled twice."""
        with self.lock:
            if self.stopped or not levels.compiles_again():
                return
            if self.thread is None:
                thread = threading.Thread(target=self._serve, name="tsql-promote", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return  # The system has no thread left: the quick code stays.
                self.thread = thread
                atexit.register(self.stop)
        self.jobs.put((module, done))

    def _serve(self) -> None:
        while (job := self.jobs.get()) is not None and not self.stopped:
            while compiler().seconds_idle() < QUIET_SECONDS and not self.stopped:
                time.sleep(POLITE_SECONDS)
            module, done = job
            if not self.stopped and len(module.text()) <= LONGEST_TEXT:
                self._promote(module, done)
            del job, module, done

    def _promote(self, module: Module, done: Callable[[Compiled], None]) -> None:
        try:
            done(compiler().compile(module, FULL, foreground=False))
        except Exception as error:
            # The quick code is correct, only slower. There is no caller to raise to, and the next job must still be
            # done.
            warnings.warn(
                f"a kernel was not compiled in full and stays slower than it could be: {type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=1,
            )

    def wait(self) -> None:
        """Wait until all jobs so far are done; for tests and benchmarks."""
        ready = threading.Event()
        if self.thread is None:
            return
        self.jobs.put((_NOTHING, lambda _: ready.set()))
        ready.wait()

    def begin_again(self) -> None:
        """In the child of a fork: there is no thread, and the jobs are the parent's."""
        self.jobs, self.thread = queue.SimpleQueue(), None

    def stop(self) -> None:
        self.stopped = True
        self.jobs.put(None)
        if self.thread is not None:
            self.thread.join()


def _nothing() -> Module:
    from tsql.kernels.codegen.lang import Kernel

    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    k.ret()
    k.finish()
    return module


_NOTHING = _nothing()
promoter = Promoter()
forks.in_child(lambda: promoter.begin_again())
