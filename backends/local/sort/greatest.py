"""The levels of greatest numbers over the ends of a sorted table: see kernels/runtime/overlaps.py."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.runtime.overlaps import BLOCK

LEAST = np.iinfo(np.int64).min


@dataclass
class Greatest:
    """Numbers, and the greatest of each block, level by level. `record` is what kernels read."""

    levels: list[np.ndarray]
    record: Any

    @staticmethod
    def of(numbers: np.ndarray) -> Greatest:
        """The levels of some numbers, up to one that has a single block."""
        levels = [numbers]
        while len(levels[-1]) > BLOCK:
            below = levels[-1]
            whole = len(below) // BLOCK * BLOCK
            level = np.full(-(-len(below) // BLOCK), LEAST, np.int64)
            np.max(below[:whole].reshape(-1, BLOCK), axis=1, out=level[: whole // BLOCK])
            if whole < len(below):
                level[-1] = below[whole:].max()
            levels.append(level)
        record = (ctypes.c_int64 * (1 + len(levels)))(len(levels), *(level.ctypes.data for level in levels))
        return Greatest(levels, record)

    @property
    def bytes(self) -> int:
        return sum(level.nbytes for level in self.levels)

    @property
    def address(self) -> int:
        return ctypes.addressof(self.record)
