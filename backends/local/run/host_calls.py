"""Host functions: rare functions that a library computes per batch outside the kernel, such as regular expressions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tsql.backends.local.run.constants import constant_array, storage_type
from tsql.kernels.expr.errors import ExecutionError, TsqlError
from tsql.kernels.expr.nodes import Call, Expr, Literal, Parameter
from tsql.kernels.functions.registry import SCALARS


def arguments(calls: list[Call]) -> tuple[list[Expr], list[list[int | None]]]:
    """The argument expressions to compute, and for each call the index of each argument; None for a constant."""
    expressions: list[Expr] = []
    places: list[list[int | None]] = []
    for call in calls:
        row: list[int | None] = []
        for arg in call.args:
            if isinstance(arg, Literal | Parameter):
                row.append(None)
            else:
                row.append(len(expressions))
                expressions.append(arg)
        places.append(row)
    return expressions, places


def compute(
    call: Call, places: list[int | None], values: list[pa.Array], rows: int, parameters: dict[str, Any]
) -> pa.Array:
    """The result of one call for a chunk, in the type that chunks store."""
    function = SCALARS.find(call.name, tuple(a.type for a in call.args))
    args: list[Any] = []
    for arg, place in zip(call.args, places, strict=True):
        if place is not None:
            args.append(values[place])
        else:
            value = arg.value if isinstance(arg, Literal) else parameters[arg.name]
            args.append(constant_array(arg.type, [value], arrow=True)[0])
    try:
        result = function.host(*args)
    except TsqlError as error:
        error.position = call.position if error.position is None else error.position
        raise
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ExecutionError(f"{call.name}: {error}", position=call.position) from None
    if isinstance(result, pa.Scalar):
        result = pa.array([result.as_py()] * rows, result.type)
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    target = storage_type(call.type)
    return result if result.type == target else result.cast(target)
