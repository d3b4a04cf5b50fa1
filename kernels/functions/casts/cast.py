"""CAST and TRY_CAST: chooses the family of a cast and says what becomes of a value that does not fit.

`kernels/emit/expressions.py` calls `emit_cast` inside the guard of the argument's validity. Casts between numbers are
straight code over known bounds; casts from and to text are calls of routines, made for values that are not NULL only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum, null
from tsql.kernels.expr.types import VARCHAR, Type
from tsql.kernels.functions.casts.numbers import cast_number
from tsql.kernels.functions.casts.rules import can_cast, is_number
from tsql.kernels.functions.casts.text import cast_from_text, cast_to_text
from tsql.kernels.functions.casts.time import cast_time


def emit_cast(k: PipelineKernel, datum: Datum, target: Type, safe: bool) -> Datum:
    """`datum` as a value of `target`. A value that cannot be converted fails, or is NULL if the cast is `safe`."""
    source = datum.type
    if source == target:
        return datum
    if source.name == "NULL":
        return null(k, target)
    if not can_cast(source, target):
        raise TypeError(f"no cast from {source} to {target}")
    if target == VARCHAR:
        return _lazily(k, datum, target, lambda value: cast_to_text(k, value))
    if source == VARCHAR:
        return _lazily(k, datum, target, lambda value: cast_from_text(k, value, target, safe))
    if is_number(source):
        return cast_number(k, datum, target, safe)
    return cast_time(k, datum, target, safe)


def _lazily(k: PipelineKernel, datum: Datum, target: Type, convert: Callable[[Datum], Datum]) -> Datum:
    """The cast of a value that may be NULL, in a branch that NULLs do not take."""
    if datum.valid is None:
        return convert(datum)
    slots = [k.var(k.const(t, 0)) for t in target.parts]
    ok = k.var(k.false)
    with k.when(datum.valid):
        result = convert(replace(datum, valid=None)).wide()
        for slot, part in zip(slots, result.parts, strict=True):
            slot.set(part)
        ok.set(k.true if result.valid is None else result.valid)
    return Datum(target, tuple(slot.value for slot in slots), ok.value)
