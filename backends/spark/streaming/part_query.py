"""`PartQuery`: a live query over one part of a plan. Rows enter where movements place them, with promises about several
columns, and leave in the shards that the next movement says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tsql.backends import Run
from tsql.backends.live.fragments import Engine, Fragment, Given, Rows, count, given, graft, in_memory
from tsql.backends.live.query import LiveQuery
from tsql.backends.local.run.host import Chunk
from tsql.backends.spark.streaming.place import Border
from tsql.kernels.expr.nodes import Column
from tsql.planner.physical.enforce import enforce
from tsql.planner.physical.movement import Broadcast, Redistribute, Reshard
from tsql.planner.physical.operators.aggregate import Aggregate, partial_of
from tsql.planner.physical.operators.input import Input
from tsql.planner.physical.progress import Progress
from tsql.planner.physical.step import PhysicalPlan, Step, named

Sent = tuple[int, Chunk]
"""(shard, rows)"""


class Outlet(Fragment):
    """The end of a part: rows and the shards that a movement sends them to. number: of the task, so that rows that may
    go anywhere do not all go to the first shard."""

    def __init__(self, engine: Engine, top: Step, movement: Border, targets: int, number: int = 0):
        self.movement, self.targets, self.number = movement, targets, number
        if isinstance(movement, Redistribute):
            top = replace(movement, inputs=(top,), shards=targets)
        super().__init__(engine, top)

    def __post_init__(self) -> None:
        # As in any fragment, but rows stay in the shards of the movement.
        self.top = named(enforce(self.top, self.engine.shards, "local", gathers=False))
        self.inputs = {step.name: step for step in self.top.walk() if isinstance(step, Input)}

    def sent(self, rows: Mapping[str, Given]) -> Iterator[Sent]:
        """The rows of the last step, with their shards."""
        if not any(map(count, rows.values())):
            return
        execution = self._execution(rows, {})
        try:
            lists = execution.chunks(self.top, self.targets)
            execution.tell()
            # Spilled rows are gone when the execution is closed.
            yield from self._placed([[in_memory(chunk) for chunk in one if chunk.rows] for one in lists])
        finally:
            self.engine.finish(execution)

    def batches(self, given: Mapping[str, Given]) -> Iterator[Any]:
        """What `LiveQuery` asks its output for."""
        return self.sent(given)

    def _placed(self, lists: list[list[Chunk]]) -> Iterator[Sent]:
        if isinstance(self.movement, Redistribute):
            yield from ((shard, chunk) for shard, chunks in enumerate(lists) for chunk in chunks)
            return
        chunks = [chunk for one in lists for chunk in one]
        if isinstance(self.movement, Broadcast):
            yield from ((shard, chunk) for shard in range(self.targets) for chunk in chunks)
            return
        turn = self.number if isinstance(self.movement, Reshard) else 0
        for place, chunk in enumerate(chunks):
            yield ((turn + place) if isinstance(self.movement, Reshard) else 0) % self.targets, chunk


class PartQuery(LiveQuery):
    """The live query of a part. top: its last step. entries: the movements whose rows it takes. outlet: the movement
    that its rows leave by, and to how many shards; None: they are rows of the result (`output`)."""

    def __init__(
        self,
        top: Step,
        entries: list[Border],
        run: Run,
        outlet: tuple[Border, int] | None = None,
        output: tuple[tuple[str, ...], tuple[str, ...]] | None = None,
        shard: int = 0,
    ):
        root = graft(top, {id(entry): _leaf(entry) for entry in entries}, 1)
        names = tuple(root.schema.names)
        columns, shown = output or (names, names)
        live = dict.fromkeys(entry.name for entry in entries)
        super().__init__(PhysicalPlan(root, columns, shown, shards=1), live, run, shards=1)
        if outlet is not None:
            _, cuts = self._sources(_origin(root))
            self.output = Outlet(self.engine, graft(root, cuts, 1), *outlet, number=shard)

    def pass_on(self, rows: dict[str, Rows], promises: dict[str, Progress]) -> list[Any]:
        """Take the rows of entries, and then what is promised of each. Gives what leaves."""
        arrived: dict[int, Given] = {}
        for name, chunks in rows.items():
            arrived[id(self._scan(name).step)] = chunks
        for name, progress in promises.items():
            self._scan(name).progress = progress
        return self._advance(arrived)

    def look(self, rows: dict[str, Rows], promises: dict[str, Progress]) -> list[Any]:
        """What would leave further if these rows came and this were promised. Nothing changes."""
        before = self._save()
        try:
            return self.pass_on(rows, promises)
        finally:
            self._put_back(before)

    def promise(self) -> Progress:
        """What is promised of the rows that will still leave."""
        return self._through(self.plan.root)


def _leaf(entry: Border) -> Step:
    """What stands for an entry. States of groups come from many tasks: they are merged as they come."""
    leaf, partial = given(entry.name, entry.schema), partial_of(entry)
    if partial is None:
        return leaf
    schema = partial.schema
    by = tuple((name, Column(name, schema[name].type, schema[name].nullable)) for name, _ in partial.by)
    return Aggregate((leaf,), by=by, calls=partial.calls, phase="merge", name=f"{entry.name} merged")


def _origin(step: Step) -> Step:
    while step.is_movement:
        step = step.inputs[0]
    return step
