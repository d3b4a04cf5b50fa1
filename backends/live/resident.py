"""`ResidentGroups`: the partial groups of a live aggregate, in tables of kernels that stay between batches.

In: rows that arrive, as the input of the pipeline that ends in a partial aggregate. Out: the groups in columns, when
somebody looks. A batch runs one kernel per thread and nothing else, so it costs its rows. Who owns what: the tables
belong to the execution of the feed; keys and states that are strings point into the rows that brought them, so these
are kept too, up to `KEPT_BYTES`; then the groups leave as columns, which own their strings.

`HeldGroups` is what the operator holds: groups in tables and groups in columns, as one list of chunks."""

from __future__ import annotations

from typing import Any

from tsql.backends.live.fragments import SPREAD_ROWS, ArrivedRows, Fragment, Given, Rows, count
from tsql.backends.live.operator import HeldRows
from tsql.backends.local.run.dataset import GroupData, Part, group_runs
from tsql.backends.local.run.execution import Execution
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk, Code, Context
from tsql.backends.local.run.workers import parallel
from tsql.backends.local.steps.aggregate import AggregateStep, ReadyGroups
from tsql.kernels.emit.pipeline import ColumnarScan, Sink
from tsql.kernels.expr.schema import Schema
from tsql.kernels.operators.aggregate.groups import AggregateSink
from tsql.kernels.operators.collect import columns_of
from tsql.planner.physical.movement import Movement
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.input import Input
from tsql.planner.physical.operators.union import Union

ROLE = "resident"
KEPT_BYTES = 64 << 20
"""So many bytes of rows are kept for the strings of groups before the groups leave their tables."""

FIXED = ("VARCHAR", "BLOB", "BIT")


class ResidentGroups:
    """The tables behind one feed, one per thread."""

    def __init__(self, fragment: Fragment):
        self.fragment = fragment
        step = fragment.top
        assert isinstance(step, Aggregate)
        self.step = step
        self.ready: ReadyGroups | None = None
        self.workers: list[Worker] = []
        self.has_strings = any(field.type.name in FIXED for field in step.schema)
        self.kept: list[object] = []
        self.kept_bytes = 0

    @staticmethod
    def fits(fragment: Fragment) -> bool:
        """Whether the rows of a feed pass the pipeline of its aggregate one by one, from one input."""
        top = fragment.top
        if not isinstance(top, Aggregate) or top.phase != "partial" or len(fragment.inputs) != 1:
            return False
        (leaf,) = fragment.inputs.values()
        return _is_straight(top, leaf)

    def take(self, given: Given) -> None:
        """Aggregate rows."""
        x = self._open(given)
        assert self.ready is not None
        (leaf,) = self.fragment.inputs.values()
        whole = given.whole(leaf, self.fragment.engine) if isinstance(given, ArrivedRows) else None
        if whole is not None:
            parts = [[whole]]
        else:
            data = self.fragment._flow(leaf, given, x).data
            parts = [list(data.feed(shard)) for shard in range(data.shards)]
        while len(self.workers) < len(parts):
            self.workers.append(Worker(self, len(self.workers)))
        if count(given) <= SPREAD_ROWS or len(parts) == 1:
            for shard, mine in enumerate(parts):
                self.workers[shard].run(mine)
        else:
            parallel(lambda shard: self.workers[shard].run(parts[shard]), len(parts), x.threads, x.run)
        if self.has_strings:
            self.kept.append(given)
            self.kept_bytes += given.bytes if isinstance(given, ArrivedRows) else sum(_bytes(c) for c in given)

    def tell(self) -> None:
        """Count what the kernels have counted since the last time."""
        if self.fragment.standing is not None:
            self.fragment.standing.states.tell()

    @property
    def is_full(self) -> bool:
        return self.kept_bytes > KEPT_BYTES

    @property
    def groups(self) -> int:
        return sum(worker.groups for worker in self.workers)

    @property
    def bytes(self) -> int:
        """What the tables take, and the rows that are kept for them."""
        return self.kept_bytes + sum(context.taken for worker in self.workers for context in worker.opened)

    def view(self) -> Rows:
        """The groups in columns. The tables stay."""
        there = [worker for worker in self.workers if worker.opened and worker.groups]
        if not there:
            return []
        x = self.fragment.open()
        sink = there[0].sink
        assert isinstance(sink, AggregateSink)
        data = GroupData(sink, [worker.opened[-1] for worker in there], x.shared)
        for context in data.states:
            context.kept = True
        try:
            flow = Flow(data, self.step.schema)
            lists = x.rows.collect(self.step, flow, columns_of(self.step.schema), "view")
        finally:
            for context in data.states:
                context.kept = False
        return [chunk for chunks in lists for chunk in chunks if isinstance(chunk, Chunk) and chunk.rows]

    def clear(self) -> None:
        """Free the tables."""
        self.tell()
        x = self.fragment.standing
        for worker in self.workers:
            if x is not None:
                worker.free(x)
        self.workers, self.kept, self.kept_bytes = [], [], 0

    def _open(self, given: Given) -> Execution:
        x = self.fragment.open()
        if self.ready is None:
            (leaf,) = self.fragment.inputs.values()
            flow = self.fragment._flow(leaf, given, x)
            # Kernels are made for any number of rows: sums are as wide as they can become.
            flow.data.rows = None
            x.inputs[id(leaf)] = flow
            x._lower(self.step, self.fragment.engine.shards, hands_out_shards=True)
            assert x.graph is not None
            self.ready = x.part(AggregateStep).prepared(x.graph.root)
        return x


class Worker:
    """One table. opened: the contexts of the kernels that have run, one for each layout of the rows; they share it."""

    def __init__(self, owner: ResidentGroups, shard: int):
        self.owner, self.shard = owner, shard
        self.opened: list[Context] = []
        self.by_program: dict[int, Context] = {}
        self.sink: Sink | None = None
        self.last: tuple[Any, Code, Context] | None = None
        """The source of the last part, and what ran over it: batches of a stream have one layout."""

    @property
    def groups(self) -> int:
        if not self.opened or self.sink is None:
            return 0
        assert isinstance(self.sink, AggregateSink)
        return sum(rows for _, rows in group_runs(self.sink, self.opened[0].state_address))

    def run(self, parts: list[Part]) -> None:
        ready, x = self.owner.ready, self.owner.fragment.standing
        assert ready is not None and x is not None
        for part in parts:
            x.run.check()
            code, context = self._kernel(part.source, ready, x)
            context.counter.value = 0
            try:
                code.run(context, part.morsels)
            finally:
                context.let_go()

    def _kernel(self, source: Any, ready: ReadyGroups, x: Execution) -> tuple[Code, Context]:
        """The kernel for rows of a source, and its context."""
        if self.last is not None:
            known, code, context = self.last
            if source.columns is known.columns and type(source) is type(known) and source.stable == known.stable:
                return code, context
        pipeline, code = x.finder.find(self.owner.step, ROLE, ready.flow, source, ready.make)
        self.sink = pipeline.sink
        opened = self.by_program.get(id(code.program))
        if opened is None:
            state = self.opened[0].state if self.opened else None
            opened = x.states.context(pipeline, code, state, self.shard)
            self.by_program[id(code.program)] = opened
            self.opened.append(opened)
        context = opened
        self.last = (source, code, context) if type(source) is ColumnarScan else None
        return code, context

    def free(self, x: Execution) -> None:
        if not self.opened:
            return
        *others, last = self.opened
        for other in others:
            other.owns_state, last.owns_state = False, last.owns_state or other.owns_state
            last.add_taken(other.taken)
            x.states.close(other)
        assert self.sink is not None
        x.states.free(self.sink, last)


class HeldGroups(HeldRows):
    """Groups in tables, and groups in columns. Reading `rows` leaves the tables as they are; setting it empties
    them."""

    def __init__(self, schema: Schema, resident: ResidentGroups):
        self.resident = resident
        self._columns: Rows = []
        self._frozen: Rows | None = None
        super().__init__(schema)

    @property
    def rows(self) -> Rows:
        return self._frozen if self._frozen is not None else [*self.resident.view(), *self._columns]

    @rows.setter
    def rows(self, rows: Rows) -> None:
        if self._frozen is not None:
            self._frozen = rows
            return
        self.resident.clear()
        self._columns = rows

    def feed(self, part: dict[str, Given]) -> None:
        """Aggregate rows that have come, by the name of their input."""
        if self._frozen is not None:
            self._frozen = [*self._frozen, *self.resident.fragment.rows(part)]
            return
        self.resident.take(next(iter(part.values())))
        if self.resident.is_full:
            self.rows = self.rows

    @property
    def bytes(self) -> int:
        columns = self._columns if self._frozen is None else self._frozen
        return self.resident.bytes + sum(array.nbytes for chunk in columns for array in chunk.arrays)

    def freeze(self) -> None:
        """From now on what is read and set is a copy, until `thaw`."""
        self._frozen = self.rows

    def thaw(self, rows: Any) -> None:
        """Hold again what was held."""
        self._frozen = None

    def tell(self) -> None:
        """Count what the kernels have counted since the last time."""
        self.resident.tell()

    def close(self) -> None:
        """Free the tables."""
        self.resident.clear()

    def __len__(self) -> int:
        return count(self._frozen) if self._frozen is not None else self.resident.groups + count(self._columns)


def _is_straight(top: Aggregate, leaf: Input) -> bool:
    """Whether the rows of the leaf reach the aggregate without being moved or joined with each other."""
    step = top.inputs[0]
    while step is not leaf:
        moving = [below for below in step.inputs if any(one is leaf for one in below.walk())]
        if len(moving) != 1 or isinstance(step, Movement | Union):
            return False
        (step,) = moving
    return True


def _bytes(chunk: Chunk) -> int:
    return chunk.bytes or sum(array.nbytes for array in chunk.arrays)
