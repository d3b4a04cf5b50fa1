"""Python data as Arrow tables: dicts of columns, lists of dicts, pandas and polars frames. Called by
`catalog.as_source` and `ArrowSource`.

`objects` finds the types of columns of Python objects. A frame column without a type becomes unreadable, so that the
others can still be read. In dicts and lists it is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from tsql.backends.io.objects import array_of, holds_objects, whole_numbers

_OBJECT = pa.opaque(pa.null(), "object", "Python")
_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError)
_NO_COLUMNS = (str, bytes, bytearray, memoryview, Mapping, set, frozenset)
"""Iterable in Python, but a single value or unordered."""
_COLUMN_WAYS = ("__iter__", "__getitem__", "__array__", "__arrow_array__", "__arrow_c_array__", "__arrow_c_stream__")


def table_of_columns(columns: Mapping[Any, Any]) -> pa.Table:
    """A table of columns by name: lists, Arrow or numpy arrays."""
    return pa.table({_name(name): _column(name, values) for name, values in columns.items()})


def table_of_rows(rows: Sequence[Mapping[Any, Any]]) -> pa.Table:
    """A table of rows. The columns are all keys in order of first appearance, with NULL where a row lacks one."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return table_of_columns({key: [row.get(key) for row in rows] for key in keys})


def table_of_stream(data: Any) -> pa.Table:
    """A table of anything that speaks Arrow's C interface for streams."""
    if type(data).__module__.partition(".")[0] == "polars" and hasattr(data, "get_columns"):
        return _of_polars(data)
    pandas = type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "iloc")
    if pandas and any(map(holds_objects, [*(data.iloc[:, place] for place in range(data.shape[1])), data.index])):
        return _of_pandas(data)
    try:
        return pa.RecordBatchReader.from_stream(data).read_all()
    except _REFUSED:
        if not pandas:
            raise
        return _of_pandas(data)


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a column is a text, not {name!r}")
    return name


def _column(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, _NO_COLUMNS) or not any(hasattr(values, way) for way in _COLUMN_WAYS):
        raise TypeError(
            f"column {name}: a column is a list, an array, or a series, not a Python {type(values).__name__}"
        )
    try:
        return array_of(values)
    except _REFUSED as error:
        raise ValueError(f"column {name}: {error}") from error


def _of_pandas(frame: Any) -> pa.Table:
    """A pandas frame column by column, followed by its index unless that only numbers the rows."""
    columns = [(str(name), frame.iloc[:, place]) for place, name in enumerate(frame.columns)]
    if type(frame.index).__name__ != "RangeIndex":
        levels = range(frame.index.nlevels)
        columns += [
            (
                f"__index_level_{i}__" if frame.index.names[i] is None else str(frame.index.names[i]),
                frame.index.get_level_values(i),
            )
            for i in levels
        ]
    return _table((name, partial(array_of, series), series.tolist) for name, series in columns)


def _of_polars(frame: Any) -> pa.Table:
    """A polars frame. Object columns would arrive as memory addresses, and 128-bit integers in a form that Arrow does
    not have."""
    own = [str(series.dtype) in ("Object", "Int128", "UInt128") for series in frame.get_columns()]
    if not any(own):
        return pa.RecordBatchReader.from_stream(frame).read_all()

    def arrow(series: Any) -> Callable[[], pa.Array]:
        return lambda: pa.RecordBatchReader.from_stream(series.to_frame()).read_all().column(0)

    def refuse() -> pa.Array:
        raise OverflowError

    columns = zip(frame.get_columns(), own, strict=True)
    return _table((series.name, refuse if mine else arrow(series), series.to_list) for series, mine in columns)


def _table(columns: Iterable[tuple[str, Callable[[], Any], Callable[[], list[Any]]]]) -> pa.Table:
    """A table of columns: (name, its Arrow data, its values if there is no Arrow data)."""
    names, arrays = [], []
    for name, arrow, listed in columns:
        names.append(name)
        try:
            arrays.append(arrow())
        except _REFUSED:
            arrays.append(_numbers_or_objects(listed()))
    return pa.table(arrays, names=names)


def _numbers_or_objects(values: list[Any]) -> pa.Array:
    found = (
        [None if value != value else value for value in values]
        if any(isinstance(value, float) for value in values)
        else values
    )
    if any(isinstance(value, int) for value in found) and all(
        value is None or (isinstance(value, int) and not isinstance(value, bool)) for value in found
    ):
        return whole_numbers(found)
    return pa.ExtensionArray.from_storage(_OBJECT, pa.nulls(len(values)))
