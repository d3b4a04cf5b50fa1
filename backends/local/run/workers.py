"""The worker threads of the process: compiled code runs in them with the GIL released.

They are daemons, so that a program can end while a cancelled query is still inside a library call. At the end of the
program runs that are still active are cancelled, and get a moment to let go.

Pools are shared by all sessions. A thread starts when a query first has work for it, and ends with the last open
session that may use its pool (`Users`). The child of a fork begins with no pools: its parent's threads are not there.
"""

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
"""How long the end of the program waits at most for queries that still run."""

Task = Callable[[], None]


class Pool:
    """Up to so many threads that take tasks in turn; a task raises nothing."""

    def __init__(self, threads: int) -> None:
        self.most, self.threads, self.users, self.retired = threads, 0, 0, False
        self.tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()

    def grow(self, threads: int) -> None:
        """Have at least so many threads. Those that could be started stay where one could not."""
        while self.threads < min(threads, self.most):
            start_thread(self._serve, f"tsql-{self.most}-{self.threads}")
            self.threads += 1

    def end(self) -> None:
        """Let the threads go, behind the tasks that are there."""
        for _ in range(self.threads):
            self.tasks.put(None)
        self.threads = 0

    def _serve(self) -> None:
        while (task := self.tasks.get()) is not None:
            task()
            # What a thread waits with would keep the data of the last query alive.
            del task


class Team:
    """The threads that help with one piece of work. Who has not begun when it is done need not begin, and is not waited
    for. So work that is part of other work never waits for a thread that is busy with the whole, however few threads
    there are."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work
        self._helping, self._is_over = 0, False
        self._lock = threading.Lock()
        self._last: queue.SimpleQueue[None] = queue.SimpleQueue()

    def help(self) -> None:
        """What a thread of a pool does."""
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
        """Wait for those who still help; nobody begins from now on."""
        with self._lock:
            self._is_over, is_helped = True, self._helping > 0
        if is_helped:
            self._last.get()
        self._work = None  # whoever is still asked to help must not keep the data of the query


def start_thread(serve: Callable[[], None], name: str) -> None:
    """Start a daemon; that the system has no thread left is an error of the query."""
    try:
        threading.Thread(target=serve, name=name, daemon=True).start()
    except RuntimeError as error:
        raise ExecutionError(
            f"the system lets this process start no more threads; it has {threading.active_count()}",
            hint="SET threads to a lower number, or raise the limit (ulimit -u)",
        ) from error


_pools: dict[int, Pool] = {}
_lock = forks.rlock()
"""A session that is found to be garbage closes in whatever thread that happens, perhaps one that has the lock."""
active: dict[object, Run] = {}
"""What the threads of queries (`released`) compute at this moment."""


def pool(threads: int) -> Pool:
    """The pool of so many threads."""
    with _lock:
        return _pools.setdefault(threads, Pool(threads))


def _enter(threads: int, wanted: int) -> Pool:
    """A pool with at least so many threads, which stay until `_leave`."""
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
    """The open sessions and the most threads that each has used: pools that are larger than all of them need go when
    one closes."""

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
        """A user runs something with so many threads."""
        if self._most.get(number, threads) < threads:
            with _lock:
                if number in self._most:
                    self._most[number] = threads

    def remove(self, number: int) -> bool:
        """A user has closed; whether it was the last one."""
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
    """The results of `work(0) .. work(tasks - 1)`; the first failure ends the others and is raised.

    The caller's thread is one of the workers: waking a thread costs as much as some ten thousand rows do.
    """
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
                    # What fails first is what the user hears of; the others are stopped, and end with it.
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
            # A worker that fails inside of a kernel stops the others before its error gets here: theirs may be the
            # first.
            raise next((f for f in failures if not isinstance(f, CancelledError)), failures[0])
        finally:
            # An error knows the frames that know this list: together they would stay until the next garbage collection.
            failures.clear()
    return results


@atexit.register
def _let_go() -> None:
    """End what still runs; a worker inside a library call is not waited for longer than a moment."""
    for run in list(active.values()):
        run.cancel()
    deadline = time.monotonic() + EXIT_SECONDS
    while active and time.monotonic() < deadline:
        time.sleep(0.005)
