"""What of the host kernels use by name. `make_room(ctx)` is called when what their sink has collected should go
elsewhere.

A kernel runs without the interpreter lock; the call takes it. The host says by the address of the context what is to be
done (`rooms`), and must not raise: a failure is kept with the context, and the kernel is stopped like a cancelled one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

rooms: dict[int, Callable[[], None]] = {}
"""What makes room for the kernel with a context at this address."""


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
