"""Plans for the page: the steps of a physical plan as data, and how many rows have passed them while it runs.

In: a `PhysicalPlan`. Out: the fields of the messages `plan` and `flow`. `Connection` and `PanelRun` call it. Rows are
those that the pipelines have counted anyway: of the step where a pipeline begins (a scan, collected or sorted rows),
and of the last step. Steps in the middle of a pipeline are not counted, which would take time in every run. Pipelines
over groups count the places of a table and not its groups, so they are left out."""

from __future__ import annotations

from typing import Any

from tsql.backends import Run, Settings
from tsql.backends.local.lower import lower
from tsql.backends.local.lower.graph import Graph, Lies, Node, Pipe, pipes_of
from tsql.backends.local.run.spill import can_spill
from tsql.kernels.expr.errors import TsqlError
from tsql.planner.physical.estimator import Estimator
from tsql.planner.physical.step import PhysicalPlan


def plan_fields(plan: PhysicalPlan, text: str | None = None) -> dict[str, Any]:
    """`file`, `steps` and `notes` of a plan. `text` is the plan file that it was read from, if there is one."""
    with plan.deep():
        file = text if text is not None else plan.text()
        lines = file.split("\n")
        properties, estimator = plan.properties(), Estimator(plan.shards)
        made = _first_line(lines)
        steps = []
        for number, step in enumerate(plan.root.walk()):
            line = step.line if text is not None and step.line is not None else made + number
            steps.append({
                "name": step.name,
                "op": step.op,
                "text": lines[line - 1].strip() if line <= len(lines) else "",
                "inputs": [one.name for one in step.inputs],
                "rows": round(estimator.of(step).rows),
                "shards": properties[id(step)].shards,
                "scope": getattr(step, "scope", "local") if step.is_movement else None,
                "is_movement": step.is_movement,
                "line": line,
            })  # fmt: skip
        return {"file": file, "steps": steps, "notes": list(plan.notes)}


def _first_line(lines: list[str]) -> int:
    """The number of the line of the first step: behind the head and an empty line."""
    return next((number for number, line in enumerate(lines, 1) if not line.strip()), 0) + 1


class Flow:
    """The rows that the steps of a plan have given so far in a run."""

    def __init__(self, plan: PhysicalPlan, settings: Settings):
        self.root = plan.root.name
        self._driven = [step for step in plan.root.walk() if step.op == "progressive"]
        self._pipes: list[tuple[str, Pipe, str | None]] = []
        if plan.target == "local":
            try:
                with plan.deep():
                    self._pipes = list(_pipes(lower(plan.root, plan.shards, can_spill(settings))))
            except TsqlError:  # a plan that cannot be lowered says so when it runs
                pass

    def rows(self, run: Run) -> dict[str, int]:
        """Rows by the name of a step. What the finished pipelines have read is exact; the one that runs has read the
        rest of all rows."""
        found: dict[str, int] = {}
        recorded = {name: int(about["rows"]) for name, about in list(run.steps.items())}
        left = run.done_rows - sum(recorded.values())
        for step, pipe, source in self._pipes:
            names = [name for name in recorded if name == step or name.startswith(f"{step} ")]
            mine = [name for name in names if pipe.covers(name[len(step) + 1 :])]
            rows = sum(recorded[name] for name in mine)
            if not mine and left > 0:
                rows, left = left, 0
            if source is not None and rows:
                found[source] = max(rows, found.get(source, 0))
        return found

    def of_snapshot(self, rows_read: int, rows: int) -> dict[str, int]:
        """Rows when a snapshot is there: those of the scan that makes the progress, and of the result."""
        names = [name for step in self._driven for name in (step.name, step.inputs[0].name)]
        return {**dict.fromkeys(names, rows_read), self.root: rows}


def _pipes(graph: Graph) -> list[tuple[str, Pipe, str | None]]:
    """(step, pipeline, the step with whose rows it begins), in the order of execution."""
    return [
        (node.step.name, pipe, _source(node, pipe))
        for node in graph.nodes
        for pipe in pipes_of(node, node is graph.root)
    ]


def _source(node: Node, pipe: Pipe) -> str | None:
    """The step with whose rows a pipeline begins; None if it begins with something else."""
    if pipe.input is None:
        return None if pipe.source else _begin(node, own=True)
    return _begin(node.inputs[pipe.input])


def _begin(node: Node, own: bool = False) -> str | None:
    while not node.shape.source and not (node.is_shared and not own) and node.inputs:
        node, own = node.inputs[node.shape.over], False
    return node.step.name if node.lies in (Lies.SCAN, Lies.COLUMNS) else None
