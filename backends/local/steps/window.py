"""Runs window functions: the rows of each shard are collected and sorted, and a kernel walks them once.

The kernel is a source (kernels/operators/window.py), so that the following operators (a QUALIFY filter, a projection)
run in the same pass. Sorting and sharing rows between threads: `sort/window_data.py`. Rows that do not fit in memory:
`spill/windows.py`."""

from __future__ import annotations

from typing import Any

from tsql.backends.local.lower.graph import Lies, Lowering, Node, Shape
from tsql.backends.local.lower.local_step import LocalStep, host_pipes, runs
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.sort.window_data import WindowData, nullable_columns
from tsql.backends.local.sort.window_rows import WindowShape
from tsql.backends.local.spill.windows import WindowJobs, window_pipes
from tsql.kernels.expr.nodes import Column, Expr, Literal, Parameter
from tsql.kernels.operators.collect import OutputColumn, columns_of
from tsql.planner.physical.operators.window import Window


@runs(Window)
class WindowStep(LocalStep[Window]):
    """Computes window functions over the rows of each partition."""

    @classmethod
    def lower(cls, step: Window, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        return Shape(
            source=f"walk over sorted rows of {step.name}",
            lies=Lies.OTHER,
            pipes=(*host_pipes(*step.expressions()), *window_pipes(step, inputs[0], about)),
        )

    def flow(self, node: Node) -> Flow:
        step, jobs = node.step, self.x.part(WindowJobs)
        expressions = step.expressions()
        flow, computed = self.x.hosts.calls(step, self.x.flow(node.inputs[0]), expressions)
        known = dict(zip(expressions, computed, strict=True))
        extra: dict[Expr, Column] = {}

        def column(expr: Expr) -> Expr:
            """What the kernel reads instead of an expression: a column, unless it is constant."""
            expr = known[expr]
            if isinstance(expr, Column | Literal | Parameter):
                return expr
            return extra.setdefault(expr, Column(f"#computed{len(extra)}", expr.type))

        parts: Any = step.changed(column)
        wanted = (*columns_of(flow.schema), *(OutputColumn(c.name, e) for e, c in extra.items()))
        lists = jobs.rows(step, flow, wanted, bool(extra))
        shape = WindowShape(
            step.name,
            max(1, min(self.x.threads, len(lists))),
            tuple(OutputColumn(c.name, Column(c.name, c.type)) for c in wanted),
            *parts,
            nullable_columns(lists, len(wanted)),
        )
        return Flow(
            WindowData(step, shape, jobs.jobs(step, shape, lists), self.x.shared, self.x.spill.active), step.schema
        )
