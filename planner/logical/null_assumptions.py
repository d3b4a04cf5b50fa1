"""Assumptions of a plan about the data: columns that hold no NULLs now.

`x NOT IN (..)` is an anti join only where neither side has a NULL. Rules and unnesting may conclude this from the
tables' current data (`rely`), and a stored plan must not silently outlive it. So each scan of such a plan names its
columns without NULLs (`filled=(..)`; `with_filled` of `physical/operators/scan.py` writes it). Reading the plan again
fails if one of them has NULLs, and rows that arrive later are checked (`backends/live/`). The assumption covers the
whole plan, because a column may have many names on its way to the condition. Plans without such a condition state
nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field

from tsql.kernels.process.quick_dataclass import dataclass


@dataclass
class Reliance:
    """The decisions made so far. on: each decision that NULLs would make wrong, by the mark that it is about, or None.
    existence: marks of EXISTS, whose conditions are false where they are NULL; a semi or anti join may replace them
    regardless of NULLs."""

    on: list[str | None] = field(default_factory=list)
    existence: set[str] = field(default_factory=set)


_watching: ContextVar[Reliance | None] = ContextVar("reliance", default=None)


@contextmanager
def watched() -> Iterator[Reliance]:
    """Records the decisions made inside the `with` block."""
    found = Reliance()
    token = _watching.set(found)
    try:
        yield found
    finally:
        _watching.reset(token)


def rely(decided: bool, mark: str | None = None) -> bool:
    """Returns `decided`, and records that it is true only because columns hold no NULLs."""
    watching = _watching.get()
    if decided and watching is not None:
        watching.on.append(mark)
    return decided


def note_existence(mark: str) -> None:
    """Record that a mark only tells whether a row exists."""
    watching = _watching.get()
    if watching is not None:
        watching.existence.add(mark)


def is_existence(mark: str) -> bool:
    watching = _watching.get()
    return watching is not None and mark in watching.existence


def forget(mark: str) -> None:
    """Drop the decisions about a mark: a join replaces it and treats NULL as false."""
    watching = _watching.get()
    if watching is not None:
        watching.on = [about for about in watching.on if about != mark]
