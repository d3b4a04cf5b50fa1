"""At which level tests compile a kernel, where it does not matter to them: in full for some, chosen by their text,
quickly for the others."""

from __future__ import annotations

import zlib

from tsql.kernels.codegen.llvm import FULL, QUICK
from tsql.kernels.emit.context import Program

FULL_IN = 16
"""One kernel in so many is compiled in full, which takes ten times as long."""


def level_by_text(program: Program) -> int:
    """The level for a kernel; the same wherever and whenever it is compiled."""
    return FULL if zlib.crc32(program.module.fingerprint().encode()) % FULL_IN == 0 else QUICK
