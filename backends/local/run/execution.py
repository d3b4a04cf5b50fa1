"""`Execution`: one run of a lowered plan. It holds the parts that steps work with, and hands flows from node to node.

In: a run, the kernels kept for the plan, and flows in the place of steps that were computed elsewhere. Out: datasets,
and for the last step Arrow batches. What each part is for:

    shared      the memory account of the run, and the words that kernels share
    spill       what may stay in memory, and the files for the rest
    kernels     compiled code, kept from run to run; `finder` finds and makes it
    states      contexts, tables and counters, until they are freed
    pipelines   the scheduler: tasks on threads
    rows        rows collected in columns
    hosts       functions that a library computes
    recorder    notes the calls of a run that can be repeated
    part(..)    the steps, and what several of them share (joins, partitions, sorts)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import pyarrow as pa

from tsql.backends import Run
from tsql.backends.local.lower import Graph, Node, lower
from tsql.backends.local.lower.local_step import local_step
from tsql.backends.local.run.dataset import ChunkData, Dataset
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Shared
from tsql.backends.local.run.host_functions import HostFunctions
from tsql.backends.local.run.kernels import KernelFinder, Kernels
from tsql.backends.local.run.pipelines import Pipelines
from tsql.backends.local.run.repeat import Recorder, to_batch
from tsql.backends.local.run.result import Result
from tsql.backends.local.run.rows import Rows
from tsql.backends.local.run.spill import AnyChunk, Spill
from tsql.backends.local.run.states import States
from tsql.kernels.expr.nodes import Column
from tsql.kernels.operators.collect import OutputColumn
from tsql.kernels.operators.count import Count
from tsql.kernels.process.cores import CORES
from tsql.planner.physical.movement import Gather
from tsql.planner.physical.step import PhysicalPlan, Step

P = TypeVar("P")


class Execution:
    """One run. `inputs`: flows that replace steps, by the id of the step. `dry`: kernels are made without rows, for
    `explain`. `task`: its number if several processes run the same steps. `repeated`: inputs that have other rows at
    each call of `chunks`; what does not depend on them is computed once."""

    def __init__(
        self,
        run: Run,
        kernels: Kernels | None = None,
        interpret: bool = False,
        inputs: dict[int, Dataset | Flow] | None = None,
        dry: bool = False,
        task: int = 0,
        repeated: frozenset[int] = frozenset(),
    ):
        self.run, self.kernels, self.interpret, self.dry, self.task = run, kernels or Kernels(), interpret, dry, task
        self.inputs = {} if inputs is None else inputs
        self.repeated = repeated
        threads = 1 if interpret else run.settings.threads or CORES
        self.shared = Shared(run)
        self.spill = Spill(run, self.shared, threads)
        self.states = States(run, self.shared)
        self.finder = KernelFinder(run, self.kernels, interpret)
        self.pipelines = Pipelines(run, self.shared, self.spill, self.states, self.finder, threads, dry)
        self.rows = Rows(self.pipelines, self.spill, self.shared)
        self.hosts = HostFunctions(self.rows, run)
        self.done: dict[int, Flow] = {}
        self.graph: Graph | None = None
        self._parts: dict[type[Any], Any] = {}

    @property
    def threads(self) -> int:
        return self.pipelines.threads

    @property
    def recorder(self) -> Recorder | None:
        return self.pipelines.recorder

    @recorder.setter
    def recorder(self, recorder: Recorder | None) -> None:
        self.pipelines.recorder = recorder

    def part(self, kind: type[P]) -> P:
        """The single object of a class in this execution: a `LocalStep`, or something that several of them share."""
        found = self._parts.get(kind)
        if found is None:
            found = self._parts[kind] = kind(self)  # type: ignore[call-arg]
        return found

    def batches(self, plan: PhysicalPlan) -> Iterator[pa.RecordBatch]:
        """The result, batch by batch."""
        root = plan.root
        graph = self._lower(root, plan.shards)
        # The last gather only passes its input on, unless the rows come from elsewhere.
        gathers = isinstance(root, Gather) and id(root) not in self.inputs
        flow = self.flow(graph.root.inputs[0] if gathers else graph.root)
        if gathers and (self.dry or flow.replicated):
            flow = self.part(local_step(Gather)).gathered(root, flow)
        fields = root.schema
        columns = tuple(
            OutputColumn(f"c{i}", Column(c, fields[c].type, fields[c].nullable), True, True)
            for i, c in enumerate(plan.columns)
        )
        for chunk in Result(self).chunks(root, flow, columns):
            yield to_batch(chunk, plan.schema)

    def chunks(self, step: Step, shards: int) -> list[list[AnyChunk]]:
        """The rows of a step by shard, in the kernels' own types, for backends that move them elsewhere."""
        collected = self.collected(step, shards)
        return collected.data.chunks[:1] if collected.replicated else collected.data.chunks

    def collected(self, step: Step, shards: int) -> Flow:
        """The rows of a step, collected shard by shard."""
        graph = self._lower(step, shards, hands_out_shards=True)
        return self.rows.collected(step, self.flow(graph.root))

    def _lower(self, root: Step, shards: int, hands_out_shards: bool = False) -> Graph:
        """The graph of a plan. It is the same in each run, so it is kept with the kernels."""
        key = (id(root), shards, self.spill.active, hands_out_shards, frozenset(self.inputs), self.repeated)
        graph = self.kernels.graphs.get(key)
        if graph is None:
            graph = lower(root, shards, self.spill.active, self.inputs.keys(), hands_out_shards, self.repeated)
            self.kernels.graphs[key] = graph
        self.graph = graph
        return graph

    def flow(self, node: Node) -> Flow:
        """The rows of a node. If a node has several users, its rows are collected once."""
        step = node.step
        found = self.done.get(id(step))
        if found is None:
            self.run.check()
            if id(step) in self.inputs:
                given = self.inputs[id(step)]
                found = given if isinstance(given, Flow) else Flow(given, step.schema)
            else:
                runner = self.part(local_step(type(step)))
                found = runner.flow(node)
                if self.run.profile and runner.counts_rows:
                    found = found.then(Count(step.name), found.schema)
            if node.is_shared and not (isinstance(found.data, ChunkData) and not found.operators):
                found = self.rows.collected(step, found)
            if node.is_shared or not self.spill.active:
                self.done[id(step)] = found
        return found

    def tell(self) -> None:
        """Hand what the kernels have counted to the run, once they are done."""
        self.states.tell()

    def close(self, improves: bool = True) -> None:
        """Free what the run still holds; no worker runs any more. `improves`: quick code is compiled in full for the
        next run."""
        for _, code in list(self.kernels.made.values()) if improves else ():
            code.improve()
        self.states.free_all()
        self.done.clear()
        self._parts.clear()
        for name, bytes in self.spill.written.items():
            self.run.steps.setdefault(name, {"rows": 0, "ms": 0.0})["spilled"] = bytes
        self.spill.close()
