"""The interpreter backend: the same plans and pipelines, with KIR executed in Python. Slow and simple; needs no
LLVM."""

from __future__ import annotations

from tsql.backends.local import LocalBackend


class InterpreterBackend(LocalBackend):
    """Runs plans with the reference interpreter of the kernel language, on one thread."""

    name = "interp"
    interpret = True
