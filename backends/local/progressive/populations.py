"""The population of a group: the units that may hold it, by the zones of one of its keys.

Where rows lie together by that key (days of a log, customers of a sorted table), a group lives in few units. Its totals
are then estimated from those of them that were read, and the other units say nothing about it and add no variance."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tsql.backends.local.progressive.zones import Zone
from tsql.kernels.expr.types import Type

MOST_SHARE = 0.8
"""A key whose groups may be in more of the units on average says too little."""


class Keys:
    """The least and greatest key of some units, prepared for counting."""

    def __init__(self, lows: np.ndarray, highs: np.ndarray):
        self.lows, self.highs = np.sort(lows), np.sort(highs)

    def may_hold(self, keys: np.ndarray) -> np.ndarray:
        """How many of the units may hold each key."""
        return np.searchsorted(self.lows, keys, "right") - np.searchsorted(self.highs, keys, "left")


class Sums:
    """Sums over the units that may hold a key."""

    def __init__(self, lows: np.ndarray, highs: np.ndarray, values: np.ndarray):
        by_low, by_high = np.argsort(lows, kind="stable"), np.argsort(highs, kind="stable")
        self.lows, self.highs = lows[by_low], highs[by_high]
        self.begun = np.concatenate([[0.0], np.cumsum(values[by_low])])
        self.ended = np.concatenate([[0.0], np.cumsum(values[by_high])])

    def of(self, keys: np.ndarray) -> np.ndarray:
        return (
            self.begun[np.searchsorted(self.lows, keys, "right")]
            - self.ended[np.searchsorted(self.highs, keys, "left")]
        )


class Populations:
    """place: of the key among those of the groups. zone: of that key in each unit."""

    def __init__(self, place: int, zone: Zone):
        self.place, self.zone = place, zone

    @staticmethod
    def best(zones: list[Zone | None]) -> Populations | None:
        """By the key whose groups are in the fewest units; None if all keys are nearly everywhere."""
        found, least = None, MOST_SHARE
        for place, zone in enumerate(zones):
            if zone is None or zone.nullable or zone.type.is_float:
                continue
            share = spread(zone)
            if share < least:
                found, least = Populations(place, zone), share
        return found

    def keys_of(self, column: pa.Array) -> np.ndarray:
        """The keys of groups in the form of the zone."""
        if self.zone.dictionary is not None:
            values = self.zone.dictionary.values
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            found = pa.compute.index_in(column.cast(values.type), value_set=values)
            return np.asarray(found.fill_null(-1)).astype(np.int64)
        return whole_numbers(column, self.zone.type)


def spread(zone: Zone) -> float:
    """In what share of the units a group is on average, by the range of each unit's keys."""
    if len(zone.lows) == 0:
        return 1.0
    low, high = int(zone.lows.min()), int(zone.highs.max())
    if low == high:
        return 1.0
    widths = zone.highs.astype(np.float64) - zone.lows.astype(np.float64) + 1.0
    return float(np.mean(widths)) / (float(high) - float(low) + 1.0)


def whole_numbers(column: pa.Array, type: Type) -> np.ndarray:
    """The stored form of a column that has no NULLs, from where a pipeline has written it."""
    width = column.type.byte_width if pa.types.is_fixed_size_binary(column.type) else column.type.bit_width // 8
    kind = np.dtype(f"{'u' if type.is_unsigned else 'i'}{width}") if width <= 8 else np.dtype(np.int64)
    values = np.frombuffer(column.buffers()[1], kind)
    if width == 16:
        return values[2 * column.offset : 2 * (column.offset + len(column)) : 2]
    return values[column.offset : column.offset + len(column)].astype(np.int64)
