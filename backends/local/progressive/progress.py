"""`Progress`: a run of a plan with snapshots, whatever makes them (`kinds.py`).

In: a plan that makes progress, what the planner found in it, and the execution that its last part goes on with. Out:
snapshots. A snapshot owns its batches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tsql.backends import Run
from tsql.backends.local.run.dataset import Dataset
from tsql.backends.local.run.execution import Execution
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.kernels import Kernels
from tsql.backends.snapshots import Snapshot
from tsql.planner.physical.step import PhysicalPlan


class Progress:
    """Base class. `found`: what the planner has found in the plan."""

    def __init__(self, plan: PhysicalPlan, found: Any, x: Execution):
        self.plan, self.found, self.x, self.run = plan, found, x, x.run

    def snapshots(self) -> Iterator[Snapshot]:
        """The snapshots until the end, or until the query may stop."""
        raise NotImplementedError

    def run_plan(
        self, plan: PhysicalPlan, kernels: Kernels, inputs: dict[int, Dataset | Flow], parameters: dict[str, float]
    ) -> list[pa.RecordBatch]:
        """The rows of a plan over these inputs."""
        run = Run(settings=self.run.settings, parameters={**self.run.parameters, **parameters})
        run.wall_clock = self.run.wall_clock
        x = Execution(run.shares(self.run), kernels, self.x.interpret, inputs)
        try:
            return list(x.batches(plan))
        finally:
            x.close(improves=False)

    def exact(
        self, batches: list[pa.RecordBatch], bounds: dict[int, tuple[str, str]]
    ) -> dict[int, tuple[pa.ChunkedArray, pa.ChunkedArray]]:
        """The bounds of the exact result: its values."""
        found = {}
        for place in bounds:
            values = pa.chunked_array([b.column(place).cast(pa.float64(), safe=False) for b in batches], pa.float64())
            found[place] = (values, values)
        return found


def error_of(shown: Snapshot) -> float:
    """The largest relative error of a value: how far it may be from the farther of its bounds, which may be one-sided
    (a maximum so far). The bounds of a query that stops by its error hold at all times."""
    if not shown.bounds:
        return math.inf
    worst = 0.0
    for place, (low, high) in shown.bounds.items():
        if low.null_count:
            return math.inf
        lows, highs = low.to_numpy(), high.to_numpy()
        column = pa.chunked_array([batch.column(place).cast(pa.float64(), safe=False) for batch in shown.batches])
        values = column.to_numpy()
        with np.errstate(divide="ignore", invalid="ignore"):
            errors = np.maximum(highs - values, values - lows) / np.abs(values)
        worst = max(worst, float(np.max(np.where(highs == lows, 0.0, errors), initial=0.0)))
    return worst
