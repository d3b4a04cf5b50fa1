"""Folds lists of changes (`CHANGE` is their last column: 1 adds a row, -1 takes one away) into the rows that are left.

Rows are a bag: a row that was added twice and taken away once is there once. Used by the sinks that show the current
result, and by tests. A list may name its changes in any order, and the same rows result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tsql.kernels.expr.errors import SourceError


def net(changes: pa.Table) -> pa.Table:
    """Each row that differs before and after, once, with the sum of its changes as the last column."""
    names, change = changes.column_names, changes.column(changes.num_columns - 1)
    if changes.num_columns == 1:
        whole = int(np.asarray(change, np.int64).sum())
        return pa.table({names[-1]: pa.array([whole] if whole else [], pa.int64())})
    # Group keys are places: names may be repeated.
    keys = [str(place) for place in range(changes.num_columns - 1)]
    grouped = pa.table([_key(column) for column in changes.columns[:-1]], keys)
    sums = (
        grouped.append_column("change", change.cast(pa.int64()))
        .append_column("row", pa.array(np.arange(len(changes))))
        .group_by(keys, use_threads=False)
        .aggregate([("change", "sum"), ("row", "min")])
    )
    total, first = np.asarray(sums.column("change_sum")), np.asarray(sums.column("row_min"))
    order = np.argsort(first)
    order = order[total[order] != 0]
    rows = changes.select(range(changes.num_columns - 1)).take(pa.array(first[order]))
    schema = rows.schema.append(pa.field(names[-1], pa.int64()))
    return pa.Table.from_arrays([*rows.columns, pa.chunked_array([pa.array(total[order])])], schema=schema)


def _key(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column that Arrow can group by, with equal values where the column has."""
    if column.type == pa.month_day_nano_interval():
        return pa.chunked_array([_interval_bytes(chunk) for chunk in column.chunks], pa.binary(16))
    return column


def _interval_bytes(chunk: pa.Array) -> pa.Array:
    texts = [
        None
        if value is None
        else b"".join(
            part.to_bytes(size, "little", signed=True)
            for part, size in ((value.months, 4), (value.days, 4), (value.nanoseconds, 8))
        )
        for value in chunk.to_pylist()
    ]
    return pa.array(texts, pa.binary(16))


def fold(changes: pa.Table) -> pa.Table:
    """The rows that are left, without the column of changes, in the order in which they first came."""
    left = net(changes)
    counts = np.asarray(left.column(left.num_columns - 1), np.int64)
    if (counts < 0).any():
        row = left.slice(int(np.flatnonzero(counts < 0)[0]), 1).select(range(left.num_columns - 1)).to_pylist()
        raise SourceError(f"these changes take away a row that is not there: {row[0]}")
    rows = left.select(range(left.num_columns - 1))
    return rows.take(pa.array(np.repeat(np.arange(len(counts)), counts)))


def by_key(changes: pa.Table, keys: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """What the changes do to a table with one row for each key: the rows to put, whole, in the place of an older row of
    their key, and the keys whose rows are gone."""
    left = net(changes)
    counts = np.asarray(left.column(left.num_columns - 1), np.int64)
    rows = left.select(range(left.num_columns - 1))
    put = rows.filter(pa.array(counts > 0))
    places = [rows.column_names.index(key) for key in keys]
    # A key that has a row to put counts above 0, whatever rows of it are gone.
    names = [str(place) for place in range(len(places))]
    found = pa.table([_key(rows.column(place)) for place in places], names)
    groups = (
        found.append_column("count", pa.array(counts.clip(0)))
        .append_column("row", pa.array(np.arange(len(counts))))
        .group_by(names, use_threads=False)
        .aggregate([("count", "sum"), ("row", "min")])
    )
    kept = np.asarray(groups.column("count_sum"), np.int64)
    if (kept > 1).any():
        row = rows.select(places).slice(int(np.asarray(groups.column("row_min"))[kept > 1][0]), 1).to_pylist()
        raise SourceError(f"the result has several rows of the key {row[0]}")
    gone = rows.select(places).take(pa.array(np.asarray(groups.column("row_min"))[kept == 0]))
    return put, gone
