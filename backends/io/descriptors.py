"""Paths that refer to an open descriptor of this process: /dev/stdin, /dev/stdout, /dev/stderr, /dev/fd/N,
/proc/self/fd/N.

`sources/pipes` reads them and `whole_files` writes to them. Somebody else opened the descriptor and set its position,
so it is never reopened, truncated or replaced."""

from __future__ import annotations

import io
import os
import re
import sys
from typing import BinaryIO

_OPEN = re.compile(r"/(?:dev|proc/(?:self|thread-self|([0-9]+))(?:/task/[0-9]+)?)/fd/([0-9]+)\Z")
_STANDARD = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
_MOST_LINKS = 40


def descriptor_of(path: str | os.PathLike[str]) -> int | None:
    """The descriptor of this process that a path, or a link, refers to (such as /dev/stdin)."""
    text = os.fsdecode(path)
    for _ in range(_MOST_LINKS):
        text = re.sub("^//", "/", os.path.normpath(text))
        if text in _STANDARD:
            return _STANDARD[text]
        found = _OPEN.match(text)
        if found is not None:
            return int(found[2]) if found[1] is None or int(found[1]) == os.getpid() else None
        try:
            text = os.path.join(os.path.dirname(text), os.readlink(text))
        except (OSError, ValueError):  # no link
            return None
    return None


def open_to_write(descriptor: int) -> BinaryIO:
    """A stream that writes at the position of the descriptor. Python's own streams are flushed first, since they may
    lead to the same file. Raises OSError if the descriptor is closed."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()
    return io.BufferedWriter(io.FileIO(os.dup(descriptor), "wb"))
