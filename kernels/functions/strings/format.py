"""format and printf: format values into a text. Host functions: their small languages are nearly those of Python and C.

Flags, widths and precisions work as in DuckDB, which uses the library fmt: zeros are filled in after the sign and
disable the precision of an integer, and of several signs the last counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.expr.types import VARCHAR
from tsql.kernels.functions.registry import function
from tsql.kernels.process.quick_dataclass import dataclass

_BRACES = re.compile(
    r"(?:(?P<fill>[^{}])?(?P<align>[<>^=]))?(?:(?P<sign>[-+ ])|(?P<group>[,_']))?(?P<form>#)?(?P<zero>0)?"
    r"(?P<width>\d*)(?:\.(?P<precision>\d+))?(?P<kind>[^\d.])?"
)
_PRINTF = re.compile(
    r"%(?:(?P<place>\d+)\$)?(?P<flags>[-+ #0,_']*)(?P<width>\d*)(?P<dot>\.(?P<precision>\d*))?"
    r"(?P<size>hh|h|ll|l|j|z|t|L)?(?P<kind>[^\d.])|%(?P<bare>$)",
    re.DOTALL,
)
_FIELD = re.compile(r"\{(\d*)(?::([^{}]*))?\}")
_KINDS = {"int": "bBdoxXcn", "float": "eEfFgGaAn", "string": "s", "bool": "bBdoxXns"}
_BITS = {"hh": 8, "h": 16, "l": 64, "ll": 64, "j": 64, "z": 64, "t": 64}
_LONGEST = 2**20


class Huge(int):
    """A HUGEINT."""


@dataclass(frozen=True)
class FormatSpec:
    """How a value is shown. `align`: `=` puts the fill between the sign and the digits; empty is what suits the
    value."""

    fill: str = " "
    align: str = ""
    sign: str = ""
    form: bool = False
    width: int = 0
    group: str = ""
    precision: int | None = None
    kind: str = ""


def _wrong(message: str) -> ExecutionError:
    return ExecutionError(message)


def _type_name(value: Any) -> str:
    return (
        "bool"
        if isinstance(value, bool)
        else "int"
        if isinstance(value, int)
        else "float"
        if isinstance(value, float)
        else "string"
    )


def _number(text: str | None) -> int:
    if len(text or "") > 7 or int(text or 0) > _LONGEST:
        raise _wrong("number is too big in the format string")
    return int(text or 0)


def _shown(value: Any, spec: FormatSpec) -> str:
    """One value as a specification asks for it."""
    name = _type_name(value)
    if spec.kind and spec.kind not in _KINDS[name]:
        raise _wrong(
            f'Invalid type specifier "{spec.kind}" for formatting a value of type {"int" if name == "bool" else name}'
        )
    if name == "bool" and spec.kind in ("", "s"):
        value, name = "true" if value else "false", "string"
    if name == "string":
        return _padded(
            "",
            value if spec.precision is None else value[: spec.precision],
            replace(spec, align=spec.align.replace("=", "<") or "<"),
        )
    if spec.kind == "c":
        return _padded("", _byte(int(value)), spec)
    return _shown_float(value, spec) if name == "float" else _shown_integer(int(value), spec)


def _padded(sign: str, text: str, spec: FormatSpec) -> str:
    missing = spec.width - len(sign) - len(text)
    if missing <= 0:
        return sign + text
    match spec.align:
        case "=":
            return sign + spec.fill * missing + text
        case "<":
            return sign + text + spec.fill * missing
        case "^":
            return spec.fill * (missing // 2) + sign + text + spec.fill * (missing - missing // 2)
    return spec.fill * missing + sign + text


def _byte(value: int) -> str:
    if value & 0xFF >= 0x80:
        raise _wrong(
            "Invalid UTF8 produced by format string: c writes a single byte, use chr(...) to write a Unicode code point"
        )
    return chr(value & 0xFF)


def _shown_integer(value: int, spec: FormatSpec) -> str:
    digits = format(abs(value), {"": "d", "n": "d", "B": "b"}.get(spec.kind, spec.kind))
    sign = "-" if value < 0 else spec.sign.replace("-", "")
    if spec.kind in ("", "d", "n"):
        digits = _grouped(digits, spec.group)
    elif spec.form and (spec.kind != "o" or ((spec.precision or 0) <= len(digits) and value)):
        sign += "0" if spec.kind == "o" else "0" + spec.kind
    if spec.align != "=":
        digits = digits.rjust(spec.precision or 0, "0")
    return _padded(sign, digits, spec)


def _grouped(digits: str, group: str) -> str:
    return f"{int(digits):,}".replace(",", group) if group else digits


def _shown_float(value: float, spec: FormatSpec) -> str:
    is_negative = str(value).startswith("-")
    sign, size = "-" if is_negative else spec.sign.replace("-", ""), abs(value)
    if size != size or size == float("inf"):
        # Zeros are no part of these; like other fills they stand where they are aligned, and on the right if the sign
        # was to be first.
        text = "nan" if size != size else "inf"
        return _padded(
            sign,
            text.upper() if spec.kind.isupper() else text,
            replace(spec, align=spec.align.replace("=", "<") or "<"),
        )
    if spec.kind in ("a", "A"):
        text = _hexadecimal(size, spec.precision, spec.form)
        return _padded(sign, text.upper() if spec.kind == "A" else text, spec)
    text = _digits(size, spec)
    if spec.group:
        whole, point, rest = text.partition(".")
        if whole.isdigit():
            text = _grouped(whole, spec.group) + point + rest
    return _padded(sign, text, spec)


def _digits(value: float, spec: FormatSpec) -> str:
    """A number that is not negative, in decimal digits."""
    kind, precision = spec.kind.replace("n", "g"), spec.precision
    if not kind and precision is None:
        return repr(value)
    if kind in ("", "g", "G") and precision == 0:
        # One digit, followed by the zeros that a number of this size has.
        rounded = float(f"{value:.0e}")
        text = f"{rounded:.15g}" if rounded < 1e16 else f"{rounded:.0e}"
    else:
        text = format(value, f"{'' if precision is None else f'.{precision}'}{kind or 'g'}")
    if spec.form or not (kind or precision == 0):
        text = _with_point(text, kind, 6 if precision is None else precision)
    return text.upper() if kind == "G" else text


def _with_point(text: str, kind: str, precision: int) -> str:
    """The effect of #: there is a point, and general numbers show all digits; those below one show no more than they
    need."""
    mantissa, mark, exponent = text.partition("E" if "E" in text else "e")
    if kind in ("e", "E") or (mark and precision < 2):
        return text
    if kind in ("", "g", "G"):
        whole, _, rest = mantissa.partition(".")
        if whole != "0" or not rest:
            rest = rest.ljust(precision - len(whole), "0")
        return f"{whole}.{rest or '0'}{mark}{exponent}"
    return text if "." in text else text + "."


def _hexadecimal(value: float, precision: int | None, with_point: bool) -> str:
    """As C writes it: without trailing zeros, or with the given number of digits."""
    mantissa, exponent = value.hex().removeprefix("0x").split("p")
    lead, _, digits = mantissa.partition(".")
    if precision is None:
        digits = digits.rstrip("0")
    elif precision >= len(digits):
        digits = digits.ljust(precision, "0")
    else:
        cut = 4 * (len(digits) - precision)
        whole = int(lead + digits, 16)
        rounded, rest = whole >> cut, whole & ((1 << cut) - 1)
        rounded += rest > 1 << (cut - 1) or (rest == 1 << (cut - 1) and rounded & 1)
        lead, digits = (
            f"{rounded >> 4 * precision:x}",
            f"{rounded & ((1 << 4 * precision) - 1):x}".rjust(precision, "0") if precision else "",
        )
    return f"0x{lead}{'.' if digits or with_point else ''}{digits}p{exponent}"


def format_one(template: str, values: list[Any]) -> str:
    """A text with the values in the place of `{}`, `{0}`, `{:.2f}`."""
    out: list[str] = []
    at = next_place = 0
    numbered = False
    while at < len(template):
        character = template[at]
        if character in "{}" and template[at : at + 2] == character * 2:
            out.append(character)
            at += 2
            continue
        if character == "}":
            raise _wrong("unmatched '}' in format string")
        if character != "{":
            out.append(character)
            at += 1
            continue
        field = _FIELD.match(template, at)
        if field is None:
            raise _wrong("missing '}' in format string" if ":" in template[at:] else "invalid format string")
        if field[1]:
            place, numbered = int(field[1]), True
        elif numbered:
            raise _wrong("cannot switch from manual to automatic argument indexing")
        else:
            place, next_place = next_place, next_place + 1
        value = _argument(values, place)
        out.append(_shown(value, _braces_spec(value, field[2] or "")))
        at = field.end()
    return "".join(out)


def _braces_spec(value: Any, text: str) -> FormatSpec:
    """The specification after the colon between the braces."""
    found = _BRACES.fullmatch(text)
    if found is None:
        raise _wrong("missing '}' in format string")
    name, part = _type_name(value), {key: part or "" for key, part in found.groupdict().items()}
    if name == "string" and (part["sign"] or part["form"] or part["zero"] or part["align"] == "="):
        raise _wrong("format specifier requires numeric argument")
    if part["sign"] and (name == "bool" or isinstance(value, Huge)):
        raise _wrong("format specifier requires signed argument")
    if name in ("int", "bool") and part["precision"]:
        raise _wrong("precision not allowed for this argument type")
    zero = bool(part["zero"])
    align = "=" if zero else part["align"]
    if name in ("int", "bool") and part["kind"] in ("c", "s") and not part["group"]:
        raise _wrong(f'Invalid type specifier "{part["kind"]}" for formatting a value of type int')
    kind = "d" if part["group"] and (name == "int" or (name == "bool" and part["kind"])) else part["kind"]
    precision = None if found["precision"] is None else _number(part["precision"])
    return FormatSpec(
        "0" if zero else part["fill"] or " ",
        align,
        part["sign"],
        bool(part["form"]),
        _number(part["width"]),
        part["group"],
        precision,
        kind,
    )


def _argument(values: list[Any], place: int) -> Any:
    if not 0 <= place < len(values):
        raise _wrong(f'Argument index "{place}" out of range')
    return values[place]


def printf_one(template: str, values: list[Any]) -> str:
    """A text with the values in the place of `%d`, `%5.2f`, `%s`."""
    next_place = 0

    def put(match: re.Match[str]) -> str:
        nonlocal next_place
        if match["kind"] == "%" and match[0] == "%%":
            return "%"
        if match["place"]:
            place = int(match["place"]) - 1
        else:
            place, next_place = next_place, next_place + 1
        value = _argument(values, place)
        if match["kind"] is None:
            raise _wrong("invalid format string")
        return _shown(*_converted(value, match))

    return _PRINTF.sub(put, template)


def _converted(value: Any, match: re.Match[str]) -> tuple[Any, FormatSpec]:
    """The value of the size that a conversion names, and how it is shown."""
    flags, kind, name = match["flags"], match["kind"], _type_name(value)
    if name == "bool" and kind != "s":
        value, name = int(value), "int"
    is_arithmetic = name != "string"
    if name == "int":
        value = _sized(value, match["size"], kind)
        kind = "d" if kind in "iu" else kind
    zero = "0" in flags and is_arithmetic
    signs = [flag for flag in flags if flag in "+ "]
    group = next((flag for flag in flags if flag in ",_'"), "")
    precision = _number(match["precision"]) if match["dot"] else None
    if match["dot"] and not match["precision"] and name == "int" and not group:
        # A point without digits is the mark between thousands.
        group, precision = ".", None
    align = ">" if kind == "c" else "=" if zero else "<" if "-" in flags else ">"
    spec = FormatSpec(
        "0" if zero else " ",
        align,
        signs[-1] if signs else "",
        "#" in flags and not (name == "int" and value == 0),
        _number(match["width"]),
        group,
        precision,
        kind,
    )
    return value, spec


def _sized(value: int, size: str | None, kind: str) -> int:
    """An integer cut to a size; what is not shown as a signed number is shown as its bits."""
    own = 128 if isinstance(value, Huge) else 64
    bits = _BITS.get(size or "", own)
    if kind in "di":
        return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    return value % 2 ** (bits if bits < 64 else max(bits, own))


def _rows(args: tuple[Any, ...]) -> Iterator[list[Any]]:
    rows = next((len(arg) for arg in args if not isinstance(arg, pa.Scalar)), 1)
    columns = [[arg.as_py()] * rows if isinstance(arg, pa.Scalar) else arg.to_pylist() for arg in args]
    for row in zip(*columns, strict=True):
        yield [Huge(value) if isinstance(value, Decimal) else value for value in row]


def _register(name: str, one: Callable[[str, list[Any]], str], examples: tuple[tuple[str, str], ...]) -> None:
    @function(name, args=(VARCHAR, "any"), returns=VARCHAR, variadic=True, host=True, can_fail=True, examples=examples)
    def fill(*args: Any) -> Any:
        """A text with the other arguments put in; NULL if one of them is."""
        texts = pa.array([None if None in row else one(row[0], row[1:]) for row in _rows(args)], pa.string())
        return texts[0] if all(isinstance(arg, pa.Scalar) for arg in args) else texts


_register(
    "format",
    format_one,
    (
        ("format('{} is {:.1f}', 'pi', 3.14159)", "pi is 3.1"),
        ("format('{1}{0}', 'a', 2)", "2a"),
        ("format('{:,}', 1234567)", "1,234,567"),
    ),
)
_register("printf", printf_one, (("printf('%s: %05d', 'a', 42)", "a: 00042"), ("printf('%.2f%%', 12.345)", "12.35%")))
