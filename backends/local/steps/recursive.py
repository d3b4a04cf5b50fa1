"""Runs `recursive`: rounds of the second input, each over the rows of the previous round.

Rounds run as their rows are requested, so a consumer that stops (LIMIT) ends an infinite recursion. Steps of the second
input that do not depend on the working table are computed once, and so are the join tables over them: the graph marks
both (`lower/lower.py`). Everything else is freed at the end of a round. UNION keeps the rows seen so far in a group
table: the groups that a round adds are its new rows."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tsql.backends.local.lower.graph import Lies, Lowering, Node, Pipe, Shape
from tsql.backends.local.lower.local_step import LocalStep, described, local_step, runs
from tsql.backends.local.lower.lower import dependent, working_tables
from tsql.backends.local.run.dataset import ChunkData, Dataset, Part, slices, table_chunks
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk, Context, take_chunks
from tsql.kernels.emit.batch import Morsels
from tsql.kernels.emit.pipeline import ColumnarScan
from tsql.kernels.expr.nodes import Column
from tsql.kernels.operators.aggregate.groups import Grouping, GroupScan, make_sink
from tsql.kernels.operators.collect import Collect, OutputColumn, columns_of
from tsql.planner.physical.operators.recursive import Recursive, Working
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.backends.local.run.execution import Execution

COLLECTED_AT = 24
"""Offset in the shared words of the number of rows that a limit counts."""


class Rounds(Dataset):
    """The rows of a recursion, round by round, as they are computed."""

    shards = 1
    rows = None

    def __init__(self, rounds: RecursiveStep, node: Node, columns: tuple[OutputColumn, ...]):
        self.rounds, self.node, self.columns = rounds, node, columns
        self.source = ColumnarScan(tuple(c.source() for c in columns))

    def empty_source(self) -> ColumnarScan:
        return self.source

    def feed(self, shard: int) -> Iterator[Part]:
        position = 0
        for number, chunks in enumerate(self.rounds.rounds(self.node, self.columns)):
            morsels, position = self.morsels(chunks, position)
            yield Part(self.source, morsels, (number,))

    def morsels(self, chunks: list[Chunk], position: int = 0) -> tuple[Morsels, int]:
        """The morsels of chunks, and the position after them."""
        morsels = Morsels(len(self.columns))
        for chunk in chunks:
            for start, rows, arrays in slices(chunk.arrays, chunk.rows, self.rounds.x.run.settings.batch_rows):
                morsels.add_arrays(arrays, position + start, rows)
            position += chunk.rows
        return morsels, position


class SeenRows:
    """The rows of a recursion with UNION: each once, in the order of arrival."""

    def __init__(self, x: Execution, step: Recursive, data: Rounds):
        self.x, self.step, self.data = x, step, data
        by = tuple((c.name, Column(c.name, c.type)) for c in data.columns)
        flow = Flow(data, step.schema)
        self.pipeline, self.code = x.finder.find(
            step,
            "seen",
            flow,
            data.source,
            lambda: make_sink(Grouping(by, (), "complete", None, x.run.settings.equal_hashes), False),
        )
        self.context: Context = x.states.context(self.pipeline, self.code)
        self.scan = GroupScan(self.pipeline.sink)
        self.count = 0

    def add(self, chunks: list[Chunk]) -> list[Chunk]:
        """The rows that have not been seen before."""
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
        x, columns = self.x, self.data.columns
        flow = Flow(self.data, self.step.schema)
        pipeline, code = x.finder.find(
            self.step, "new rows", flow, self.scan, lambda: Collect(columns, by_morsel=False)
        )
        context = x.states.context(pipeline, code)
        code.run(context, morsels)
        chunks = take_chunks(context.state_address, columns, x.shared)
        x.states.close(context)
        return chunks

    def release(self) -> None:
        self.x.states.free(self.pipeline.sink, self.context)


@runs(Recursive)
class RecursiveStep(LocalStep[Recursive]):
    """Runs rounds until one gives no rows."""

    @classmethod
    def lower(cls, step: Recursive, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        rounds = (Pipe("first", described(step)), Pipe("next", described(step, "again"), 1))
        seen = (
            Pipe("seen", "aggregate the rows that have been there", None, "rows of a round"),
            Pipe("new rows", "collect", None, "the groups that a round has added"),
        )
        return Shape(
            source=f"rounds of {step.name}", lies=Lies.OTHER, pipes=(*rounds, *(seen if step.distinct else ()))
        )

    def flow(self, node: Node) -> Flow:
        x, step = self.x, node.step
        columns = columns_of(step.schema)
        if x.dry:
            # `explain` shows the kernels of one round.
            first, body = node.inputs
            x.rows.collect(step, x.flow(first), _renamed(columns, first.step), "first")
            for working in working_tables(node.step):
                x.inputs[id(working)] = self._rows_of(working, [])
            x.rows.collect(step, x.flow(body), _renamed(columns, body.step), "next")
        return Flow(Rounds(self, node, columns), step.schema)

    def _rows_of(self, working: Working, chunks: list[Chunk]) -> ChunkData:
        columns = columns_of(working.schema)
        return ChunkData(tuple(c.source() for c in columns), [chunks], self.x.run.settings.batch_rows)

    def rounds(self, node: Node, columns: tuple[OutputColumn, ...]) -> Iterator[list[Chunk]]:
        """The rows of each round. No round is empty."""
        x, (first, body) = self.x, node.inputs
        working = working_tables(node.step)
        again = dependent(body.step, {id(w) for w in working})
        seen = SeenRows(x, node.step, Rounds(self, node, columns)) if node.step.distinct else None
        chunks = self._round(node.step, first, columns, "first")
        try:
            while True:
                chunks = [c for c in (seen.add(chunks) if seen is not None else chunks) if c.rows]
                if not chunks:
                    return
                yield chunks
                for leaf in working:
                    x.inputs[id(leaf)] = self._rows_of(leaf, chunks)
                for step_id in again:
                    x.done.pop(step_id, None)
                chunks = self._round(node.step, body, columns, "next")
        finally:
            for step in body.step.walk():
                if id(step) in again and not x.graph.node(step).is_given:
                    x.part(local_step(type(step))).drop_table(x.graph.node(step))
            if seen is not None:
                seen.release()

    def _round(self, step: Recursive, source: Node, columns: tuple[OutputColumn, ...], role: str) -> list[Chunk]:
        """The rows of one round. Everything else it used is freed. A limit above counts its own rows."""
        x = self.x
        x.run.check()
        limit = ctypes.c_int64.from_address(x.shared.address + COLLECTED_AT)
        collected, states = limit.value, set(x.states.open)
        lists = x.rows.collect(step, x.flow(source), _renamed(columns, source.step), role)
        x.states.free_since(states)
        limit.value = collected
        return [chunk for chunks in lists for chunk in chunks]


def _renamed(columns: tuple[OutputColumn, ...], source: Step) -> tuple[OutputColumn, ...]:
    """The columns of a step under other names."""
    return tuple(
        OutputColumn(c.name, Column(f.name, f.type, f.nullable)) for c, f in zip(columns, source.schema, strict=True)
    )
