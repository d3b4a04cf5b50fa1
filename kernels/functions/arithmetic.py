"""Arithmetic on numbers: + - * / // % and unary minus, on exact numbers with known bounds and on floats.

Integers and decimals are computed in i64 where the bounds of the arguments allow it, else in i128, and checked against
the result type only where the bounds could leave it: statistics make most checks, and most 128-bit arithmetic, vanish.
"""

from __future__ import annotations

from tsql.kernels.codegen.kir import INTEGERS
from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum, smallest_int
from tsql.kernels.expr.types import DOUBLE, FLOAT, HUGEINT, Type
from tsql.kernels.functions.registry import function

PRODUCT_NAMES = {"+": "addition", "-": "subtraction", "*": "multiplication"}
OP_NAMES = {"+": "add", "-": "sub", "*": "mul"}


def number(d: Datum) -> Datum:
    """A value as a signed number in i64 or i128, with bounds if it is an integer, a decimal or a time."""
    if d.range is not None:
        value = d.value
        return d if value.type in ("i64", "i128") else Datum(d.type, (value.to("i64"),), d.valid, d.range)
    bounds = None
    if d.type.has_bounds:
        bounds = d.type.bounds if not d.type.is_unsigned else (0, 2 ** INTEGERS[d.value.type] - 1)
    machine = "i128" if d.value.type == "i128" or d.type.name == "UBIGINT" else "i64"
    value = d.value.uto(machine) if d.type.is_unsigned else d.value.to(machine)
    return Datum(d.type, (value,), d.valid, bounds)


def same_width(a: Datum, b: Datum) -> tuple[Val, Val]:
    """Two numbers in one machine type."""
    machine = "i128" if "i128" in (a.value.type, b.value.type) else "i64"
    return a.value.to(machine), b.value.to(machine)


def exact_bounds(name: str, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    """Bounds of a sum, difference or product."""
    if name == "+":
        return a[0] + b[0], a[1] + b[1]
    if name == "-":
        return a[0] - b[1], a[1] - b[0]
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def emit_exact(k: PipelineKernel, name: str, result: Type, a: Datum, b: Datum, message: str | None = None) -> Datum:
    """+, - or * of two exact numbers; fails where the result leaves its type, with a message of its own if one is
    given."""
    a, b = number(a), number(b)
    low, high = exact_bounds(name, a.bounds, b.bounds)
    lowest, highest = result.bounds
    op = OP_NAMES[name]
    # DuckDB multiplies magnitudes: no product is the least HUGEINT, but of that number itself.
    shuns_lowest = name == "*" and result == HUGEINT and low <= lowest
    if lowest <= low and high <= highest and not shuns_lowest:
        machine = (
            "i128"
            if "i128" in (smallest_int(low, high), a.value.type, b.value.type) and smallest_int(low, high) == "i128"
            else "i64"
        )
        x, y = a.value.to(machine), b.value.to(machine)
        return Datum(result, (k.emit(op, machine, x, y),), None, (low, high))
    kind = (
        f"DECIMAL({result.width})"
        if result.is_decimal
        else f"INT{result.bits}"
        if not result.is_unsigned
        else f"UINT{result.bits}"
    )
    message = message or f"Overflow in {PRODUCT_NAMES[name]} of {kind}"
    machine = (
        "i64"
        if smallest_int(low, high) == "i64"
        or (result.bits <= 64 and not result.is_unsigned and "i128" not in (a.value.type, b.value.type))
        else "i128"
    )
    x, y = a.value.to(machine), b.value.to(machine)
    value = k.emit(op, machine, x, y)
    bits = INTEGERS[machine]
    wraps = low < -(2 ** (bits - 1)) or high > 2 ** (bits - 1) - 1
    bad = k.overflows(op, x, y) if wraps else k.false
    if lowest > -(2 ** (bits - 1)):
        bad = bad | (value < lowest)
    if highest < 2 ** (bits - 1) - 1:
        bad = bad | (value > highest)
    if shuns_lowest:
        bad = bad | ((value == lowest) & (x != lowest) & (y != lowest))
    k.fail(bad, message)
    return Datum(result, (value,), None, (max(low, lowest), min(high, highest)))


def _register(name: str) -> None:
    for kind in ("integer", "decimal"):

        @function(name, args=(kind, kind), returns=lambda a, b: a, ranged=True, typed=True, can_fail=True)
        def exact(k: PipelineKernel, result: Type, a: Datum, b: Datum, name: str = name) -> Datum:
            return emit_exact(k, name, result, a, b)

    for t in (FLOAT, DOUBLE):

        @function(name, args=(t, t), returns=t)
        def inexact(k: PipelineKernel, a: Datum, b: Datum, name: str = name) -> Val:
            return k.emit(OP_NAMES[name], a.value.type, a.value, b.value)


for _name in PRODUCT_NAMES:
    _register(_name)


def _register_division() -> None:
    for t in (FLOAT, DOUBLE):

        @function("/", args=(t, t), returns=t)
        def divide(k: PipelineKernel, a: Datum, b: Datum) -> Val:
            """Floating-point division; a division by zero is infinite or not a number, as IEEE has it."""
            return a.value / b.value

        @function("//", args=(t, t), returns=t, can_fail=True)
        def whole_divide(k: PipelineKernel, a: Datum, b: Datum) -> Val:
            k.fail(b.value == 0.0, "Division by zero")
            return a.value / b.value

        @function("%", args=(t, t), returns=t, lazy=True)
        def remainder(k: PipelineKernel, a: Datum, b: Datum) -> Val:
            """The remainder with the sign of the dividend; not a number for a divisor of zero."""
            machine = a.value.type
            return k.call("fmod", a.value.to("f64"), b.value.to("f64")).to(machine)

    for kind in ("integer", "decimal"):

        @function("//", args=(kind, kind), returns=lambda a, b: a, ranged=True, typed=True, can_fail=True)
        def exact_divide(k: PipelineKernel, result: Type, a: Datum, b: Datum) -> Datum:
            a, b = number(a), number(b)
            x, y = same_width(a, b)
            k.fail(y == 0, "Division by zero")
            lowest, highest = result.bounds
            if a.bounds[0] <= lowest and b.bounds[0] <= -1 <= b.bounds[1] and not result.is_unsigned:
                k.fail((x == lowest) & (y == -1), "Overflow in division")
                y = k.select((x == lowest) & (y == -1), k.const(y.type, 1), y)
            safe = k.select(y == 0, k.const(y.type, 1), y)
            least = b.bounds[0] if b.bounds[0] > 0 else -b.bounds[1] if b.bounds[1] < 0 else 1
            bound = max(abs(a.bounds[0]), abs(a.bounds[1])) // least
            bottom, top = (
                (0 if a.bounds[0] >= 0 and b.bounds[0] > 0 else -bound),
                (0 if a.bounds[1] <= 0 and b.bounds[0] > 0 else bound),
            )
            return Datum(result, (x // safe,), None, (max(bottom, lowest), min(top, highest)))

        @function("%", args=(kind, kind), returns=lambda a, b: a, ranged=True, typed=True, can_fail=True)
        def exact_remainder(k: PipelineKernel, result: Type, a: Datum, b: Datum) -> Datum:
            a, b = number(a), number(b)
            x, y = same_width(a, b)
            k.fail(y == 0, "Division by zero")
            lowest = result.bounds[0]
            if (
                result.is_integer
                and a.bounds[0] <= lowest
                and b.bounds[0] <= -1 <= b.bounds[1]
                and not result.is_unsigned
            ):
                k.fail((x == lowest) & (y == -1), f"Overflow in division of {lowest} / -1")
            safe = k.select((y == 0) | (y == -1), k.const(y.type, 1), y)
            # It has the sign of the dividend, and is nearer to zero than the divisor.
            low, high, most = *a.bounds, max(abs(b.bounds[0]), abs(b.bounds[1]), 1) - 1
            return Datum(result, (x % safe,), None, (max(min(low, 0), -most), min(max(high, 0), most)))


_register_division()


@function("neg", args=("integer",), returns=lambda a: a, ranged=True, typed=True, can_fail=True)
def negate_integer(k: PipelineKernel, result: Type, a: Datum) -> Datum:
    zero = Datum(result, (k.i64(0),), None, (0, 0))
    return emit_exact(k, "-", result, zero, a, "Overflow in negation of numeric value!")


@function("neg", args=("decimal",), returns=lambda a: a, ranged=True, typed=True, can_fail=True)
def negate_decimal(k: PipelineKernel, result: Type, a: Datum) -> Datum:
    return negate_integer(k, result, a)


@function("neg", args=("float",), returns=lambda a: a)
def negate_float(k: PipelineKernel, a: Datum) -> Val:
    return -a.value


def _register_bits() -> None:
    names = {"&": "and", "|": "or", "xor": "xor"}
    for sql, op in names.items():

        @function(sql, args=("integer:T", "integer:T"), returns=lambda a, b: a)
        def bitwise(k: PipelineKernel, a: Datum, b: Datum, op: str = op) -> Val:
            return k.emit(op, a.value.type, a.value, b.value)

    @function("~", args=("integer",), returns=lambda a: a)
    def invert(k: PipelineKernel, a: Datum) -> Val:
        return ~a.value

    @function("<<", args=("integer:T", "integer:T"), returns=lambda a, b: a, can_fail=True)
    def shift_left(k: PipelineKernel, a: Datum, b: Datum) -> Val:
        bits = INTEGERS[a.value.type]
        large = ((b.value < 0) | (b.value >= bits)) & (a.value != 0)
        k.fail(large if a.type.is_unsigned else large | (b.value < 0), "Left-shift value is out of range")
        if not a.type.is_unsigned:
            k.fail(a.value < 0, "Cannot left-shift a negative number")
        amount = k.select((b.value < 0) | (b.value >= bits), k.const(b.value.type, 0), b.value)
        shifted = a.value << amount
        k.fail(
            shifted.ushr(amount) != a.value if a.type.is_unsigned else ((shifted >> amount) != a.value),
            "Overflow in left shift",
        )
        return shifted

    @function(">>", args=("integer:T", "integer:T"), returns=lambda a, b: a)
    def shift_right(k: PipelineKernel, a: Datum, b: Datum) -> Val:
        bits = INTEGERS[a.value.type]
        outside = (b.value < 0) | (b.value >= bits)
        amount = k.select(outside, k.const(b.value.type, 0), b.value)
        shifted = a.value.ushr(amount) if a.type.is_unsigned else a.value >> amount
        return k.select(outside, k.const(a.value.type, 0), shifted)


_register_bits()
