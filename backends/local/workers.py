"""The worker threads of the process: compiled code runs in them with the GIL released."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from tsql.backends import Run

_pools: dict[int, ThreadPoolExecutor] = {}
_lock = threading.Lock()


def pool(threads: int) -> ThreadPoolExecutor:
    """The pool of so many threads; pools live as long as the process."""
    with _lock:
        if threads not in _pools:
            _pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="tsql")
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

    def take() -> None:
        while not failures and (number := next(numbers)) < tasks:
            try:
                results[number] = work(number)
            except BaseException as error:
                # What fails first is what the user hears of; the others are stopped, and end with it.
                failures.append(error)
                run.stop_workers()

    futures: list[Future[None]] = [pool(threads).submit(take) for _ in range(min(threads, tasks) - 1)]
    take()
    wait(futures)
    if failures:
        raise failures[0]
    return results
