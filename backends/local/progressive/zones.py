"""Zones of a sample: the least and greatest value of a column in each unit.

They say which units may hold a group, how much the units that were not read can still add, and which units are so
different that they must be read. They are never computed for a query: tables in memory have them from when they were
encoded, files in their statistics. Arrow memory has none. NULLs have some value of the column here, which makes bounds
wider and never wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from tsql.kernels.blocks.encode import BLOCK_ROWS, FINE_ROWS, BlockColumn
from tsql.kernels.blocks.stored import StoredTable
from tsql.kernels.blocks.table import BlockTable
from tsql.kernels.emit.batch import Dictionary
from tsql.kernels.expr.types import Type
from tsql.kernels.process.quick_dataclass import dataclass


@dataclass(frozen=True)
class Zone:
    """The bounds of a column in each unit, in stored form: whole numbers, or doubles (infinite where they are not
    known). Codes of a sorted `dictionary` stand for strings."""

    type: Type
    lows: np.ndarray
    highs: np.ndarray
    nullable: bool
    dictionary: Dictionary | None = None

    def doubles(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The bounds as doubles that enclose the values; None for strings."""
        if self.dictionary is not None or self.type.is_string:
            return None
        lows, highs = self.lows.astype(np.float64), self.highs.astype(np.float64)
        if self.type.is_decimal:
            lows, highs = lows / 10.0**self.type.scale, highs / 10.0**self.type.scale
        for ends, away in ((lows, -np.inf), (highs, np.inf)):
            wide = np.ones(len(ends), np.bool_) if self.type.is_decimal else np.abs(ends) >= 2.0**53
            ends[wide] = np.nextafter(ends[wide], away)
        return lows, highs


def block_zone(table: BlockTable, name: str, positions: np.ndarray, rows: np.ndarray) -> Zone | None:
    """The zone of a column of a table in memory, whose units begin at these rows of it and lie inside of blocks."""
    pieces = table.pieces if isinstance(table, StoredTable) else (table,)
    pieces = tuple(piece for piece in pieces if piece.rows)
    if not pieces or name not in pieces[0].columns:
        return None
    first = pieces[0].columns[name]
    starts = np.cumsum([0, *(piece.rows for piece in pieces)])
    of_piece = np.searchsorted(starts, positions, "right") - 1
    bounds = [_known_bounds(piece.columns[name]) for piece in pieces]
    if any(piece.columns[name].source.dictionary is not first.source.dictionary for piece in pieces):
        return None
    kind = next((found[0].dtype for found in bounds if found is not None), None)
    if kind is None or (first.source.dictionary is not None and None in bounds):
        return None
    # Rows that were inserted last may have any values: their units are read first.
    least, most = (-np.inf, np.inf) if kind == np.float64 else (np.iinfo(kind).min, np.iinfo(kind).max)
    lows, highs = np.full(len(positions), least, kind), np.full(len(positions), most, kind)
    nullable = False
    for number, (piece, found) in enumerate(zip(pieces, bounds, strict=True)):
        nullable |= piece.columns[name].validity is not None
        if found is None:
            continue
        mine = of_piece == number
        begin = positions[mine] - starts[number]
        lows[mine], highs[mine] = _of_runs(found, begin, begin + rows[mine] - 1)
    return Zone(first.source.type, lows, highs, nullable, first.source.dictionary)


def _known_bounds(column: BlockColumn) -> tuple[np.ndarray, np.ndarray, int] | None:
    """Lows and highs of runs of a column, and the rows of a run."""
    if column.fine is not None:
        return *column.fine, FINE_ROWS
    if column.lows is None or column.highs is None:
        return None
    return column.lows.astype(np.int64), column.highs.astype(np.int64), BLOCK_ROWS


def _of_runs(
    found: tuple[np.ndarray, np.ndarray, int], begin: np.ndarray, last: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The bounds of runs of rows, by those of all runs that they touch."""
    lows, highs, size = found
    run, end = begin // size, last // size
    low, high = lows[run], highs[run]
    for step in range(1, int((end - run).max(initial=0)) + 1):
        next_run = np.minimum(run + step, end)
        low, high = np.minimum(low, lows[next_run]), np.maximum(high, highs[next_run])
    return low, high


def split_zone(source: Any, name: str, type: Type, splits: list[Any]) -> Zone | None:
    """The zone of a column of files, from the statistics of their parts."""
    bounds = getattr(source, "bounds_of_split", None)
    if bounds is None or not (type.is_integer or type.is_decimal or type.is_temporal or type.is_float):
        return None
    found = [bounds(split, name) for split in splits]
    if any(one is None for one in found):
        return None
    nullable = any(one.nulls != 0 for one in found)
    if any(one.low is None or one.high is None for one in found):
        return None
    try:
        kind = np.float64 if type.is_float else np.int64
        lows, highs = np.array([one.low for one in found], kind), np.array([one.high for one in found], kind)
    except OverflowError:
        return None
    return Zone(type, lows, highs, nullable)


def joined_zone(parts: list[Zone | None]) -> Zone | None:
    """The zone of a column in the units of several scans, one after the other."""
    known = [part for part in parts if part is not None]
    first = known[0] if known else None
    alike = [p for p in known if first and p.type == first.type and p.dictionary is first.dictionary]
    if first is None or len(alike) < len(parts):
        return None
    lows, highs = np.concatenate([p.lows for p in known]), np.concatenate([p.highs for p in known])
    return Zone(first.type, lows, highs, any(p.nullable for p in known), first.dictionary)
