"""`changes`: from what was shown of a result and what it is now to a list of changes: rows with 1 (new) or -1 (gone).

A result is a bag of rows. NULLs are equal to each other here, and so are NaNs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tsql.backends.live.sinks.changes import net
from tsql.backends.live.sinks.sink import CHANGE
from tsql.kernels.expr.errors import PlanError


def with_change(schema: pa.Schema) -> pa.Schema:
    """The schema of a list of changes of rows with this schema."""
    return schema.append(pa.field(CHANGE, pa.int8()))


def check_comparable(schema: pa.Schema) -> None:
    """Refuse columns whose values cannot be compared."""
    for field in schema:
        if pa.types.is_nested(field.type):
            raise PlanError(
                f"values of column {field.name} cannot be compared, so its changes are not known", hint="EMIT FINAL"
            )
        if field.name == CHANGE:
            raise PlanError(
                f"a column of the result is called {CHANGE}, as the one that tells rows that come from rows that go",
                hint=f"give it another name: {CHANGE} AS ..",
            )


def changes(old: Sequence[pa.RecordBatch], new: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """What turns the old rows into the new ones; rows that go are before those that come."""
    shown = with_change(schema)
    parts = [_weighted(batch, weight, shown) for batches, weight in ((old, -1), (new, 1)) for batch in batches]
    if not parts:
        return shown.empty_table()
    left = net(pa.concat_tables(parts))
    weights = np.asarray(left.column(left.num_columns - 1))
    places = np.argsort(weights > 0, kind="stable")
    times = np.repeat(places, np.abs(weights[places]))
    signs = pa.array(np.sign(weights[times]).astype(np.int8))
    taken = left.select(range(len(schema))).take(pa.array(times))
    return pa.Table.from_arrays([*taken.columns, pa.chunked_array([signs])], schema=shown)


def _weighted(batch: pa.RecordBatch, weight: int, schema: pa.Schema) -> pa.Table:
    weights = pa.array(np.full(batch.num_rows, weight, np.int8))
    return pa.Table.from_arrays([*batch.columns, weights], schema=schema)
