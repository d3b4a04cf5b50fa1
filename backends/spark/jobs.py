"""Runs Spark actions so that they can be cancelled, and turns Spark's failures into tsql errors."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from typing import Any

from tsql.backends import Run
from tsql.backends.spark.failures import SPARK_ERRORS, telling, translated
from tsql.backends.spark.tally import Tallies
from tsql.backends.spark.transport.transport import Rows, Transport
from tsql.backends.spark.wire import Row, about, decode_error

WAIT_SECONDS = 0.02
ASK_SECONDS = 0.3
"""How often the cluster is asked how far it has come."""
STREAMED = 8
"""Rows of a stream that wait for the caller, at most."""


class Jobs:
    """The actions of one run. They run in separate threads, so that the caller sees a cancellation at once."""

    def __init__(self, transport: Transport, run: Run):
        self.transport, self.run = transport, run
        self.group = f"tsql-{uuid.uuid4().hex}"
        self.tallies = Tallies()
        self.is_cancelled = False
        self.counts_rows = True
        """Whether the share of tasks that are done is that of the rows."""
        with telling():
            self._caller = transport.of_caller()

    def collect(self, rows: Rows, partitions: list[int] | None = None) -> list[Row]:
        """All rows, or those of some partitions."""
        wanted = list(range(self.transport.partitions(rows))) if partitions is None else partitions
        self.run.check()
        return self.sorted_out(self._wait(self._action(partial(self._rows, rows, wanted))))

    def collect_all(self, several: list[Rows]) -> dict[str, list[Row]]:
        """The rows of several stages, computed side by side in one job, by the name of their step."""
        found: dict[str, list[Row]] = {}
        if several:
            for row in self.collect(several[0] if len(several) == 1 else self.transport.together(several)):
                assert row[1] is not None
                found.setdefault(row[1], []).append(row)
        return found

    def raw(self, rows: Rows) -> list[Row]:
        """All rows, with those that are about the run."""
        return list(self._wait(self._action(partial(self._rows, rows, list(range(self.transport.partitions(rows)))))))

    def written(self, several: list[Rows], shards: int) -> int | None:
        """The bytes that stages send to so many shards: runs them."""
        try:
            return self.act(partial(self.transport.written, several, shards, self.group))
        except BaseException:
            # Each of them is a job: the others go on if one fails.
            self.cancel()
            raise

    def act(self, work: Callable[[], Any]) -> Any:
        """What an action gives that sets the job group by itself."""
        self.run.check()
        return self._wait(self._action(work))

    def _rows(self, rows: Rows, partitions: list[int]) -> list[Row]:
        return list(self.transport.collect(rows, partitions, self.group))

    def waves(self, rows: Rows, waves: Iterator[list[int]], ahead: bool = True) -> Iterator[list[Row]]:
        """The rows of a wave of partitions after the other. `ahead`: the next wave runs while the rows of one are
        used."""
        pending = self._begin(rows, waves)
        try:
            while pending is not None:
                action, pending = pending, None
                found = self.sorted_out(self._wait(action))
                pending = self._begin(rows, waves) if ahead else None
                yield found
                pending = pending if ahead else self._begin(rows, waves)
        finally:
            if pending is not None:
                self.cancel()

    def stream(self, rows: Rows) -> Iterator[list[Row]]:
        """The rows of all partitions one by one, as they are computed. Those that nobody has asked for yet wait on the
        cluster."""
        self.run.check()
        partitions = list(range(self.transport.partitions(rows)))
        waiting: queue.Queue[Row | None] = queue.Queue(STREAMED)
        over = threading.Event()

        def put(row: Row | None) -> bool:
            while not over.is_set():
                try:
                    waiting.put(row, timeout=WAIT_SECONDS)
                    return True
                except queue.Full:
                    continue
            return False

        def work() -> None:
            generator: Any = self.transport.collect(rows, partitions, self.group)
            with closing(generator) as found:
                if all(map(put, found)):
                    put(None)

        action = self._action(work)
        try:
            while True:
                try:
                    row = waiting.get(timeout=WAIT_SECONDS)
                except queue.Empty:
                    self.run.check()
                    if action.failed:
                        self._wait(action)
                    continue
                if row is None:
                    return
                yield self.sorted_out([row])
        except BaseException:
            self.cancel()
            raise
        finally:
            over.set()

    def prepare(self) -> None:
        """Make the cluster ready for tasks."""
        self.run.check()
        self._wait(self._action(self.transport.prepare))

    def _begin(self, rows: Rows, waves: Iterator[list[int]]) -> _Action | None:
        which = next(waves, None)
        if which is None:
            return None
        self.run.check()
        return self._action(partial(self._rows, rows, which))

    def _action(self, work: Callable[[], Any]) -> _Action:
        """Work in a thread whose jobs are those of the caller's thread, for Spark."""

        def run() -> Any:
            self.transport.as_caller(self._caller)
            return work()

        return _Action(run)

    def _wait(self, action: _Action) -> Any:
        asked = time.perf_counter()
        try:
            while True:
                try:
                    ok, found = action.outcome.get(timeout=WAIT_SECONDS)
                    break
                except queue.Empty:
                    self.run.check()
                if time.perf_counter() - asked > ASK_SECONDS:
                    self._look()
                    asked = time.perf_counter()
        except BaseException:
            self.cancel()
            raise
        if not ok:
            self.run.check()
            raise translated(found, self._name_of)
        return found

    def _look(self) -> None:
        """Ask the cluster how far it has come."""
        found = None
        with suppress(*SPARK_ERRORS):
            # A cluster that is not there any more is told by the action itself.
            found = self.transport.activity(self.group)
        if found is not None:
            self.run.activity = str(found)
            if self.run.total_rows and self.counts_rows:
                share = found.done_tasks / max(1, found.tasks)
                self.run.done_rows = max(self.run.done_rows, int(share * self.run.total_rows))

    def _name_of(self, stage: int) -> str | None:
        with suppress(*SPARK_ERRORS):
            return self.transport.name_of(stage)
        return None

    def sorted_out(self, found: list[Row]) -> list[Row]:
        """The rows that belong to steps. Raises the first error among the others."""
        kept = []
        for row in found:
            if row[1] is not None:
                kept.append(row)
                continue
            told = about(row[3])
            if "tally" in told:
                self.tallies.add(told["tally"])
            else:
                error = decode_error(row[3])
                if error is not None:
                    raise error
        return kept

    def cancel(self) -> None:
        """Cancel the jobs of this run. Spark stops the tasks."""
        self.is_cancelled = True

        def cancel() -> None:
            with suppress(*SPARK_ERRORS):
                self.transport.cancel(self.group)

        threading.Thread(target=cancel, name="tsql-spark-cancel", daemon=True).start()

    def at_rest(self, release: Callable[[], None]) -> None:
        """Release what the run has on the cluster. After a cancellation, in a thread, once its tasks have ended: what
        they still write would be there for ever."""
        if not self.is_cancelled:
            release()
            return

        def wait() -> None:
            with suppress(*SPARK_ERRORS):
                self.transport.cancel(self.group)
                self.transport.rest(self.group)
            release()

        threading.Thread(target=wait, name="tsql-spark-release", daemon=True).start()


class _Action:
    """Work in a thread of its own."""

    def __init__(self, work: Callable[[], Any]):
        self.outcome: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
        self.failed = False

        def run() -> None:
            try:
                self.outcome.put((True, work()))
            except BaseException as error:  # noqa: B036 - handed to the caller's thread, which raises it
                self.failed = True
                self.outcome.put((False, error))

        threading.Thread(target=run, name="tsql-spark", daemon=True).start()
