"""Constants in stored form → Arrow arrays, for VALUES and for arguments of host functions; also the values of LIMIT and
OFFSET."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tsql.kernels.expr.constant import evaluate_with
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.types import INTERVAL_RANGE, Type


def storage_type(t: Type) -> pa.DataType:
    """The Arrow type of a collected column with this SQL type: decimals of up to 18 digits are integers."""
    return pa.int64() if t.is_decimal and t.width <= 18 else t.to_arrow()


def constant_array(t: Type, values: list[Any], arrow: bool = False) -> pa.Array:
    """An array of stored values (see kernels.expr.Literal). With `arrow`, decimals have Arrow's decimal type."""
    target = t.to_arrow() if arrow else storage_type(t)
    if pa.types.is_decimal(target):
        data = b"".join((0 if v is None else v).to_bytes(16, "little", signed=True) for v in values)
        return pa.Array.from_buffers(target, len(values), [_validity(values), pa.py_buffer(data)])
    if t.name == "INTERVAL":
        if any(v is not None and not -(2**63) <= v[2] * 1000 < 2**63 for v in values):
            raise ExecutionError(INTERVAL_RANGE)
        return pa.array([None if v is None else pa.MonthDayNano([v[0], v[1], v[2] * 1000]) for v in values], target)
    if t.is_temporal:
        width = pa.int32() if t.name == "DATE" else pa.int64()
        return pa.array(values, width).view(target)
    return pa.array(values, target)


def _validity(values: list[Any]) -> pa.Buffer | None:
    if all(v is not None for v in values):
        return None
    return pa.array([v is not None for v in values], pa.bool_()).buffers()[1]


def row_count(expr: Expr | None, parameters: dict[str, Any]) -> Any:
    """The value of a LIMIT or OFFSET."""
    if expr is None:
        return None
    value = evaluate_with(expr, parameters)
    if value is not None and value < 0:
        raise ExecutionError("LIMIT and OFFSET cannot be negative", position=getattr(expr, "position", None))
    return value
