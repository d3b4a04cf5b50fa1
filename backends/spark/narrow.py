"""Integers on the wire are as narrow as their values: each batch stores the distance to its least value.

A byte through a shuffle costs some 10 ns of processor time (a pipe, the serializer, compression and checksums of the
JVM, and all of it again on the other side); making a value narrow and wide again costs 2. Keys, dates and prices mostly
fit half of their width."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

LEAST_ROWS = 512
"""Smaller batches stay as they are: calls cost more than bytes."""

_WIDE = {
    str(kind): (kind, plain)
    for plain, kinds in (
        (pa.int64(), (pa.int64(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.time64("us"), pa.duration("us"))),
        (pa.int32(), (pa.int32(), pa.date32())),
        (pa.uint64(), (pa.uint64(),)),
        (pa.uint32(), (pa.uint32(),)),
        (pa.int16(), (pa.int16(),)),
    )
    for kind in kinds
}
"""Types that may become narrow, by their names, with the integers that they are."""

_NARROW = ((1 << 8, pa.uint8()), (1 << 16, pa.uint16()), (1 << 32, pa.uint32()))


def narrowed(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, bytes | None]:
    """The batch with narrow columns, and what `widened` needs to know; None if there are none."""
    if batch.num_rows < LEAST_ROWS:
        return batch, None
    columns, told = list(batch.columns), []
    for number, column in enumerate(columns):
        name = str(column.type)
        if name not in _WIDE:
            continue
        plain = column.view(_WIDE[name][1])
        least, most = (value.as_py() for value in pc.min_max(plain).values())
        if least is None:
            continue
        kind = next((kind for size, kind in _NARROW if most - least < size), None)
        if kind is None or kind.bit_width >= plain.type.bit_width:
            continue
        distance = pc.subtract(plain, pa.scalar(least, plain.type)) if least else plain
        columns[number] = distance.cast(kind, safe=False)
        told.append([number, name, least])
    if not told:
        return batch, None
    return pa.RecordBatch.from_arrays(columns, batch.schema.names), json.dumps(told).encode()


def widened(columns: list[pa.Array], told: bytes) -> list[pa.Array]:
    """The columns as they were."""
    found: list[Any] = list(columns)
    for number, name, least in json.loads(told):
        kind, plain = _WIDE[name]
        wide = found[number].cast(plain)
        found[number] = (pc.add(wide, pa.scalar(least, plain)) if least else wide).view(kind)
    return found
