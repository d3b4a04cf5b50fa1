"""Casts between numbers (BOOLEAN, integers, DECIMAL, FLOAT, DOUBLE), rounding and failing as DuckDB does.

Exact numbers carry bounds: a check that the bounds make impossible is not emitted, and a scaled value stays in i64
where its bounds fit, so that most implicit casts are one multiplication or nothing. A decimal that loses digits rounds
half away from zero; a float that becomes an integer rounds half to even."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum, both, smallest_int
from tsql.kernels.expr.types import BIGINT, BOOLEAN, HUGEINT, Type
from tsql.kernels.functions.arithmetic import number
from tsql.kernels.functions.casts.text import machine_name, number_text
from tsql.kernels.runtime.text.format import FLOAT_BYTES, put_fixed, text_between
from tsql.kernels.runtime.text.parse_floats import decimal_to_float

EXACT_IN = {"f64": (2**53, 22), "f32": (2**24, 10)}
"""Integers up to here, and powers of ten up to this exponent, are floats of the type without loss."""


def cast_number(k: PipelineKernel, d: Datum, target: Type, safe: bool) -> Datum:
    """A number as another kind of number."""
    if d.type == BOOLEAN:
        return _from_boolean(k, d, target)
    if target == BOOLEAN:
        return Datum(target, (d.value != 0,), d.valid)
    if d.type.is_float:
        if target.is_float:
            return _float_to_float(k, d, target, safe)
        return _float_to_decimal(k, d, target, safe) if target.is_decimal else _float_to_integer(k, d, target, safe)
    if target.is_float:
        return _exact_to_float(k, d, target)
    if d.type.is_decimal and target.is_integer:
        return _decimal_to_integer(k, d, target, safe)
    return _rescale(k, d, target, safe)


def refuse(k: PipelineKernel, safe: bool, bad: Val, valid: Val | None, message: str, shown: Datum) -> Val | None:
    """The validity of a cast that does not work where `bad`: NULL if safe, else a failure that shows the value."""
    if safe:
        return both(valid, ~bad)
    guard = k.frame.guard
    with k.when(bad if guard is None else bad & guard):
        k.fail(k.true, message, number_text(k, shown))
    return valid


def _outside(k: PipelineKernel, value: Val, bounds: tuple[int, int], low: int, high: int) -> Val | None:
    """i1: whether a value with known bounds leaves low .. high; None if it cannot."""
    bad = None
    if bounds[0] < low:
        bad = value < low
    if bounds[1] > high:
        bad = value > high if bad is None else bad | (value > high)
    return bad


def _from_boolean(k: PipelineKernel, d: Datum, target: Type) -> Datum:
    if target.is_float:
        return Datum(target, (d.value.to(target.parts[0]),), d.valid)
    # A DECIMAL(n,n) has no digit for a one: DuckDB gives its smallest unit.
    one = 10**target.scale if target.is_decimal and target.width > target.scale else 1
    machine = smallest_int(0, one)
    return Datum(target, (k.select(d.value, k.const(machine, one), k.const(machine, 0)),), d.valid, (0, one))


def _rescale(k: PipelineKernel, d: Datum, target: Type, safe: bool) -> Datum:
    """Integer to integer or decimal, and decimal to decimal."""
    n = number(d)
    if target.scale < d.type.scale:
        value, bounds = _divide_rounding(k, n, 10 ** (d.type.scale - target.scale))
        factor, valid = 1, d.valid
    else:
        value, bounds = n.value, n.bounds
        factor, valid = 10 ** (target.scale - d.type.scale), d.valid
    low, high = (-(-target.bounds[0] // factor), target.bounds[1] // factor)
    bad = _outside(k, value, bounds, low, high)
    if bad is not None:
        valid = refuse(k, safe, bad, valid, _range_message(d.type, target), d)
    bounds = (max(bounds[0], low) * factor, min(bounds[1], high) * factor)
    if bounds[0] > bounds[1]:
        bounds = target.bounds
    machine = smallest_int(*bounds)
    value = value.to(machine)
    return Datum(target, (value if factor == 1 else value * factor,), valid, bounds)


def _range_message(source: Type, target: Type) -> str:
    if source.is_decimal:
        return f'Casting value "{{detail}}" to type {target} failed: value is out of range!'
    if target.is_decimal:
        return f"Could not cast value {{detail}} to {target}"
    return (
        f"Type {machine_name(source)} with value {{detail}} can't be cast because the value is out of range "
        f"for the destination type {machine_name(target)}"
    )


def _divide_rounding(k: PipelineKernel, n: Datum, power: int) -> tuple[Val, tuple[int, int]]:
    """n / power, half away from zero, and its bounds."""
    low, high = n.bounds
    value, half = n.value, power // 2
    if low >= 0:
        moved = value + half
    elif high <= 0:
        moved = value - half
    else:
        moved = k.select(value < 0, value - half, value + half)
    return moved // power, (_round_away(low, power), _round_away(high, power))


def _round_away(value: int, power: int) -> int:
    rounded = (abs(value) + power // 2) // power
    return rounded if value >= 0 else -rounded


def _decimal_to_integer(k: PipelineKernel, d: Datum, target: Type, safe: bool) -> Datum:
    n = number(d)
    value, bounds = (n.value, n.bounds) if d.type.scale == 0 else _divide_rounding(k, n, 10**d.type.scale)
    low, high = target.bounds
    valid = d.valid
    bad = _outside(k, value, bounds, low, high)
    if bad is not None:
        rounded = Datum(HUGEINT if value.type == "i128" else BIGINT, (value,))
        valid = refuse(
            k, safe, bad, valid, f"Failed to cast decimal value {{detail}} to type {machine_name(target)}", rounded
        )
    bounds = (max(bounds[0], low), min(bounds[1], high))
    if bounds[0] > bounds[1]:
        bounds = target.bounds
    return Datum(target, (value.to(smallest_int(*bounds)),), valid, bounds)


def _exact_to_float(k: PipelineKernel, d: Datum, target: Type) -> Datum:
    machine = target.parts[0]
    if d.type.name == "UBIGINT" and d.range is None:
        return Datum(target, (d.value.uto(machine),), d.valid)
    n = number(d)
    scale = d.type.scale
    if scale == 0:
        return Datum(target, (_integer_to_float(k, n.value, n.bounds, machine),), d.valid)
    power = k.const(machine, float(10**scale))
    exact, exact_scale = EXACT_IN[machine]
    if scale > exact_scale:
        exact = 0
    if -exact <= n.bounds[0] and n.bounds[1] <= exact:
        return Datum(target, (n.value.to(machine) / power,), d.valid)
    small = (n.value >= -exact) & (n.value <= exact)
    result = k.var(k.select(small, n.value.to("i64"), k.i64(0)).to(machine) / power)
    with k.when(~small):
        nearest = decimal_to_float(k, k.scratch(FLOAT_BYTES), n.value.to("i128"), scale, k.bool(machine == "f32"))
        result.set(nearest.to(machine))
    return Datum(target, (result.value,), d.valid)


def _integer_to_float(k: PipelineKernel, value: Val, bounds: tuple[int, int], machine: str) -> Val:
    """i64 converts in one step. i128 converts to f64 by halves, each rounded, as DuckDB's HUGEINT does: the last bit
    may differ from that of the nearest float."""
    if value.type == "i64" or (-(2**63) <= bounds[0] and bounds[1] < 2**63):
        return value.to("i64").to(machine)
    low, high = value.to("i64"), (value >> 64).to("i64")
    general = low.uto("f64") + high.to("f64") * 2.0**64
    negative = -((~low).uto("f64")) - 1.0
    return k.select(high == -1, negative, general).to(machine)


def _float_to_integer(k: PipelineKernel, d: Datum, target: Type, safe: bool) -> Datum:
    rounded = k.unary("rint", d.value.to("f64"))
    low, high = target.bounds
    fits = (rounded > float(low) if target == HUGEINT else rounded >= float(low)) & (rounded < float(high + 1))
    message = (
        f"Type {d.type} with value {{detail}} can't be cast because the value is out of range for the "
        f"destination type {machine_name(target)}"
    )
    valid = refuse(k, safe, ~fits, d.valid, message, d)
    sound = k.select(fits, rounded, k.f64(0.0))
    if target.name == "UBIGINT":
        big = sound >= 2.0**63
        part = k.select(big, sound - 2.0**63, sound).to("i64")
        return Datum(target, (part ^ (big.to("i64") << 63),), valid)
    machine = smallest_int(low, high)
    return Datum(target, (_whole_float(k, sound, machine),), valid, (low, high))


def _whole_float(k: PipelineKernel, value: Val, machine: str) -> Val:
    """A whole f64 that fits the machine type, as an integer; i128 from the bits, as machines have no such
    instruction."""
    if machine == "i64":
        return value.to("i64")
    bits = value.bits_as("i64")
    exponent = (bits.ushr(52) & 0x7FF) - 1075
    mantissa = ((bits & (2**52 - 1)) | 2**52).to("i128")
    left = k.select(exponent > 0, exponent, k.i64(0)).to("i128")
    small = k.unary("fabs", value) < 2.0**62
    low = k.select(small, value, k.f64(0.0)).to("i64").to("i128")
    magnitude = mantissa << k.select(small, k.i128(0), left)
    return k.select(small, low, k.select(bits < 0, -magnitude, magnitude))


def _float_to_float(k: PipelineKernel, d: Datum, target: Type, safe: bool) -> Datum:
    value = d.value.to(target.parts[0])
    if target.name == "DOUBLE":
        return Datum(target, (value,), d.valid)
    infinite = float("inf")
    bad = (k.unary("fabs", value) == infinite) & (k.unary("fabs", d.value) != infinite)
    message = (
        "Type DOUBLE with value {detail} can't be cast because the value is out of range for the destination type FLOAT"
    )
    return Datum(target, (value,), refuse(k, safe, bad, d.valid, message, d))


def _float_to_decimal(k: PipelineKernel, d: Datum, target: Type, safe: bool) -> Datum:
    value = d.value.to("f64")
    scaled = value * float(10**target.scale)
    whole = k.unary("truncate", scaled)
    rest = scaled - whole
    rounded = whole + k.select(rest >= 0.5, k.f64(1.0), k.select(rest <= -0.5, k.f64(-1.0), k.f64(0.0)))
    fits = k.unary("fabs", rounded) < float(10**target.width)
    valid = d.valid
    if safe:
        valid = both(valid, fits)
    else:
        guard = k.frame.guard
        with k.when(~fits if guard is None else ~fits & guard):
            buffer = k.scratch(400)
            k.fail(
                k.true,
                f"Could not cast value {{detail}} to {target}",
                text_between(k, buffer, put_fixed(k, buffer, value)),
            )
    sound = k.select(fits, rounded, k.f64(0.0))
    return Datum(target, (_whole_float(k, sound, smallest_int(*target.bounds)),), valid, target.bounds)
