"""Backends run physical plans: `local` on the cores of this machine, `spark` on a cluster, `interp` slowly in Python.

`Backend` is the protocol. `Run` is the caller's handle on a running plan (cancel, progress, settings, timings)."""

from __future__ import annotations

from tsql.backends.backend import Backend
from tsql.backends.run import Run
from tsql.backends.settings import Settings

__all__ = ["Backend", "Run", "Settings"]
