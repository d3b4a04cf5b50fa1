"""Whether a kernel that deserves better code gets it: the setting TSQL_BETTER_CODE. `Code` asks before it compiles, the
thread of `promote.py` before it compiles again.

| value | a kernel of level TIERED is compiled |
|---|---|
| unset, 1 | quickly at first, and in full in the background |
| 0 | quickly, once |
| 1/N | once: in full for one kernel in N, chosen by its text, quickly for the others |

The last is for test suites: most of their kernels run once, and compiling them twice takes a tenth of the time.
"""

from __future__ import annotations

import os
import re
import zlib

from tsql.kernels.codegen.kir import Module
from tsql.kernels.codegen.llvm import FULL, QUICK, TIERED

SETTING = "TSQL_BETTER_CODE"


def compiles_again() -> bool:
    """Whether quickly compiled code is compiled again in full."""
    return os.environ.get(SETTING, "1") == "1"


def settled(module: Module, level: int) -> int:
    """The level to compile a kernel at, given the level that its rows deserve. It depends on the kernel's text, so the
    choice is the same wherever and whenever a kernel is compiled."""
    if level != TIERED or compiles_again():
        return level
    value = os.environ[SETTING]
    if value == "0":
        return QUICK
    share = re.fullmatch(r"1/([1-9]\d*)", value)
    if share is None:
        raise ValueError(f"{SETTING}={value}: it is 0, 1 or 1/N")
    return FULL if zlib.crc32(module.fingerprint().encode()) % int(share[1]) == 0 else QUICK
