"""What a plan relies on besides its query: columns that hold no NULLs now.

`x NOT IN (..)` is an anti join only where neither side has a NULL. Rules and the removal of subqueries may say so from
what is in the tables (`rely`), and a plan that is kept must not outlive it in silence: then each scan names its
columns without NULLs (`filled=(..)`), whoever reads the plan again is refused if one has some, and rows that arrive
later are looked at (`backends/live/`); `with_filled` of `physical/operators/scan.py` writes them down. It is for the
whole plan, since a column may have many names on its way to the condition. Plans that no such condition is in say
nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field

from tsql.kernels.process.quick_dataclass import dataclass


@dataclass
class Reliance:
    """What has been decided. `on`: each decision that NULLs would make wrong, by the mark that it is about, or None.
    `existence`: marks of EXISTS, whose conditions are false where they are NULL; a semi or anti join in their place
    does not care."""

    on: list[str | None] = field(default_factory=list)
    existence: set[str] = field(default_factory=set)


_watching: ContextVar[Reliance | None] = ContextVar("reliance", default=None)


@contextmanager
def watched() -> Iterator[Reliance]:
    """What is decided within this."""
    found = Reliance()
    token = _watching.set(found)
    try:
        yield found
    finally:
        _watching.reset(token)


def rely(decided: bool, mark: str | None = None) -> bool:
    """`decided`, which is true only because columns hold no NULLs."""
    watching = _watching.get()
    if decided and watching is not None:
        watching.on.append(mark)
    return decided


def note_existence(mark: str) -> None:
    """A mark tells whether there is a row, and nothing else."""
    watching = _watching.get()
    if watching is not None:
        watching.existence.add(mark)


def is_existence(mark: str) -> bool:
    watching = _watching.get()
    return watching is not None and mark in watching.existence


def forget(mark: str) -> None:
    """A mark is no more: a join in its place takes NULL for false, as what was decided about it would."""
    watching = _watching.get()
    if watching is not None:
        watching.on = [about for about in watching.on if about != mark]
