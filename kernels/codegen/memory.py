"""Memory shared by kernels and host: the pool's state and its functions, as the host calls them. The pool itself is in
kernels/runtime/pool.py.

Memory that a kernel allocated must be freed here, since a block may belong to the pool or to the C library. Idle memory
is returned to the system after `REST_SECONDS` without a call, and when a query's `memory_limit` is less than what is
kept."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from tsql.kernels.codegen.host_symbols import HOST_SYMBOLS
from tsql.kernels.expr.errors import OutOfMemoryError
from tsql.kernels.process import forks, garbage
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.runtime import pool as words

_libc = ctypes.CDLL(None)
_libc.free.argtypes = [ctypes.c_void_p]
_libc.free.restype = None
_libc.malloc.argtypes = [ctypes.c_size_t]
_libc.malloc.restype = ctypes.c_void_p
_libc.calloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
_libc.calloc.restype = ctypes.c_void_p
_libc.realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.realloc.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mmap.restype = ctypes.c_void_p
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

HUGE_PAGE = 1 << 21
MADV_HUGEPAGE = 14
MAP_NORESERVE = 0x4000
MAP_FAILED = 2**64 - 1
LARGEST_REGION, LEAST_REGION = 128 << 30, 1 << 30
"""Address space reserved per size class: as much as the system allows between these."""

WILL_BE_LIMITED = os.environ.get("PYSPARK_EXECUTOR_MEMORY_MB", "-1") != "-1"
"""In a daemon of Spark: each worker limits its address space after the fork (spark.executor.pyspark.memory)."""

KEPT_SHARE = 8
"""Idle and used blocks together keep their pages up to this part of the machine's memory (1/8), or TSQL_KEEP_MEMORY
bytes."""

REST_SECONDS = 60.0
"""After this long without a call all idle memory is returned to the system."""

_state = (ctypes.c_int64 * (16 + words.CLASSES * words.CLASS_WORDS))()
STATE = ctypes.addressof(_state)
HOST_SYMBOLS[words.STATE] = STATE


def _kept_bytes() -> int:
    """How many bytes used and idle blocks together may keep."""
    asked = os.environ.get("TSQL_KEEP_MEMORY")
    if asked is not None and asked.isdigit():
        return int(asked)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // KEPT_SHARE


def _reserved(bytes: int) -> int | None:
    """Reserve address space without memory; None if the system refuses."""
    address = _libc.mmap(
        None, bytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE, -1, 0
    )
    return None if address in (None, MAP_FAILED) else address


def _set_up() -> None:
    """Reserve the pool's address space. Where the system limits it there is no pool, and the C library serves
    everything."""
    _state[words.BOUND] = KEPT_BYTES
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY or WILL_BE_LIMITED:
        return
    region = LARGEST_REGION
    base = None
    while base is None and region >= LEAST_REGION:
        base = _reserved(region * words.CLASSES + HUGE_PAGE)
        region = region if base is not None else region // 2
    stacks = [region // words.class_size(number) for number in range(words.CLASSES)]
    tables = None if base is None else _reserved(8 * sum(stacks))
    if base is None or tables is None:
        return
    base = -(-base // HUGE_PAGE) * HUGE_PAGE
    _libc.madvise(base, region * words.CLASSES, MADV_HUGEPAGE)
    for number, blocks in enumerate(stacks):
        at = 16 + number * words.CLASS_WORDS
        for word, value in {
            words.WARM_AT: tables,
            words.COLD_AT: tables + 4 * blocks,
            words.SIZE: words.class_size(number),
            words.BLOCKS: blocks,
        }.items():
            _state[at + word] = value
        tables += 8 * blocks
    _state[words.BASE], _state[words.REGION], _state[words.RANGE] = base, region, region * words.CLASSES


KEPT_BYTES = _kept_bytes()
_set_up()


@dataclass(frozen=True)
class Functions:
    """The pool as the host calls it."""

    malloc: Any
    calloc: Any
    realloc: Any
    free: Any
    trim: Any
    hold: Any
    let_go: Any


_functions: Functions | None = None
compiled_by: list[Callable[[], Any]] = []
"""Compiles the functions and gives their addresses. llvm.py registers it here, since planning must not load a
compiler."""


def functions() -> Functions:
    """The compiled functions of the pool."""
    return are_at(compiled_by[0]()) if _functions is None else _functions


def are_at(at: Any) -> Functions:
    """Set the compiled functions: kernels may call them from now on."""
    global _functions
    if _functions is None:
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        kinds: tuple[tuple[Any, ...], ...] = (
            (pointer, size),
            (pointer, size, size),
            (pointer, pointer, size),
            (None, pointer),
            (None, size),
            (None, size),
            (None, size),
        )
        _functions = Functions(
            *(ctypes.CFUNCTYPE(*kind)(at[name]) for kind, name in zip(kinds, words.EXPORTS, strict=True))
        )
    return _functions


def _before_fork() -> None:
    """Hold the pool during a fork: it is consistent while no thread is inside."""
    _held[:] = [] if _functions is None else [_functions]
    for held in _held:
        held.hold(0)


def _after_fork() -> None:
    for held in _held:
        held.let_go(0)
    _held.clear()


_held: list[Functions] = []
_pause = ExitStack()
# Garbage may hold blocks of the pool, and freeing one would deadlock this thread.
forks.around(forks.ForkStage.GARBAGE, lambda: _pause.enter_context(garbage.paused()), _pause.close, _pause.close)
forks.around(forks.ForkStage.POOL, _before_fork, _after_fork, _after_fork)


def is_pooled(address: int) -> bool:
    """Whether a block is the pool's."""
    return 0 <= address - _state[words.BASE] < _state[words.RANGE]


def _had(address: int | None, bytes: int) -> int:
    if not address:
        raise OutOfMemoryError(f"the system has no {bytes / 2**20:.0f} MiB of memory left")
    return address


def allocate(bytes: int) -> int:
    """Allocate memory, to be freed by `free`."""
    return _had((_libc.malloc if bytes <= words.SMALLEST else functions().malloc)(bytes), bytes)


def allocate_zeroed(bytes: int) -> int:
    """Zeroed memory that kernels and `free` may free."""
    return _had((_libc.calloc if bytes <= words.SMALLEST else functions().calloc)(bytes, 1), bytes)


def free(address: int) -> None:
    """Free memory that a kernel or `allocate` took."""
    if is_pooled(address):
        functions().free(address)
    elif address:
        _libc.free(address)


def reallocate(address: int, bytes: int) -> int:
    """As realloc, for a block of any origin."""
    return (functions().realloc(address, bytes) if is_pooled(address) else _libc.realloc(address, bytes)) or 0


class PoolMemory:
    """Pool memory as numpy sees it. It is freed with the last array over it."""

    def __init__(self, bytes: int):
        self.address = allocate(max(bytes, 1))
        self.__array_interface__ = {"shape": (bytes,), "typestr": "|u1", "data": (self.address, False), "version": 3}

    def __del__(self) -> None:
        if hasattr(self, "address"):
            free(self.address)


def empty(count: int, kind: Any) -> np.ndarray:
    """An uninitialised array in the pool's memory."""
    kind = np.dtype(kind)
    return np.asarray(PoolMemory(count * kind.itemsize)).view(kind)


@dataclass(frozen=True)
class Usage:
    """Bytes of the pool: in use, idle, and in total reused, freshly handed out, and returned to the system."""

    used: int
    idle: int
    recycled: int
    fresh: int
    given_up: int


def usage() -> Usage:
    """How the pool is doing."""
    return Usage(*(_state[word] for word in (words.USED, words.IDLE, words.RECYCLED, words.FRESH, words.GIVEN_UP)))


def trim(most: int = 0) -> None:
    """Return idle memory to the system until at most this many bytes are idle."""
    if _state[words.IDLE] > most:
        functions().trim(most)


_limits: list[int] = []
_limiting = forks.lock()


def bound(limit: int | None) -> None:
    """A query with a limit of `limit` bytes starts: idle memory counts against the least limit of all running
    queries."""
    if limit is not None:
        with _limiting:
            _limits.append(limit)
            _set_bound()


def unbound(limit: int | None) -> None:
    """The query has ended."""
    if limit is not None:
        with _limiting:
            _limits.remove(limit)
            _set_bound()


def _set_bound() -> None:
    _state[words.BOUND] = min([KEPT_BYTES, *_limits])
    trim(max(0, _state[words.BOUND] - _state[words.USED]))


_resting = forks.lock()
"""Held while a timer runs. The child of a fork has no timer."""


def rest() -> None:
    """A query has ended: return idle memory if the pool stays unused for a while."""
    if _state[words.IDLE] and _resting.acquire(blocking=False):
        timer = threading.Timer(REST_SECONDS, _look, (_state[words.CALLS],))
        timer.daemon = True
        timer.start()


def _look(calls: int) -> None:
    _resting.release()
    if _state[words.CALLS] == calls:
        trim()
    else:
        rest()
