"""What is known of a sample so far: the values of the terms (`planner/progressive/terms.py`) for a snapshot, once for
all groups or for each group by its key."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tsql.backends.local.progressive.confidence import BOUNDED_BATCHES, LEAST_BATCHES, at_all_times, student
from tsql.backends.local.progressive.design import Design, Rest
from tsql.backends.local.progressive.populations import Keys
from tsql.planner.logical.progression import Progression
from tsql.planner.progressive.terms import (
    LEAST,
    LEAST_COUNTED,
    PER_UNIT,
    SCALE,
    SPREAD,
    WIDTH,
    Terms,
    least_end,
    most_end,
    rest_high,
    rest_low,
)

MOSTLY = 0.5
"""The share of whole units from which on a count is bounded by what is proven alone."""


class Known:
    """read: the units of the random sample that were read; left: those that were not. sizes: of the batches that they
    were read in."""

    def __init__(
        self, design: Design, terms: Terms, spec: Progression, read: np.ndarray, left: np.ndarray, sizes: list[int]
    ):
        self.design, self.terms, self.spec = design, terms, spec
        self.read, self.left = read, left
        self.sizes = np.unique(np.array(sizes, np.int64), return_counts=True)
        self.rest = Rest(design, left)
        populations = design.populations
        if populations is not None:
            zone = populations.zone
            self.keys_read = Keys(zone.lows[read], zone.highs[read])
            self.keys_left = Keys(zone.lows[left], zone.highs[left])

    def parameters(self) -> dict[str, float]:
        """The terms that are the same for all groups."""
        found: dict[str, float] = {}
        for measure in self.terms.proven:
            low, high = self.rest.ends(measure)
            found[least_end(measure)], found[most_end(measure)] = low, high
        if not self.terms.by_group:
            sample = self._sample(len(self.read), len(self.left))
            units = np.concatenate([self.read, self.left])
            mostly = not self.design.is_grouped and self.design.full[units].mean() >= MOSTLY
            sample[LEAST_COUNTED] = math.inf if mostly and len(self.left) else sample[LEAST]
            found |= {name: float(value) for name, value in sample.items()}
            for measure in self.terms.proven:
                low_, high_ = self.rest.bounds(measure, None)
                found[rest_low(measure)], found[rest_high(measure)] = float(low_), float(high_)
        return found

    def columns(self, keys: np.ndarray) -> dict[str, np.ndarray]:
        """The terms of groups with these keys."""
        read, left = self.keys_read.may_hold(keys), self.keys_left.may_hold(keys)
        found: dict[str, np.ndarray] = dict(self._sample(read, left))
        mostly = self._whole_units(keys) >= MOSTLY * np.maximum(read + left, 1)
        found[LEAST_COUNTED] = np.where(mostly & (left > 0), math.inf, found[LEAST])
        for measure in self.terms.proven:
            names = rest_low(measure), rest_high(measure)
            for name, rest in zip(names, self.rest.bounds(measure, keys), strict=True):
                found[name] = np.where(left > 0, rest, 0.0)
        return found

    def _whole_units(self, keys: np.ndarray) -> np.ndarray:
        """How many units are known to have rows of these groups only."""
        d = self.design
        if d.one_key is None or d.populations is None:
            return np.zeros(len(keys))
        units = np.concatenate([self.read, self.left])
        mine = units[d.one_key[units] & d.full[units]]
        at = d.populations.zone.lows[mine]
        return Keys(at, at).may_hold(keys).astype(np.float64)

    def _sample(self, read: Any, left: Any) -> dict[str, Any]:
        """For a population of which so many units were read, and so many were not."""
        all_units, is_done = read + left, np.equal(left, 0)
        n = np.maximum(read, 1)
        batches = self._batches(read)
        spread = all_units * (left / (n * np.maximum(batches - 1, 1)))
        enough = np.where(batches >= LEAST_BATCHES, np.minimum(BOUNDED_BATCHES, np.floor(batches)), math.inf)
        many = np.maximum(batches, 2.0)
        width = at_all_times if self.spec.until_error is not None else student
        return {
            SCALE: np.where(np.equal(read, 0), 1.0, all_units / n),
            PER_UNIT: 1.0 / n,
            SPREAD: np.where(is_done, 0.0, spread),
            WIDTH: np.where(is_done, 0.0, width(self.spec.confidence, many)),
            LEAST: np.where(is_done, 0.0, enough),
        }

    def _batches(self, read: Any) -> Any:
        """In how many batches so many of the units that were read are on average."""
        sizes, counts = self.sizes
        found: Any = np.zeros(np.shape(read)) if np.ndim(read) else 0.0
        for size, count in zip(sizes, counts, strict=True):
            missed = (1.0 - size / max(1, len(self.read))) ** read
            found = found + count * (1.0 - missed)
        return np.where(np.equal(read, len(self.read)), float(counts.sum()), found)
