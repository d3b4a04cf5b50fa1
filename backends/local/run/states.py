"""The states of a run: kernel contexts with their sinks' states, join tables, and counters.

Everything that the kernels of a run allocate is registered here until it is freed, so a failed run leaves nothing
behind."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tsql.backends import Run
from tsql.backends.local.run.dataset import free_state
from tsql.backends.local.run.host import Code, Context, Shared
from tsql.kernels.emit.context import Slot
from tsql.kernels.emit.pipeline import Pipeline, Sink
from tsql.kernels.expr.errors import OutOfMemoryError
from tsql.kernels.process.quick_dataclass import dataclass


@dataclass
class Attempt:
    """Whether an attempt failed."""

    failed: bool = False


class States:
    """Opens and frees contexts. Has the tables that kernels read, and the kernels' counters."""

    def __init__(self, run: Run, shared: Shared):
        self.run, self.shared = run, shared
        self.open: dict[int, tuple[Sink, Context]] = {}
        self.kept: set[int] = set()
        """Contexts of tables that are used in all rounds of a recursion."""
        self.tables: dict[str, Any] = {}
        """Join tables, by the name of their step."""
        self.counters: dict[str | tuple[str], list[ctypes.c_int64]] = {}
        """Counts of kernels: rows by step name (for `explain ANALYZE`), and under (text,) rows that the user should be
        told about."""

    def context(self, pipeline: Pipeline, code: Code, state: Any = None, shard: int = 0) -> Context:
        """A context whose state (a new one, unless given) is freed at the latest when the run ends."""

        words: list[tuple[Any, ctypes.c_int64]] = []

        def fill(slot: Slot, keep: list[Any]) -> bytes:
            if slot.kind == "count":
                word = ctypes.c_int64(0)
                words.append((slot.payload, word))
                self.counters.setdefault(slot.payload, []).append(word)
                return struct.pack("<Qq", ctypes.addressof(word), 0)
            return struct.pack("<Qq", self.tables[slot.payload].record(shard), 0)

        context = Context(code.program, self.shared, pipeline.sink.state_bytes, state, fill)
        context.words = words
        self.open[id(context)] = (pipeline.sink, context)
        return context

    def close(self, context: Context) -> None:
        """Free a context whose state is empty."""
        self.open.pop(id(context), None)
        context.close()

    @contextmanager
    def attempt(self, last: bool = False) -> Iterator[Attempt]:
        """Run work that may run out of memory. On failure its memory is freed and the workers may continue. Callers
        check `failed` after the block, when the error no longer keeps anything alive. `last`: there is no alternative,
        so the error is raised."""
        attempt, before = Attempt(), set(self.open)
        counted = {name: len(words) for name, words in self.counters.items()}
        try:
            yield attempt
        except OutOfMemoryError:
            attempt.failed = True
            for name, words in self.counters.items():
                for word in words[counted.get(name, 0) :]:
                    word.value = 0  # the rows are read again
            # Tables for all rounds of a recursion are kept: the next attempt reads them too.
            self.free_since(before)
            self.shared.go_on()
            if last:
                raise

    def tell(self) -> None:
        """Pass the kernels' counts to the run, once they are done. They count from zero again."""
        for name, words in self.counters.items():
            rows = sum(word.value for word in words)
            for word in words:
                word.value = 0
            if isinstance(name, tuple):
                self.run.count(name[0], rows)
            else:
                self.run.rows_of[name] = rows

    def tell_and_go_on(self) -> None:
        """Pass the counts to the run, and forget the counters of contexts that are gone: others follow."""
        self.tell()
        self.counters = {}
        for _, context in self.open.values():
            for payload, word in context.words:
                self.counters.setdefault(payload, []).append(word)

    def free(self, sink: Sink, context: Context) -> None:
        """Free a context with all that its state holds."""
        self.open.pop(id(context), None)
        free_state(sink, context, self.shared)

    def free_since(self, before: set[int]) -> None:
        """Free what was opened since `before`, except for what is kept."""
        for key in [key for key in self.open if key not in before and key not in self.kept]:
            free_state(*self.open.pop(key), self.shared)

    def forget_table(self, name: str) -> None:
        """Free the table of a join, if there is one."""
        table = self.tables.pop(name, None)
        if table is not None:
            table.release()

    def free_all(self) -> None:
        """Free what a run that failed, or was abandoned, still holds. No worker runs any more."""
        while self.open:
            free_state(*self.open.popitem()[1], self.shared)
        while self.tables:
            self.tables.popitem()[1].release()
