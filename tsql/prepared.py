"""Analyzed queries with their plans, and the cache that finds them again by their text; the session keeps one."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from tsql import statements
from tsql.backends import Settings
from tsql.catalog import FileUse
from tsql.costs import calibrated
from tsql.kernels.types import Type
from tsql.planner import PhysicalPlan, make_plan
from tsql.planner.candidates import Candidate, candidates
from tsql.script import Piece

_CACHED_PLANS = 256


@dataclass
class Prepared:
    """An analyzed query with its plan, once that is made; what the plan cache holds."""

    piece: Piece
    query: statements.Query
    names: tuple[str, ...]
    types: tuple[Type, ...]
    files: tuple[FileUse, ...] = ()
    timings_ms: dict[str, float] = field(default_factory=dict)
    physical: PhysicalPlan | None = None

    def make_plan(self, settings: Settings, target: str, shards: int | None = None) -> PhysicalPlan:
        """The physical plan for a target (local, spark), with as many shards as the settings say unless given; made at the first use."""
        if self.physical is None:
            begun = time.perf_counter()
            self.physical = make_plan(self.query.plan, settings, self.query.text, target, shards, self.query.hints, calibrated())
            self.timings_ms["plan"] = (time.perf_counter() - begun) * 1000
        return self.physical

    def candidates(self, settings: Settings, target: str, shards: int | None = None) -> list[Candidate]:
        """The plans that the query could have, the cheapest first."""
        return candidates(self.query.plan, settings, self.query.text, target, shards, self.query.hints, calibrated())


class PlanCache:
    """The queries used last, by (SQL text, parameter types, catalog version, settings). One whose files have changed is not
    found; those of an older catalog are dropped, since they keep the data of their tables alive."""

    def __init__(self) -> None:
        self._plans: OrderedDict[Any, Prepared] = OrderedDict()
        self._version = -1
        self._lock = threading.Lock()

    def find(self, key: Any) -> Prepared | None:
        with self._lock:
            prepared = self._plans.get(key)
            if prepared is None or not all(use.is_current() for use in prepared.files):
                return None
            self._plans.move_to_end(key)
            return prepared

    def keep(self, key: Any, version: int, prepared: Prepared) -> None:
        with self._lock:
            if version != self._version:
                self._plans.clear()
                self._version = version
            self._plans[key] = prepared
            while len(self._plans) > _CACHED_PLANS:
                self._plans.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._plans.clear()
