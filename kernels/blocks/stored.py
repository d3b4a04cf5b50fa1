"""`StoredTable`: one version of a table that can change. Every change makes a new version; readers keep theirs.

A version is a list of extents, each a `BlockTable` with one encoding per column. First come the encoded ones, in blocks
of 65,536 rows; then the tail, small pieces of plain Arrow memory that wait until there are enough rows for a block.
Versions share the extents that a change has not touched. Pieces of similar size are merged as they come, like the
digits of a counter: ten thousand single-row inserts leave a dozen pieces and cost a few microseconds each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tsql.kernels.blocks.encode import BLOCK_ROWS, BlockColumn
from tsql.kernels.blocks.file import FileColumn
from tsql.kernels.blocks.merge import merged_statistics
from tsql.kernels.blocks.reencode import encode_fitting, encode_like, plain, renamed, view
from tsql.kernels.blocks.table import KEPT_MORSELS, BlockTable, block_runs, decode
from tsql.kernels.blocks.zones import possible_blocks
from tsql.kernels.emit.batch import Layout, Morsels, SourceColumn, all_ones, round_range
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.statistics import ColumnStatistics, Statistics
from tsql.kernels.expr.types import BIGINT

MERGED_ROWS = 64 * BLOCK_ROWS
"""Encoded extents are merged with their neighbours up to this size. An insert never rewrites a larger one."""

PLACE = "#place"
"""The column of `WithPlaces`: the place of each row in its version."""

_PLACE = SourceColumn(PLACE, BIGINT, Layout("position", "i64", False))

Part = tuple[tuple[SourceColumn, ...], Morsels]


class StoredTable(BlockTable):
    """A version of a table. `fields` are its columns, independent of what is stored in them."""

    def __init__(self, fields: Schema, extents: Iterable[BlockTable] = (), tail: Iterable[BlockTable] = ()):
        self.fields = Schema(tuple(Field(f.name, f.type) for f in fields))
        self.extents, self.tail = tuple(extents), tuple(tail)
        self.pieces = self.extents + self.tail
        self.rows = sum(piece.rows for piece in self.pieces)
        self._morsels: dict[Any, Any] = {}

    @staticmethod
    def of_batches(fields: Schema, batches: Iterable[pa.RecordBatch]) -> StoredTable:
        """A table of these rows, in the best encoding."""
        table = BlockTable.from_batches(fields, batches)
        return StoredTable(fields, (table,) if table.rows else ())

    @cached_property
    def schema(self) -> Schema:  # type: ignore[override]
        return Schema(tuple(Field(f.name, f.type, self._nullable(f.name)) for f in self.fields))

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in self.pieces)

    def _nullable(self, name: str) -> bool:
        return any(piece.columns[name].source.layout.nullable for piece in self.pieces)

    def statistics(self) -> Statistics:
        return self._statistics

    @cached_property
    def _statistics(self) -> Statistics:
        columns = {
            f.name: merged_statistics(f.type, [(p.rows, p.columns[f.name].statistics) for p in self.pieces])
            for f in self.fields
        }
        return Statistics(self.rows, self.bytes, columns)

    def source_columns(self, names: tuple[str, ...]) -> tuple[SourceColumn, ...]:
        """The columns of the first part; ranges and NULLs are those of the whole table."""
        return self.parts(names)[0][0]

    def morsels(self, names: tuple[str, ...], where: Expr | None = None, batch_rows: int = 0) -> Morsels:
        raise TypeError("a stored table has a list of parts, each with morsels of its own layout")

    def parts(self, names: tuple[str, ...], where: Expr | None = None, batch_rows: int = 0) -> list[Part]:
        """The rows that may match, in order: runs of blocks of one layout. There is at least one part."""
        key = (tuple(names), where, batch_rows)
        known = self._morsels.get(key)
        if known is not None:
            return known
        shared = {n: self._shared_dictionary(n) for n in names if n != PLACE}
        found: list[Part] = []
        start = 0
        for piece in self.pieces:
            sources = tuple(_PLACE if n == PLACE else self._source(piece.columns[n].source, shared[n]) for n in names)
            if not found or found[-1][0] != sources:
                found.append((sources, Morsels(len(names))))
            self._add(found[-1][1], piece, names, start, where, batch_rows, shared)
            start += piece.rows
        if not found:
            found.append((tuple(_PLACE if n == PLACE else _empty(self.fields[n]) for n in names), Morsels(len(names))))
        if len(self._morsels) >= KEPT_MORSELS:
            self._morsels.clear()
        self._morsels[key] = found
        return found

    def check_files(self) -> None:
        """Raise if a mapped file of a column has changed."""
        for piece in self.pieces:
            for column in piece.columns.values():
                if isinstance(column, FileColumn):
                    column.file.check()

    def _shared_dictionary(self, name: str) -> bool:
        """Whether one dictionary holds for all rows of a column."""
        first = self.pieces[0].columns[name].source.dictionary if self.pieces else None
        return first is not None and all(piece.columns[name].source.dictionary is first for piece in self.pieces)

    def _source(self, source: SourceColumn, shared: bool) -> SourceColumn:
        """A piece's column as part of the table: kernels of all layouts must have the same knowledge of the values."""
        known, t = self._statistics.columns[source.name], source.type
        bounds = None
        if t.is_integer or t.is_decimal or t.is_temporal:
            bounds = (0, 0) if known.minimum is None else round_range(known.minimum, known.maximum)
        layout = replace(source.layout, nullable=self.schema[source.name].nullable)
        return replace(source, layout=layout, range=bounds, dictionary=source.dictionary if shared else None)

    def is_sorted(self, name: str) -> bool:
        """Whether the values of a column never decrease and are never NULL."""
        return len(self.pieces) == 1 and name in self.pieces[0].sorted_columns

    def ranges(
        self, names: tuple[str, ...], by: str, number: int, where: Expr | None = None, batch_rows: int = 0
    ) -> tuple[tuple[SourceColumn, ...], list[Morsels]]:
        """The rows that may match in `number` parts of about equal size, cut where the value of a sorted column
        changes."""
        key = (tuple(names), where, batch_rows, by, number)
        known = self._morsels.get(key)
        if known is not None:
            return known
        (piece,), data = self.pieces, self.pieces[0].columns[by].data
        cuts = [0, *(int(np.searchsorted(data, data[self.rows * i // number])) for i in range(1, number)), self.rows]
        shared = {n: self._shared_dictionary(n) for n in names}
        parts = [Morsels(len(names)) for _ in range(number)]
        for morsels, first, last in zip(parts, cuts, cuts[1:], strict=False):
            self._add(morsels, piece, names, 0, where, batch_rows, shared, (first, last))
        found = self._morsels[key] = self.source_columns(names), parts
        return found

    def _add(
        self, morsels: Morsels, piece: BlockTable, names: tuple[str, ...], before: int, where: Expr | None,
        batch_rows: int, shared: Mapping[str, bool], within: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        """Add the blocks of a piece that may match; blocks that are partly `within` a range of rows are cut to it."""
        low, high = within or (0, piece.rows)
        possible = np.flatnonzero(possible_blocks(where, piece.columns, -(-piece.rows // BLOCK_ROWS)))
        chosen = [
            (None if n == PLACE else piece.columns[n], n != PLACE and self.schema[n].nullable, shared.get(n, True))
            for n in names
        ]
        morsels.keep.append(piece)
        for block in possible:
            first, last = max(low, int(block) * BLOCK_ROWS), min(high, (int(block) + 1) * BLOCK_ROWS)
            for start, rows in block_runs(first, last, batch_rows) if first < last else ():
                morsels.add(
                    rows,
                    before + start,
                    [_words(morsels, c, start, last, nullable, one) for c, nullable, one in chosen],
                )

    def batches(self, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        for piece in self.pieces:
            yield from piece.batches(names)

    def column(self, name: str) -> pa.ChunkedArray:
        """All values of a column, decoded."""
        return pa.chunked_array(
            [decode(p.columns[name], 0, p.rows) for p in self.pieces], self.fields[name].type.to_arrow()
        )

    def append(self, batches: Iterable[pa.RecordBatch]) -> StoredTable:
        """The table with these rows at its end; their columns are matched by position and have the table's types."""
        rows = [b for b in batches if b.num_rows]
        count = sum(b.num_rows for b in rows)
        if not count:
            return self
        waiting = sum(piece.rows for piece in self.tail)
        if waiting + count < BLOCK_ROWS:
            return StoredTable(self.fields, self.extents, _counted([*self.tail, self._plain(rows)], 0))
        arrays = {
            f.name: pa.chunked_array(
                [decode(p.columns[f.name], 0, p.rows) for p in self.tail] + [_fitting(b.column(i), f) for b in rows],
                f.type.to_arrow(),
            )
            for i, f in enumerate(self.fields)
        }
        full = (waiting + count) // BLOCK_ROWS * BLOCK_ROWS
        encoded = self._encoded({name: array.slice(0, full) for name, array in arrays.items()}, full)
        rest = [pa.RecordBatch.from_arrays([one(array.slice(full)) for array in arrays.values()], list(arrays))]
        return StoredTable(
            self.fields,
            _counted([*self.extents, encoded], MERGED_ROWS),
            (self._plain(rest),) if waiting + count > full else (),
        )

    def _plain(self, batches: list[pa.RecordBatch]) -> BlockTable:
        rows = sum(b.num_rows for b in batches)
        columns: dict[str, BlockColumn] = {
            f.name: plain(
                f.name, f.type, one(pa.chunked_array([_fitting(b.column(i), f) for b in batches], f.type.to_arrow()))
            )
            for i, f in enumerate(self.fields)
        }
        return BlockTable(self.fields, rows, columns)

    def _encoded(
        self,
        arrays: Mapping[str, pa.ChunkedArray],
        rows: int,
        like: BlockTable | None = None,
        encode: Any = encode_like,
    ) -> BlockTable:
        like = like or (self.extents[-1] if self.extents else None)
        if like is None:
            return BlockTable.from_batches(
                self.fields, pa.table(list(arrays.values()), names=list(arrays)).to_batches()
            )
        return BlockTable(
            self.fields, rows, {name: encode(like.columns[name], array) for name, array in arrays.items()}
        )

    def delete(self, places: np.ndarray) -> StoredTable:
        """The table without the rows at these places (sorted, each once)."""
        extents: list[BlockTable] = []
        tail: list[BlockTable] = []
        start = 0
        for number, piece in enumerate(self.pieces):
            mine = places[np.searchsorted(places, start) : np.searchsorted(places, start + piece.rows)] - start
            kept = [piece] if not len(mine) else self._without(piece, mine, number >= len(self.extents))
            (extents if number < len(self.extents) else tail).extend(kept)
            start += piece.rows
        return StoredTable(self.fields, extents, tail)

    def _without(self, piece: BlockTable, places: np.ndarray, plainly: bool) -> list[BlockTable]:
        if len(places) == piece.rows:
            return []
        found = []
        for first, rows, touched in runs(piece.rows, places):
            if not touched:
                found.append(_view(piece, first, rows))
                continue
            gone = np.zeros(rows, np.bool_)
            gone[places[(places >= first) & (places < first + rows)] - first] = True
            keep = pa.array(~gone)
            left = rows - int(gone.sum())
            if left:
                arrays = {
                    f.name: pa.chunked_array([decode(piece.columns[f.name], first, rows).filter(keep)])
                    for f in self.fields
                }
                found.append(self._remade(arrays, left, piece, plainly))
        return found

    def update(self, places: np.ndarray, values: Mapping[str, pa.Array]) -> StoredTable:
        """The table with other values of some columns at these places (sorted, each once); only blocks with such rows
        are written."""
        extents: list[BlockTable] = []
        tail: list[BlockTable] = []
        start = 0
        for number, piece in enumerate(self.pieces):
            low, high = np.searchsorted(places, start), np.searchsorted(places, start + piece.rows)
            mine = {name: array.slice(low, high - low) for name, array in values.items()}
            changed = (
                [piece]
                if low == high
                else self._changed(piece, places[low:high] - start, mine, number >= len(self.extents))
            )
            (extents if number < len(self.extents) else tail).extend(changed)
            start += piece.rows
        return StoredTable(self.fields, extents, tail)

    def _changed(
        self, piece: BlockTable, places: np.ndarray, values: Mapping[str, pa.Array], plainly: bool
    ) -> list[BlockTable]:
        found = []
        for first, rows, touched in runs(piece.rows, places):
            part = _view(piece, first, rows)
            if touched:
                low, high = np.searchsorted(places, first), np.searchsorted(places, first + rows)
                order = np.arange(rows, dtype=np.int64)
                order[places[low:high] - first] = rows + np.arange(high - low)
                columns = dict(part.columns)
                for name, array in values.items():
                    t = self.fields[name].type
                    both = pa.chunked_array(
                        [
                            decode(part.columns[name], 0, rows),
                            _fitting(array.slice(low, high - low), self.fields[name]),
                        ],
                        t.to_arrow(),
                    )
                    mixed = pa.chunked_array([one(both).take(pa.array(order))])
                    # Values that do not fit always get the same, plain layout: each further layout needs another
                    # kernel.
                    fitting = None if plainly else encode_fitting(part.columns[name], mixed)
                    columns[name] = plain(name, t, one(mixed)) if fitting is None else fitting
                part = BlockTable(self.fields, rows, columns)
            found.append(part)
        return found

    def _remade(self, arrays: Mapping[str, pa.ChunkedArray], rows: int, like: BlockTable, plainly: bool) -> BlockTable:
        if not plainly:
            return self._encoded(
                arrays, rows, like, lambda column, values: encode_fitting(column, values) or encode_like(column, values)
            )
        return self._plain([pa.RecordBatch.from_arrays([one(a) for a in arrays.values()], list(arrays))])

    def with_columns(self, fields: Schema, columns: Mapping[str, str | pa.ChunkedArray]) -> StoredTable:
        """Another schema over the same rows: each new column is an old one, by its name, or all of its values."""

        def remade(piece: BlockTable, start: int, plainly: bool) -> BlockTable:
            found: dict[str, BlockColumn] = {}
            for field in fields:
                origin = columns[field.name]
                if isinstance(origin, str):
                    found[field.name] = renamed(piece.columns[origin], field.name)
                else:
                    values = origin.slice(start, piece.rows)
                    table = (
                        BlockTable.from_batches(Schema((field,)), pa.table([values], names=[field.name]).to_batches())
                        if not plainly
                        else None
                    )
                    found[field.name] = (
                        plain(field.name, field.type, one(values)) if table is None else table.columns[field.name]
                    )
            return BlockTable(fields, piece.rows, found)

        starts = np.cumsum([0, *(piece.rows for piece in self.pieces)])
        made = [remade(piece, int(starts[i]), i >= len(self.extents)) for i, piece in enumerate(self.pieces)]
        return StoredTable(fields, made[: len(self.extents)], made[len(self.extents) :])


class WithPlaces(StoredTable):
    """A version with one more column: the place of each row, by which DELETE and UPDATE find the rows again."""

    def __init__(self, table: StoredTable):
        super().__init__(table.fields, table.extents, table.tail)

    @cached_property
    def schema(self) -> Schema:  # type: ignore[override]
        return Schema(
            (*(Field(f.name, f.type, self._nullable(f.name)) for f in self.fields), Field(PLACE, BIGINT, False))
        )

    def statistics(self) -> Statistics:
        known = self._statistics
        return Statistics(
            known.rows,
            known.bytes,
            {**known.columns, PLACE: ColumnStatistics(0, max(0, self.rows - 1), 0, self.rows, True)},
        )


def runs(rows: int, places: np.ndarray) -> Iterator[tuple[int, int, bool]]:
    """(first row, rows, touched): maximal runs of blocks that hold some of the places, or none."""
    touched = np.zeros(-(-rows // BLOCK_ROWS), np.bool_)
    touched[places // BLOCK_ROWS] = True
    edges = [0, *(np.flatnonzero(np.diff(touched)) + 1).tolist(), len(touched)]
    for begin, end in zip(edges, edges[1:], strict=False):
        first = begin * BLOCK_ROWS
        yield first, min(rows, end * BLOCK_ROWS) - first, bool(touched[begin])


def one(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """All chunks as one array."""
    if isinstance(column, pa.Array):
        return column
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks)
        if column.num_chunks
        else pa.array([], column.type)
    )


def _view(piece: BlockTable, first: int, rows: int) -> BlockTable:
    if rows == piece.rows:
        return piece
    return BlockTable(
        Schema(tuple(piece.schema)), rows, {name: view(column, first, rows) for name, column in piece.columns.items()}
    )


def _counted(pieces: list[BlockTable], limit: int) -> list[BlockTable]:
    """Merge the last pieces while the last is as large as the one before it (`limit`: the most rows of a merged piece;
    0: any)."""
    while (
        len(pieces) > 1
        and pieces[-1].rows >= pieces[-2].rows
        and (not limit or pieces[-1].rows + pieces[-2].rows <= limit)
    ):
        last, before = pieces.pop(), pieces.pop()
        pieces.append(_merged(before, last, encoded=bool(limit)))
    return pieces


def _merged(a: BlockTable, b: BlockTable, encoded: bool) -> BlockTable:
    columns = {}
    for field in a.schema:
        x, y = a.columns[field.name], b.columns[field.name]
        both = pa.chunked_array([decode(x, 0, a.rows), decode(y, 0, b.rows)])
        # The newer encoding holds the older one's values, unless an update has changed these.
        columns[field.name] = encode_like(y, both) if encoded else plain(field.name, field.type, one(both))
    return BlockTable(a.schema, a.rows + b.rows, columns)


def _fitting(array: pa.Array, field: Field) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    arrow = field.type.to_arrow()
    return array if array.type == arrow else array.cast(arrow)


def _words(
    morsels: Morsels, column: BlockColumn | None, start: int, last: int, nullable: bool, one_dictionary: bool
) -> tuple[int, int, int, int]:
    if column is None:
        return 0, 0, 0, 0
    data, text, validity, bit = column.addresses(start)
    if nullable and not validity:
        ones = all_ones(last)
        morsels.keep.append(ones)
        validity = ones.address
    if not one_dictionary and column.source.dictionary is not None:
        text = column.source.dictionary.record.address
    return data, text, validity, bit


def _empty(field: Field) -> SourceColumn:
    return plain(field.name, field.type, pa.array([], field.type.to_arrow())).source
