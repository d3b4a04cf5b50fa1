"""Runs a query in a separate thread, so that its caller can return while a library call is still running.

Kernels check the cancel flag every few thousand rows, but a sort, a file read or LLVM cannot be interrupted. After a
cancellation the caller waits briefly and then abandons the thread. The thread ends at its next check and frees what the
query holds. Its result is dropped."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from tsql.backends import Run
from tsql.backends.local.run.workers import active, start_thread
from tsql.kernels.expr.errors import CancelledError, ExecutionError
from tsql.kernels.process import forks, stopping
from tsql.kernels.process.recursion import deep_recursion

GRACE_SECONDS = 0.03
"""How long a cancelled run may take to end before its caller is released."""

LOOK_SECONDS = 0.05
"""The longest single wait. Python runs a signal handler between two bytecode instructions, and misses a signal that
arrives just before the thread sleeps: without a timeout, Ctrl-C would wait for the end of the query."""

IDLE_THREADS = 8
"""At most this many idle threads are kept for the next queries. Others end with their query."""

Answer = tuple[str, Any]


class Answers:
    """The answers of a query's thread to its caller. `abandoned`: the caller no longer waits."""

    def __init__(self, run: Run) -> None:
        self._queue: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.put, self.get = self._queue.put, self._queue.get
        self.abandoned = False
        self.run = run
        run.on_cancel(lambda: self.put(("wake", None)))

    def forget(self) -> None:
        """Drop answers that nobody waits for. An error would keep everything its query held alive, as long as the
        relation lives."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.get(block=False)


class QueryThread:
    """A thread that computes the items of one query after another: each item on request, or all at once."""

    def __init__(self) -> None:
        self.requests: queue.SimpleQueue[tuple[str, Generator[Any, None, None], Answers] | None] = queue.SimpleQueue()
        start_thread(self._serve, "tsql-query")

    def _serve(self) -> None:
        while (request := self.requests.get()) is not None:
            wanted, items, answers = request
            active[self] = answers.run
            with stopping.during(answers.run), deep_recursion():
                match wanted:
                    case "next":
                        answers.put(_next(items))
                    case "all":
                        answers.put(_all(items))
                        if answers.abandoned:
                            answers.forget()
                    case "close":
                        answers.forget()
                        answers.put(_closed(items))
            active.pop(self, None)
            del request, items, answers
            if wanted != "next":
                # This was the last request of its query: the thread is free now.
                if len(_idle) >= IDLE_THREADS:
                    return
                _idle.append(self)


_idle: list[QueryThread] = []
forks.in_child(_idle.clear)


def end_idle_threads() -> None:
    """End the threads that wait for a query."""
    with contextlib.suppress(IndexError):
        while True:
            _idle.pop().requests.put(None)


def _next(items: Generator[Any, None, None]) -> Answer:
    try:
        return "item", next(items)
    except StopIteration:
        return "end", None
    except BaseException as error:
        return "error", error


def _all(items: Generator[Any, None, None]) -> Answer:
    try:
        return "all", list(items)
    except BaseException as error:
        return "error", error


def _closed(items: Generator[Any, None, None]) -> Answer:
    try:
        items.close()
    except BaseException as error:
        return "error", error
    return "closed", None


def _thread() -> QueryThread:
    try:
        return _idle.pop()
    except IndexError:
        return QueryThread()


def released(make: Callable[[], Generator[Any, None, None]], run: Run) -> Iterator[Any]:
    """The items of `make()`, each computed in another thread on request."""
    thread, answers, items, generation = _thread(), Answers(run), make(), forks.generation()
    ended = abandoned = False
    value = None
    try:
        while not ended:
            if forks.generation() != generation:
                raise ExecutionError(
                    "the query began before this process was forked from its parent, which alone can go on with it",
                    hint="run the query again in this process",
                )
            thread.requests.put(("next", items, answers))
            abandoned = True
            kind, value = _answer(answers, run)
            abandoned = False
            ended = kind != "item"
            if kind == "error":
                raise value
            if kind == "item":
                yield value
            value = None
    finally:
        # An error refers to this frame. If the frame also referred to the error, everything its query held would live
        # until the next garbage collection.
        value = None
        if forks.generation() == generation:
            # The thread closes the generator when its current work is done, and is then free again.
            thread.requests.put(("close", items, answers))
            if not ended and not abandoned:
                _wait_for_end(answers)


def released_all(make: Callable[[], Generator[Any, None, None]], run: Run) -> list[Any]:
    """All items of `make()`, computed in another thread. One round trip, which matters when a query takes a
    millisecond."""
    answers = Answers(run)
    _thread().requests.put(("all", make(), answers))
    try:
        kind, value = _answer(answers, run)
    except CancelledError:
        # The thread checks the flag after it has answered, so one of the two finds the answer.
        answers.abandoned = True
        answers.forget()
        raise
    if kind == "error":
        try:
            raise value
        finally:
            # As in `released`: the error refers to this frame.
            value = None
    return value


def _answer(answers: Answers, run: Run) -> Answer:
    """The next answer. Once the run is cancelled, it must come soon."""
    deadline: float | None = None
    while True:
        if run.cancelled and deadline is None:
            deadline = time.monotonic() + GRACE_SECONDS
        try:
            answer = answers.get(timeout=LOOK_SECONDS if deadline is None else max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            if deadline is None:
                continue
            raise CancelledError(run.reason) from None
        if answer[0] != "wake":
            return answer


def _wait_for_end(answers: Answers) -> None:
    """Wait a moment for an abandoned query. Most end at once, so their memory is free when the caller continues."""
    deadline = time.monotonic() + GRACE_SECONDS
    try:
        while answers.get(timeout=max(0.0, deadline - time.monotonic()))[0] == "wake":
            pass
    except queue.Empty:
        return
