"""Joins of partitions that cannot be split (rows of one key, no keys at all): the build side is processed in blocks.

In: a pair of partitions whose build side is in several blocks, each of which fits in memory. Out: the collected rows of
the join.

The pairs of the join are the pairs of all blocks. The same holds for matched or unmatched table entries, since each
entry is in one block only. Whether a row of the probe side has a match is known after the last block. Each block
answers with true, false or NULL (a `mark` join), the answers are combined with SQL's OR, and the result decides: which
rows a semi or anti join keeps, which rows an outer join pads with NULLs, and the column of a mark join. These answers
take two bits per row and stay in memory.

A join of another kind is a separate step, kept with the kernels of the plan, since kernels are found by step.

A `single` join (a scalar subquery) in blocks is refused. It allows at most one match per key, so a key with more rows
than fit in memory is almost always an error of the query."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tsql.backends.local.join.probing import Joins
from tsql.backends.local.join.ready import ReadyJoin
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Reserved, chunk_type, library_chunk
from tsql.backends.local.run.spill import AnyChunk, Store
from tsql.backends.local.spill.sides import Pair, Side
from tsql.kernels.expr.nodes import Column, Literal
from tsql.kernels.expr.types import BOOLEAN
from tsql.kernels.operators.collect import OutputColumn, columns_of
from tsql.kernels.process.arrow_compute import pc
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.operators.join import HashJoin

if TYPE_CHECKING:
    from tsql.backends.local.run.execution import Execution

FOUND = "#found"


@dataclass
class OpenEnds:
    """What leaves the answer of a mark join open (NULL), whatever partition a row is in: build-side rows with a NULL
    key, and for a row whose own key is NULL any row at all. `keys` are the probe-side keys for which NULL equals
    nothing."""

    rows: int
    nulls: int
    keys: list[str]

    def answers(self, found: pa.Array, keys: list[pa.Array]) -> pa.Array:
        unknown = pa.scalar(None, pa.bool_())
        if self.nulls:
            found = pc.if_else(found.fill_null(False), True, unknown)
        for key in keys if self.rows else ():
            found = pc.if_else(key.is_null(), unknown, found)
        return found


class BlockJoins:
    """Joins partitions one by one, and collects their rows."""

    def __init__(self, x: Execution):
        self.x = x

    def pair_rows(
        self, join: ReadyJoin, built: Side, probed: Side, pair: Pair, store: Store, open_ends: OpenEnds | None
    ) -> list[AnyChunk]:
        """The rows of one pair of partitions. `open_ends` is for a mark join with keys."""
        step = join.step
        if (len(pair.blocks) == 1 and open_ends is None) or (step.marks and step.kind != "full"):
            return [
                c for block in pair.blocks for c in self._block_rows(join, built, probed, block, pair.probed, store)
            ]
        if step.kind == "single":
            raise self.x.shared.out_of_memory()
        rows: list[AnyChunk] = []
        found: pa.Array | None = None
        for block in pair.blocks:
            answers = self._answers(join, built, probed, block, pair.probed)
            found = answers if found is None else pc.or_kleene(found, answers)
            if step.kind in ("left", "full"):
                rows += self._block_rows(self._variant(join, "inner"), built, probed, block, pair.probed, store)
            if step.kind == "full":
                rows += self._alone(join, built, probed, block, pair.probed, store)
        reserved = Reserved(found.nbytes, self.x.shared)
        rows += self._decided(join, probed, pair.probed, found, store, open_ends)
        del reserved
        return rows

    def _block_rows(
        self,
        join: ReadyJoin,
        built: Side,
        probed: Side,
        block: list[AnyChunk],
        partners: list[AnyChunk],
        store: Store,
        shards: int | None = None,
        columns: tuple[OutputColumn, ...] | None = None,
    ) -> list[AnyChunk]:
        """The rows of a join with one block, by all threads unless their order matters."""
        before = set(self.x.states.open)
        size, shards = self.x.spill.morsel_rows(), shards or self.x.threads
        sides = [
            Flow(side.data([chunks[i::n] for i in range(n)], size), side.schema)
            for side, chunks, n in ((built, block, self.x.threads), (probed, partners, shards))
        ]
        inside = replace(join, built=sides[0], probed=sides[1], is_shared=True)
        flow = self.x.part(Joins).joined(inside)
        rows = [
            c
            for one in self.x.rows.collect(
                join.step, flow, columns or columns_of(join.step.schema), "block", store=store
            )
            for c in one
        ]
        self.x.states.forget_table(join.step.name)
        self.x.states.free_since(before)
        return rows

    def _answers(
        self, join: ReadyJoin, built: Side, probed: Side, block: list[AnyChunk], partners: list[AnyChunk]
    ) -> pa.Array:
        """For each probe-side row, in order, whether it has a match in the block."""
        column = (OutputColumn(FOUND, Column(FOUND, BOOLEAN)),)
        store = self.x.spill.store(f"{join.step.name} answers")
        rows = self._block_rows(self._variant(join, "mark"), built, probed, block, partners, store, 1, column)
        return pa.concat_arrays([c.arrays[0] for c in rows]) if rows else pa.array([], pa.bool_())

    def _alone(
        self, join: ReadyJoin, built: Side, probed: Side, block: list[AnyChunk], partners: list[AnyChunk], store: Store
    ) -> list[AnyChunk]:
        """The unmatched rows of a block, with NULLs for the other side."""
        variant = self._variant(join, "anti", marks=True)
        nulls = tuple(
            (f.name, Column(f.name, f.type, f.nullable) if f.name in join.schema else Literal(None, f.type))
            for f in join.step.schema
        )
        columns = tuple(OutputColumn(n, e) for n, e in nulls)
        return self._block_rows(variant, built, probed, block, partners, store, columns=columns)

    def _decided(
        self,
        join: ReadyJoin,
        probed: Side,
        partners: list[AnyChunk],
        found: pa.Array,
        store: Store,
        open_ends: OpenEnds | None,
    ) -> list[AnyChunk]:
        """The probe-side rows that the join keeps, now that all matches are known."""
        kind, names = join.step.kind, [c.name for c in probed.columns]
        rows: list[AnyChunk] = []
        position = 0
        for chunk in partners:
            self.x.run.check()
            answers = found.slice(position, chunk.rows)
            position += chunk.rows
            arrays = dict(zip(names, chunk.arrays, strict=True))
            if kind == "mark":
                arrays[join.step.mark] = (
                    answers if open_ends is None else open_ends.answers(answers, [arrays[n] for n in open_ends.keys])
                )
            else:
                has = answers.fill_null(False)
                wanted = has if kind == "semi" else pc.invert(has)
                arrays = {n: a.filter(wanted) for n, a in arrays.items()}
            size = chunk.rows if kind == "mark" else wanted.true_count
            columns = columns_of(join.step.schema)
            made = [arrays[c.name] if c.name in arrays else pa.nulls(size, chunk_type(c)) for c in columns]
            if size:
                rows += store.keep([library_chunk(chunk.order, made, size, self.x.shared)])
        return rows

    def _variant(self, join: ReadyJoin, kind: str, marks: bool = False) -> ReadyJoin:
        """The same sides in a join of another kind, with the right side as build side; with `marks`, the left side."""
        step = join.step
        known = self.x.kernels.variants
        found = known.get((id(step), kind))
        if found is None:
            at = 0 if step.build == "left" else 1
            sides = (step.inputs[1 - at], step.inputs[at])
            keys = step.keys if at == 1 else tuple(k.turned() for k in step.keys)
            if marks:
                sides, keys = sides[::-1], tuple(k.turned() for k in keys)
            found = HashJoin(
                sides,
                kind=kind,
                keys=keys,
                condition=step.condition,
                build="left" if marks else "right",
                range=step.range,
                overlap=step.overlap,
                mark=FOUND if kind == "mark" else None,
                position=step.position,
                name=f"{step.name} {kind}",
            )
            known[id(step), kind] = found
        return replace(join, step=found)
