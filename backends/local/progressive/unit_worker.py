"""`UnitWorker`: one of the workers of a pipeline that reads a scan in units. Its state stays from unit to unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tsql.backends.local.progressive.units import Units
from tsql.backends.local.run.dataset import Part
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Context
from tsql.kernels.emit.batch import Morsels
from tsql.kernels.emit.pipeline import Sink
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.backends.local.run.execution import Execution


class UnitPipeline(Protocol):
    """What a worker runs: the pipeline of a step, and the units of its scan."""

    x: Execution
    flow: Flow

    @property
    def step(self) -> Step: ...

    @property
    def role(self) -> str: ...

    @property
    def make(self) -> Callable[[], Sink]: ...

    @property
    def units(self) -> Units: ...


class UnitWorker:
    """opened: the contexts of the kernels that have run, one for each layout of the source. They share one state."""

    def __init__(self, runs: UnitPipeline, shard: int):
        self.runs, self.shard = runs, shard
        self.opened: list[Context] = []
        self.by_program: dict[int, Context] = {}
        self.sink: Sink | None = None

    def run(self, units: np.ndarray) -> None:
        """Run the pipeline over units, by number."""
        for _, part in self.runs.units.batches([units]):
            self.run_part(part)

    def run_part(self, part: Part) -> None:
        """Run the pipeline over rows."""
        p = self.runs
        p.x.run.check()
        pipeline, code = p.x.pipelines.finder.find(p.step, p.role, p.flow, part.source, p.make)
        self.sink = pipeline.sink
        context = self.by_program.get(id(code.program))
        if context is None:
            state = self.opened[0].state if self.opened else None
            context = p.x.states.context(pipeline, code, state, self.shard)
            self.by_program[id(code.program)] = context
            self.opened.append(context)
        context.counter.value = 0
        try:
            code.run(context, part.morsels)
        finally:
            context.let_go()

    def run_empty(self) -> None:
        """Run the pipeline over no rows, so that there is a state."""
        source = self.runs.flow.data.empty_source()
        self.run_part(Part(source, Morsels(len(source.columns))))

    @property
    def has_state(self) -> bool:
        """Whether any rows have come."""
        return bool(self.opened)

    def finish(self) -> Context:
        """The context that owns the state. The others are gone."""
        last = self.opened[-1]
        for other in self.opened[:-1]:
            other.owns_state, last.owns_state = False, last.owns_state or other.owns_state
            last.add_taken(other.taken)
            self.runs.x.states.close(other)
        self.opened, self.by_program = [last], {}
        return last
