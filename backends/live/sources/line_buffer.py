"""`LineBuffer`: bytes as they come → blocks of whole lines. Used by `tail` and `lines`."""

from __future__ import annotations

import numpy as np

from tsql.kernels.expr.errors import SourceError

MOST_LINE_BYTES = 1 << 24
_BREAK = 10


class LineBuffer:
    """The bytes of one file or connection that were not taken yet. `line` is the number of the first of them."""

    def __init__(self, name: str, line: int = 1) -> None:
        self.name, self.line = name, line
        self._whole = b""
        self._rest: list[bytes] = []
        self._rest_bytes = 0

    def feed(self, data: bytes) -> None:
        cut = data.rfind(b"\n") + 1
        if cut:
            self._whole = b"".join([self._whole, *self._rest, data[:cut]])
            self._rest, self._rest_bytes = [], 0
        if cut < len(data):
            self._rest.append(data[cut:])
            self._rest_bytes += len(data) - cut
        if self._rest_bytes > MOST_LINE_BYTES:
            line = self.line + self._whole.count(b"\n")
            raise SourceError(f"{self.name}: line {line} is longer than {MOST_LINE_BYTES >> 20} MB")

    def finish(self) -> None:
        """Nothing more comes: what is there without a line break is a line."""
        if self._rest_bytes:
            self.feed(b"\n")

    @property
    def has_lines(self) -> bool:
        return bool(self._whole)

    @property
    def size(self) -> int:
        return len(self._whole) + self._rest_bytes

    def take(self, rows: int) -> tuple[bytes, int]:
        """Up to so many whole lines, and the number of the first one."""
        first, block = self.line, self._whole
        lines = block.count(b"\n")
        if lines > rows:
            breaks = np.flatnonzero(np.frombuffer(block, np.uint8) == _BREAK)
            cut = int(breaks[rows - 1]) + 1
            block, self._whole, lines = block[:cut], block[cut:], rows
        else:
            self._whole = b""
        self.line += lines
        return block, first
