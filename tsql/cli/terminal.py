"""Uses rich on a terminal and plain text elsewhere: importing rich takes longer than most queries."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_FORCING = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Environment variables that make rich treat a stream as a terminal, or not as one."""


def may_be_terminal(stream: Any) -> bool:
    """Whether rich could take a stream for a terminal."""
    if any(name in os.environ for name in _FORCING):
        return True
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # no file, or one that is closed
        return False


def console_of(stream: Any) -> Console | None:
    """What styles text for a terminal; None for other streams."""
    if not may_be_terminal(stream):
        return None
    from rich.console import Console

    console = Console(file=stream, highlight=False, soft_wrap=True)
    return console if console.is_terminal else None


def cell_len(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii() and text.isprintable():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
