"""Runs row patterns: the rows of each shard are collected and sorted like those of a window, and a kernel walks them.

The kernel is a source (kernels/operators/match.py), so that the following operators run in the same pass. A shard that
does not fit in memory is split by the hash of PARTITION BY (`spill/windows.py`). A single partition must fit, since a
match may reach from its first row to its last."""

from __future__ import annotations

from functools import cached_property

from tsql.backends.local.lower.graph import Lies, Lowering, Node, Shape
from tsql.backends.local.lower.local_step import LocalStep, host_pipes, runs
from tsql.backends.local.run.dataset import Dataset
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.sort.window_data import WindowData, nullable_columns
from tsql.backends.local.sort.window_rows import WindowShape
from tsql.backends.local.spill.windows import WindowJobs, window_pipes
from tsql.kernels.expr.nodes import Column, Expr, Literal, Parameter
from tsql.kernels.operators.collect import OutputColumn, columns_of
from tsql.kernels.operators.match import MatchScan
from tsql.kernels.patterns.spec import MatchSpec
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.operators.match import Match


@dataclass(frozen=True)
class MatchShape(WindowShape):
    """The collected columns, and the pattern to find in them."""

    spec: MatchSpec | None = None

    @cached_property
    def whole(self) -> MatchScan:
        return MatchScan(self.sources(), self.spec)

    @property
    def halo(self) -> None:
        """A match may look at any row of its partition."""
        return None


class MatchData(WindowData):
    """The rows of a match step."""

    def __init__(self, *args, overlaps: bool):  # type: ignore[no-untyped-def]
        super().__init__(*args)
        if overlaps:
            # A row may be in many matches, so the number of input rows is no bound.
            self.rows = None

    def spread(self, tasks: int) -> Dataset:
        """Each search continues where the previous one ended, so a shard is walked by one worker."""
        return Dataset.spread(self, tasks)


@runs(Match)
class MatchStep(LocalStep[Match]):
    """Finds matches of a pattern in the rows of each partition."""

    @classmethod
    def lower(cls, step: Match, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        pipes = (*host_pipes(*step.spec.plain_expressions()), *window_pipes(step, inputs[0], about))
        return Shape(source=f"search in sorted rows of {step.name}", lies=Lies.OTHER, pipes=pipes)

    def flow(self, node: Node) -> Flow:
        step, jobs = node.step, self.x.part(WindowJobs)
        before = step.spec.plain_expressions()
        flow, computed = self.x.hosts.calls(step, self.x.flow(node.inputs[0]), before)
        known = dict(zip(before, computed, strict=True))
        keys = {*step.spec.by, *(key.expr for key in step.spec.order)}
        extra: dict[Expr, Column] = {}

        def column(expr: Expr) -> Expr:
            """What the kernel reads instead of an expression: a column, if rows are sorted by it or the host computes
            it."""
            found = known[expr]
            if isinstance(found, Column | Literal | Parameter) or (found == expr and expr not in keys):
                return found
            return extra.setdefault(found, Column(f"#computed{len(extra)}", found.type))

        spec = step.spec.over(column)
        wanted = (*columns_of(flow.schema), *(OutputColumn(c.name, e) for e, c in extra.items()))
        lists = jobs.rows(step, flow, wanted, bool(extra))
        columns = tuple(OutputColumn(c.name, Column(c.name, c.type)) for c in wanted)
        tasks = max(1, min(self.x.threads, len(lists)))
        shape = MatchShape(
            step.name, tasks, columns, spec.by, spec.order, (), nullable_columns(lists, len(wanted)), spec=spec
        )
        made = jobs.jobs(step, shape, lists)
        overlaps = not spec.is_one_row and spec.skip.kind != "past last row"
        return Flow(MatchData(step, shape, made, self.x.shared, self.x.spill.active, overlaps=overlaps), step.schema)
