"""Runs `hash_join`: one side is built into tables (`join/`), and the rows of the other side probe them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tsql.backends.local.join.probing import Joins
from tsql.backends.local.join.ready import ReadyJoin
from tsql.backends.local.join.tables import BY_ARRAY, HASHED, IN_ORDER, OF_INTERVALS, WITH_BITMAP, JoinTable, JoinTables
from tsql.backends.local.lower.graph import Lies, Lowering, Node, Pipe, Shape
from tsql.backends.local.lower.local_step import LocalStep, described, host_pipes, runs
from tsql.backends.local.run.flow import Flow, one_copy
from tsql.backends.local.spill.partition_joins import PartitionJoins, join_pipes
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.expr.nodes import Column
from tsql.kernels.functions.host import innermost
from tsql.planner.physical.movement import Broadcast
from tsql.planner.physical.operators.join import HashJoin

if TYPE_CHECKING:
    from tsql.backends.local.run.execution import Execution


@runs(HashJoin)
class HashJoinStep(LocalStep[HashJoin]):
    """Builds and probes. `kept` has the tables of joins that serve all rounds of a recursion, by id of the node."""

    def __init__(self, x: Execution):
        super().__init__(x)
        self.kept: dict[int, tuple[ReadyJoin, JoinTable]] = {}

    @classmethod
    def lower(cls, step: HashJoin, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        at = 0 if step.build == "left" else 1
        build_keys, probe_keys = step.sides(at)
        ways = (
            (IN_ORDER if step.overlap is None else OF_INTERVALS,)
            if step.range
            else (BY_ARRAY, WITH_BITMAP, HASHED)
            if step.keys
            else ()
        )
        hosts = (
            *(replace(pipe, input=at) for pipe in host_pipes(*build_keys)),
            *(replace(pipe, input=1 - at) for pipe in host_pipes(*probe_keys)),
        )
        build = Pipe("build", described(step, "build"), at, ways=ways if len(ways) > 1 else ())
        pipes = (*hosts, build, *join_pipes(step, about, at))
        probe = f"probe {step.name} {step.probe_kind}"
        if not step.marks:
            return Shape((probe,), pipes=pipes, over=1 - at)
        if step.probe_kind == "touch":
            touch = Pipe("touch", f"{probe}, marking entries", 1 - at)
            return Shape(source=f"marked entries of {step.name}", lies=Lies.OTHER, pipes=(*pipes, touch))
        pairs = Pipe("pairs", f"{probe}, collect", 1 - at)
        unmatched = Pipe("unmatched", "collect", None, f"entries of {step.name} without a partner")
        return Shape(source=f"rows of {step.name}", pipes=(*pipes, pairs, unmatched))

    @classmethod
    def keeps_table_of(cls, step: HashJoin, place: int) -> bool:
        return not step.marks and place == (0 if step.build == "left" else 1)

    def flow(self, node: Node) -> Flow:
        return self.joined(node, node.step)

    def joined(self, node: Node, step: HashJoin) -> Flow:
        """The rows of a join. `step` may be an equivalent form of the node's step."""
        x, at = self.x, 0 if step.build == "left" else 1
        build_keys, probe_keys = step.sides(at)
        if innermost((*step.times, *(() if step.condition is None else (step.condition,)))):
            raise ExecutionError(
                "a join condition over both sides cannot use this function",
                position=getattr(step.condition, "position", None),
            )
        kept = self.kept.get(id(node))
        if kept is not None:
            probed, probe_keys = x.hosts.calls(step, x.flow(node.inputs[1 - at]), probe_keys)
            return x.part(Joins).probed(replace(kept[0], probed=probed, probe_keys=probe_keys), kept[1])
        below, schema = node.inputs[at], node.inputs[at].step.schema
        # Rows that several joins build of are collected once by the broadcast: a scan can be read only once.
        is_shared = isinstance(below.step, Broadcast) and below.step.scope == "local" and not below.is_shared
        built, build_keys = x.hosts.calls(step, x.flow(below.inputs[0] if is_shared else below), build_keys)
        probed, probe_keys = x.hosts.calls(step, x.flow(node.inputs[1 - at]), probe_keys)
        # One shard of rows may meet a probe side that several threads read.
        is_shared = is_shared or built.replicated or built.data.shards == 1
        needed = step.needed(at)
        columns = tuple((f.name, Column(f.name, f.type, f.nullable)) for f in schema if f.name in needed)
        join = ReadyJoin(
            step,
            one_copy(built),
            probed,
            build_keys,
            probe_keys,
            columns,
            is_shared,
            schema,
            step.keeps_nulls,
            step.needs_places,
        )
        if node.keeps_table:
            table = x.part(JoinTables).built(join)
            self.kept[id(node)] = (join, table)
            x.states.kept.update(id(c) for c in table.contexts)
            return x.part(Joins).probed(join, table)
        return x.part(PartitionJoins).joined(join)

    def drop_table(self, node: Node) -> None:
        kept = self.kept.pop(id(node), None)
        if kept is not None:
            self.x.states.kept.difference_update(id(c) for c in kept[1].contexts)
