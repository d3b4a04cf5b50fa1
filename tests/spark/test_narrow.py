"""Integers on the wire are narrow, and come back as they were."""

from __future__ import annotations

import datetime as dt
import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tsql.backends.local.run.host import Chunk
from tsql.backends.spark.narrow import LEAST_ROWS, narrowed, widened
from tsql.backends.spark.wire import decode_chunks, encode_chunks

TYPES = (pa.int16(), pa.int32(), pa.int64(), pa.uint32(), pa.uint64())
TIMES = (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.time64("us"), pa.duration("us"), pa.date32())


def limits(kind: pa.DataType) -> tuple[int, int]:
    bits = kind.bit_width
    return (0, 2**bits - 1) if pa.types.is_unsigned_integer(kind) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@pytest.mark.parametrize("seed", range(20))
def test_random_columns(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    columns = []
    rows = chance.choice([LEAST_ROWS, 1000, 5000])
    for _ in range(6):
        kind = chance.choice((*TYPES, *TIMES))
        plain = pa.int32() if kind.bit_width == 32 and kind not in TYPES else pa.int64() if kind in TIMES else kind
        low, high = limits(plain)
        span = chance.choice([0, 1, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, high - low])
        start = chance.choice([low, high - min(span, high - low), 0 if low <= 0 <= high - span else low])
        ends = [start, min(high, start + span)]
        values = ends + [chance.randint(*ends) for _ in range(rows - 2)]
        mask = [chance.random() < chance.choice([0, 0.3, 1]) for _ in values]
        columns.append(pa.array([None if no else v for v, no in zip(values, mask, strict=True)], plain).view(kind))
    offset = chance.choice([0, 0, 3])
    columns = [column.slice(offset) for column in columns]
    batch = pa.RecordBatch.from_arrays(columns, [str(number) for number in range(len(columns))])
    found, told = narrowed(batch)
    assert found.nbytes <= batch.nbytes + 64 * len(columns)
    back = found.columns if told is None else widened(found.columns, told)
    assert [column.type for column in back] == [column.type for column in columns]
    assert all(one.equals(other) for one, other in zip(back, columns, strict=True))


def test_widths() -> None:
    values = pa.array(range(10**12, 10**12 + 200)).take(pa.array([i % 200 for i in range(LEAST_ROWS)]))
    days = pa.array([dt.date(2000, 1, 1), dt.date(2100, 1, 1)] * (LEAST_ROWS // 2))
    texts = pa.array(["a"] * LEAST_ROWS)
    found, told = narrowed(
        pa.RecordBatch.from_arrays([values, days, texts, pc.cast(values, pa.float64())], list("abcd"))
    )
    assert [str(column.type) for column in found.columns] == ["uint8", "uint16", "string", "double"]
    assert told is not None
    few = pa.RecordBatch.from_arrays([values.slice(1)], ["a"])
    assert narrowed(few) == (few, None)


def test_blobs_are_smaller() -> None:
    rows = 30_000
    chunks = [
        Chunk((0,), rows, [pa.array(range(start, start + rows)), pa.array([None] * rows, pa.int64())])
        for start in (0, 10**15)
    ]
    wide, narrow = (sum(map(len, encode_chunks(chunks, narrow=how))) for how in (False, True))
    assert narrow < 0.7 * wide
    for how in (False, True):
        found = [
            chunk
            for place, blob in enumerate(encode_chunks(chunks, narrow=how))
            for chunk in decode_chunks(blob, 2, place)
        ]
        assert sum(chunk.rows for chunk in found) == 2 * rows
        for column in range(2):
            expected = pa.concat_arrays([chunk.arrays[column] for chunk in chunks])
            assert pa.concat_arrays([chunk.arrays[column] for chunk in found]).equals(expected)
