"""`changes`: from what was shown of a result and what it is now to a list of changes: rows with 1 (new) or -1 (gone).

A result is a bag of rows. NULLs are equal to each other here, and so are NaNs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tsql.backends.live.sinks.sink import CHANGE
from tsql.kernels.expr.errors import PlanError

WEIGHT = "weight"


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
    parts = [_weighted(batch, weight) for batches, weight in ((old, -1), (new, 1)) for batch in batches]
    if not parts:
        return shown.empty_table()
    keys = [str(place) for place in range(len(schema))]
    found = pa.concat_tables(parts).group_by(keys).aggregate([(WEIGHT, "sum")])
    weights = np.asarray(found[f"{WEIGHT}_sum"])
    places = np.flatnonzero(weights)
    places = places[np.argsort(weights[places] > 0, kind="stable")]
    times = np.repeat(places, np.abs(weights[places]))
    signs = pa.array(np.sign(weights[times]).astype(np.int8))
    taken = found.select(keys).take(pa.array(times))
    return pa.Table.from_arrays([*taken.columns, signs], schema=shown)


def _weighted(batch: pa.RecordBatch, weight: int) -> pa.Table:
    names = [*(str(place) for place in range(batch.num_columns)), WEIGHT]
    weights = pa.array(np.full(batch.num_rows, weight, np.int8))
    return pa.Table.from_arrays([*batch.columns, weights], names=names)


def applied(rows: pa.Table, more: pa.Table) -> pa.Table:
    """The rows of a result after a list of changes."""
    schema = rows.schema
    signs = np.asarray(more.column(more.num_columns - 1))
    plain = more.select(range(len(schema))).cast(schema)
    going, coming = plain.filter(pa.array(signs < 0)), plain.filter(pa.array(signs > 0))
    found = changes(going.to_batches(), pa.concat_tables([rows, coming]).to_batches(), schema)
    if found.num_rows and int(np.asarray(found[CHANGE]).min()) < 0:
        raise ValueError("a change takes a row away that is not there")
    return found.select(range(len(schema)))
