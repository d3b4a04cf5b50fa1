"""`Datum`: a SQL value inside a kernel: the registers that hold it, and whether it is NULL."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Protocol, overload

from tsql.kernels.codegen.kir import INTEGERS
from tsql.kernels.codegen.lang import Kernel, Val
from tsql.kernels.expr.types import Type
from tsql.kernels.process.quick_dataclass import dataclass

if TYPE_CHECKING:
    from tsql.kernels.emit.context import PipelineKernel


@dataclass(frozen=True, eq=False)
class Datum:
    """A value of a SQL type.

    parts: the registers: one value; (pointer, length in bytes) for VARCHAR and BLOB; (months, days, micros) for
        INTERVAL.
    valid: i1, false for NULL; None if it can never be NULL. The parts of a NULL are defined but arbitrary; a NULL
        string is safe to read (its length is that of some readable bytes).
    range: known bounds of an integer, decimal or temporal value. If set, `value` may be in a narrower integer type than
        the SQL type's own; `wide(k)` gives the SQL type's.
    stable: read from memory that we made (a table's blocks, collected rows). The bytes of such a string outlive the
        query's states, so it need not be copied. The range of such a number is a fact, that of a file only a claim.
    """

    type: Type
    parts: tuple[Val, ...]
    valid: Val | None = None
    range: tuple[int, int] | None = None
    stable: bool = field(default=False, kw_only=True)

    @property
    def value(self) -> Val:
        return self.parts[0]

    @property
    def ptr(self) -> Val:
        return self.parts[0]

    @property
    def len(self) -> Val:
        return self.parts[1]

    @property
    def text(self) -> tuple[Val, Val]:
        """The pointer and the length of a string."""
        pointer, length = self.parts
        return pointer, length

    @property
    def span(self) -> tuple[Val, Val, Val]:
        """The months, days and microseconds of an interval."""
        months, days, micros = self.parts
        return months, days, micros

    @property
    def bounds(self) -> tuple[int, int]:
        """The tightest known bounds of an integer-like value."""
        if self.range is not None:
            return self.range
        bits = INTEGERS[self.value.type]
        if self.type.is_unsigned:
            return 0, 2**bits - 1
        return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def wide(self) -> Datum:
        """The same value in the registers of its SQL type."""
        own = self.type.parts
        if len(own) > 1 or self.range is None:
            return self
        # An unsigned value in the registers of its type is bits, not a signed number, so it has no bounds.
        bounds = None if self.type.is_unsigned else self.range
        return replace(self, parts=(self.parts[0].to(own[0]),), range=bounds)

    def with_valid(self, valid: Val | None) -> Datum:
        return replace(self, valid=valid)


class Row(Protocol):
    """A row while it is being emitted."""

    def column(self, k: PipelineKernel, name: str) -> Datum: ...


@overload
def both(a: Val, b: Val | None) -> Val: ...


@overload
def both(a: Val | None, b: Val) -> Val: ...


@overload
def both(a: Val | None, b: Val | None) -> Val | None: ...


def both(a: Val | None, b: Val | None) -> Val | None:
    """The conjunction of two validities. None means always true."""
    if a is None or b is None:
        return b if a is None else a
    return a & b


def all_valid(data: tuple[Datum, ...] | list[Datum]) -> Val | None:
    valid: Val | None = None
    for d in data:
        valid = both(valid, d.valid)
    return valid


def null(k: Kernel, type: Type) -> Datum:
    """The NULL of a type."""
    return Datum(type, tuple(k.const(t, 0) for t in type.parts), k.false)


def literal_parts(k: Kernel, type: Type, value: Any) -> tuple[Val, ...]:
    """Registers that hold a constant baked into the kernel (fixed-width types)."""
    if type.name == "INTERVAL":
        return tuple(k.const(t, v) for t, v in zip(type.parts, value, strict=True))
    return (k.const(type.parts[0], value),)


def smallest_int(low: int, high: int) -> str:
    """The narrowest of i64 and i128 that holds the bounds (narrower registers do not make arithmetic faster)."""
    return "i64" if -(2**63) <= low and high < 2**63 else "i128"
