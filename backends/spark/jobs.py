"""Runs Spark actions so that they can be cancelled, and turns Spark's failures into tsql errors."""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from tsql.backends import Run
from tsql.backends.spark.failures import SPARK_ERRORS, translated
from tsql.backends.spark.tally import Tallies
from tsql.backends.spark.transport.transport import Rows, Transport
from tsql.backends.spark.wire import Row, about, decode_error

WAIT_SECONDS = 0.02


class Jobs:
    """The actions of one run. They run in separate threads, so that the caller sees a cancellation at once."""

    def __init__(self, transport: Transport, run: Run):
        self.transport, self.run = transport, run
        self.group = f"tsql-{uuid.uuid4().hex}"
        self.tallies = Tallies()
        self.is_cancelled = False

    def collect(self, rows: Rows, partitions: list[int] | None = None) -> list[Row]:
        """All rows, or those of some partitions."""
        return self.collect_all([rows], None if partitions is None else [partitions])[0]

    def collect_all(self, several: list[Rows], partitions: list[list[int]] | None = None) -> list[list[Row]]:
        """The rows of each, computed side by side."""
        wanted = partitions or [list(range(self.transport.partitions(rows))) for rows in several]
        works = [partial(self._rows, rows, which) for rows, which in zip(several, wanted, strict=True)]
        return [self.sorted_out(found) for found in self._together(works)]

    def _rows(self, rows: Rows, partitions: list[int]) -> list[Row]:
        return list(self.transport.collect(rows, partitions, self.group))

    def waves(self, rows: Rows, waves: Iterator[list[int]]) -> Iterator[list[Row]]:
        """The rows of a wave of partitions after the other. The next wave runs while the rows of one are used."""
        pending = self._begin(rows, waves)
        try:
            while pending is not None:
                found = self.sorted_out(self._wait(pending))
                pending = self._begin(rows, waves)
                yield found
        finally:
            if pending is not None:
                self.cancel()

    def _begin(self, rows: Rows, waves: Iterator[list[int]]) -> _Action | None:
        which = next(waves, None)
        if which is None:
            return None
        self.run.check()
        return _Action(partial(self._rows, rows, which))

    def _together(self, works: Sequence[Callable[[], Any]]) -> list[Any]:
        self.run.check()
        actions = [_Action(work) for work in works]
        try:
            return [self._wait(action) for action in actions]
        except BaseException:
            self.cancel()
            raise

    def _wait(self, action: _Action) -> Any:
        try:
            while True:
                try:
                    ok, found = action.outcome.get(timeout=WAIT_SECONDS)
                    break
                except queue.Empty:
                    self.run.check()
        except BaseException:
            self.cancel()
            raise
        if not ok:
            self.run.check()
            raise translated(found, self._name_of)
        return found

    def _name_of(self, stage: int) -> str | None:
        try:
            return self.transport.name_of(stage)
        except SPARK_ERRORS:
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

        def run() -> None:
            try:
                self.outcome.put((True, work()))
            except BaseException as error:  # noqa: B036 - handed to the caller's thread, which raises it
                self.outcome.put((False, error))

        threading.Thread(target=run, name="tsql-spark", daemon=True).start()
