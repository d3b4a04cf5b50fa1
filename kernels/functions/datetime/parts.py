"""Parts of dates and times: date_part and its shortcuts (year, month, ..), names of days and months, epochs.

Infinite dates and timestamps have no parts: the result is NULL. Where the bounds of the argument are known they exclude
infinity, and the bounds of the part let aggregation use plain arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum, Row, both, null
from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.nodes import Call, Literal
from tsql.kernels.expr.types import BIGINT, DATE, DOUBLE, INTERVAL, TIME, TIMESTAMP, TIMESTAMPTZ, VARCHAR, Type
from tsql.kernels.functions.registry import function
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.runtime.calendar import (
    DATE_INFINITY,
    MICROS_PER_DAY,
    TIMESTAMP_INFINITY,
    civil_from_days,
    days_from_civil,
    floor_mod,
    split_micros,
)  # fmt: skip

PARTS = {
    **{name: part for part in ("year", "month", "day", "hour", "minute", "second", "week", "quarter", "decade",
                               "millisecond", "microsecond") for name in (part, part + "s")},
    **dict.fromkeys(("y", "yr", "yrs"), "year"),
    **dict.fromkeys(("mon", "mons"), "month"),
    **dict.fromkeys(("d", "dayofmonth"), "day"),
    **dict.fromkeys(("h", "hr", "hrs"), "hour"),
    **dict.fromkeys(("m", "min", "mins"), "minute"),
    **dict.fromkeys(("s", "sec", "secs"), "second"),
    **dict.fromkeys(("ms", "msec", "msecs"), "millisecond"),
    **dict.fromkeys(("us", "usec", "usecs"), "microsecond"),
    **dict.fromkeys(("w", "weekofyear"), "week"),
    **dict.fromkeys(("dec", "decs"), "decade"),
    **dict.fromkeys(("dow", "dayofweek", "weekday"), "dow"),
    **dict.fromkeys(("doy", "dayofyear"), "doy"),
    **dict.fromkeys(("century", "centuries", "cent", "c"), "century"),
    **dict.fromkeys(("millennium", "millennia", "mil", "millenniums"), "millennium"),
    **{part: part for part in ("isodow", "isoyear", "yearweek", "epoch", "era", "julian", "timezone", "timezone_hour",
                               "timezone_minute")},
}  # fmt: skip
"""Spellings of date parts (in lower case) and the name of each here."""

ALL_PARTS = tuple(dict.fromkeys(PARTS.values()))
FRACTIONAL = ("epoch", "julian")
JULIAN_EPOCH = 2_440_588
"""The Julian day number of 1970-01-01."""
INSTANTS = (DATE, TIMESTAMP, TIMESTAMPTZ)


def part_literal(call: Call) -> str | None:
    """The part that a call names by its first argument: its name here, or None if it is not a constant (or NULL)."""
    first = call.args[0]
    if not isinstance(first, Literal) or first.value is None:
        return None
    return part_name(first.value, call.position)


def part_name(text: str, position: int | None = None) -> str:
    """The part that a spelling means."""
    part = PARTS.get(text.lower())
    if part is None:
        raise BindError(f'extract specifier "{text}" not recognized', position=position)
    return part


def is_finite(k: Kernel, d: Datum) -> Val | None:
    """i1: not 'infinity' or '-infinity'; None where the known bounds exclude both, or the type has neither."""
    if d.type not in INSTANTS:
        return None
    top = DATE_INFINITY if d.type == DATE else TIMESTAMP_INFINITY
    low, high = d.bounds
    if -top < low and high < top:
        return None
    return (d.value != top) & (d.value != -top)


@dataclass(frozen=True)
class Moment:
    """A date or timestamp taken apart: days since 1970 and microseconds of the day (None for a DATE)."""

    days: Val
    micros: Val | None
    bounds: tuple[int, int] | None

    def time(self, k: Kernel) -> Val:
        return k.i64(0) if self.micros is None else self.micros


def moment(k: Kernel, d: Datum) -> Moment:
    if d.type == DATE:
        return Moment(d.value.to("i64"), None, d.range)
    days, micros = split_micros(k, d.value.to("i64"))
    return Moment(
        days, micros, None if d.range is None else (d.range[0] // MICROS_PER_DAY, d.range[1] // MICROS_PER_DAY)
    )


def python_year(days: int) -> int:
    """The astronomical year of days since 1970, for bounds that are known while a kernel is emitted."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    return era * 400 + year_of_era + (day_of_year >= 306)


@routine("iso_week", ("i64",), "i64")
def iso_week(k: Kernel, days: Val) -> None:
    """isoyear * 64 + week: the week belongs to the year of its Thursday."""
    thursday = days - floor_mod(k, days + 3, 7) + 3
    year, _, _ = civil_from_days(k, thursday)
    k.ret(year * 64 + (thursday - days_from_civil(k, year, 1, 1)) // 7 + 1)


def _century(years: int) -> Callable[[Kernel, Moment], Val]:
    def emit(k: Kernel, m: Moment) -> Val:
        year, _, _ = civil_from_days(k, m.days)
        return k.select(year > 0, (year - 1) // years + 1, year // years - 1)

    return emit


def _yearweek(k: Kernel, m: Moment) -> Val:
    packed = iso_week(k, m.days)
    year, week = packed >> 6, packed & 63
    return year * 100 + k.select(year > 0, week, -week)


def _day_of_year(k: Kernel, m: Moment) -> Val:
    year, _, _ = civil_from_days(k, m.days)
    return m.days - days_from_civil(k, year, 1, 1) + 1


CALENDAR: dict[str, tuple[Callable[[Kernel, Moment], Val], tuple[int, int] | None]] = {
    "year": (lambda k, m: civil_from_days(k, m.days)[0], None),
    "month": (lambda k, m: civil_from_days(k, m.days)[1], (1, 12)),
    "day": (lambda k, m: civil_from_days(k, m.days)[2], (1, 31)),
    "quarter": (lambda k, m: (civil_from_days(k, m.days)[1] - 1) // 3 + 1, (1, 4)),
    "decade": (lambda k, m: civil_from_days(k, m.days)[0] // 10, None),
    "century": (_century(100), None),
    "millennium": (_century(1000), None),
    "week": (lambda k, m: iso_week(k, m.days) & 63, (1, 53)),
    "isoyear": (lambda k, m: iso_week(k, m.days) >> 6, None),
    "yearweek": (_yearweek, None),
    "dow": (lambda k, m: floor_mod(k, m.days + 4, 7), (0, 6)),
    "isodow": (lambda k, m: floor_mod(k, m.days + 3, 7) + 1, (1, 7)),
    "doy": (_day_of_year, (1, 366)),
    "era": (lambda k, m: (civil_from_days(k, m.days)[0] > 0).to("i64"), (0, 1)),
}
"""Parts of a date: how each is computed and the bounds of its values."""

CLOCK: dict[str, tuple[int, int, int]] = {
    "hour": (3_600_000_000, 0, 24),
    "minute": (60_000_000, 60, 59),
    "second": (1_000_000, 60, 59),
    "millisecond": (1_000, 60_000, 59_999),
    "microsecond": (1, 60_000_000, 59_999_999),
}
"""Parts of a time: microseconds of one, how many make the next unit (0: no limit), the largest value."""

MONTHS_PER = {"year": 12, "decade": 120, "century": 1200, "millennium": 12_000}
ZONE_PARTS = ("timezone", "timezone_hour", "timezone_minute")


def clock_part(k: Kernel, part: str, micros: Val) -> Val:
    unit, wraps, _ = CLOCK[part]
    value = micros // unit if unit > 1 else micros
    return value % wraps if wraps else value


def _not_recognized(d: Datum, part: str, position: int | None) -> BindError:
    return BindError(f'"{d.type.name.lower()}" units "{part}" not recognized', position=position)


def emit_part(k: PipelineKernel, part: str, d: Datum, position: int | None = None) -> Datum:
    """A part of a value that is not NULL: BIGINT, or DOUBLE for epoch and julian. NULL for infinity."""
    if d.type == INTERVAL:
        return _interval_part(k, part, d, position)
    if d.type == TIME:
        micros = d.value.to("i64")
        if part == "epoch":
            return Datum(DOUBLE, (micros.to("f64") / 1e6,))
        if part in CLOCK:
            return Datum(BIGINT, (clock_part(k, part, micros),), None, (0, CLOCK[part][2]))
        if part in ZONE_PARTS:
            return Datum(BIGINT, (k.i64(0),), None, (0, 0))
        raise _not_recognized(d, part, position)
    return _instant_part(k, part, d, position)


def _instant_part(k: PipelineKernel, part: str, d: Datum, position: int | None) -> Datum:
    finite = is_finite(k, d)
    if part == "epoch":
        value = d.value.to("i64").to("f64")
        return Datum(DOUBLE, (value * 86_400.0 if d.type == DATE else value / 1e6,), finite)
    m = moment(k, d)
    if part == "julian":
        day = (m.days + JULIAN_EPOCH).to("f64")
        return Datum(DOUBLE, (day if m.micros is None else m.micros.to("f64") / float(MICROS_PER_DAY) + day,), finite)
    if part in CALENDAR:
        emit, bounds = CALENDAR[part]
        if bounds is None and m.bounds is not None and part in ("year", "decade", "isoyear"):
            low, high = (python_year(days) for days in m.bounds)
            slack = int(part == "isoyear")
            bounds = (int(low / 10), int(high / 10)) if part == "decade" else (low - slack, high + slack)
        return Datum(BIGINT, (emit(k, m),), finite, bounds)
    if part in CLOCK:
        return Datum(BIGINT, (clock_part(k, part, m.time(k)),), finite, (0, CLOCK[part][2]))
    if d.type == DATE:
        raise _not_recognized(d, part, position)
    return Datum(BIGINT, (k.i64(0),), finite, (0, 0))


def _interval_part(k: PipelineKernel, part: str, d: Datum, position: int | None) -> Datum:
    months, days, micros = (p.to("i64") for p in d.parts)
    if part in MONTHS_PER:
        return Datum(BIGINT, (months // MONTHS_PER[part],))
    if part == "month":
        return Datum(BIGINT, (months % 12,), None, (-11, 11))
    if part == "quarter":
        return Datum(BIGINT, (months % 12 // 3 + 1,), None, (-2, 4))
    if part == "day":
        return Datum(BIGINT, (days,))
    if part in CLOCK:
        return Datum(BIGINT, (clock_part(k, part, micros),))
    if part == "epoch":
        years = months // 12
        total = (years * 365 + months % 12 * 30 + days) * 86_400 + years * 21_600
        return Datum(DOUBLE, (total.to("f64") + micros.to("f64") / 1e6,))
    raise _not_recognized(d, part, position)


def _part_type(types: tuple[Type, ...], values: tuple[Any, ...]) -> Type:
    """BIGINT for most parts; DOUBLE for the fractional ones and for a part that is known only at run time."""
    if values[0] is None:
        return DOUBLE
    return DOUBLE if part_name(values[0]) in FRACTIONAL else BIGINT


SPELLING_BYTES = 24
"""A spelling in the table of all: up to 16 bytes, then its length and the number of its part."""


@routine("part_number", ("ptr", "i64", "ptr", "i64"), "i64")
def part_number(k: Kernel, text: Val, length: Val, spellings: Val, count: Val) -> None:
    """The number of the part that a text spells, in any case; -1 for none."""
    with k.range(count) as index:
        entry = spellings + index * SPELLING_BYTES
        same = k.var(k.load("i8", entry, 16).uto("i64") == length)
        with k.when(same.value), k.range(length) as i:
            byte = k.load("i8", text, i)
            upper = (byte >= ord("A")) & (byte <= ord("Z"))
            same.set(same.value & (k.select(upper, byte + 32, byte) == k.load("i8", entry, i)))
        with k.when(same.value):
            k.ret(k.load("i8", entry, 17).uto("i64"))
    k.ret(k.i64(-1))


def dispatch(k: PipelineKernel, text: Datum, parts: dict[str, Callable[[], Datum]], result: Type) -> Datum:
    """A part that is known only at run time: one branch per part."""
    slots = [k.var(k.const(t, 0)) for t in result.parts]
    ok = k.var(k.true)
    table = b"".join(
        spelling.encode().ljust(16, b"\0") + bytes([len(spelling), ALL_PARTS.index(part)]).ljust(8, b"\0")
        for spelling, part in PARTS.items()
        if part in parts
    )
    number = part_number(k, text.ptr, text.len, k.static(table), len(table) // SPELLING_BYTES)
    for part, emit in parts.items():
        with k.when(number == ALL_PARTS.index(part)):
            d = emit().wide()
            for slot, value in zip(slots, d.parts, strict=True):
                slot.set(value)
            ok.set(k.true if d.valid is None else d.valid)
    k.fail(number < 0, 'extract specifier "{detail}" not recognized', detail=(text.ptr, text.len))
    return Datum(result, tuple(s.value for s in slots), ok.value)


def at_runtime(
    k: PipelineKernel, call: Call, row: Row, parts: Callable[[str, tuple[Datum, ...]], Datum], names: tuple[str, ...]
) -> Datum:
    """A call whose part is a column: every possible part is emitted, and a branch runs one of them."""
    from tsql.kernels.emit.expressions import emit

    text, *rest = (emit(k, a, row).wide() for a in call.args)
    valid = text.valid
    for d in rest:
        valid = both(valid, d.valid)
    args = tuple(d.with_valid(None) for d in rest)

    def run() -> Datum:
        return dispatch(k, text, {name: partial(parts, name, args) for name in names}, call.type)

    return run_if_valid(k, call, valid, run)


def run_if_valid(k: PipelineKernel, call: Call, valid: Val | None, body: Callable[[], Datum]) -> Datum:
    """The result of a branch that runs only where the arguments are not NULL."""
    if valid is None:
        with k.guarded(k.frame.guard, call.position):
            return body()
    slots, ok = [k.var(k.const(t, 0)) for t in call.type.parts], k.var(k.false)
    with k.when(valid), k.guarded(None, call.position):
        d = body().wide()
        for slot, value in zip(slots, d.parts, strict=True):
            slot.set(value)
        ok.set(k.true if d.valid is None else d.valid)
    return Datum(call.type, tuple(s.value for s in slots), ok.value)


def is_null_part(call: Call) -> bool:
    return isinstance(call.args[0], Literal) and call.args[0].value is None


def _allowed(t: Type) -> tuple[str, ...]:
    if t == TIME:
        return ("epoch", *CLOCK, *ZONE_PARTS)
    if t == INTERVAL:
        return (*MONTHS_PER, "month", "quarter", "day", *CLOCK, "epoch")
    return tuple(p for p in ALL_PARTS if t != DATE or p not in ZONE_PARTS)


def _register_date_part(t: Type, example: tuple[str, Any]) -> None:
    @function(
        "date_part",
        "datepart",
        args=(VARCHAR, t),
        returns=DOUBLE,
        returns_for=_part_type,
        nulls="expression",
        can_fail=True,
        examples=(example,),
    )
    def date_part(k: PipelineKernel, call: Call, row: Row) -> Datum:
        from tsql.kernels.emit.expressions import emit

        if is_null_part(call):
            return null(k, call.type)
        part = part_literal(call)
        if part is None:
            return at_runtime(k, call, row, lambda name, args: _as_double(emit_part(k, name, args[0])), _allowed(t))
        d = emit(k, call.args[1], row)
        result = emit_part(k, part, d, call.position)
        return result.with_valid(both(d.valid, result.valid))


def _as_double(d: Datum) -> Datum:
    return Datum(DOUBLE, (d.value.to("f64"),), d.valid)


for _type, _example in (
    (DATE, ("date_part('year', DATE '1992-09-20')", 1992)),
    (TIMESTAMP, ("date_part('minute', TIMESTAMP '1992-09-20 20:38:40')", 38)),
    (TIMESTAMPTZ, ("date_part('hour', TIMESTAMPTZ '1992-09-20 20:38:40+00')", 20)),
    (TIME, ("date_part('second', TIME '20:38:40')", 40)),
    (INTERVAL, ("date_part('year', INTERVAL '30 months')", 2)),
):
    _register_date_part(_type, _example)


SHORTCUTS = {
    "year": "year", "month": "month", "day": "day", "dayofmonth": "day", "decade": "decade", "century": "century",
    "millennium": "millennium", "quarter": "quarter", "week": "week", "weekofyear": "week", "isoyear": "isoyear",
    "yearweek": "yearweek", "dayofweek": "dow", "weekday": "dow", "isodow": "isodow", "dayofyear": "doy", "era": "era",
    "hour": "hour", "minute": "minute", "second": "second", "millisecond": "millisecond", "microsecond": "microsecond",
    "epoch": "epoch", "julian": "julian", "timezone": "timezone", "timezone_hour": "timezone_hour",
    "timezone_minute": "timezone_minute",
}  # fmt: skip
"""Functions of one argument and the part that each gives."""


def _register_shortcuts() -> None:
    for name, part in SHORTCUTS.items():
        for t in (DATE, TIMESTAMP, TIMESTAMPTZ, TIME, INTERVAL):
            if part not in _allowed(t):
                continue

            @function(name, args=(t,), returns=DOUBLE if part in FRACTIONAL else BIGINT, ranged=True)
            def shortcut(k: PipelineKernel, d: Datum, part: str = part) -> Datum:
                return emit_part(k, part, d)


_register_shortcuts()
