"""What the zones of a scan prove of values to come: between which bounds they are, and how many different ones there
can be."""

from __future__ import annotations

import numpy as np

from tsql.backends.local.progressive.ranges import range_of
from tsql.backends.local.progressive.units import Units
from tsql.kernels.expr.nodes import Column, Expr
from tsql.planner.progressive.driven_rows import DrivenRows
from tsql.planner.progressive.origins import Origins
from tsql.planner.progressive.row_values import least_end, most_distinct, most_end


def proven_ends(found: DrivenRows, source: Origins, units: Units) -> dict[str, float]:
    """The parameters of the plans of snapshots that say so; infinite where nothing is known."""
    ends: dict[str, float] = {}
    for name, call in found.aggregate.calls:
        arg = source.of(call.args[0]) if len(call.args) == 1 else None
        ends[least_end(name)], ends[most_end(name)] = _range(arg, units)
        ends[most_distinct(name)] = _distinct(arg, units)
    return ends


def _range(arg: Expr | None, units: Units) -> tuple[float, float]:
    known = None if arg is None else range_of(arg, units.zone, units.count)
    if known is None or not units.count:
        return -np.inf, np.inf
    return float(known[0].min()), float(known[1].max())


def _distinct(arg: Expr | None, units: Units) -> float:
    """The codes of a dictionary, or the whole numbers of a range."""
    zone = units.zone(arg.name) if isinstance(arg, Column) else None
    if zone is None or zone.type.is_float or not units.count or not np.issubdtype(zone.lows.dtype, np.integer):
        return np.inf
    return float(zone.highs.max()) - float(zone.lows.min()) + 1.0
