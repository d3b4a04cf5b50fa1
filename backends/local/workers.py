"""The worker threads of the process: compiled code runs in them with the GIL released."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any

from tsql.backends import Run

WAIT_SECONDS = 0.02
"""How long the caller waits at a time, so that Ctrl-C and cancellation are seen soon."""

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

    With one thread, or one task, the work is done in the caller's thread.
    """
    if threads <= 1 or tasks <= 1:
        return [work(i) for i in range(tasks)]
    futures: list[Future[Any]] = [pool(threads).submit(work, i) for i in range(tasks)]
    try:
        while True:
            done, pending = wait(futures, timeout=WAIT_SECONDS, return_when=FIRST_EXCEPTION)
            failed = [f for f in done if f.exception() is not None]
            if failed or not pending:
                break
    except BaseException:
        run.cancel()
        wait(futures)
        raise
    if failed:
        # What fails first is what the user hears of; the others are stopped, and end with it.
        run.stop_workers()
        wait(futures)
        raise failed[0].exception()
    return [f.result() for f in futures]
