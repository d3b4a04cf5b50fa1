"""Rounding: round, trunc, floor, ceil, even, and abs and sign; on integers, decimals and floats with DuckDB's result
types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tsql.kernels.codegen.kir import INTEGERS
from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum, Row, null
from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.nodes import Call, Literal
from tsql.kernels.expr.types import BIGINT, DECIMAL, DOUBLE, HUGEINT, INTEGER, TINYINT, Type
from tsql.kernels.functions.arithmetic import number
from tsql.kernels.functions.registry import function

BELOW_HALF = 0.49999999999999994
"""The largest double below one half: adding it and cutting rounds half away from zero, without a carry from 0.4999.."""


def _whole_decimal(t: Type) -> Type:
    return DECIMAL(t.width, 0)


def _signed(t: Type) -> Type:
    """The integer type in which `round` works: it has no overloads for unsigned integers."""
    if not t.is_unsigned:
        return t
    return HUGEINT if t.name == "UBIGINT" else BIGINT


def round_half_away(k: Kernel, x: Val) -> Val:
    """A float rounded to a whole number, halves away from zero; infinities and NaN stay."""
    half = k.select(x < 0.0, k.const(x.type, -BELOW_HALF), k.const(x.type, BELOW_HALF))
    rounded = k.unary("truncate", x + half)
    return k.select(rounded == 0.0, x * 0.0, rounded)


@function(
    "abs",
    "@",
    args=("integer",),
    returns=lambda a: a,
    ranged=True,
    typed=True,
    can_fail=True,
    examples=(("abs(-5)", 5),),
)
def abs_integer(k: PipelineKernel, result: Type, a: Datum) -> Datum:
    a = number(a)
    low, high = a.bounds
    lowest = result.bounds[0]
    if low >= 0:
        return Datum(result, a.parts, None, (low, high))
    x = a.value
    if low <= lowest:
        k.fail(x == lowest, f"Overflow on abs({lowest})")
    bound = min(max(-low, high), result.bounds[1])
    return Datum(result, (k.select(x < 0, -x, x),), None, (0, bound))


@function(
    "abs", "@", args=("decimal",), returns=lambda a: a, ranged=True, typed=True, examples=(("abs(-1.50)", "1.50"),)
)
def abs_decimal(k: PipelineKernel, result: Type, a: Datum) -> Datum:
    a = number(a)
    low, high = a.bounds
    x = a.value
    return Datum(result, (k.select(x < 0, -x, x),), None, (0, max(-low, high, 0)))


@function("abs", "@", args=("float",), returns=lambda a: a, examples=(("abs(-2.5::DOUBLE)", 2.5),))
def abs_float(k: PipelineKernel, a: Datum) -> Val:
    return k.unary("fabs", a.value)


def _sign(k: PipelineKernel, x: Val) -> Val:
    return (x > 0).uto("i8") - (x < 0).uto("i8")


@function("sign", args=("integer",), returns=TINYINT, examples=(("sign(-349)", -1),))
def sign_integer(k: PipelineKernel, a: Datum) -> Val:
    return (a.value != 0).uto("i8") if a.type.is_unsigned else _sign(k, a.value)


@function("sign", args=("decimal",), returns=TINYINT, examples=(("sign(-3.49)", -1),))
def sign_decimal(k: PipelineKernel, a: Datum) -> Val:
    return _sign(k, a.value)


@function("sign", args=("float",), returns=TINYINT, examples=(("sign(-0.5::DOUBLE)", -1),))
def sign_float(k: PipelineKernel, a: Datum) -> Val:
    """NaN has no sign: 0."""
    return _sign(k, a.value)


def _register_floor_and_ceil() -> None:
    for names, op in ((("floor",), "floor"), (("ceil", "ceiling"), "ceil")):

        @function(
            *names,
            args=("float",),
            returns=lambda a: a,
            examples=((f"{op}(2.5::DOUBLE)", 2.0 if op == "floor" else 3.0),),
        )
        def whole_float(k: PipelineKernel, a: Datum, op: str = op) -> Val:
            return k.unary(op, a.value)

        @function(*names, args=("integer",), returns=DOUBLE, examples=((f"{op}(2)", 2.0),))
        def whole_integer(k: PipelineKernel, a: Datum) -> Val:
            return a.value.uto("f64") if a.type.is_unsigned else a.value.to("f64")

        @function(
            *names,
            args=("decimal",),
            returns=_whole_decimal,
            examples=((f"{op}(-1.70)", "-2" if op == "floor" else "-1"),),
        )
        def whole_decimal(k: PipelineKernel, a: Datum, op: str = op) -> Val:
            x = a.value
            if a.type.scale == 0:
                return x
            quotient = x // 10**a.type.scale
            rest = x % 10**a.type.scale
            return quotient - (rest < 0).to(x.type) if op == "floor" else quotient + (rest > 0).to(x.type)


_register_floor_and_ceil()


@function("round", args=("integer",), returns=_signed, examples=(("round(7)", 7),))
def round_integer(k: PipelineKernel, a: Datum) -> Val:
    machine = _signed(a.type).parts[0]
    return a.value.uto(machine) if a.type.is_unsigned else a.value


@function("round", args=("float",), returns=lambda a: a, examples=(("round(-2.5::DOUBLE)", -3.0),))
def round_float(k: PipelineKernel, a: Datum) -> Val:
    if a.value.type == "f32":
        return round_half_away(k, a.value.to("f64")).to("f32")
    return round_half_away(k, a.value)


@function("round", args=("decimal",), returns=_whole_decimal, examples=(("round(2.50)", "3"),))
def round_decimal(k: PipelineKernel, a: Datum) -> Val:
    return _shift_decimal(k, a.value, a.type.scale, "away")


@function("trunc", args=("float",), returns=lambda a: a, examples=(("trunc(-2.5::DOUBLE)", -2.0),))
def trunc_float(k: PipelineKernel, a: Datum) -> Val:
    return k.unary("truncate", a.value)


@function("trunc", args=("integer",), returns=lambda a: a, examples=(("trunc(7)", 7),))
def trunc_integer(k: PipelineKernel, a: Datum) -> Val:
    return a.value


@function("trunc", args=("decimal",), returns=_whole_decimal, examples=(("trunc(-2.70)", "-2"),))
def trunc_decimal(k: PipelineKernel, a: Datum) -> Val:
    return _shift_decimal(k, a.value, a.type.scale, "cut")


def _shift_decimal(k: Kernel, x: Val, digits: int, halves: str) -> Val:
    """x / 10**digits, rounded with halves "away" from zero or to "even" numbers, or "cut"."""
    if digits == 0:
        return x
    power = 10**digits
    if halves == "even":
        whole = x // power
        return whole + _step_to_even(k, whole, x - whole * power, k.const(x.type, power))
    if halves == "away":
        x = x + k.select(x < 0, k.const(x.type, -(power // 2)), k.const(x.type, power // 2))
    return x // power


def _step_to_even(k: Kernel, whole: Val, rest: Val, power: Val) -> Val:
    """1, 0 or -1: what rounding adds to `whole` powers for the rest, which has the sign of the number."""
    magnitude = k.select(rest < 0, -rest, rest)
    left = power - magnitude
    up = (magnitude > left) | ((magnitude == left) & ((whole & 1) != 0))
    return k.select(up, k.select(rest < 0, k.const(rest.type, -1), k.const(rest.type, 1)), k.const(rest.type, 0))


def _power(k: PipelineKernel, digits: Val) -> Val:
    return k.call("pow", 10.0, digits.to("f64"))


@function(
    "round",
    args=("float", INTEGER),
    returns=lambda a, digits: a,
    lazy=True,
    examples=(("round(42.4332::DOUBLE, 2)", 42.43),),
)
def round_float_to(k: PipelineKernel, a: Datum, digits: Datum) -> Val:
    """Scaled, rounded and scaled back."""
    return _scaled(k, a, digits, lambda x: round_half_away(k, x))


def _scaled(k: PipelineKernel, a: Datum, digits: Datum, rounded_to_whole: Callable[[Val], Val]) -> Val:
    """Where scaling leaves the range, the number itself, or 0 if the power is what leaves it."""
    x, n = a.value.to("f64"), digits.value
    power = _power(k, k.select(n < 0, -n, n))
    coarse = rounded_to_whole(x / power) * power
    fine = rounded_to_whole(x * power) / power
    rounded = k.select(n < 0, coarse, fine)
    rounded = k.select(k.unary("fabs", rounded) < float("inf"), rounded, x)
    vanishes = (n < 0) & (power == float("inf")) & (k.unary("fabs", x) < float("inf"))
    return k.select(vanishes, k.f64(0.0), rounded).to(a.value.type)


@function(
    "round_even", "roundbankers", args=("float", INTEGER), returns=lambda a, digits: a, lazy=True,
    examples=(("round_even(2.5::DOUBLE, 0)", 2.0),)
)  # fmt: skip
def round_even_float_to(k: PipelineKernel, a: Datum, digits: Datum) -> Val:
    """Scaled, rounded with halves to even and scaled back."""
    return _scaled(k, a, digits, lambda x: k.unary("rint", x))


@function(
    "trunc",
    args=("float", INTEGER),
    returns=lambda a, digits: a,
    lazy=True,
    examples=(("trunc(-117.999::DOUBLE, 2)", -117.99),),
)
def trunc_float_to(k: PipelineKernel, a: Datum, digits: Datum) -> Val:
    x, n = a.value.to("f64"), digits.value
    power = _power(k, k.select(n < 0, -n, n))
    value = k.select(n < 0, k.unary("truncate", x / power) * power, k.unary("truncate", x * power) / power)
    return k.select(k.unary("fabs", value) < float("inf"), value, x).to(a.value.type)


@routine("power_of_ten", ("i64",), "i128")
def power_of_ten(k: Kernel, digits: Val) -> None:
    """10**digits for 0 to 38 digits."""
    power = k.var(k.i128(1))
    with k.range(digits):
        power.set(power.value * 10)
    k.ret(power.value)


@function(
    "round",
    args=("integer", INTEGER),
    returns=lambda a, digits: _signed(a),
    typed=True,
    lazy=True,
    can_fail=True,
    examples=(("round(125, -1)", 130),),
)
def round_integer_to(k: PipelineKernel, result: Type, a: Datum, digits: Datum) -> Val:
    return _coarsen(k, result, a, digits, "away")


@function(
    "trunc",
    args=("integer", INTEGER),
    returns=lambda a, digits: a,
    typed=True,
    lazy=True,
    examples=(("trunc(-117, -1)", -110),),
)
def trunc_integer_to(k: PipelineKernel, result: Type, a: Datum, digits: Datum) -> Val:
    return _coarsen(k, result, a, digits, "cut")


@function(
    "round_even", "roundbankers", args=("integer", INTEGER), returns=lambda a, digits: _signed(a), typed=True,
    lazy=True, can_fail=True, examples=(("round_even(25, -1)", 20),)
)  # fmt: skip
def round_even_integer_to(k: PipelineKernel, result: Type, a: Datum, digits: Datum) -> Val:
    """Rounded, halves to the even neighbour."""
    return _coarsen(k, result, a, digits, "even")


def _coarsen(k: PipelineKernel, result: Type, a: Datum, digits: Datum, halves: str) -> Val:
    """An integer to a multiple of 10**-digits; itself for digits >= 0, and 0 where the power exceeds every half."""
    machine = result.parts[0]
    own = a.value.uto(machine) if a.type.is_unsigned else a.value
    x = own.uto("i128") if a.type.is_unsigned else own.to("i128")
    places = k.select(digits.value < -38, k.i64(38), -digits.value.to("i64"))
    places = k.select(places < 0, k.i64(0), places)
    power = power_of_ten(k, places)
    rest = x % power
    cut = x - rest
    rounded = cut
    bad = k.false
    if halves != "cut":
        away = k.select(rest < 0, -power, power)
        magnitude = k.select(rest < 0, -rest, rest)
        carries = (magnitude >= power - magnitude) & (power > 1)
        if halves == "even":
            carries = carries & ((magnitude > power - magnitude) | (((x // power) & 1) != 0))
        rounded = k.select(carries, cut + away, cut)
        bad = carries & k.overflows("add", cut, away)
    rounded = k.select(digits.value < -38, k.i128(0), rounded)
    low, high = result.bounds
    if halves != "cut":
        outside = bad if INTEGERS[machine] == 128 else bad | (rounded < low) | (rounded > high)
        k.fail(
            outside & (digits.value >= -38), f"Overflow in {'ROUND' if halves == 'away' else 'ROUND_EVEN'} of integer"
        )
    return k.select(digits.value >= 0, own, rounded.to(machine))


def _decimal_digits_type(name: str) -> Callable[[tuple[Type, ...], tuple[Any, ...]], Type]:
    """round and trunc of a decimal to a constant number of digits: the scale is that number, between 0 and the
    decimal's own. Rounding whole numbers to tens may carry into a new digit."""

    def result(types: tuple[Type, ...], values: tuple[Any, ...]) -> Type:
        t, digits = types[0], values[1]
        if digits is None:
            return _whole_decimal(t) if t.is_decimal else t
        if digits >= t.scale:
            return t
        if -t.width <= digits < 0 and t.scale == 0 and name != "trunc":
            return DECIMAL(min(38, t.width + 1), 0)
        return DECIMAL(t.width, max(0, digits))

    return result


def _register_decimal_digits(halves: str, example: tuple[str, str], name: str, *others: str) -> None:
    @function(
        name,
        *others,
        args=("decimal", INTEGER),
        returns=lambda a, digits: _whole_decimal(a),
        returns_for=_decimal_digits_type(name),
        constant=(1,),
        nulls="expression",
        can_fail=name != "trunc",
        examples=(example,),
    )
    def to_digits(k: PipelineKernel, call: Call, row: Row) -> Datum:
        from tsql.kernels.emit.expressions import emit

        digits = call.args[1]
        if not isinstance(digits, Literal):
            raise BindError(
                f'The "precision" argument in function "{name}" must be a constant expression', position=call.position
            )
        if digits.value is None:
            return null(k, call.type)
        arg = emit(k, call.args[0], row).wide()
        source, n = call.args[0].type, digits.value
        x = arg.value
        if n >= source.scale:
            return Datum(call.type, (x,), arg.valid)
        machine = call.type.parts[0]
        dropped = source.scale - n
        if dropped > source.width:
            return Datum(call.type, (k.const(machine, 0),), arg.valid)
        shifted = _shift_decimal(k, x.to(machine) if dropped < 19 else x.to("i128"), dropped, halves)
        rounded = shifted * 10 ** max(0, -n)
        if n < 0 and call.type.width == source.width and halves != "cut":
            # A carry into one more digit than there are: DECIMAL(38) has no wider type.
            top = call.type.bounds[1]
            bad = (rounded > top) | (rounded < -top)
            k.fail(
                bad if arg.valid is None else bad & arg.valid,
                f"Overflow in {'ROUND' if halves == 'away' else 'ROUND_EVEN'} of DECIMAL({source.width})",
            )
        return Datum(call.type, (rounded.to(machine),), arg.valid)


_register_decimal_digits("away", ("round(1.2355, 2)", "1.24"), "round")
_register_decimal_digits("cut", ("trunc(11.77, 1)", "11.7"), "trunc")
_register_decimal_digits("even", ("round_even(2.45, 1)", "2.4"), "round_even", "roundbankers")


@function("even", args=(DOUBLE,), returns=DOUBLE, examples=(("even(2.9)", 4.0),))
def even(k: PipelineKernel, a: Datum) -> Val:
    """The next even number away from zero."""
    x = a.value
    negative = x < 0.0
    whole = k.select(negative, k.unary("floor", x), k.unary("ceil", x))
    odd = k.unary("floor", whole / 2.0) * 2.0 != whole
    return k.select(odd, k.select(negative, whole - 1.0, whole + 1.0), whole)
