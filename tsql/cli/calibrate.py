"""`tsql calibrate`: measures the constants of `planner/cost/constants.py` on this machine, by timing small plans on the
local backend.

Each constant is what a plan takes beyond another one that lacks a step, per row; the shortest of several runs counts,
since other work on the machine only ever adds. What moves between machines is not measured here and keeps its default.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace

import numpy as np
import pyarrow as pa

from tsql.backends import Settings
from tsql.kernels.blocks.table import BlockTable
from tsql.kernels.expr.schema import Schema
from tsql.loaded import LoadedPlan
from tsql.planner.cost.constants import DEFAULT, Costs
from tsql.session import Session

ROWS = 2_000_000
RUNS = 5
LEAST_NS = 0.01
"""The lower limit of a cost, for a difference that is lost in noise."""

_SPREAD = 1_000_003
"""The distance between keys: so large that they are hashed and not used as indexes."""

_COUNTED = "count = aggregate groups by=() n=count(*)\noutput count (n)"


def measure(
    rows: int = ROWS, runs: int = RUNS, report: Callable[[str, float], None] = lambda name, value: None
) -> Costs:
    """The costs of this machine; `report` is called with each as it is known."""
    with Session("local", Settings(threads=1)) as session:
        bench = _Bench(session, rows, runs)
        found = replace(DEFAULT)
        for name, value in bench.costs():
            found = replace(found, **{name: max(value, LEAST_NS)})
            report(name, asdict(found)[name])
    return found


class _Bench:
    """The tables and the plans that are timed. One thread works, so times are those of one core."""

    def __init__(self, session: Session, rows: int, runs: int) -> None:
        self.session, self.rows, self.runs = session, rows, runs
        self.middle = max(2, min(50_000, rows // 20))
        random = np.random.default_rng(7)
        many = max(2, rows // 2)
        columns = {
            name: random.integers(0, groups, rows) * _SPREAD
            for name, groups in (("few", 1000), ("middle", self.middle), ("many", many))
        }
        table = pa.table({**columns, "x": random.random(rows)})
        # Stored without a query: a damaged cost file prevents planning, and this command repairs it.
        for name, part in (("t", table), ("small", table.slice(0, 1000))):
            session.catalog.add(name, BlockTable.from_batches(Schema.from_arrow(part.schema), part.to_batches()))

    def costs(self) -> Iterator[tuple[str, float]]:
        """(name, value) of each cost, from those that others build on."""
        scan = self.time("t = scan t columns=(x)\ntotal = aggregate t by=() s=sum(x)\noutput total (s)")
        yield "scan_byte_ns", scan / self.rows / 8
        condition = self.time(
            "t = scan t columns=(x)\nkept = filter t where=(x * 2 > 1)\ntotal = aggregate kept by=() "
            "s=sum(x)\noutput total (s)"
        )
        yield "row_ns", (condition - scan) / self.rows / 2
        few = self.time(f"t = scan t columns=(few)\ngroups = aggregate t by=(few) n=count(*)\n{_COUNTED}")
        yield "group_ns", few / self.rows
        many = self.time(f"t = scan t columns=(many)\ngroups = aggregate t by=(many) n=count(*)\n{_COUNTED}")
        yield "miss_ns", many / self.rows
        yield "merge_ns", self._merge()
        moved = self.time(
            "t = scan t columns=(few)\nkeyed = rekey t key=(few)\nplaced = redistribute keyed "
            "scope=local\nparts = aggregate placed by=(few) n=count(*)\n"
            f"groups = gather parts\n{_COUNTED}",
            shards=2,
        )
        yield "move_ns", (moved - few) / self.rows
        ordered = self.time(
            "t = scan t columns=(x)\nsorted = sort t by=(x asc nulls last)\ntotal = aggregate sorted by=() "
            "s=sum(x)\noutput total (s)"
        )
        yield "sort_ns", (ordered - scan) / (self.rows * math.log2(max(self.rows, 2)))
        yield "pipeline_us", self._pipeline() / 1000

    def _merge(self) -> float:
        """States of two shards that are merged on one, against the same states not merged."""
        partial = (
            "t = scan t columns=(middle)\nstates = aggregate t phase=partial by=(middle) n=count(*)\nboth = "
            "gather states\n"
        )
        apart = self.time(partial + "count = aggregate both by=() n=count(*)\noutput count (n)", shards=2, often=3)
        merged = self.time(
            partial + f"groups = aggregate both phase=final by=(middle) n=count(*)\n{_COUNTED}", shards=2, often=3
        )
        return (merged - apart) / (2 * self.middle)

    def _pipeline(self) -> float:
        """States of a few groups that are placed by key and merged there, against the same merged on one shard."""
        partial = "t = scan small columns=(few)\nstates = aggregate t phase=partial by=(few) n=count(*)\n"
        merged = self.time(
            partial + f"both = gather states\ngroups = aggregate both phase=final by=(few) n=count(*)\n{_COUNTED}",
            shards=2,
            often=10,
        )
        placed = (
            "keyed = rekey states key=(few)\nplaced = redistribute keyed scope=local\nparts = aggregate placed "
            "phase=final by=(few) n=count(*)\n"
        )
        return self.time(partial + placed + f"groups = gather parts\n{_COUNTED}", shards=2, often=10) - merged

    def time(self, steps: str, shards: int = 1, often: int = 1) -> float:
        """The shortest run of a plan, in nanoseconds; the first run compiles, and is not counted."""
        relation = LoadedPlan(f"plan version 1\ntarget local shards={shards}\n{steps}\n", "calibrate").run(self.session)
        relation.arrow()
        best = math.inf
        for _ in range(self.runs * often):
            begun = time.perf_counter_ns()
            relation.arrow()
            best = min(best, time.perf_counter_ns() - begun)
        return best
