"""Python's data as Arrow tables: dicts of columns, lists of dicts, pandas and polars frames. `catalog.as_source` and `ArrowSource` call this.

What Arrow refuses is looked at column by column: whole numbers past 64 bits become UBIGINT or HUGEINT, and a column of frames that has no
Arrow type at all (Python objects) becomes one that cannot be read, so that the others can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tsql.backends.sources.text import from_stored
from tsql.kernels.types import HUGEINT, UBIGINT

_OBJECT = pa.opaque(pa.null(), "object", "Python")
_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError)


def table_of_columns(columns: Mapping[Any, Any]) -> pa.Table:
    """A table of columns by name: lists, Arrow or numpy arrays."""
    return pa.table({_name(name): values if isinstance(values, pa.Array | pa.ChunkedArray) else _array(values) for name, values in columns.items()})


def table_of_rows(rows: Sequence[Mapping[Any, Any]]) -> pa.Table:
    """A table of rows: the columns are all keys, in the order in which they are first met, with NULL where a row lacks one."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return table_of_columns({key: [row.get(key) for row in rows] for key in keys})


def table_of_stream(data: Any) -> pa.Table:
    """A table of anything that speaks Arrow's C interface for streams."""
    if type(data).__module__.partition(".")[0] == "polars" and hasattr(data, "get_columns"):
        return _of_polars(data)
    try:
        return pa.RecordBatchReader.from_stream(data).read_all()
    except _REFUSED:
        if type(data).__module__.partition(".")[0] != "pandas" or not hasattr(data, "iloc"):
            raise
        return _of_pandas(data)


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a column is a text, not {name!r}")
    return name


def _array(values: Any) -> pa.Array:
    try:
        return pa.array(values)
    except (OverflowError, pa.ArrowInvalid):
        found = values if isinstance(values, list | tuple) else list(values)
        if not all(value is None or (isinstance(value, int) and not isinstance(value, bool)) for value in found):
            raise
        return _whole_numbers(found)


def _whole_numbers(values: Sequence[int | None]) -> pa.Array:
    """Numbers some of which are past 64 bits with a sign."""
    present = [value for value in values if value is not None]
    for kind in (UBIGINT, HUGEINT):
        low, high = kind.bounds
        if low <= min(present) and max(present) <= high:
            return from_stored(list(values), kind)
    wrong = next(value for value in present if not HUGEINT.bounds[0] <= value <= HUGEINT.bounds[1])
    raise ValueError(f"the number {wrong} is out of the range of HUGEINT, which has 128 bits")


def _of_pandas(frame: Any) -> pa.Table:
    """A pandas frame column by column, with its index behind them where it is more than the numbers of the rows."""
    columns = [(str(name), frame.iloc[:, place]) for place, name in enumerate(frame.columns)]
    if type(frame.index).__name__ != "RangeIndex":
        levels = range(frame.index.nlevels)
        columns += [(f"__index_level_{i}__" if frame.index.names[i] is None else str(frame.index.names[i]), frame.index.get_level_values(i)) for i in levels]
    return _table((name, lambda series=series: pa.array(series, from_pandas=True), series.tolist) for name, series in columns)


def _of_polars(frame: Any) -> pa.Table:
    """A polars frame. Objects would arrive as addresses in memory, and numbers of 128 bits in a form that Arrow does not have."""
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
    """A table of columns: (name, its Arrow data, its values for the case that there is none)."""
    names, arrays = [], []
    for name, arrow, listed in columns:
        names.append(name)
        try:
            arrays.append(arrow())
        except _REFUSED:
            arrays.append(_numbers_or_objects(listed()))
    return pa.table(arrays, names=names)


def _numbers_or_objects(values: list[Any]) -> pa.Array:
    found = [None if value != value else value for value in values] if any(isinstance(value, float) for value in values) else values
    if any(isinstance(value, int) for value in found) and all(value is None or (isinstance(value, int) and not isinstance(value, bool)) for value in found):
        return _whole_numbers(found)
    return pa.ExtensionArray.from_storage(_OBJECT, pa.nulls(len(values)))
