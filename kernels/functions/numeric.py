"""Numeric functions: roots, powers, logarithms, trigonometry, divisors, bits, and greatest and least of any type.

As in DuckDB, what has no value (a root or logarithm of a negative number, the sine of infinity) is NaN, not an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import BIGINT, BOOLEAN, DOUBLE, HUGEINT, INTEGER, TINYINT, Type
from tsql.kernels.functions.comparison import compare
from tsql.kernels.functions.registry import SCALARS, function

LIBM = {
    "exp": ("exp", 0.0, 1.0), "ln": ("log", 1.0, 0.0), "log10": ("log10", 1000.0, 3.0), "log": ("log10", 100.0, 2.0),
    "log2": ("log2", 8.0, 3.0), "sin": ("sin", 0.0, 0.0), "cos": ("cos", 0.0, 1.0), "tan": ("tan", 0.0, 0.0),
    "asin": ("asin", 0.0, 0.0), "acos": ("acos", 1.0, 0.0), "atan": ("atan", 0.0, 0.0), "sinh": ("sinh", 0.0, 0.0),
    "cosh": ("cosh", 0.0, 1.0), "tanh": ("tanh", 0.0, 0.0), "asinh": ("asinh", 0.0, 0.0), "acosh": ("acosh", 1.0, 0.0),
    "atanh": ("atanh", 0.0, 0.0), "cbrt": ("cbrt", 8.0, 2.0), "gamma": ("tgamma", 5.0, 24.0),
    "lgamma": ("lgamma", 1.0, 0.0),
}  # fmt: skip
"""SQL name: (C function, an argument, its value)."""


def _register_libm() -> None:
    for name, (c_name, argument, value) in LIBM.items():

        @function(name, args=(DOUBLE,), returns=DOUBLE, lazy=True, examples=((f"{name}({argument})", value),))
        def unary(k: PipelineKernel, a: Datum, c_name: str = c_name) -> Val:
            return k.call(c_name, a.value)


_register_libm()


@function("sqrt", args=(DOUBLE,), returns=DOUBLE, examples=(("sqrt(9)", 3.0),))
def square_root(k: PipelineKernel, a: Datum) -> Val:
    return k.unary("sqrt", a.value)


@function("pow", "power", "**", "^", args=(DOUBLE, DOUBLE), returns=DOUBLE, lazy=True, examples=(("pow(2, 3)", 8.0),))
def power(k: PipelineKernel, a: Datum, b: Datum) -> Val:
    return k.call("pow", a.value, b.value)


@function("log", args=(DOUBLE, DOUBLE), returns=DOUBLE, lazy=True, examples=(("log(2, 64)", 6.0),))
def log_base(k: PipelineKernel, base: Datum, x: Datum) -> Val:
    """The logarithm of the second argument to the base of the first."""
    return k.call("log10", x.value) / k.call("log10", base.value)


@function("atan2", args=(DOUBLE, DOUBLE), returns=DOUBLE, lazy=True, examples=(("atan2(0, 1)", 0.0),))
def atan2(k: PipelineKernel, y: Datum, x: Datum) -> Val:
    return k.call("atan2", y.value, x.value)


@function("cot", args=(DOUBLE,), returns=DOUBLE, lazy=True, examples=(("cot(0.5)", 1.830487721712452),))
def cotangent(k: PipelineKernel, a: Datum) -> Val:
    return 1.0 / k.call("tan", a.value)


@function("degrees", args=(DOUBLE,), returns=DOUBLE, examples=(("degrees(pi())", 180.0),))
def degrees(k: PipelineKernel, a: Datum) -> Val:
    return a.value * (180.0 / math.pi)


@function("radians", args=(DOUBLE,), returns=DOUBLE, examples=(("radians(180)", math.pi),))
def radians(k: PipelineKernel, a: Datum) -> Val:
    return a.value * (math.pi / 180.0)


@function("pi", args=(), returns=DOUBLE, examples=(("pi()", math.pi),))
def pi(k: PipelineKernel) -> Val:
    return k.f64(math.pi)


@function("fmod", args=("float:T", "float:T"), returns=lambda a, b: a, examples=(("fmod(-5::DOUBLE, 3::DOUBLE)", 1.0),))
@function("fmod", args=(DOUBLE, DOUBLE), returns=DOUBLE)
def floor_modulo(k: PipelineKernel, x: Datum, y: Datum) -> Val:
    """The remainder of a division rounded down: it has the sign of the divisor."""
    return x.value - y.value * k.unary("floor", x.value / y.value)


@function(
    "fdiv", args=("float:T", "float:T"), returns=lambda a, b: a, examples=(("fdiv(-5::DOUBLE, 2::DOUBLE)", -3.0),)
)
@function("fdiv", args=(DOUBLE, DOUBLE), returns=DOUBLE)
def floor_divide(k: PipelineKernel, x: Datum, y: Datum) -> Val:
    return k.unary("floor", x.value / y.value)


@function(
    "nextafter",
    args=("float:T", "float:T"),
    returns=lambda a, b: a,
    lazy=True,
    examples=(("nextafter(1::FLOAT, 2::FLOAT)", 1.0000001192092896),),
)
@function(
    "nextafter", args=(DOUBLE, DOUBLE), returns=DOUBLE, lazy=True, examples=(("nextafter(1, 2)", 1.0000000000000002),)
)
def next_after(k: PipelineKernel, a: Datum, b: Datum) -> Val:
    """The next number after a in the direction of b."""
    x, y = a.value, b.value
    if x.type == "f64":
        return k.call("nextafter", x, y)
    # One step of the bit pattern: away from zero if the target is farther out on the same side, else towards it.
    bits = x.bits_as("i32")
    outward = (y > x) == (x > 0.0)
    stepped = k.select(outward, bits + 1, bits - 1).bits_as("f32")
    tiny = k.select(y > 0.0, k.i32(1), k.i32(-0x7FFFFFFF)).bits_as("f32")
    stepped = k.select(x == 0.0, tiny, stepped)
    return k.select(x == y, y, k.select((x != x) | (y != y), x + y, stepped))


def _register_float_tests() -> None:
    tests: dict[str, tuple[Callable[[Kernel, Val], Val], str, str]] = {
        "isnan": (lambda k, x: x != x, "nan", "1"),
        "isinf": (lambda k, x: k.unary("fabs", x) == float("inf"), "-inf", "1"),
        "isfinite": (lambda k, x: k.unary("fabs", x) < float("inf"), "1", "inf"),
        "signbit": (lambda k, x: x.bits_as("i64" if x.type == "f64" else "i32") < 0, "-0.0", "1"),
    }
    for name, (test, yes, no) in tests.items():

        @function(name, args=(DOUBLE,), returns=BOOLEAN)
        @function(
            name,
            args=("float",),
            returns=BOOLEAN,
            examples=((f"{name}('{yes}'::DOUBLE)", True), (f"{name}('{no}'::FLOAT)", False)),
        )
        def float_test(k: PipelineKernel, a: Datum, test: Callable[[Kernel, Val], Val] = test) -> Val:
            return test(k, a.value)


_register_float_tests()


def _register_modulo() -> None:
    """mod is % by another name."""
    for overload in tuple(SCALARS.overloads["%"]):
        assert overload.emit is not None, "% is emitted"
        same = tuple(a if not isinstance(a, str) or ":" in a else f"{a}:T" for a in overload.args)
        function(
            "mod",
            args=same,
            returns=overload.returns,
            lazy=overload.lazy,
            can_fail=True,
            ranged=overload.ranged,
            typed=overload.typed,
            examples=(("mod(-5, 3)", -2),),
        )(overload.emit)


_register_modulo()


@function("bit_count", args=("integer",), returns=TINYINT, examples=(("bit_count(31)", 5),))
def bit_count(k: PipelineKernel, a: Datum) -> Val:
    return k.unary("popcount", a.value).to("i8")


@routine("factorial", ("i32",), "i128")
def factorial_loop(k: Kernel, n: Val) -> None:
    product = k.var(k.i128(1))
    with k.range(n.to("i64") + 1, 2) as i:
        product.set(product.value * i.to("i128"))
    k.ret(product.value)


@function(
    "factorial",
    "!__postfix",
    args=(INTEGER,),
    returns=HUGEINT,
    lazy=True,
    can_fail=True,
    examples=(("factorial(5)", 120),),
)
def factorial(k: PipelineKernel, a: Datum) -> Val:
    n = a.value
    k.fail(n < 0, "factorial of a negative number is undefined")
    k.fail(n > 33, "Value out of range")
    return factorial_loop(k, k.select((n < 0) | (n > 33), k.i32(0), n))


def _gcd_body(k: Kernel, a: Val, b: Val) -> None:
    """Euclid's algorithm; the sign is that of whichever argument is left. A divisor of -1 is never divided by."""
    x, y = k.var(a), k.var(b)
    with k.forever() as loop:
        divisor = y.value
        loop.stop_if((divisor == 0) | (divisor == -1))
        rest = x.value % divisor
        x.set(divisor)
        y.set(rest)
    k.ret(k.select(y.value == 0, x.value, y.value))


gcd_i64 = routine("gcd_i64", ("i64", "i64"), "i64")(_gcd_body)
gcd_i128 = routine("gcd_i128", ("i128", "i128"), "i128")(_gcd_body)


@routine("binomial", ("i32", "i32"), "i128")
def binomial_loop(k: Kernel, n: Val, chosen: Val) -> None:
    """The number of ways to choose from n; -1 if it is too large. Each step divides before it multiplies, so that
    nothing on the way is larger than the result."""
    n, chosen = n.to("i64"), chosen.to("i64")
    few = k.select(chosen < n - chosen, chosen, n - chosen)
    result, number = k.var(k.i128(1)), k.var(k.i64(1))
    with k.forever() as loop:
        loop.stop_if((number.value > few) | (result.value < 0))
        factor = n - few + number.value
        common = gcd_i64(k, factor, number.value)
        factor, divisor = (factor // common).to("i128"), (number.value // common).to("i128")
        reduced = result.value // divisor
        result.set(k.select(reduced > k.i128(2**127 - 1) // factor, k.i128(-1), reduced * factor))
        number.set(number.value + 1)
    k.ret(result.value)


@function(
    "binom",
    args=(INTEGER, INTEGER),
    returns=HUGEINT,
    lazy=True,
    can_fail=True,
    examples=(("binom(5, 2)", 10), ("binom(2, 5)", 0)),
)
def binom(k: PipelineKernel, a: Datum, b: Datum) -> Val:
    n, chosen = a.value, b.value
    k.fail((n < 0) | (chosen < 0), "binom with negative input is undefined")
    counts = (chosen >= 0) & (chosen <= n)
    found = binomial_loop(k, k.select(counts, n, k.i32(0)), k.select(counts, chosen, k.i32(0)))
    k.fail(found < 0, "Value out of range")
    return k.select(counts, found, k.i128(0))


def _register_divisors() -> None:
    for t, gcd in ((BIGINT, gcd_i64), (HUGEINT, gcd_i128)):

        @function(
            "gcd",
            "greatest_common_divisor",
            args=(t, t),
            returns=t,
            lazy=True,
            can_fail=True,
            examples=(("gcd(42, 57)", 3),),
        )
        def greatest_common_divisor(
            k: PipelineKernel, a: Datum, b: Datum, t: Type = t, gcd: Callable[..., Val] = gcd
        ) -> Val:
            return _absolute(k, t, gcd(k, a.value, b.value))

        @function(
            "lcm",
            "least_common_multiple",
            args=(t, t),
            returns=t,
            lazy=True,
            can_fail=True,
            examples=(("lcm(42, 57)", 798),),
        )
        def least_common_multiple(
            k: PipelineKernel, a: Datum, b: Datum, t: Type = t, gcd: Callable[..., Val] = gcd
        ) -> Val:
            x, y = a.value, b.value
            divisor = gcd(k, x, y)
            # A quotient by -1 could leave the type: the sign does not matter for the result.
            divisor = k.select((divisor == 0) | (divisor == -1), k.const(divisor.type, 1), divisor)
            quotient = y // divisor
            k.fail(k.overflows("mul", x, quotient), "lcm value is out of range")
            return _absolute(k, t, x * quotient)


def _absolute(k: PipelineKernel, t: Type, x: Val) -> Val:
    k.fail(x == t.bounds[0], f"Overflow on abs({t.bounds[0]})")
    return k.select(x < 0, -x, x)


_register_divisors()


def _extreme_interval(k: PipelineKernel, name: str, a: Datum, b: Datum) -> Val:
    """greatest and least take intervals apart (months, then days, then the rest), unlike < and >, as DuckDB does."""
    order = k.false
    for x, y in reversed(list(zip(a.parts, b.parts, strict=True))):
        ahead = x > y if name == ">" else x < y
        order = ahead | ((x == y) & order)
    return order


def _register_extremes() -> None:
    for name, order, best in (("greatest", ">", 3), ("least", "<", 1)):

        @function(
            name,
            args=("any:T",),
            variadic=True,
            returns=lambda first, *rest: first,
            nulls="custom",
            examples=((f"{name}(2, 3, NULL, 1)", best),),
        )
        def extreme(k: PipelineKernel, first: Datum, *rest: Datum, order: str = order) -> Datum:
            """The greatest (least) argument; NULLs count only if there is nothing else."""
            best = first
            for d in rest:
                test = _extreme_interval if d.type.name == "INTERVAL" else compare
                better = test(k, order, d, best)
                if best.valid is not None:
                    better = better | ~best.valid
                if d.valid is not None:
                    better = better & d.valid
                valid = None if best.valid is None or d.valid is None else best.valid | d.valid
                best = Datum(
                    first.type, tuple(k.select(better, x, y) for x, y in zip(d.parts, best.parts, strict=True)), valid
                )
            return best


_register_extremes()
