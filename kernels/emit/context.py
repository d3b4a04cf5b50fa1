"""The kernel of a pipeline and its context record: status, cancellation, scratch memory, parameters.

`PipelineKernel` is the `k` that operators and functions see. It collects what the host must supply at run time: failure
sites (messages and SQL positions), parameter slots and static tables. Each worker has one context record in host
memory. Its layout is given by the offsets below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tsql.kernels.codegen.kir import Module, Op
from tsql.kernels.codegen.lang import Kernel, Val, Var, routine
from tsql.kernels.expr.types import Type
from tsql.kernels.process.quick_dataclass import dataclass

CANCEL = 0  # ptr to an i64 that becomes non-zero when the run is cancelled
STATUS = 8  # i64: 0, or the number of the failure site
DETAIL = 16  # ptr, i64: the text that failed (of a cast, say); valid until the worker's next call
COUNTER = 32  # ptr to the i64 from which morsels are taken
SCRATCH = 40  # ptr base, i64 used, i64 capacity, ptr chain of outgrown chunks
MEMORY = 72  # ptr to the i64 of bytes in use by the query
SINK = 80  # ptr to the sink's state
ROWS_DONE = 88  # ptr to the i64 of input rows done, for progress
LIMIT = 96  # ptr to the i64 of rows collected so far, for early stops
MEMORY_LIMIT = (
    104  # ptr to the i64 that the bytes in use may not pass; the host moves it as it takes and frees memory itself
)
TAKEN = 112  # i64: bytes that this worker has taken since the host last looked
FULL_AT = 120  # i64: with more than these the worker stops (STATUS_FULL), and the host does its work in smaller parts
ROOM_AT = 128  # i64: with more than these a sink asks the host to make room before it opens another chunk
SLOTS = 144  # parameter slots of 16 bytes each
SLOT_BYTES = 16

STATUS_OUT_OF_MEMORY = 1
STATUS_CANCELLED = 2
STATUS_FULL = 3
FIRST_SITE = 16

CHECK_ROWS = 4096
"""Every this many rows a kernel checks for cancellation, failure and the memory limit."""


@dataclass(frozen=True)
class Slot:
    """A parameter slot and where its content comes from.

    kind: "literal" or "parameter": `payload` is the expression; "static": the bytes of a constant table (the slot holds
    its address); other kinds belong to operators, which fill them through `payload(runtime) -> parts`.
    """

    kind: str
    type: Type | None
    payload: Any


@dataclass(frozen=True)
class Site:
    """A place where a kernel may fail: the message (`{detail}` stands for the text that failed) and the SQL
    position."""

    message: str
    position: int | None


@dataclass
class EmitScope:
    """The state while an expression is emitted: the validity under which failures count, and the SQL position."""

    guard: Val | None = None
    position: int | None = None


def take_bytes(k: Kernel, ctx: Val, bytes: Val) -> None:
    """Account for memory of the query and of the worker."""
    k.atomic_add(k.load("ptr", k.offset(ctx, MEMORY)), bytes)
    at = k.offset(ctx, TAKEN)
    k.store(at, k.load("i64", at) + bytes)


@routine("status_of_memory", ("ptr", "i64"), "i64")
def status_of_memory(k: Kernel, ctx: Val, status: Val) -> None:
    """The given status; if it is 0, whether the query or the worker exceeds its memory limit."""
    used, limit = (k.load("i64", k.load("ptr", k.offset(ctx, word))) for word in (MEMORY, MEMORY_LIMIT))
    taken, full = (k.load("i64", k.offset(ctx, word)) for word in (TAKEN, FULL_AT))
    found = k.select(used > limit, k.i64(STATUS_OUT_OF_MEMORY), k.select(taken > full, k.i64(STATUS_FULL), k.i64(0)))
    k.ret(k.select(status == 0, found, status))


@routine("status_of_run", ("ptr", "i64"), "i64")
def status_of_run(k: Kernel, ctx: Val, status: Val) -> None:
    """As `status_of_memory`, and also checks for cancellation. Every kernel checks several times: a call emits and
    compiles fewer operations."""
    cancelled = k.load("i64", k.load("ptr", k.offset(ctx, CANCEL))) != 0
    k.ret(k.select(cancelled, k.i64(STATUS_CANCELLED), status_of_memory(k, ctx, status)))


class PipelineKernel(Kernel):
    """The builder of a pipeline's main function `(ctx, morsels, count)`."""

    def __init__(self, module: Module, name: str = "main"):
        super().__init__(module, name, ("ptr", "ptr", "i64"), None)
        module.main = name
        self.ctx, self.morsels, self.count = self.params
        self.slots: list[Slot] = []
        self.sites: list[Site] = []
        self.frame = EmitScope()
        self.uses_scratch = False
        self.enough: Callable[[], Val] | None = None
        """Whether the sink wants no more rows of this morsel; None if it never stops early."""
        self._entry: list[Op] = []
        self._slot_values: dict[Any, tuple[Val, ...]] = {}
        self.status: Var = self.at_entry(lambda: self.var(self.i64(0)))

    def at_entry(self, emit: Callable[[], Any]) -> Any:
        """Emit at the head of the function. The result is visible everywhere."""
        self._blocks.append(self._entry)
        scopes, self._scopes = self._scopes, self._scopes[:1]
        try:
            return emit()
        finally:
            self._blocks.pop()
            self._scopes = scopes

    def finish(self) -> Any:
        self.function.body[:0] = self._entry
        self._entry = []
        return super().finish()

    def forget(self) -> None:
        super().forget()
        self._slot_values.clear()
        self.enough = None
        del self.ctx, self.morsels, self.count, self.status

    def slot(self, slot: Slot, types: tuple[str, ...]) -> tuple[Val, ...]:
        """The value of a parameter slot, loaded once at the head of the function."""
        # Equal literals keep separate slots: the text of a kernel must not depend on which values happen to be equal.
        key = (slot.kind, slot.type, id(slot.payload) if slot.kind == "literal" else slot.payload)
        if key in self._slot_values:
            return self._slot_values[key]
        index = len(self.slots)
        self.slots.append(slot)
        base = SLOTS + index * SLOT_BYTES

        def load() -> tuple[Val, ...]:
            values, at = [], base
            for t in types:
                values.append(self.load(t, self.offset(self.ctx, at)))
                at += {"i32": 4, "i128": 16}.get(t, 8)
            return tuple(values)

        values = self.at_entry(load)
        self._slot_values[key] = values
        return values

    def slot_word(self, slot: Slot, word: int, machine: str = "i64") -> Val:
        """A word of the record that a slot points to, loaded once at the head of the function."""
        (record,) = self.slot(slot, ("ptr",))
        key = ("word", slot.kind, slot.payload, word)
        if key not in self._slot_values:
            self._slot_values[key] = (self.at_entry(lambda: self.load(machine, record, word)),)
        return self._slot_values[key][0]

    def static(self, data: bytes) -> Val:
        """The address of constant bytes that the host keeps for the kernel (a table, a format string)."""
        return self.slot(Slot("static", None, data), ("ptr",))[0]

    def buffer(self, bytes: int) -> Val:
        """Memory owned by the worker. Nothing in it lasts from one call to the next."""
        return self.slot(Slot("buffer", None, (bytes, len(self.slots))), ("ptr",))[0]

    def fail(self, cond: Val, message: str, detail: tuple[Val, Val] | None = None) -> None:
        """Record a failure of the current row where `cond` holds and the value is not NULL. The kernel continues with
        arbitrary values and stops at the end of the morsel. The first failure of a worker is reported.

        `detail` is a (pointer, length) to show in the message as {detail}. It costs a branch: leave it out of hot
        code."""
        site = FIRST_SITE + len(self.sites)
        self.sites.append(Site(message, self.frame.position))
        if self.frame.guard is not None:
            cond = cond & self.frame.guard
        if detail is None:
            status = self.status.value
            self.status.set(self.select(cond & (status == 0), self.i64(site), status))
            return
        with self.when(cond & (self.status.value == 0)):
            self.status.set(self.i64(site))
            copy = self.call("malloc", detail[1] + 1)
            self.call("memcpy", copy, detail[0], detail[1])
            self.store(self.offset(self.ctx, DETAIL), copy)
            self.store(self.offset(self.ctx, DETAIL + 8), detail[1])

    def check(self) -> None:
        """Set the status if the run is cancelled or past its memory limit."""
        self.status.set(status_of_run(self, self.ctx, self.status.value))

    def check_memory(self) -> None:
        """Set the status if the query exceeds its memory limit."""
        self.status.set(status_of_memory(self, self.ctx, self.status.value))

    def is_done(self) -> Val:
        """Whether the rest of this morsel can be skipped: the kernel has failed, or the sink has enough rows."""
        failed = self.status.value != 0
        return failed if self.enough is None else failed | self.enough()

    @contextmanager
    def rows(self, count: Val) -> Iterator[Val]:
        """The row numbers of a morsel. Two nested loops: the inner one has no checks, so it can be vectorised. Rows
        that build strings may take long, so there is a check after each of them; its cost is small in comparison."""
        start = self.var(self.i64(0))
        with self.forever() as loop:
            begin = start.value
            loop.stop_if(begin >= count)
            end = self.min(begin + CHECK_ROWS, count)
            index = self.var(begin)
            with self.forever() as inner:
                i = index.value
                inner.stop_if(i >= end)
                yield i
                index.set(i + 1)
                if self.uses_scratch:
                    self.check()
                    inner.stop_if(self.is_done())
            start.set(end)
            self.check()
            loop.stop_if(self.is_done())

    @contextmanager
    def guarded(self, valid: Val | None, position: int | None) -> Iterator[None]:
        """Emit code whose failures count only where `valid` holds."""
        outer = self.frame
        self.frame = EmitScope(valid, outer.position if position is None else position)
        try:
            yield
        finally:
            self.frame = outer

    def scratch(self, bytes: Val | int) -> Val:
        """Memory for a result of this row, such as a string. It is freed when the row is done, because sinks copy."""
        self.uses_scratch = True
        return scratch_alloc(self, self.ctx, bytes if isinstance(bytes, Val) else self.i64(bytes))

    def reset_scratch(self) -> None:
        """At the end of a row: all scratch memory is free again."""
        if self.uses_scratch:
            self.store(self.offset(self.ctx, SCRATCH + 8), self.i64(0))
            with self.when(self.load("ptr", self.offset(self.ctx, SCRATCH + 24)) != self.null):
                scratch_release(self, self.ctx)


@routine("scratch_alloc", ("ptr", "i64"), "ptr")
def scratch_alloc(k: Kernel, ctx: Val, bytes: Val) -> None:
    """Bump allocation. `k.scratch` calls it; routines that need memory take `ctx` as a parameter and call it
    themselves."""
    area = k.offset(ctx, SCRATCH)
    size = (bytes + 7) & -8
    used = k.load("i64", area, 1)
    with k.when(used + size <= k.load("i64", area, 2)):
        k.store(area, used + size, 1)
        k.ret(k.load("ptr", area) + used)
    with k.otherwise():
        k.ret(scratch_grow(k, ctx, size))


LARGE_SCRATCH = 1 << 26


@routine("scratch_grow", ("ptr", "i64"), "ptr")
def scratch_grow(k: Kernel, ctx: Val, size: Val) -> None:
    """Allocate a new, larger chunk. The old one may hold values of this row, so it is chained (by its first word) until
    the row ends."""
    area = k.offset(ctx, SCRATCH)
    old = k.load("ptr", area)
    had = k.load("i64", area, 2)
    capacity = k.select(size > LARGE_SCRATCH, size, k.max(had * 2, size * 2 + 4096))
    take_bytes(k, ctx, capacity - had)
    fresh = k.call("malloc", capacity + 16)
    link = k.call("malloc", 16)
    k.store(link, k.load("ptr", area, 3))
    k.store(link, old, 1)
    with k.when(old != k.null):
        k.store(area, link, 3)
    with k.otherwise():
        k.call("free", link)
    k.store(area, fresh)
    k.store(area, size, 1)
    k.store(area, capacity, 2)
    k.ret(fresh)


@routine("scratch_release", ("ptr",), None)
def scratch_release(k: Kernel, ctx: Val) -> None:
    """Free the outgrown chunks of the row that has ended."""
    area = k.offset(ctx, SCRATCH)
    link = k.var(k.load("ptr", area, 3))
    with k.forever() as loop:
        current = link.value
        loop.stop_if(current == k.null)
        k.call("free", k.load("ptr", current, 1))
        link.set(k.load("ptr", current))
        k.call("free", current)
    k.store(area, k.null, 3)


@dataclass
class Program:
    """An emitted pipeline: its KIR and what the host must supply to run it. `reads`: the scan's columns that the kernel
    reads."""

    module: Module
    slots: list[Slot]
    sites: list[Site]
    reads: tuple[str, ...] = ()
