"""Looks for keys with a large share of the rows, before progress by keys begins. One of them would have most of its
part, and a sample of parts without it would be wrong and not know.

In: the plan of a ripple, whose scans say which keys they have (`planner/progressive/part_filters.py`). Out: parameters
with the marks of heavy keys, which are counted in full. Cost: some units of each scan, of which only the keys are
read. What it finds is a guess, and a wrong one costs a comparison for each row: the others are a sample in any case."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tsql.backends import Run
from tsql.backends.local.progressive.state_pipeline import StatePipeline
from tsql.backends.local.progressive.units import Units
from tsql.backends.local.run.execution import Execution
from tsql.backends.local.run.kernels import Kernels
from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Column
from tsql.kernels.expr.types import BIGINT
from tsql.planner.logical.progression import Progression
from tsql.planner.physical.movement import Gather
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.progressive import Progressive
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.step import PhysicalPlan, Step, named
from tsql.planner.progressive.dealing import NO_MARK, PARTS, SEED, Keys, heavy_name, mark_of
from tsql.planner.progressive.driven import driven
from tsql.planner.progressive.driven_rows import DrivenRows
from tsql.planner.progressive.part_filters import keys_at_scans

LOOKED_AT = 1 << 16
"""Units with so many rows are looked at. Some thousand would find keys with a hundredth of the rows."""

MOST_UNITS = 32
"""At most so many units are: a row group of a file may have a million rows, and one says little more than a few do."""

HEAVY = 2 / PARTS
"""Keys with so large a share of the rows are heavy: twice what a part has on average."""

LEAST_ROWS, LEAST_UNITS = 8, 2
"""They have so many rows at least, and are in so many units, where rows that lie together are often of one key."""

MOST_HEAVY = 32
"""At most so many keys are. Each row is compared with all of them."""


def heavy_keys(
    x: Execution, plan: PhysicalPlan, ripple: Step, spec: Progression, kept: dict[object, Any]
) -> dict[str, int]:
    """The parameters of a run with the heavy keys of all scans; a power of two of them, or none. kept: kernels of runs
    before."""
    shares: dict[int, float] = {}
    for number, (scan, keys) in enumerate(keys_at_scans(ripple)):
        kernels = kept.setdefault(("heavy", number), Kernels())
        for mark, share in _shares(x, plan, scan, keys, spec, kernels):
            shares[mark] = max(share, shares.get(mark, 0.0))
    heavy = sorted(shares, key=lambda mark: (-shares[mark], mark))[:MOST_HEAVY]
    if not heavy:
        return {}
    places = 1 << (len(heavy) - 1).bit_length()
    marks = [*heavy, *[NO_MARK] * (places - len(heavy))]
    return {heavy_name(number): mark for number, mark in enumerate(marks)}


def _shares(
    x: Execution, plan: PhysicalPlan, scan: Scan, keys: Keys, spec: Progression, kernels: Kernels
) -> Iterator[tuple[int, float]]:
    """The marks of heavy keys in some units of a scan, and their share of the rows of these units."""
    wanted = {name for e in (*keys, *([] if scan.where is None else [scan.where])) for name in e.columns()}
    columns = tuple(name for name in scan.columns if name in wanted)
    scan = replace(scan, columns=columns, filled=(), late=False)
    count = (("rows", AggregateCall("count_star", (), BIGINT)),)
    read = Progressive((scan,), spec=spec)
    partial = Aggregate((read,), by=(("mark", mark_of(keys)),), calls=count, phase="partial", groups=LOOKED_AT)
    total = Aggregate((Gather((partial,)),), by=(("mark", Column("mark", BIGINT)),), calls=count, phase="final")
    look = replace(plan, root=named(total), columns=("mark", "rows"), names=("mark", "rows"), query="", notes=())
    branch = driven(look.root)
    assert branch is not None
    found = DrivenRows(spec, branch.scan, branch.partial, (), total)
    run = Run(settings=x.run.settings, parameters={**x.run.parameters, SEED: spec.seed})
    own = Execution(run.shares(x.run), kernels, x.interpret)
    try:
        pipeline = StatePipeline(own, found, own._lower(look.root, look.shards).node(found.rows))
        pipeline.read(_enough(pipeline.units))
        # Copies: the memory of the states goes with the execution.
        groups = [[np.array(array) for array in chunk.arrays] for _, chunks in pipeline.batches for chunk in chunks]
    finally:
        own.close()
    if not groups:
        return
    marks, rows = (np.concatenate(arrays) for arrays in zip(*groups, strict=True))
    known, places, batches = np.unique(marks, return_inverse=True, return_counts=True)
    counts = np.bincount(places, rows)
    least = LEAST_UNITS if len(groups) >= MOST_UNITS else 1
    heavy = (counts >= np.maximum(LEAST_ROWS, HEAVY * rows.sum())) & (batches >= least)
    yield from zip(known[heavy].tolist(), (counts[heavy] / rows.sum()).tolist(), strict=True)


def _enough(units: Units) -> int:
    """How many units of the order are looked at."""
    rows = np.cumsum(units.rows[units.order])
    return min(units.length, MOST_UNITS, 1 + int(np.searchsorted(rows, LOOKED_AT)))
