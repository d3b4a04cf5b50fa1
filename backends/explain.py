"""What `explain` prints below the logical plan: the plan file with estimates, the graph of pipelines, KIR, LLVM,
assembly, and a run.

The graph is the lowered plan; nothing runs for it. Kernels are found by a run without rows, so the code that runs the
plan also determines them."""

from __future__ import annotations

import time
from typing import Any

from tsql.backends import Run
from tsql.backends.local.lower import lower
from tsql.backends.local.lower.text import graph_text
from tsql.backends.local.run.execution import Execution
from tsql.backends.local.run.kernels import Kernels
from tsql.backends.local.run.spill import can_spill
from tsql.kernels.codegen.llvm import compiler
from tsql.kernels.emit.pipeline import Pipeline
from tsql.kernels.expr.errors import PlanError
from tsql.planner.physical.estimator import Estimator
from tsql.planner.physical.step import PhysicalPlan

LEVELS = ("physical", "pipelines", "kir", "llvm", "asm", "analyze")


def explain(plan: PhysicalPlan, level: str, backend: Any, run: Run) -> str:
    """The text of one level."""
    level = level.lower()
    match level:
        case "physical":
            return _physical(plan)
        case "analyze":
            return _analyze(plan, backend, run)
        case "pipelines":
            return graph_text(lower(plan.root, plan.shards, can_spill(run.settings)))
        case "kir" | "llvm" | "asm":
            return "\n\n".join(_kernel(p, level) for p in pipelines(plan, run)) + "\n"
    if level == "logical":
        raise PlanError(
            "a plan file has no logical plan: it begins where planning has ended",
            hint=f"levels are {', '.join(LEVELS)}",
        )
    raise PlanError(f"explain has no level {level}", hint=f"levels are logical, {', '.join(LEVELS)}")


def pipelines(plan: PhysicalPlan, run: Run) -> list[Pipeline]:
    """The pipelines of a plan in execution order, with the kernels for an unknown number of rows."""
    execution = Execution(run, Kernels(), interpret=True, dry=True)
    for _ in execution.batches(plan):
        pass
    return list(execution.finder.listed.values())


def _physical(plan: PhysicalPlan) -> str:
    properties = plan.properties()
    estimates = estimated_rows(plan)
    comments = {step.name: f"{properties[id(step)]}, ~{amount(estimates[step.name])} rows" for step in plan.root.walk()}
    return plan.text(comments) + "".join(f"# {note}\n" for note in plan.notes)


def estimated_rows(plan: PhysicalPlan) -> dict[str, float]:
    """The planner's estimate of the rows of each step."""
    estimator = Estimator(plan.shards)
    return {step.name: estimator.of(step).rows for step in plan.root.walk()}


def amount(rows: float) -> str:
    """A readable number of rows: exact if small, three digits if large."""
    if rows < 999.5:
        return f"{max(rows, 0):.0f}"
    for unit in ("k", "M"):
        rows /= 1000
        if rows < 999.5:
            return f"{rows:.3g} {unit}"
    return f"{rows / 1000:.3g} G"


def _kernel(pipeline: Pipeline, level: str) -> str:
    module = pipeline.emit().module
    head = "".join(f"# {line}\n" for line in pipeline.describe().splitlines())
    if level == "kir":
        return head + module.text().rstrip()
    return head + (compiler().llvm_text(module) if level == "llvm" else compiler().assembly(module)).rstrip()


def _analyze(plan: PhysicalPlan, backend: Any, run: Run) -> str:
    run.profile = True
    start = time.perf_counter()
    rows = sum(batch.num_rows for batch in backend.run(plan, run))
    total_ms = (time.perf_counter() - start) * 1000
    estimates = estimated_rows(plan)
    counted = {
        name: f"{run.rows_of[name]:,} rows, ~{amount(rows)} expected"
        if name in run.rows_of
        else f"~{amount(rows)} rows expected"
        for name, rows in estimates.items()
    }
    for name in counted:
        spilled = sum(
            step.get("spilled", 0)
            for pipeline, step in run.steps.items()
            if pipeline == name or pipeline.startswith(f"{name} ")
        )
        counted[name] += f", {spilled:,} bytes spilled" if spilled else ""
    spills = any(step.get("spilled") for step in run.steps.values())
    in_tasks = any("tasks" in step for step in run.steps.values())
    lines = [
        plan.text(counted).rstrip(),
        "",
        f"{'pipeline':<32} {'rows in':>14} {'ms':>10}"
        + (f" {'tasks':>6} {'slowest ms':>11}" if in_tasks else "")
        + (f" {'spilled bytes':>16}" if spills else ""),
    ]
    for name, step in run.steps.items():
        tasks = f"{step['tasks']:>6} {step['slowest_ms']:>11.2f}" if "tasks" in step else f"{'driver':>6} {'':>11}"
        lines.append(
            f"{name:<32} {step['rows']:>14,} {step['ms']:>10.2f}"
            + (f" {tasks}" if in_tasks else "")
            + (f" {step.get('spilled', 0):>16,}" if spills else "")
        )
    lines += _stages(run)
    lines += _choices(run)
    lines.append("")
    for name in ("start", "parse", "plan", "compile", "run"):
        if name in run.timings_ms:
            lines.append(f"{name:<10} {run.timings_ms[name]:>10.2f} ms")
    if run.memory_bytes:
        lines.append(
            f"{'memory':<10} "
            + ", ".join(f"{bytes / 2**20:,.1f} MiB {what}" for what, bytes in run.memory_bytes.items())
        )
    lines.append(f"{'total':<10} {total_ms:>10.2f} ms, {rows:,} rows")
    lines += run.told()
    return "\n".join(lines) + "\n"


def _stages(run: Run) -> list[str]:
    """What the tasks of a cluster have done. Skew is the slowest task in times of the one in the middle."""
    if not run.stages:
        return []
    head = f"{'stage':<32} {'tasks':>6} {'ms':>10} {'slowest ms':>11} {'skew':>6} {'bytes in':>14} {'bytes out':>14}"
    return [
        "",
        head,
        *(
            f"{f'{s.number} to {s.name}':<32} {len(s.ms):>6} {sum(s.ms):>10.2f} {max(s.ms):>11.2f} {s.skew:>6.1f}"
            f" {sum(s.bytes_in):>14,} {sum(s.bytes_out):>14,}"
            for s in run.stages
        ),
    ]


def _choices(run: Run) -> list[str]:
    """Which alternatives were taken where the graph of pipelines has several."""
    return ["", *(f"{name + ':':<32} {way}" for name, way in run.choices.items())] if run.choices else []
