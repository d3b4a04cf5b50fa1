"""Paths that stand for an open descriptor of this process: /dev/stdin, /dev/stdout, /dev/stderr, /dev/fd/N,
/proc/self/fd/N.

`sources/pipes` reads them and `whole_files` writes to them. What is behind such a path was opened by somebody else, who
has said where in it we are: it is never opened anew, cut, or replaced."""

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
    """The descriptor of this process that a path, or a link, such as /dev/stdin stands for."""
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
    """A stream that writes where the descriptor is. What Python holds back for its own streams comes first: they may
    lead to the same file. Raises OSError where the descriptor is closed."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()
    return io.BufferedWriter(io.FileIO(os.dup(descriptor), "wb"))
