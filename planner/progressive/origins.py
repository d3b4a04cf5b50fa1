"""Where the rows of the driven aggregate or sort come from: its columns as expressions over those of the scan, and the
conditions that rows must meet on the way.

    rows  = scan clicks ..
    some  = filter rows where=(price > 1)
    paid  = project some day=date_trunc('day', ts) net=(price - fee)
    part  = aggregate paid by=(day) s=sum(net)      day: date_trunc('day', ts); net: price - fee; price > 1

With them, what is known of the scan's columns in a unit (its zones) says what a unit may add to a group."""

from __future__ import annotations

from tsql.kernels.expr.nodes import Column, Expr, substitute
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.movement import Gather, Movement, Rekey
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.progressive import Progressive
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.step import Step
from tsql.planner.progressive.driven import Branch
from tsql.planner.progressive.driven_top import DrivenTop


@dataclass(frozen=True)
class Origins:
    """columns: of the aggregate's input, over the scan's columns, as far as they come from the scan. conditions: of
    filters; None stands for one that is not over the scan's columns alone. is_plain: each row of the scan becomes one
    row or none."""

    columns: dict[str, Expr]
    conditions: tuple[Expr | None, ...]
    is_plain: bool

    def of(self, expr: Expr) -> Expr | None:
        """An expression over the scan's columns."""
        if not set(expr.columns()) <= self.columns.keys():
            return None
        return substitute(expr, self.columns)


def origins(found: Branch | DrivenTop) -> Origins:
    """The origins of the rows of the driven aggregate or sort."""
    return origins_of(found.scan, found.partial.inputs[0])


def origins_of(scan: Step, step: Step) -> Origins:
    """The origins of the rows of a step which those of the scan pass, or are moved to."""
    path: list[Step] = []
    while step is not scan and not isinstance(step, Progressive):
        if isinstance(step, Movement | Rekey | Gather):
            step = step.inputs[0]
            continue
        path.append(step)
        assert step.streamed is not None, "the rows of the scan pass it"
        step = step.inputs[step.streamed]
    known: dict[str, Expr] = {f.name: Column(f.name, f.type, f.nullable) for f in scan.schema}
    conditions: list[Expr | None] = []
    for step in reversed(path):
        here = Origins(known, (), True)
        if isinstance(step, Filter):
            conditions.append(here.of(step.predicate))
        elif isinstance(step, Project):
            columns = {name: here.of(expr) for name, expr in step.columns}
            known = {name: expr for name, expr in columns.items() if expr is not None}
        else:
            known = _followed(step, known)
    is_plain = all(isinstance(step, Filter | Project) for step in path)
    return Origins(known, tuple(conditions), is_plain)


def _followed(step: Step, below: dict[str, Expr]) -> dict[str, Expr]:
    """The columns that a step takes from its streamed input."""
    found = {}
    for column in step.schema:
        source = step.follows(column.name)
        if source is not None and source[0] == step.streamed and source[1] in below:
            found[column.name] = below[source[1]]
    return found
