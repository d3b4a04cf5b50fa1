"""strftime: times to text by a format, which is compiled into the kernel specifier by specifier.

The format language (`parse_format`) is shared with strptime in parse.py.
"""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum, Row, null
from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.nodes import Call, Expr, Literal
from tsql.kernels.expr.types import DATE, TIMESTAMP, TIMESTAMPTZ, VARCHAR, Type
from tsql.kernels.functions.datetime.make import DAY_NAMES, MONTH_NAMES, name_of
from tsql.kernels.functions.datetime.parts import Moment, is_finite, iso_week, moment, run_if_valid
from tsql.kernels.functions.registry import function
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.runtime.calendar import civil_from_days, days_from_civil, floor_mod, split_time
from tsql.kernels.runtime.text.format import put_bytes, put_integer, put_padded, put_unsigned, text_between

EXPANSIONS = {"%c": "%Y-%m-%d %H:%M:%S", "%x": "%Y-%m-%d", "%X": "%H:%M:%S"}
SPECIFIERS = frozenset(
    (
        "%a %A %w %u %d %-d %b %h %B %m %-m %y %-y %Y %H %-H %I %-I %p %M %-M %S %-S %f %g %n %z %Z %j %-j %U %W %G %V"
    ).split()
)
SHORT_DAYS = tuple(name[:3] for name in DAY_NAMES)
SHORT_MONTHS = tuple(name[:3] for name in MONTH_NAMES)
ITEM_BYTES = 24
"""More than any one specifier writes."""


def parse_format(text: str, position: int | None = None) -> list[str]:
    """A format as literal texts and specifiers (which begin with %); a percent sign as such is a literal."""
    if not text:
        raise BindError("Failed to parse format specifier : Empty format string", position=position)
    items: list[str] = []
    literal = ""
    at = 0

    def flush() -> None:
        nonlocal literal
        if literal:
            items.append(literal)
        literal = ""

    while at < len(text):
        if text[at] != "%":
            literal += text[at]
            at += 1
            continue
        specifier = text[at : at + 3] if text[at + 1 : at + 2] == "-" else text[at : at + 2]
        at += len(specifier)
        if len(specifier) < 2 or specifier == "%-":
            raise BindError(f"Failed to parse format specifier {text}: Trailing format character %", position=position)
        if specifier == "%%":
            literal += "%"
        elif specifier in EXPANSIONS:
            flush()
            items.extend(parse_format(EXPANSIONS[specifier]))
        elif specifier in SPECIFIERS:
            flush()
            items.append(specifier)
        else:
            raise BindError(
                f"Failed to parse format specifier {text}: Unrecognized format for strftime/strptime: {specifier}",
                position=position,
            )
    flush()
    return items


def constant_format(name: str, argument: Expr, call: Call) -> str | None:
    """The text of a format argument; None for NULL."""
    if not isinstance(argument, Literal):
        raise BindError(
            f'The "format" argument in function "{name}" must be a constant expression', position=call.position
        )
    return argument.value


@dataclass(frozen=True)
class Broken:
    """A moment with its fields, for the writers below."""

    moment: Moment
    year: Val
    month: Val
    day: Val
    hour: Val
    minute: Val
    second: Val
    micros: Val
    zoned: bool


def break_down(k: Kernel, d: Datum) -> Broken:
    m = moment(k, d)
    return Broken(m, *civil_from_days(k, m.days), *split_time(k, m.time(k)), d.type == TIMESTAMPTZ)


@routine("put_year", ("ptr", "i64"), "ptr")
def put_year(k: Kernel, p: Val, year: Val) -> None:
    """Four digits for the years 0 to 9999, else the number."""
    with k.when((year >= 0) & (year <= 9999)):
        k.ret(put_padded(k, p, year, 4))
    k.ret(put_integer(k, p, year))


@routine("put_week_of_year", ("ptr", "i64", "i64"), "ptr")
def put_week_of_year(k: Kernel, p: Val, days: Val, first: Val) -> None:
    """The week of the year in two digits, counted from the first Sunday (first = 4) or Monday (first = 3)."""
    year, _, _ = civil_from_days(k, days)
    day_of_year = days - days_from_civil(k, year, 1, 1)
    k.ret(put_padded(k, p, (day_of_year + 7 - floor_mod(k, days + first, 7)) // 7, 2))


def _put_name(k: PipelineKernel, p: Val, names: tuple[str, ...], index: Val) -> Val:
    text, length = name_of(k, names, index)
    k.call("memcpy", p, text, length)
    return p + length


def _dow(k: Kernel, b: Broken) -> Val:
    return floor_mod(k, b.moment.days + 4, 7)


def _twelve(k: Kernel, b: Broken) -> Val:
    rest = b.hour % 12
    return k.select(rest == 0, k.i64(12), rest)


def _short_year(k: Kernel, b: Broken) -> Val:
    rest = b.year % 100
    return k.select(rest < 0, -rest, rest)


def _day_of_year(k: Kernel, b: Broken) -> Val:
    return b.moment.days - days_from_civil(k, b.year, 1, 1) + 1


def _half_day(k: PipelineKernel, p: Val, b: Broken) -> Val:
    k.store(p, k.select(b.hour >= 12, k.i8(ord("P")), k.i8(ord("A"))))
    k.store(p, k.i8(ord("M")), 1)
    return p + 2


PADDED: dict[str, tuple[Callable[[Kernel, Broken], Val], int]] = {
    "w": (_dow, 1),
    "u": (lambda k, b: floor_mod(k, b.moment.days + 3, 7) + 1, 1),
    "d": (lambda k, b: b.day, 2),
    "m": (lambda k, b: b.month, 2),
    "y": (_short_year, 2),
    "H": (lambda k, b: b.hour, 2),
    "I": (_twelve, 2),
    "M": (lambda k, b: b.minute, 2),
    "S": (lambda k, b: b.second, 2),
    "f": (lambda k, b: b.micros, 6),
    "g": (lambda k, b: b.micros // 1000, 3),
    "n": (lambda k, b: b.micros * 1000, 9),
    "j": (_day_of_year, 3),
    "V": (lambda k, b: iso_week(k, b.moment.days) & 63, 2),
}
"""Specifiers that are numbers with zeros in front (without them after a minus sign): the value and the digits."""

WRITERS: dict[str, Callable[[PipelineKernel, Val, Broken], Val]] = {
    "%a": lambda k, p, b: _put_name(k, p, SHORT_DAYS, _dow(k, b)),
    "%A": lambda k, p, b: _put_name(k, p, DAY_NAMES, _dow(k, b)),
    "%b": lambda k, p, b: _put_name(k, p, SHORT_MONTHS, b.month - 1),
    "%h": lambda k, p, b: _put_name(k, p, SHORT_MONTHS, b.month - 1),
    "%B": lambda k, p, b: _put_name(k, p, MONTH_NAMES, b.month - 1),
    "%Y": lambda k, p, b: put_year(k, p, b.year),
    "%G": lambda k, p, b: put_year(k, p, iso_week(k, b.moment.days) >> 6),
    "%U": lambda k, p, b: put_week_of_year(k, p, b.moment.days, 4),
    "%W": lambda k, p, b: put_week_of_year(k, p, b.moment.days, 3),
    "%p": _half_day,
    "%z": lambda k, p, b: put_bytes(k, p, b"+00"),
    "%Z": lambda k, p, b: put_bytes(k, p, b"UTC" if b.zoned else b""),
}


def _write(k: PipelineKernel, item: str, p: Val, b: Broken) -> Val:
    if not item.startswith("%") or item not in SPECIFIERS:
        return put_bytes(k, p, item.encode())
    if item in WRITERS:
        return WRITERS[item](k, p, b)
    value, digits = PADDED[item[-1]]
    if item[1] == "-":
        return put_unsigned(k, p, value(k, b))
    return put_padded(k, p, value(k, b), digits)


def _format(k: PipelineKernel, items: list[str], d: Datum) -> Datum:
    size = sum(ITEM_BYTES if item in SPECIFIERS else len(item.encode()) for item in items)

    def write() -> tuple[Val, ...]:
        start = at = k.scratch(size + 8)
        broken = break_down(k, d)
        for item in items:
            at = _write(k, item, at, broken)
        return text_between(k, start, at)

    finite = is_finite(k, d)
    if finite is None:
        return Datum(VARCHAR, write())

    def infinite() -> tuple[Val, ...]:
        negative = d.value < 0
        text = k.static(b"-infinity")
        return k.select(negative, text, text + 1), k.select(negative, k.i64(9), k.i64(8))

    return Datum(VARCHAR, k.choose(finite, write, infinite, ("ptr", "i64")))


def _register(t: Type, at: int) -> None:
    args = (t, VARCHAR) if at == 1 else (VARCHAR, t)
    shown = ("'1992-01-01'", "'%a, %-d %B %Y'")
    example = (
        (f"strftime({t} {shown[0]}, {shown[1]})", "Wed, 1 January 1992")
        if at == 1
        else (f"strftime({shown[1]}, {t} {shown[0]})", "Wed, 1 January 1992")
    )

    @function("strftime", args=args, returns=VARCHAR, constant=(at,), nulls="expression", examples=(example,))
    def strftime(k: PipelineKernel, call: Call, row: Row) -> Datum:
        from tsql.kernels.emit.expressions import emit

        text = constant_format("strftime", call.args[at], call)
        if text is None:
            return null(k, VARCHAR)
        items = parse_format(text, call.position)
        d = emit(k, call.args[1 - at], row)
        return run_if_valid(k, call, d.valid, lambda: _format(k, items, d))


for _type in (DATE, TIMESTAMP, TIMESTAMPTZ):
    for _at in (1, 0):
        _register(_type, _at)
