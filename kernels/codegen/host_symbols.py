"""Symbols of the host that kernels use by name. They call `make_room(ctx)` when their sink's collected rows should be
moved elsewhere.

A kernel runs without the interpreter lock; the call takes it. The host registers what to do by the address of the
context (`rooms`). The callback must not raise: a failure is kept with the context, and the kernel stops as if it was
cancelled.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

rooms: dict[int, Callable[[], None]] = {}
"""Callbacks that make room, by the address of the kernel's context."""


def _make_room(ctx: int) -> None:
    room = rooms.get(ctx)
    if room is not None:
        room()


_callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_make_room)

HOST_CALLS: dict[str, tuple[Callable[..., None], int]] = {
    "make_room": (_make_room, ctypes.cast(_callback, ctypes.c_void_p).value or 0)
}
"""By name: the function for the interpreter, and the address for machine code."""

HOST_SYMBOLS: dict[str, int] = {}
"""By name: addresses of records of the host that live as long as the process."""
