"""`explain time`: what a query would do over its streams: how far each of them tells its time, what each step holds,
and until when; and why a step could never answer. Nothing is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsql.backends import Run
from tsql.backends.live.boundedness import problems
from tsql.backends.live.jobs.job import streams_of
from tsql.backends.live.operator import Pass
from tsql.backends.live.query import LiveQuery
from tsql.catalog.external import watermark_text
from tsql.kernels.expr.errors import CatalogError
from tsql.planner.logical.emission import Emission
from tsql.planner.physical.operators.scan import Scan

if TYPE_CHECKING:
    from tsql.planner.physical.step import PhysicalPlan


def time_text(plan: PhysicalPlan, run: Run) -> str:
    """The text for a plan over streams."""
    streams = streams_of(plan)
    if not streams:
        raise CatalogError("the query reads no stream, so nothing in it waits for time", hint="EXPLAIN shows its plan")
    lines = []
    for stream in streams:
        mark = "no time: WATERMARK FOR names one" if stream.watermark is None else watermark_text(stream.watermark)
        lines.append(f"stream {stream.catalog_name}: {mark}; {'ends' if stream.ends else 'does not end'}")
    emission = plan.emission or Emission()
    lines.append(f"rows leave: {EMITS[emission.horizon]}")
    live = {
        step.name: step.source.time
        for step in plan.root.walk()
        if isinstance(step, Scan) and any(step.source is stream for stream in streams)
    }
    query = LiveQuery(plan, live, run)
    try:
        found = {problem.step: problem for problem in problems(query)}
        for node in query.nodes.values():
            if node.operator is None or isinstance(node.operator, Pass):
                continue
            lines.append(f"step {node.name} ({node.step.op}): {node.operator.why}")
            if node.name in found:
                lines.append(f"  over a stream that does not end: {found[node.name].text}")
                lines += [f"  instead: {way}" for way in found[node.name].ways]
    finally:
        query.close()
    return "\n".join(lines) + "\n"


EMITS = {
    "punctuation": "once nothing can change them",
    "watermark": "once the watermark has passed them; late rows change them",
    "now": "as soon as they are known; later rows change them",
}
