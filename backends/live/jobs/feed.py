"""`Feed`: a thread per stream that reads ahead, so that reading and computing overlap. What it has read waits in a
queue of bounded size; a reader that is faster than the query waits."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping

from tsql.backends.live.sources.reader import Arrival, Offset, StreamReader

POLL_SECONDS = 0.1
"""A reader looks this often whether it should stop."""

QUEUED_ROWS = 1 << 20
"""A stream reads ahead at most about this many rows."""

POLL_ROWS = 65_536


class Wakeup:
    """Wakes the job when rows have come or something has happened; all feeds of a job share it."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._is_set = False

    def set(self) -> None:
        with self._condition:
            self._is_set = True
            self._condition.notify_all()

    def wait(self, seconds: float) -> None:
        """Return when `set` has been called since the last wait, or after this time."""
        with self._condition:
            if not self._is_set:
                self._condition.wait(seconds)
            self._is_set = False


class Feed:
    """Reads one stream ahead. `take` and the properties are for the thread of the job.

    Its clock stands still while the reader is not asked because the queue is full: nobody knows then whether a
    partition is idle. Rows have the time at which they were read, so however long they wait they are not overtaken."""

    def __init__(self, name: str, reader: StreamReader, wakeup: Wakeup):
        self.name, self.reader = name, reader
        self._wakeup = wakeup
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._waiting: deque[tuple[Arrival, int]] = deque()
        self._rows = 0
        self._error: BaseException | None = None
        self._ended = self._stopped = False
        self._quiet_at: int | None = None
        self._full_us = 0
        """How long the queue was full, in all."""
        self._thread = threading.Thread(target=self._read, name=f"tsql-stream-{name}", daemon=True)

    def start(self, offsets: Mapping[str, Offset]) -> None:
        """Open the reader in this thread, so that its errors come here, and begin to read."""
        self.reader.open(offsets)
        self._thread.start()

    def clock_us(self) -> int:
        """The time of the stream."""
        return time.monotonic_ns() // 1000 - self._full_us

    def take(self, rows: int) -> list[tuple[Arrival, int]]:
        """What has come and when, at most about this many rows. Raises what ended the reader, after everything before
        it."""
        found: list[tuple[Arrival, int]] = []
        taken = 0
        with self._room:
            while self._waiting and taken < rows:
                found.append(self._waiting.popleft())
                taken += found[-1][0].rows.num_rows
            self._rows -= taken
            if found:
                self._room.notify_all()
            elif self._error is not None:
                raise self._error
        return found

    @property
    def has_ended(self) -> bool:
        """Whether everything has been taken and nothing more will come."""
        with self._lock:
            return self._ended and not self._waiting and self._error is None

    @property
    def queued(self) -> int:
        """Rows that were read and have not been taken."""
        return self._rows

    def quiet_since(self) -> int | None:
        """The time (`clock_us`) at which the stream was last found to have nothing, if nothing has come since and
        nothing waits; None otherwise. Rows in flight are never overtaken by a timeout that is measured by it."""
        with self._lock:
            return None if self._waiting or self._error is not None else self._quiet_at

    def stop(self) -> None:
        """Read no further. What has been read can still be taken."""
        with self._room:
            self._stopped = True
            self._room.notify_all()

    def close(self) -> None:
        """Stop, free the reader and wait for the thread."""
        self.stop()
        self.reader.close()
        if self._thread.ident is not None:
            self._thread.join(5.0)

    def _read(self) -> None:
        try:
            while self._has_room():
                found = self.reader.poll(POLL_ROWS, POLL_SECONDS)
                now = self.clock_us()
                if found is None:
                    break
                with self._lock:
                    if self._stopped:
                        return
                    self._waiting.extend((arrival, now) for arrival in found)
                    self._rows += sum(arrival.rows.num_rows for arrival in found)
                    self._quiet_at = None if found else now
                if found:
                    self._wakeup.set()
            with self._lock:
                self._ended = not self._stopped
        except BaseException as error:  # raised again in the thread of the job, by `take`
            with self._lock:
                if not self._stopped:
                    self._error = error
        self._wakeup.set()

    def _has_room(self) -> bool:
        """Wait until there is room; whether to go on."""
        with self._room:
            begun = self.clock_us()
            while self._rows >= QUEUED_ROWS and not self._stopped:
                self._room.wait(POLL_SECONDS)
                self._full_us += self.clock_us() - begun
            return not self._stopped
