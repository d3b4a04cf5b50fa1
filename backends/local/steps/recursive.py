"""Recursion on the threads of one process: rounds of the second input of `recursive`, each over the rows of the round
before.

The rounds run while their rows are asked for, so a consumer that stops (LIMIT) ends a recursion that would not. Steps
of the second input that do not depend on the working table are computed once, and so are the tables of joins over them.
Everything else of a round is freed when it is over. UNION keeps the rows that have been there in a table of groups: the
groups that a round adds are its new rows."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from tsql.backends.local.run.dataset import ChunkData, Dataset, Part, free_state, slices, table_chunks
from tsql.backends.local.run.host import Chunk, Context, take_chunks
from tsql.backends.local.run.runner import Flow
from tsql.backends.local.steps.hash_join import JoinRunner
from tsql.kernels.emit.batch import Morsels
from tsql.kernels.emit.pipeline import ColumnarScan
from tsql.kernels.expr.nodes import Column
from tsql.kernels.operators.aggregate.groups import Grouping, GroupScan, make_sink
from tsql.kernels.operators.collect import Collect, OutputColumn, columns_of
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.recursive import Recursive, Working
from tsql.planner.physical.step import Step

COLLECTED_AT = 24
"""Where the shared words have the number of rows that a limit counts."""


class Rounds(Dataset):
    """The rows of a recursion, round by round, as they are computed."""

    shards = 1
    rows = None

    def __init__(self, runner: RecursionRunner, step: Recursive, columns: tuple[OutputColumn, ...], shards: int):
        self.runner, self.step, self.columns, self.plan_shards = runner, step, columns, shards
        self.source = ColumnarScan(tuple(c.source() for c in columns))

    def empty_source(self) -> ColumnarScan:
        return self.source

    def feed(self, shard: int) -> Iterator[Part]:
        position = 0
        for number, chunks in enumerate(self.runner.rounds(self.step, self.columns, self.plan_shards)):
            morsels, position = self.morsels(chunks, position)
            yield Part(self.source, morsels, (number,))

    def morsels(self, chunks: list[Chunk], position: int = 0) -> tuple[Morsels, int]:
        """The morsels of chunks, and the position behind them."""
        morsels = Morsels(len(self.columns))
        for chunk in chunks:
            for start, rows, arrays in slices(chunk.arrays, chunk.rows, self.runner.run.settings.batch_rows):
                morsels.add_arrays(arrays, position + start, rows)
            position += chunk.rows
        return morsels, position


class SeenRows:
    """The rows of a recursion by UNION: each once, in the order in which they came."""

    def __init__(self, runner: RecursionRunner, step: Recursive, data: Rounds):
        self.runner, self.step, self.data = runner, step, data
        by = tuple((c.name, Column(c.name, c.type)) for c in data.columns)
        flow = Flow(data, step.schema)
        self.pipeline, self.code = runner._kernel(
            step,
            "seen",
            flow,
            data.source,
            lambda: make_sink(Grouping(by, (), "complete", None, runner.run.settings.equal_hashes), False),
        )
        self.context: Context = runner._context(self.pipeline, self.code)
        self.scan = GroupScan(self.pipeline.sink)
        self.count = 0

    def add(self, chunks: list[Chunk]) -> list[Chunk]:
        """Those of the rows that have not been there."""
        self.context.counter.value = 0
        self.code.run(self.context, self.data.morsels(chunks)[0])
        morsels, start = Morsels(1), 0
        for address, rows in table_chunks(self.context.state_address):
            old = min(rows, max(0, self.count - start))
            if rows > old:
                morsels.add(rows - old, start + old, [(address + old * self.pipeline.sink.entry_bytes, 0, 0, 0)])
            start += rows
        self.count = start
        return self._read(morsels)

    def _read(self, morsels: Morsels) -> list[Chunk]:
        runner, columns = self.runner, self.data.columns
        flow = Flow(self.data, self.step.schema)
        pipeline, code = runner._kernel(
            self.step, "new rows", flow, self.scan, lambda: Collect(columns, by_morsel=False)
        )
        context = runner._context(pipeline, code)
        code.run(context, morsels)
        chunks = take_chunks(context.state_address, columns, runner.shared)
        runner._close(context)
        return chunks

    def release(self) -> None:
        self.runner.states.pop(id(self.context), None)
        free_state(self.pipeline.sink, self.context, self.runner.shared)


class RecursionRunner(JoinRunner):
    """Runs `recursive` steps."""

    def _recursive(self, step: Recursive, shards: int) -> Flow:
        columns = columns_of(step.schema)
        if self.dry:
            # `explain` is shown the pipelines of one round.
            self._collect(step, self.flow(step.inputs[0], shards), _renamed(columns, step.inputs[0]), "first")
            for working in self._working(step):
                self.inputs[id(working)] = self._rows_of(working, [])
            self._collect(step, self.flow(step.inputs[1], shards), _renamed(columns, step.inputs[1]), "next")
        return Flow(Rounds(self, step, columns, shards), step.schema)

    def _working(self, step: Recursive) -> list[Working]:
        return [s for s in step.inputs[1].walk() if isinstance(s, Working) and s.table == step.table]

    def _rows_of(self, working: Working, chunks: list[Chunk]) -> ChunkData:
        columns = columns_of(working.schema)
        return ChunkData(tuple(c.source() for c in columns), [chunks], self.run.settings.batch_rows)

    def rounds(self, step: Recursive, columns: tuple[OutputColumn, ...], shards: int) -> Iterator[list[Chunk]]:
        """The rows of each round; none is empty."""
        first, body = step.inputs
        working = self._working(step)
        again = _dependent(body, {id(w) for w in working})
        data = Rounds(self, step, columns, shards)
        seen = SeenRows(self, step, data) if step.distinct else None
        joins = self._keep_invariant(body, again)
        chunks = self._round(step, first, columns, "first", shards)
        try:
            while True:
                chunks = [c for c in (seen.add(chunks) if seen is not None else chunks) if c.rows]
                if not chunks:
                    return
                yield chunks
                for leaf in working:
                    self.inputs[id(leaf)] = self._rows_of(leaf, chunks)
                for step_id in again:
                    self.done.pop(step_id, None)
                chunks = self._round(step, body, columns, "next", shards)
        finally:
            self.drop_joins(joins)
            if seen is not None:
                seen.release()

    def _round(
        self, step: Recursive, source: Step, columns: tuple[OutputColumn, ...], role: str, shards: int
    ) -> list[Chunk]:
        """The rows of one round, and nothing left of what it took to compute them. A limit above counts rows of its
        own."""
        self.run.check()
        limit = ctypes.c_int64.from_address(self.shared.address + COLLECTED_AT)
        collected, states = limit.value, set(self.states)
        lists = self._collect(step, self.flow(source, shards), _renamed(columns, source), role)
        for key in [key for key in self.states if key not in states and key not in self.kept_states]:
            free_state(*self.states.pop(key), self.shared)
        limit.value = collected
        return [chunk for chunks in lists for chunk in chunks]

    def _keep_invariant(self, body: Step, again: set[int]) -> list[int]:
        """Mark what stays from round to round: tables of joins over inputs that do not change, and the rows of others.
        Gives the joins."""
        joins: list[int] = []
        for user in body.walk():
            if id(user) not in again:
                continue
            for place, child in enumerate(user.inputs):
                if id(child) in again:
                    continue
                if isinstance(user, HashJoin) and not user.marks and place == (0 if user.build == "left" else 1):
                    self.kept_joins[id(user)] = None
                    joins.append(id(user))
                else:
                    self.uses[id(child)] = self.uses.get(id(child), 1) + 1
        return joins


def _renamed(columns: tuple[OutputColumn, ...], source: Step) -> tuple[OutputColumn, ...]:
    """The columns of a step under the names of others."""
    return tuple(
        OutputColumn(c.name, Column(f.name, f.type, f.nullable)) for c, f in zip(columns, source.schema, strict=True)
    )


def _dependent(body: Step, leaves: set[int]) -> set[int]:
    """The steps of a body that depend on one of its leaves, by id."""
    found: set[int] = set(leaves)
    for step in body.walk():
        if any(id(i) in found for i in step.inputs):
            found.add(id(step))
    return found
