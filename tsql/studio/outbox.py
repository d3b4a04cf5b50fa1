"""What a connection sends, in order, by a thread of its own. A page that reads slowly gets the newest snapshot only.

`Connection` posts; messages of one key replace each other while they wait. Memory: the answers to requests that are
open, and one entry per key. When the socket is closed, what waits is dropped."""

from __future__ import annotations

import threading
from collections.abc import Callable

Message = str | bytes

TICK_SECONDS = 0.1
"""How often `tick` is called while there is nothing to send."""


class Outbox:
    """`send` sends one message and may wait for the reader; an OSError or the like ends the outbox. `tick` may post
    what changes by itself, such as the progress of a run."""

    def __init__(self, send: Callable[[Message], None], tick: Callable[[], bool], broken: tuple[type[Exception], ...]):
        self._send, self._tick, self._broken = send, tick, broken
        self._waiting: dict[object, tuple[Message, ...]] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._ticks = False
        self.thread = threading.Thread(target=self._work, name="tsql-studio-out", daemon=True)
        self.thread.start()

    def post(self, *messages: Message, key: object = None) -> None:
        """Send messages one after the other; those of the same key that still wait are replaced."""
        with self._changed:
            if not self._closed:
                # In place: a replaced snapshot stays before the `done` of its run.
                self._waiting[object() if key is None else key] = messages
                self._changed.notify()

    def wake(self) -> None:
        """There is something to call `tick` for."""
        with self._changed:
            self._ticks = True
            self._changed.notify()

    def close(self) -> None:
        """Send nothing more."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify()

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    if not self._waiting and not self._closed:
                        self._changed.wait(TICK_SECONDS if self._ticks else None)
                    if self._closed:
                        return
                    first = next(iter(self._waiting), None)
                    messages = () if first is None else self._waiting.pop(first)
                if first is None:
                    self._ticks = self._tick()
                for message in messages:
                    self._send(message)
        except self._broken:
            self.close()
