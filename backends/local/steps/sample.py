"""Runs `sample`. A percentage keeps rows with small random numbers, inside the pipeline. An exact number of rows uses a
heap, or a choice among all rows."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa

from tsql.backends.local.lower.graph import Lies, Lowering, Node, Pipe, Shape
from tsql.backends.local.lower.local_step import LocalStep, described, runs
from tsql.backends.local.run.dataset import ChunkData, TopData
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk
from tsql.kernels.expr.nodes import Call, Column, Literal, SortKey
from tsql.kernels.expr.types import BIGINT, BOOLEAN
from tsql.kernels.operators import filter as kernel_filter
from tsql.kernels.operators.sample import RANDOM, RANDOM_BITS, Randomize
from tsql.kernels.operators.top import LARGEST, Top
from tsql.planner.physical.operators.sample import Sample


@runs(Sample)
class SampleStep(LocalStep[Sample]):
    """Chooses rows at random."""

    @classmethod
    def lower(cls, step: Sample, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        once = Pipe("collect", "collect", when="a row's position does not tell it from others")
        collect = () if inputs[0].is_in_columns else (once,)
        if not step.is_exact:
            return Shape((described(step),), pipes=collect)
        if step.rows is not None and step.rows <= LARGEST:
            rows = Pipe("rows", described(step))
            return Shape(source=f"rows of {step.name}", lies=Lies.OTHER, pipes=(*collect, rows))
        pipes = () if inputs[0].is_in_columns else (Pipe("collect", described(step)),)
        return Shape(source=f"rows of {step.name}", pipes=pipes)

    def flow(self, node: Node) -> Flow:
        step, flow = node.step, self.x.flow(node.inputs[0])
        seed = step.seed if step.seed is not None else random.getrandbits(31)
        if any(o.multiplies for o in flow.operators) or not flow.data.positioned:
            # A row's random number is computed from its position, which multiplied rows share.
            flow = self.x.rows.collected(step, flow)
        if isinstance(flow.data, ChunkData):
            # Every task numbers its collected rows from 0.
            seed += self.x.task
        name = f"#seed of {step.name}"
        self.x.run.parameters = {**self.x.run.parameters, name: seed}
        if step.is_exact:
            return self._exact_sample(step, flow, name, seed)
        limit = Literal(int(step.percent / 100 * 2**RANDOM_BITS), BIGINT)
        chosen = Call("<", (Column(RANDOM, BIGINT, False), limit), BOOLEAN)
        return flow.then(Randomize(name, step.method == "system"), flow.schema).then(
            kernel_filter.Filter(chosen), step.schema
        )

    def _exact_sample(self, step: Sample, flow: Flow, seed_name: str, seed: int) -> Flow:
        """An exact number of rows: those with the smallest random numbers. For a percentage, or many rows, a choice
        among all rows."""
        if step.rows is not None and step.rows <= LARGEST:
            columns = tuple((f.name, Column(f.name, f.type, f.nullable)) for f in flow.schema)
            keys = (SortKey(Column(RANDOM, BIGINT, False), False, False),)
            states = self.x.pipelines.run(
                step, "rows", flow.then(Randomize(seed_name), flow.schema), lambda: Top(columns, keys, step.rows)
            )
            return Flow(TopData(states[0][0], [c for _, c in states], self.x.shared), step.schema)
        collected = self.x.rows.collected(step, flow)
        chunks = [c for shard in collected.data.chunks for c in shard]
        total = sum(c.rows for c in chunks)
        wanted = min(total, step.rows if step.rows is not None else round(total * step.percent / 100))
        chosen = np.sort(np.random.default_rng(seed % 2**63).permutation(total)[:wanted])
        kept, start = [], 0
        for chunk in chunks:
            inside = chosen[np.searchsorted(chosen, start) : np.searchsorted(chosen, start + chunk.rows)] - start
            kept.append(Chunk(chunk.order, len(inside), [_take(a, inside) for a in chunk.arrays]))
            start += chunk.rows
        return Flow(ChunkData(collected.data.columns, [kept], self.x.run.settings.batch_rows), step.schema)


def _take(array: pa.Array, places: Any) -> pa.Array:
    return array.take(pa.array(places, pa.int64()))
