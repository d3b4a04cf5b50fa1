"""The local backend: compiled kernels on the threads of this process."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator

import pyarrow as pa

from tsql.backends import Run
from tsql.backends.local.executor import Executor, Kernels
from tsql.backends.local.released import released, released_all
from tsql.planner.step import PhysicalPlan


class LocalBackend:
    """Runs plans with compiled code; kernels stay with the plan, so that a plan that runs again compiles nothing."""

    name = "local"
    interpret = False

    def run(self, plan: PhysicalPlan, run: Run) -> Iterator[pa.RecordBatch]:
        """The result of a plan. It is computed in a thread of its own: see `released`."""
        return released(lambda: self._batches(plan, run), run)

    def run_all(self, plan: PhysicalPlan, run: Run) -> list[pa.RecordBatch]:
        """The whole result of a plan, for callers who want all of it at once."""
        return released_all(lambda: self._batches(plan, run), run)

    def _batches(self, plan: PhysicalPlan, run: Run) -> Generator[pa.RecordBatch, None, None]:
        kernels = Kernels() if run.profile else kernels_of(plan, self.interpret)
        before = kernels.compile_ms
        executor = Executor(run, kernels, self.interpret)
        start = time.perf_counter()
        # The live operators are built on this package.
        from tsql.backends.live.bounded import batches_by_time, scans_of

        try:
            for batch in batches_by_time(plan, run, self.interpret) if scans_of(plan) else executor.batches(plan):
                run.check()
                yield batch
        finally:
            executor.tell()
            executor.close()
            compile_ms = kernels.compile_ms - before
            run.timings_ms["compile"] = compile_ms
            run.timings_ms["run"] = (time.perf_counter() - start) * 1000 - compile_ms
            run.done_rows = executor.shared.rows_done


def kernels_of(plan: PhysicalPlan, interpret: bool) -> Kernels:
    """The kernels that belong to a plan; they live as long as it does."""
    attribute = "_interpreted" if interpret else "_compiled"
    kernels = plan.__dict__.get(attribute)
    if kernels is None:
        kernels = Kernels()
        object.__setattr__(plan, attribute, kernels)
    return kernels
