"""The position of a row in its input: the number of its split, and its place in the split. `first` and `last` compare
positions, whichever task or thread reads the rows."""

from __future__ import annotations

from typing import Any

from tsql.backends.io import Split
from tsql.kernels.expr.errors import SourceError

ROW_BITS = 36
"""The bits of the place in a split: 68 billion rows. The other 27 of a positive number are for the split: 134 million
of them are 17 EB in parts of 128 MB."""

MOST_SPLITS = 1 << (63 - ROW_BITS)


def first_position(split: Split) -> int:
    """The position of the first row of a split."""
    return (split.order << ROW_BITS) + split.first


def check_rows(split: Split, position: int) -> None:
    """Refuse a split whose rows have the positions of the next one. `position` is behind its last row."""
    if position > (split.order + 1) << ROW_BITS:
        raise SourceError(
            f"{split.path or 'a table'}: one part holds more than {1 << ROW_BITS:,} rows",
            hint="divide it into several files",
        )


def check_count(splits: int, source: Any) -> None:
    """Refuse a source of more splits than there are numbers for."""
    if splits > MOST_SPLITS:
        raise SourceError(
            f"{next(iter(getattr(source, 'patterns', ())), 'a table')}: {splits:,} parts of files are more than "
            f"{MOST_SPLITS:,}",
            hint="read larger files, or some of them at a time",
        )
