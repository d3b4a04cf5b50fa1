"""The worker threads of the process. They run compiled code with the GIL released.

They are daemon threads, so a program can exit while a cancelled query is still inside a library call. At exit, active
runs are cancelled and get a moment to stop.

Pools are shared by all sessions. A thread starts when a query first has work for it, and ends with the last open
session that may use its pool (`Users`). The child of a fork starts without pools, since its parent's threads do not
exist there."""

from __future__ import annotations

import atexit
import itertools
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from tsql.backends import Run
from tsql.kernels.expr.errors import CancelledError, ExecutionError
from tsql.kernels.process import forks, stopping

EXIT_SECONDS = 2.0
"""The longest time that the program waits at exit for active queries."""

Task = Callable[[], None]


class Pool:
    """Up to `threads` threads that take tasks from a queue. A task raises nothing."""

    def __init__(self, threads: int) -> None:
        self.most, self.threads, self.users, self.retired = threads, 0, 0, False
        self.tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()

    def grow(self, threads: int) -> None:
        """Have at least this many threads. If one cannot be started, those that were started stay."""
        while self.threads < min(threads, self.most):
            start_thread(self._serve, f"tsql-{self.most}-{self.threads}")
            self.threads += 1

    def end(self) -> None:
        """End the threads after the queued tasks."""
        for _ in range(self.threads):
            self.tasks.put(None)
        self.threads = 0

    def _serve(self) -> None:
        while (task := self.tasks.get()) is not None:
            task()
            # A waiting thread must not keep the data of the last query alive.
            del task


class Team:
    """The threads that help with one piece of work. A thread that has not started when the work is done never starts,
    and is not waited for. So nested work never waits for a thread that is busy with the outer work, however few threads
    there are."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work
        self._helping, self._is_over = 0, False
        self._lock = threading.Lock()
        self._last: queue.SimpleQueue[None] = queue.SimpleQueue()

    def help(self) -> None:
        """Run by a thread of a pool."""
        with self._lock:
            if self._is_over:
                return
            self._helping += 1
        try:
            self._work()
        finally:
            with self._lock:
                self._helping -= 1
                if self._is_over and not self._helping:
                    self._last.put(None)

    def finish(self) -> None:
        """Wait for the threads that still help. No others start from now on."""
        with self._lock:
            self._is_over, is_helped = True, self._helping > 0
        if is_helped:
            self._last.get()
        self._work = None  # whoever is still asked to help must not keep the data of the query


def start_thread(serve: Callable[[], None], name: str) -> None:
    """Start a daemon thread. If the system has no thread left, the query fails."""
    try:
        threading.Thread(target=serve, name=name, daemon=True).start()
    except RuntimeError as error:
        raise ExecutionError(
            f"the system lets this process start no more threads; it has {threading.active_count()}",
            hint="SET threads to a lower number, or raise the limit (ulimit -u)",
        ) from error


_pools: dict[int, Pool] = {}
_lock = forks.rlock()
"""Reentrant: a session that is garbage collected closes in any thread, perhaps one that holds the lock."""
active: dict[object, Run] = {}
"""The runs that query threads (`released`) are computing now."""


def pool(threads: int) -> Pool:
    """The pool of `threads` threads."""
    with _lock:
        return _pools.setdefault(threads, Pool(threads))


def _enter(threads: int, wanted: int) -> Pool:
    """A pool with at least `wanted` threads, which stay until `_leave`."""
    found = pool(threads)
    with _lock:
        if found.retired:
            found = _pools.setdefault(threads, Pool(threads))
        found.users += 1
        try:
            found.grow(wanted)
        except BaseException:
            _leave(found)
            raise
        return found


def _leave(used: Pool) -> None:
    with _lock:
        used.users -= 1
        if used.retired and not used.users:
            used.end()


class Users:
    """The open sessions and the most threads that each has used. When one closes, pools larger than the others need are
    ended."""

    def __init__(self) -> None:
        self._most: dict[int, int] = {}
        self._numbers = itertools.count()

    def add(self) -> int:
        """A new user; its number."""
        number = next(self._numbers)
        with _lock:
            self._most[number] = 0
        return number

    def uses(self, number: int, threads: int) -> None:
        """Note that a user runs something with this many threads."""
        if self._most.get(number, threads) < threads:
            with _lock:
                if number in self._most:
                    self._most[number] = threads

    def remove(self, number: int) -> bool:
        """Remove a user, and return whether it was the last."""
        with _lock:
            self._most.pop(number, None)
            needed = max(self._most.values(), default=0)
            for threads in [threads for threads in _pools if threads > needed or not self._most]:
                retired = _pools.pop(threads)
                retired.retired = True
                if not retired.users:
                    retired.end()
            return not self._most


users = Users()


def _in_child() -> None:
    _pools.clear()
    active.clear()


forks.in_child(_in_child)


def parallel(work: Callable[[int], Any], tasks: int, threads: int, run: Run) -> list[Any]:
    """The results of `work(0) .. work(tasks - 1)`. The first failure stops the others and is raised.

    The calling thread is one of the workers: waking a thread costs as much as processing some ten thousand rows."""
    if threads <= 1 or tasks <= 1:
        return [work(i) for i in range(tasks)]
    results: list[Any] = [None] * tasks
    failures: list[BaseException] = []
    numbers = itertools.count()

    def take() -> None:
        with stopping.during(run):
            while not failures and (number := next(numbers)) < tasks:
                try:
                    results[number] = work(number)
                except BaseException as error:
                    # The user sees the first failure. It stops the other workers.
                    failures.append(error)
                    run.stop_workers()

    others = min(threads, tasks) - 1
    team, pool = Team(take), _enter(threads, others)
    try:
        for _ in range(others):
            pool.tasks.put(team.help)
        take()
    finally:
        team.finish()
        _leave(pool)
    if failures:
        try:
            # A worker that fails inside a kernel stops the others before its error gets here, so theirs may come
            # first.
            raise next((f for f in failures if not isinstance(f, CancelledError)), failures[0])
        finally:
            # An error refers to the frames that refer to this list: together they would live until the next garbage
            # collection.
            failures.clear()
    return results


@atexit.register
def _let_go() -> None:
    """Stop active runs. A worker inside a library call is only waited for briefly."""
    for run in list(active.values()):
        run.cancel()
    deadline = time.monotonic() + EXIT_SECONDS
    while active and time.monotonic() < deadline:
        time.sleep(0.005)
