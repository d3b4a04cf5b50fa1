"""Format `binary`: a message is one or more records of fixed width: the declared columns in their order, packed, with
the low byte first. There are no NULLs.

    BOOLEAN                    1 byte, 0 or 1
    integers, FLOAT, DOUBLE    their width
    DATE                       4 bytes, days since 1970
    TIME, TIMESTAMP(TZ)        8 bytes, microseconds since midnight or 1970
    DECIMAL(width, scale)      the unscaled integer: 8 bytes up to 18 digits, else 16
    HUGEINT                    16 bytes

The messages of a batch are one piece of memory, of which each column is a strided view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tsql.backends.live.formats.format import BadMessages, Where, refuse_types
from tsql.backends.live.sources.columns import joined
from tsql.backends.live.sources.notices import Notices
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import Type

_FORMS = {
    "BOOLEAN": "u1", "TINYINT": "i1", "SMALLINT": "<i2", "INTEGER": "<i4", "BIGINT": "<i8", "UTINYINT": "u1",
    "USMALLINT": "<u2", "UINTEGER": "<u4", "UBIGINT": "<u8", "FLOAT": "<f4", "DOUBLE": "<f8", "DATE": "<i4",
    "TIME": "<i8", "TIMESTAMP": "<i8", "TIMESTAMPTZ": "<i8",
}  # fmt: skip
_WIDE = np.dtype([("low", "<u8"), ("high", "<i8")])
_DAY_US = 86_400_000_000


class BinaryFormat:
    """Decodes packed records."""

    def __init__(self, options: Mapping[str, Any], schema: Schema, notices: Notices) -> None:
        hint = "fixed-width types only: use format = 'arrow' or 'json'"
        refuse_types(schema, "binary", ("VARCHAR", "BLOB", "INTERVAL"), hint)
        self.schema = schema
        self._record = np.dtype([(f"c{i}", _form(field.type)) for i, field in enumerate(schema)])
        self._bad = BadMessages(options, notices)

    def decode(self, messages: Sequence[bytes], where: Where) -> pa.RecordBatch:
        width = self._record.itemsize
        block = b"".join(messages)
        starts: np.ndarray | None = None
        if len(block) != len(messages) * width:
            bytes_of = np.fromiter(map(len, messages), np.int64, len(messages))
            wrong = (bytes_of == 0) | (bytes_of % width != 0)
            if wrong.any():
                first = int(wrong.argmax())
                self._bad.meet(
                    SourceError(f"{where(first)}: has {bytes_of[first]} bytes; a record has {width}"), int(wrong.sum())
                )
                kept = np.flatnonzero(~wrong)
                return self.decode([messages[i] for i in kept.tolist()], lambda i: where(int(kept[i])))
            starts = np.repeat(np.arange(len(messages)), bytes_of // width)
        records = np.frombuffer(block, self._record)
        good = np.ones(len(records), np.bool_)
        for i, field in enumerate(self.schema):
            wrong = _out_of_range(records[f"c{i}"], field.type)
            if wrong is not None and wrong.any():
                row = int(wrong.argmax())
                at = where(row if starts is None else int(starts[row]))
                error = f"{at}: column {field.name}: the stored value is no {field.type}"
                self._bad.meet(SourceError(error), int((wrong & good).sum()))
                good &= ~wrong
        if not good.all():
            records = records[good]
        if not len(records):
            return joined([], self.schema)
        arrays = [_array(records[f"c{i}"], field) for i, field in enumerate(self.schema)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema.to_arrow())


def _form(kind: Type) -> Any:
    if kind.name == "HUGEINT" or (kind.is_decimal and kind.bits == 128):
        return _WIDE
    return "<i8" if kind.is_decimal else _FORMS[kind.name]


def _out_of_range(values: np.ndarray, kind: Type) -> np.ndarray | None:
    """Which values the type does not have; None if it has all."""
    if kind.name == "BOOLEAN":
        return values > 1
    if kind.name == "TIME":
        return (values < 0) | (values > _DAY_US)
    if kind.is_decimal and values.dtype != _WIDE:
        return np.abs(values) > kind.bounds[1]
    if kind.is_decimal:
        low, high = values["low"], values["high"]
        top = kind.bounds[1]
        return _above(low, high, top) | ~_above(low, high, -top - 1)
    return None


def _above(low: np.ndarray, high: np.ndarray, bound: int) -> np.ndarray:
    """Which 128-bit integers are greater than a bound."""
    bound_high, bound_low = bound >> 64, np.uint64(bound & (2**64 - 1))
    return (high > bound_high) | ((high == bound_high) & (low > bound_low))


def _array(values: np.ndarray, field: Field) -> pa.Array:
    kind, arrow = field.type, field.type.to_arrow()
    if kind.name == "BOOLEAN":
        return pa.array(values != 0)
    if kind.is_decimal and values.dtype != _WIDE:
        wide = np.empty(len(values), _WIDE)
        wide["low"], wide["high"] = values.astype(np.uint64), values >> 63
        values = wide
    return pa.Array.from_buffers(arrow, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
