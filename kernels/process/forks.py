"""Forks: a child must not inherit locks that other threads held, nor rely on threads that it does not have.

A child has one thread, the one that forked. A lock that another thread held would never be released, and a queue that
another thread served has no server. So locks of objects that outlive a query (modules, sessions, plans, sources) are
made here, and are free in the child. Modules with threads register how to start again (`in_child`). Locks within one
run need nothing: a run does not continue in a child (`generation` tells it so).

LLVM and the memory pool must be consistent: one hook locks them before a fork (`around`), in the order of `ForkStage`.
Between our hook and the fork, Python calls the hooks of libraries that were imported earlier. So nothing stays locked
that such a hook may wait for. In particular the import lock is not held: a thread that has logging's lock may import.
Garbage collection is paused meanwhile, since it could free memory of the pool."""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from enum import IntEnum
from functools import cached_property
from importlib import _bootstrap
from typing import Any

from tsql.kernels.process.quick_dataclass import dataclass

IMPORT_SECONDS = 5.0
"""How long a fork waits for other threads that import modules of these packages."""
IMPORTED = frozenset({"tsql", "sqlglot", "pyarrow", "numpy", "llvmlite"})

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_generation = 0
_begin_again: list[Callable[[], None]] = []
_around: list[Any] = []
_shut: list[Any] = []
"""The members of `_around` whose `before` was called for this fork."""


def lock() -> Any:
    """A `threading.Lock` that is free in the child of a fork. What it guards must be consistent between any two steps
    of Python."""
    made = threading.Lock()
    _locks.add(made)
    return made


def rlock() -> Any:
    """As `lock`, for a thread that may take it several times."""
    made = threading.RLock()
    _locks.add(made)
    return made


def in_child(begin_again: Callable[[], None]) -> None:
    """Call this in the child of each fork, after locks are free."""
    _begin_again.append(begin_again)


class ForkStage(IntEnum):
    """What is locked before a fork, in this order, and unlocked after it in reverse order."""

    GARBAGE = 1
    COMPILER = 2
    POOL = 3
    """The last, since every thread that frees memory waits for it."""


@dataclass(frozen=True)
class Around:
    """What is done around each fork."""

    stage: ForkStage
    before: Callable[[], None]
    after_in_parent: Callable[[], None]
    after_in_child: Callable[[], None]


def around(
    stage: ForkStage,
    before: Callable[[], None],
    after_in_parent: Callable[[], None],
    after_in_child: Callable[[], None],
) -> None:
    """Register actions before and after each fork. In the child, the pool is unlocked before locks are freed, all other
    stages after that."""
    _around.append(Around(stage, before, after_in_parent, after_in_child))
    _around.sort(key=lambda known: known.stage)


def generation() -> int:
    """The number of forks between this process and the one that imported the package. Objects with threads keep it with
    them."""
    return _generation


def _free_locks() -> None:
    global _generation
    _generation += 1
    for held in list(_locks):
        held._at_fork_reinit()
    if hasattr(cached_property(len), "lock"):
        _free_properties()


def _free_properties() -> None:
    """Before Python 3.12 each cached property has a lock, held while it is computed. Planning always holds some."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("tsql.")]
    classes = {found for module in modules for found in list(vars(module).values()) if isinstance(found, type)}
    for found in classes:
        for attribute in list(vars(found).values()):
            lock = getattr(attribute, "lock", None) if isinstance(attribute, cached_property) else None
            if lock is not None:
                lock._at_fork_reinit()


def _await_imports(deadline: float) -> None:
    """Wait for imports. Modules are imported on first use, and one that another thread is importing would stay
    incomplete in the child. So a fork waits until no import is running. A thread may still start one while the hooks of
    other libraries are called: that moment is short, and preventing it would take a lock that those hooks may wait
    for."""
    while _is_importing() and time.monotonic() < deadline:
        time.sleep(0.001)


def _is_importing() -> bool:
    """Whether another thread holds the import lock of a module of ours, or of a library that we use."""
    found = [
        known()
        for name, known in list(getattr(_bootstrap, "_module_locks", {}).items())
        if name.partition(".")[0] in IMPORTED
    ]
    return any(getattr(held, "owner", None) not in (None, threading.get_ident()) for held in found)


def _before() -> None:
    """Wait for imports while nothing is locked, as they may need what is. Locking may take a while: if an import has
    begun meanwhile, start over."""
    _forking.acquire()
    deadline = time.monotonic() + IMPORT_SECONDS
    while True:
        _await_imports(deadline)
        for known in list(_around):
            _shut.append(known)
            known.before()
        if not _is_importing() or time.monotonic() >= deadline:
            return
        _open()


def _open() -> None:
    _call([known.after_in_parent for known in reversed(_taken())])


def _after_in_parent() -> None:
    if _forking._is_owned():  # not if a signal handler has ended `_before` at once
        _call([_open, _forking.release])


def _after_in_child() -> None:
    shut = _taken()[::-1]
    pool = [known.after_in_child for known in shut if known.stage == ForkStage.POOL]
    others = [known.after_in_child for known in shut if known.stage != ForkStage.POOL]
    _call([*pool, _free_locks, *others, *_begin_again])


def _taken() -> list[Around]:
    taken, _shut[:] = _shut[:], []
    return taken


def _call(steps: list[Callable[[], None]]) -> None:
    """Call all steps in order, even if one of them fails."""
    with ExitStack() as left:
        for step in reversed(steps):
            left.callback(step)


_forking = rlock()
"""Held by the thread that forks; other forks wait for it."""
os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
