"""Analyzed queries with their plans, analyzed inserts, and the caches that find them again by their text;
`ScriptRunner` keeps one of each."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tsql.backends import Settings
from tsql.backends.names import NeverKept, Use
from tsql.catalog.catalog import Catalog
from tsql.catalog.definition import Table, TableDefinition
from tsql.costs import costs_for
from tsql.grammar.script import Piece
from tsql.kernels.expr.types import Type
from tsql.kernels.process import forks, garbage
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.process.recursion import deep_recursion
from tsql.planner import PhysicalPlan, make_plan

if TYPE_CHECKING:
    from tsql.analyze import kinds as statements
    from tsql.planner.candidates import Candidate

_CACHED_PLANS = 256


@dataclass
class Prepared:
    """A query with its plan, once made; an entry of the plan cache. If the plan came from disk, the query is analyzed
    only when its meaning is needed (`query`). `keep` is called with a plan that was made here."""

    piece: Piece
    analyze: Callable[[], statements.Query]
    names: tuple[str, ...]
    types: tuple[Type, ...]
    files: tuple[Use, ...] = ()
    timings_ms: dict[str, float] = field(default_factory=dict)
    physical: PhysicalPlan | None = None
    source: Any = None
    """The table, if the query is exactly one whole table."""
    keep: Callable[[PhysicalPlan], None] | None = None

    @cached_property
    def query(self) -> statements.Query:
        return self.analyze()

    def make_plan(
        self, settings: Settings, target: str, shards: int | None = None, broadcast_bytes: int | None = None
    ) -> PhysicalPlan:
        """The physical plan for a target (local, spark), with as many shards as the settings say unless given; made at
        the first use. `broadcast_bytes`: what a machine has room for."""
        if self.physical is None:
            begun = time.perf_counter()
            with garbage.paused(), deep_recursion():
                costs = costs_for(broadcast_bytes)
                self.physical = make_plan(
                    self.query.plan, settings, self.query.text, target, shards, self.query.hints, costs
                )
            if self.keep is not None:
                self.keep(self.physical)
            self.timings_ms["plan"] = (time.perf_counter() - begun) * 1000
        return self.physical

    def candidates(
        self, settings: Settings, target: str, shards: int | None = None, broadcast_bytes: int | None = None
    ) -> list[Candidate]:
        """The plans that the query could have, the cheapest first."""
        from tsql.planner.candidates import candidates

        costs = costs_for(broadcast_bytes)
        return candidates(self.query.plan, settings, self.query.text, target, shards, self.query.hints, costs)


class PlanCache:
    """The queries used last, by (SQL text, parameter types, catalog version, settings). A query whose files have
    changed is not found. Queries of an older catalog are dropped, because they keep the data of their tables alive."""

    def __init__(self) -> None:
        self._plans: OrderedDict[Any, Prepared] = OrderedDict()
        self._version = -1
        self._lock = forks.lock()

    def find(self, key: Any) -> Prepared | None:
        with self._lock:
            prepared = self._plans.get(key)
            if prepared is None or not all(use.is_current() for use in prepared.files):
                return None
            self._plans.move_to_end(key)
            return prepared

    def keep(self, key: Any, version: int, prepared: Prepared) -> None:
        if any(isinstance(use, NeverKept) for use in prepared.files):
            return
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


@dataclass(frozen=True)
class RepeatedInsert:
    """An INSERT of constants and parameters. It is valid as long as its table has the same definition."""

    piece: Piece
    statement: statements.Insert
    definition: TableDefinition


class InsertCache:
    """Inserts by (SQL text, origin, parameter types): a program that inserts row by row parses each statement once."""

    def __init__(self) -> None:
        self._known: dict[Any, RepeatedInsert] = {}
        self._lock = forks.lock()

    def find(self, key: Any, catalog: Catalog) -> RepeatedInsert | None:
        known = self._known.get(key)
        table = None if known is None else catalog.entry(known.statement.table)
        return known if isinstance(table, Table) and table.definition is known.definition else None

    def keep(self, key: Any, piece: Piece, statement: Any, catalog: Catalog) -> None:
        """Keep a statement if it is an INSERT with parameters in the place of a query."""
        from tsql.analyze import kinds as statements

        if (
            not isinstance(statement, statements.Insert)
            or not piece.parameters
            or statement.query is not None
            or statement.conflict is not None
            or statement.returning is not None
        ):
            return
        table = catalog.entry(statement.table)
        if isinstance(table, Table):
            with self._lock:
                if len(self._known) >= _CACHED_PLANS:
                    self._known.clear()
                self._known[key] = RepeatedInsert(piece, statement, table.definition)

    def clear(self) -> None:
        with self._lock:
            self._known.clear()
