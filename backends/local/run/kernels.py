"""The kernels of a plan: found by step and source layout, made on first use, kept between runs.

`Kernels` is what is kept; the backend has one per plan. `KernelFinder` gives a run access to them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tsql.backends import Run
from tsql.backends.local.lower.graph import Graph
from tsql.backends.local.run.flow import Flow, row_bound
from tsql.backends.local.run.host import Code
from tsql.backends.local.run.repeat import Recording
from tsql.kernels.codegen.llvm import FULL, QUICK, TIERED
from tsql.kernels.emit.pipeline import Operator, Pipeline, Sink
from tsql.kernels.emit.selection import is_plain
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.operators import filter as kernel_filter
from tsql.kernels.operators import project as kernel_project
from tsql.kernels.operators.aggregate.groups import ScalarAggregate
from tsql.kernels.process import forks, garbage
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.step import Step

FULL_ROWS = 4_000_000
"""Up to this many rows, a first run starts with quickly compiled code."""


class Kernels:
    """The kernels of one plan, kept between its runs, by step and by layout of the source."""

    def __init__(self) -> None:
        self.made: dict[Any, tuple[Pipeline, Code]] = {}
        self.last: dict[tuple[int, str], tuple[Any, Any, tuple[Pipeline, Code]]] = {}
        """The kernel that each step used last, with the columns of its source and the rest of its signature."""
        self.variants: dict[Any, Step] = {}
        self.filters: dict[int, kernel_filter.Filter] = {}
        self.dense: dict[Any, bool] = {}
        self.graphs: dict[Any, Graph] = {}
        """The lowered plan, by what else lowering depends on."""
        self.lock = forks.lock()
        self.compile_ms = 0.0
        self.runs = 0
        self.recording: Recording | None = None
        """The calls of the plan, once they are known to be the same in each run."""
        self.progressive: Any = None
        """The plan of its snapshots, with its kernels, once it has run progressively."""


class KernelFinder:
    """Finds the kernels of a run. `listed` has those that were used, in the order of first use."""

    def __init__(self, run: Run, kept: Kernels, interpret: bool):
        self.run, self.kept, self.interpret = run, kept, interpret
        self.listed: dict[int, Pipeline] = {}

    def find(self, step: Step, role: str, flow: Flow, source: Any, make: Callable[[], Sink]) -> tuple[Pipeline, Code]:
        """The kernel of a step for a layout of its source; made on first use, and kept with the plan."""
        rest = (
            type(source),
            getattr(source, "stable", False),
            getattr(source, "signature", None),
            tuple([o.signature for o in flow.operators]),
        )
        if isinstance(step, Aggregate):
            # The width of sums depends on the number of rows: a later run of the plan may have more.
            rest += (row_bound(flow.data.rows),)
        with self.kept.lock:
            last = self.kept.last.get((id(step), role))
            # Hashing the layouts of many columns takes longer than running a kernel over few rows.
            if last is not None and last[0] is source.columns and last[1] == rest:
                found = last[2]
            else:
                signature = (id(step), role, source.columns, *rest)
                found = self.kept.made.get(signature)
                if found is None:
                    found = self.kept.made[signature] = self._made(step, role, flow, source, make)
                self.kept.last[id(step), role] = (source.columns, rest, found)
        self.listed.setdefault(id(found[0]), found[0])
        return found

    def _made(self, step: Step, role: str, flow: Flow, source: Any, make: Callable[[], Sink]) -> tuple[Pipeline, Code]:
        sink = make()
        pipeline = Pipeline(source, self._masked(flow.operators, sink), sink, f"{step.name} {role}".strip())
        start = time.perf_counter()
        rows, small = flow.data.rows, self.run.settings.small_rows
        level = TIERED if rows is None else QUICK if rows <= small else FULL if rows > FULL_ROWS else TIERED
        with garbage.paused():
            code = Code(pipeline.emit(), self.interpret, level, self.run.check)
        if rows is None:
            # There may be many rows: batches that arrive after the better code is ready use it.
            code.improve()
        self.kept.compile_ms += (time.perf_counter() - start) * 1000
        return pipeline, code

    def _masked(self, operators: list[Operator], sink: Sink) -> list[Operator]:
        """Filters before an aggregate of one group need no branches if everything is plain arithmetic."""
        if not isinstance(sink, ScalarAggregate) or sink.grouping.absorbs:
            return operators
        expressions: list[Expr] = [e for _, c in sink.grouping.calls for e in c.expressions()]
        for operator in operators:
            if isinstance(operator, kernel_filter.Filter):
                expressions.append(operator.predicate)
            elif isinstance(operator, kernel_project.Project):
                expressions += operator.columns.values()
            elif operator.counts:
                continue
            else:
                return operators
        if not all(is_plain(e) for e in expressions) or any(c.distinct for _, c in sink.grouping.calls):
            return operators
        return [
            kernel_filter.Filter(o.predicate, masked=True) if isinstance(o, kernel_filter.Filter) else o
            for o in operators
        ]
