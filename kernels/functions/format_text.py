"""format and printf: values put into a text. Host functions: their small languages are those of Python and C, nearly."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tsql.kernels.errors import ExecutionError
from tsql.kernels.functions.registry import function
from tsql.kernels.types import VARCHAR

_SPEC = re.compile(
    r"(?:(?P<fill>[^{}])?(?P<align>[<>^=]))?(?P<sign>[-+ ])?(?P<form>#)?(?P<zero>0)?(?P<width>\d*)(?P<group>[,_'])?(?:\.(?P<precision>\d+))?(?P<kind>[^\d.])?"
)
_PRINTF = re.compile(
    r"%(?:(?P<place>\d+)\$)?(?P<flags>[-+ #0,_']*)(?P<width>\d*)(?:\.(?P<precision>\d*))?(?:hh|h|ll|l|j|z|t|L)?(?P<kind>[^\d.])|%(?P<bare>$)", re.DOTALL
)
_KINDS = {"int": "bBdoxX", "float": "eEfFgGaA", "string": "s", "bool": "bBdoxX"}
_LONGEST = 2**20


def _wrong(message: str) -> ExecutionError:
    return ExecutionError(message)


def _type_name(value: Any) -> str:
    return "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float" if isinstance(value, float) else "string"


def _shown(value: Any, align: str, sign: str, form: str, zero: str, width: str, group: str, precision: str | None, kind: str) -> str:
    """One value in the format that the parts of a specification ask for."""
    name = _type_name(value)
    if kind and kind not in _KINDS[name]:
        raise _wrong(f'Invalid type specifier "{kind}" for formatting a value of type {"int" if name == "bool" else name}')
    if len(width) > 7 or int(width or 0) > _LONGEST or int(precision or 0) > _LONGEST:
        raise _wrong("number is too big in the format string")
    if name == "bool" and not kind:
        value, name = "true" if value else "false", "string"
    if name == "string":
        text = value if precision is None else value[: int(precision)]
        return format(text, f"{align or '<'}{width}")
    if name == "bool":
        value = int(value)
    dot = "" if precision is None or name != "float" else f".{precision}"
    if kind in "aA" and kind:
        text = float(value).hex()
        return format(text if kind == "a" else text.upper(), f"{align or '>'}{width}")
    spec = f"{align}{sign}{form}{zero}{width}{',' if group == chr(39) else group}{dot}{kind.lower() if kind == 'B' else kind}"
    text = format(value, spec)
    return text.replace(",", "'") if group == "'" else text


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
        field = re.compile(r"\{(\d*)(?::([^{}]*))?\}").match(template, at)
        if field is None:
            raise _wrong("missing '}' in format string" if ":" in template[at:] else "invalid format string")
        if field[1]:
            place, numbered = int(field[1]), True
        elif numbered:
            raise _wrong("cannot switch from manual to automatic argument indexing")
        else:
            place, next_place = next_place, next_place + 1
        spec = _SPEC.fullmatch(field[2] or "")
        if spec is None:
            raise _wrong("missing '}' in format string")
        parts = {key: part or "" for key, part in spec.groupdict().items()}
        precision = spec["precision"]
        align = parts["fill"] + parts["align"]
        out.append(
            _shown(_argument(values, place), align, parts["sign"], parts["form"], parts["zero"], parts["width"], parts["group"], precision, parts["kind"])
        )
        at = field.end()
    return "".join(out)


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
        flags, kind = match["flags"], match["kind"]
        if kind == "c" and isinstance(value, int):
            value, kind = chr(value) if 0 <= value < 0x110000 else "", "s"
        is_number = not isinstance(value, str)
        align = "<" if "-" in flags else ">"
        group = next((flag for flag in flags if flag in ",_'"), "")
        zero = "0" if "0" in flags and "-" not in flags and is_number else ""
        sign = "+" if "+" in flags else " " if " " in flags else ""
        if kind in "iu" and is_number:
            kind = "d"
        if kind == "d" and match["precision"] and isinstance(value, int) and not isinstance(value, bool):
            digits = f"{abs(value):0{match['precision']}d}" if len(match["precision"]) < 7 else str(abs(value))
            value, kind, zero = ("-" if value < 0 else sign) + digits, "s", ""
            return _shown(value, align, "", "", "", match["width"], "", None, kind)
        if kind == "s" and isinstance(value, bool):
            kind = ""
        return _shown(value, "" if zero else align, sign, "#" if "#" in flags else "", zero, match["width"], group, match["precision"], kind)

    return _PRINTF.sub(put, template)


def _rows(args: tuple[Any, ...]) -> Iterator[list[Any]]:
    rows = next((len(arg) for arg in args if not isinstance(arg, pa.Scalar)), 1)
    columns = [[arg.as_py()] * rows if isinstance(arg, pa.Scalar) else arg.to_pylist() for arg in args]
    for row in zip(*columns, strict=True):
        yield [int(value) if isinstance(value, Decimal) else value for value in row]


def _register(name: str, one: Callable[[str, list[Any]], str], examples: tuple[tuple[str, str], ...]) -> None:
    @function(name, args=(VARCHAR, "any"), returns=VARCHAR, variadic=True, host=True, can_fail=True, examples=examples)
    def fill(*args: Any) -> Any:
        """A text with the other arguments put in; NULL if one of them is."""
        texts = pa.array([None if None in row else one(row[0], row[1:]) for row in _rows(args)], pa.string())
        return texts[0] if all(isinstance(arg, pa.Scalar) for arg in args) else texts


_register(
    "format", format_one, (("format('{} is {:.1f}', 'pi', 3.14159)", "pi is 3.1"), ("format('{1}{0}', 'a', 2)", "2a"), ("format('{:,}', 1234567)", "1,234,567"))
)
_register("printf", printf_one, (("printf('%s: %05d', 'a', 42)", "a: 00042"), ("printf('%.2f%%', 12.345)", "12.35%")))
