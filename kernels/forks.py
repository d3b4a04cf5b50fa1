"""What the child of a fork must not take over from its parent: locks that other threads held, and the threads themselves.

A child has one thread, the one that forked. A lock that another thread held would never be free again, and a queue that another
thread served has nobody behind it. So locks of what outlives a query (modules, sessions, plans, sources) are made here, and are free
in the child; modules with threads say how they begin again (`in_child`). Locks within one run need nothing: a run does not go on in
a child (`generation` tells it so).
"""

from __future__ import annotations

import _imp
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import cached_property
from importlib import _bootstrap
from typing import Any

IMPORT_SECONDS = 5.0
"""So long a fork waits for modules that other threads import, if they are of these packages."""
IMPORTED = frozenset({"tsql", "sqlglot", "pyarrow", "numpy", "llvmlite"})

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_generation = 0


def lock() -> Any:
    """A `threading.Lock` that is free in the child of a fork. What it guards must be whole between any two steps of Python."""
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
    os.register_at_fork(after_in_child=begin_again)


def generation() -> int:
    """How many forks lie between this process and the one that has imported the package: whoever keeps threads keeps this with them."""
    return _generation


def _free_locks() -> None:
    global _generation
    _generation += 1
    for held in list(_locks):
        held._at_fork_reinit()
    if hasattr(cached_property(len), "lock"):
        _free_properties()


def _free_properties() -> None:
    """Before Python 3.12 each cached property has a lock of its own, held while it is computed: planning is always inside of some."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("tsql.")]
    classes = {found for module in modules for found in list(vars(module).values()) if isinstance(found, type)}
    for found in classes:
        for attribute in list(vars(found).values()):
            if isinstance(attribute, cached_property):
                attribute.lock._at_fork_reinit()


def _shut_imports() -> None:
    """Modules are imported when they are first needed, and one that another thread is in the middle of would never be whole in the child. So a
    fork comes between imports: with the lock of all imports, no other thread begins one."""
    deadline = time.monotonic() + IMPORT_SECONDS
    _imp.acquire_lock()
    while _is_importing() and time.monotonic() < deadline:
        _imp.release_lock()
        time.sleep(0.001)
        _imp.acquire_lock()


def _is_importing() -> bool:
    """Whether another thread holds the lock of a module of ours, or of a library that we use."""
    found = [known() for name, known in list(getattr(_bootstrap, "_module_locks", {}).items()) if name.partition(".")[0] in IMPORTED]
    return any(getattr(held, "owner", None) not in (None, threading.get_ident()) for held in found)


os.register_at_fork(before=_shut_imports, after_in_parent=_imp.release_lock, after_in_child=_imp.release_lock)
in_child(_free_locks)
