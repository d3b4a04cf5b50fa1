"""error: fails with the given message if a row reaches it."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import NULL, VARCHAR
from tsql.kernels.functions.registry import function


@function("error", args=(VARCHAR,), returns=NULL, lazy=True, can_fail=True)
def error(k: PipelineKernel, message: Datum) -> Val:
    """No value: the query ends with the message."""
    k.fail(k.true, "{detail}", detail=(message.ptr, message.len))
    return k.i32(0)
