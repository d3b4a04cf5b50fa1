"""Columns of Python objects as Arrow arrays: one type for all values of a column, and no value is changed.

`frames` calls `array_of`. Arrow picks the type of the first or widest value and converts the rest: a time is cut from
its date, a time zone is lost, a number becomes a date. So the kinds of values are checked first. Compatible kinds
become one kind here, or in Arrow where that is exact; all others are an error. Integers past 64 bits become UBIGINT or
HUGEINT."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tsql.backends.io.text import from_stored
from tsql.kernels.expr.types import HUGEINT, UBIGINT

_KINDS: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("true or false", (bool, np.bool_)),
    ("lengths of time", (dt.timedelta, np.timedelta64)),
    ("whole numbers", (int, np.integer)),
    ("floating-point numbers", (float, np.floating)),
    ("decimals", (Decimal,)),
    ("texts", (str,)),
    ("bytes", (bytes, bytearray, memoryview)),
    ("timestamps", (dt.datetime, np.datetime64)),
    ("dates", (dt.date,)),
    ("times", (dt.time,)),
)
"""The kind of a value: the first that fits, since Python's True is an integer, and its timestamps are dates."""
_TOGETHER = ({"whole numbers", "floating-point numbers"}, {"whole numbers", "decimals"}, {"timestamps", "dates"})
_MISSING = ("NaTType", "NAType")
"""The NULLs of pandas besides NaN, which is also a number."""
_MIDNIGHT = dt.time()


def holds_objects(values: Any) -> bool:
    """Whether a numpy or pandas column is one of Python objects."""
    return getattr(values, "dtype", None) == np.dtype(object)


def array_of(values: Any) -> pa.Array:
    """A list, an array or a series as an Arrow array. Raises an Arrow error, TypeError, ValueError or OverflowError."""
    if hasattr(values, "dtype") and not holds_objects(values):
        return pa.array(values)
    if any(
        hasattr(values, way) for way in ("__arrow_array__", "__arrow_c_array__", "__arrow_c_stream__")
    ) and not holds_objects(values):
        return pa.array(values)
    if not hasattr(values, "isna"):
        return _of_objects(list(values))
    listed = values.tolist()
    if set(map(type, listed)) <= {str, float, type(None)}:
        return pa.array(
            values, from_pandas=True
        )  # texts and NaN for none: the usual column of objects, and Arrow is faster
    return _of_objects(
        [None if missing else value for value, missing in zip(listed, values.isna().tolist(), strict=True)]
    )


def _of_objects(values: list[Any]) -> pa.Array:
    types = set(map(type, values))
    missing = {one for one in types if one.__name__ in _MISSING}
    if missing:
        values = [None if type(value) in missing else value for value in values]
    kinds = {_kind(one) for one in types - missing} - {None}
    if len(kinds) > 1 and kinds not in _TOGETHER:
        raise ValueError(
            "the values are of kinds that make no common type: "
            f"{', '.join(name for name, _ in _KINDS if name in kinds)}"
        )
    if kinds & {"timestamps", "times"}:
        _check_zones(values, kinds)
    if kinds == {"timestamps", "dates"}:
        values = [dt.datetime.combine(value, _MIDNIGHT) if _kind(type(value)) == "dates" else value for value in values]
    elif kinds == {"whole numbers", "decimals"}:
        values = [value if value is None or isinstance(value, Decimal) else Decimal(int(value)) for value in values]
    try:
        return pa.array(values)
    except (OverflowError, pa.ArrowInvalid):
        if kinds != {"whole numbers"}:
            raise
        return whole_numbers([None if value is None else int(value) for value in values])


def _kind(one: type) -> str | None:
    return next((name for name, types in _KINDS if issubclass(one, types)), None)


def _check_zones(values: list[Any], kinds: set[str | None]) -> None:
    aware = {getattr(value, "tzinfo", None) is not None for value in values if value is not None}
    if True not in aware:
        return
    if "times" in kinds:
        raise ValueError("there is no type for times of day with a time zone")
    if len(aware) > 1:
        raise ValueError("some of the values have a time zone and some have none")


def whole_numbers(values: Sequence[int | None]) -> pa.Array:
    """Integers, some of which do not fit in a signed 64-bit integer."""
    present = [value for value in values if value is not None]
    for kind in (UBIGINT, HUGEINT):
        low, high = kind.bounds
        if low <= min(present) and max(present) <= high:
            return from_stored(list(values), kind)
    wrong = next(value for value in present if not HUGEINT.bounds[0] <= value <= HUGEINT.bounds[1])
    raise ValueError(f"the number {wrong} is out of the range of HUGEINT, which has 128 bits")
