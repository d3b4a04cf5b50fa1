"""The worker threads of the process: compiled code runs in them with the GIL released.

They are daemons, so that a program can end while a cancelled query is still inside a library call. At the end of the program
runs that are still active are cancelled, and get a moment to let go.
"""

from __future__ import annotations

import atexit
import itertools
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from tsql.backends import Run
from tsql.kernels.errors import CancelledError

EXIT_SECONDS = 0.1
"""How long the end of the program waits for workers that are busy."""

Task = tuple[Callable[[], None], queue.SimpleQueue[None]]


class Pool:
    """So many threads that take tasks in turn, and say when one is done; a task raises nothing. They live as long as the process."""

    def __init__(self, threads: int) -> None:
        self.tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        for number in range(threads):
            threading.Thread(target=self._serve, name=f"tsql-{threads}-{number}", daemon=True).start()

    def _serve(self) -> None:
        while True:
            work, done = self.tasks.get()
            try:
                work()
            finally:
                done.put(None)
            # What a thread waits with would keep the data of the last query alive.
            del work, done


_pools: dict[int, Pool] = {}
_lock = threading.Lock()
_active: weakref.WeakValueDictionary[int, Run] = weakref.WeakValueDictionary()


def pool(threads: int) -> Pool:
    """The pool of so many threads."""
    with _lock:
        if threads not in _pools:
            _pools[threads] = Pool(threads)
        return _pools[threads]


def parallel(work: Callable[[int], Any], tasks: int, threads: int, run: Run) -> list[Any]:
    """The results of `work(0) .. work(tasks - 1)`; the first failure ends the others and is raised.

    The caller's thread is one of the workers: waking a thread costs as much as some ten thousand rows do.
    """
    if threads <= 1 or tasks <= 1:
        return [work(i) for i in range(tasks)]
    results: list[Any] = [None] * tasks
    failures: list[BaseException] = []
    numbers = itertools.count()
    done: queue.SimpleQueue[None] = queue.SimpleQueue()

    def take() -> None:
        while not failures and (number := next(numbers)) < tasks:
            try:
                results[number] = work(number)
            except BaseException as error:
                # What fails first is what the user hears of; the others are stopped, and end with it.
                failures.append(error)
                run.stop_workers()

    _active[id(run)] = run
    try:
        others = min(threads, tasks) - 1
        for _ in range(others):
            pool(threads).tasks.put((take, done))
        take()
        for _ in range(others):
            done.get()
    finally:
        _active.pop(id(run), None)
    if failures:
        try:
            # A worker that fails inside of a kernel stops the others before its error gets here: theirs may be the first.
            raise next((f for f in failures if not isinstance(f, CancelledError)), failures[0])
        finally:
            # An error knows the frames that know this list: together they would stay until the next garbage collection.
            failures.clear()
    return results


@atexit.register
def _let_go() -> None:
    """End what still runs; a worker inside a library call is not waited for longer than a moment."""
    runs = list(_active.values())
    for run in runs:
        run.cancel()
    deadline = time.monotonic() + EXIT_SECONDS
    while _active and time.monotonic() < deadline:
        time.sleep(0.005)
