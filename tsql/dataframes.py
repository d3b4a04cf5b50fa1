"""Results as frames of pandas and polars; `Relation.pandas` and `Relation.polars` call this."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.types import Type
from tsql.values import beyond_polars, beyond_python, python_values

if TYPE_CHECKING:
    import pandas
    import polars


def to_pandas(table: pa.Table, types: tuple[Type, ...], options: dict[str, Any]) -> pandas.DataFrame:
    """A result as a pandas frame. Values that Python cannot represent are those of `fetchall`."""
    table = _unique(table)
    as_rows = [index for index, t in enumerate(types) if beyond_python(table.column(index), t)]
    plain = table
    for index in as_rows:
        plain = plain.set_column(index, table.column_names[index], pa.nulls(table.num_rows))
    frame = plain.to_pandas(**options)
    for index in as_rows:
        values = [value for chunk in table.column(index).chunks for value in python_values(chunk, types[index])]
        frame[table.column_names[index]] = type(frame.iloc[:, index])(values, dtype=object, index=frame.index)
    return frame


def to_polars(table: pa.Table, types: tuple[Type, ...]) -> polars.DataFrame:
    """A result as a polars frame. If polars cannot represent a value, the error names its column."""
    import polars

    table = _unique(table)
    for index, t in enumerate(types):
        name = table.column_names[index]
        text = beyond_polars(table.column(index), t)
        if text is not None:
            raise SourceError(
                f"column {name} holds {text}, which polars cannot hold",
                hint="use .arrow(), or CAST it to VARCHAR in the query",
            )
        if t.name == "INTERVAL":
            table = table.set_column(index, name, _durations(table.column(index), name))
    return polars.from_arrow(table)


def _unique(table: pa.Table) -> pa.Table:
    """Dataframes need one name per column: the second `a` becomes `a_1`, as in DuckDB."""
    names: list[str] = []
    for name in table.column_names:
        candidate, count = name, 0
        while candidate in names:
            count += 1
            candidate = f"{name}_{count}"
        names.append(candidate)
    return table.rename_columns(names)


def _durations(column: pa.ChunkedArray, name: str) -> pa.Array:
    """INTERVAL as Arrow durations, for libraries without calendar intervals."""
    found = []
    for value in column.to_pylist():
        if value is not None and value[0]:
            raise SourceError(
                f"column {name} holds intervals of months, which polars cannot hold",
                hint="use .arrow(), or compute days in the query",
            )
        found.append(None if value is None else value[1] * 86_400_000_000 + value[2] // 1000)
    try:
        return pa.array(found, pa.duration("us"))
    except OverflowError:
        raise SourceError(
            f"column {name} holds intervals that are too long for polars",
            hint="use .arrow(), or compute days in the query",
        ) from None
