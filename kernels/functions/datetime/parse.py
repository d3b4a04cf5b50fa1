"""strptime and try_strptime: text to timestamps by a format, which is compiled into the kernel specifier by specifier.

Numbers may have fewer digits than the format would write, spaces match any number of spaces, names match in any case.
`date_source` says which of the specifiers decide the date. Names of days decide nothing.
"""

from __future__ import annotations

from typing import Any

from tsql.kernels.codegen.lang import Kernel, Val, Var, routine
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum, Row, null
from tsql.kernels.expr.nodes import Call
from tsql.kernels.expr.types import TIMESTAMP, TIMESTAMPTZ, VARCHAR, Type
from tsql.kernels.functions.datetime.format import SHORT_DAYS, SHORT_MONTHS, SPECIFIERS, constant_format, parse_format
from tsql.kernels.functions.datetime.make import DAY_NAMES, MONTH_NAMES, NAME_BYTES
from tsql.kernels.functions.datetime.parts import run_if_valid
from tsql.kernels.functions.registry import function
from tsql.kernels.runtime.calendar import (
    MICROS_PER_DAY,
    MICROS_PER_HOUR,
    MICROS_PER_MINUTE,
    TIMESTAMP_INFINITY,
    days_from_civil,
    days_in_month,
    floor_mod,
)
from tsql.kernels.runtime.text.strings import str_eq

NUMBERS = {
    "Y": ("year", 4, 0, 9999), "y": ("short_year", 2, 0, 99), "m": ("month", 2, 1, 12), "d": ("day", 2, 1, 31),
    "H": ("hour", 2, 0, 23), "I": ("hour", 2, 1, 12), "M": ("minute", 2, 0, 59), "S": ("second", 2, 0, 59),
    "j": ("yearday", 3, 1, 366), "w": ("weekday", 1, 0, 6), "u": ("iso_weekday", 1, 1, 7), "U": ("week", 2, 0, 53),
    "W": ("week", 2, 0, 53), "G": ("iso_year", 4, 0, 9999), "V": ("iso_week", 2, 1, 53),
}  # fmt: skip
"""Specifier: (field, most digits, least and largest value)."""
FRACTIONS = {"f": 6, "g": 3, "n": 9}
NAMES = {
    "a": ("day_name", SHORT_DAYS, 0),
    "A": ("day_name", DAY_NAMES, 0),
    "b": ("month", SHORT_MONTHS, 1),
    "h": ("month", SHORT_MONTHS, 1),
    "B": ("month", MONTH_NAMES, 1),
}
DEFAULTS = {"year": 1900, "month": 1, "day": 1, "yearday": 1, "iso_year": 1900, "iso_week": 1, "iso_weekday": 1}


@routine("parse_digits", ("ptr", "ptr", "i64"), "i64")
def parse_digits(k: Kernel, p: Val, end: Val, most: Val) -> None:
    """value * 16 + digits read: up to `most` digits; none read is 0."""
    value, count = k.var(k.i64(0)), k.var(k.i64(0))
    with k.forever() as loop:
        n = count.value
        at = p + n
        loop.stop_if((n >= most) | at.uge(end))
        digit = k.load("i8", at).uto("i64") - 48
        loop.stop_if((digit < 0) | (digit > 9))
        value.set(value.value * 10 + digit)
        count.set(n + 1)
    k.ret(value.value * 16 + count.value)


@routine("match_name", ("ptr", "ptr", "ptr", "i64"), "i64")
def match_name(k: Kernel, p: Val, end: Val, names: Val, count: Val) -> None:
    """index * 16 + length of the first name that the text begins with, in any case; -1 for none. Names are in lower
    case."""
    with k.range(count) as index:
        entry = names + index * NAME_BYTES
        length = k.load("i8", entry, NAME_BYTES - 1).uto("i64")
        same = k.var((p + length).ule(end))
        with k.when(same.value), k.range(length) as i:
            same.set(same.value & ((k.load("i8", p, i) | 32) == k.load("i8", entry, i)))
        with k.when(same.value):
            k.ret(index * 16 + length)
    k.ret(k.i64(-1))


@routine("skip_spaces", ("ptr", "ptr"), "ptr")
def skip_spaces(k: Kernel, p: Val, end: Val) -> None:
    at = k.var(p)
    with k.forever() as loop:
        here = at.value
        loop.stop_if(here.uge(end))
        byte = k.load("i8", here)
        loop.stop_if((byte != 32) & ((byte < 9) | (byte > 13)))
        at.set(here + 1)
    k.ret(at.value)


CONFLICT, YEAR, MONTH, ISO = "conflict", "year", "month", "iso"


def date_source(letters: list[str]) -> str:
    """The fields that define a date: MONTH and YEAR are a year, a month and a day; ISO a year of weeks; `j`, `U` and
    `W` days and weeks of a year. Without any, it is the first day of the year, or of the named month. CONFLICT: the day
    is given twice, which never fits, as in DuckDB."""
    source, seen = "", set()
    for letter in letters:
        if letter in "dm":
            source = MONTH
        elif letter in "yY":
            source = YEAR if source in ("", ISO) else source
        elif letter in "GV":
            if (
                source not in (MONTH, YEAR, ISO, "")
                or (source == ISO and letter in seen)
                or (source == YEAR and letter == "V")
            ):
                return CONFLICT
            source = source or ISO
        elif letter == "u" and letter in seen:
            return CONFLICT
        elif letter in "jUW" and source != MONTH:
            if source not in ("", YEAR):
                return CONFLICT
            source = letter
        seen.add(letter)
    return source


class Reader:
    """Emits the reading of one text: the place in the text, whether all went well so far, and the fields read."""

    def __init__(self, k: PipelineKernel, text: Datum, items: list[str]):
        self.k = k
        self.end = text.ptr + text.len
        self.at: Var = k.var(skip_spaces(k, text.ptr, self.end))
        self.ok: Var = k.var(k.true)
        self.fields: dict[str, Var] = {}
        self.letters = {item[-1] for item in items if item in SPECIFIERS}
        self.source = date_source([item[-1] for item in items if item in SPECIFIERS])

    def declare(self) -> None:
        """All fields start with their defaults, before any branch."""
        names = {
            spec[0]
            for letter, spec in (NUMBERS | {n: (v[0],) for n, v in NAMES.items()}).items()
            if letter in self.letters
        }
        for name in sorted(names | {"micros", "offset", "afternoon"} | set(DEFAULTS)):
            self.fields[name] = self.k.var(self.k.i64(DEFAULTS.get(name, 0)))

    def value(self, name: str) -> Val:
        return self.fields[name].value

    def has(self, letters: str) -> bool:
        return any(letter in self.letters for letter in letters)

    def number(self, letter: str) -> None:
        k = self.k
        name, most, low, high = NUMBERS[letter]
        packed = parse_digits(k, self.at.value, self.end, most)
        value, digits = packed >> 4, packed & 15
        self.ok.set((digits > 0) & (value >= low) & (value <= high))
        self.at.set(self.at.value + digits)
        if name == "short_year":
            name, value = "year", value + k.select(value >= 69, k.i64(1900), k.i64(2000))
        self.fields[name].set(value)

    def fraction(self, letter: str) -> None:
        """Digits of a second: those that are missing at the end count as zeros."""
        k = self.k
        most = FRACTIONS[letter]
        packed = parse_digits(k, self.at.value, self.end, most)
        digits = packed & 15
        value = k.var(packed >> 4)
        with k.range(k.i64(most) - digits):
            value.set(value.value * 10)
        self.ok.set(digits > 0)
        self.at.set(self.at.value + digits)
        self.fields["micros"].set(
            value.value * 1000 if most == 3 else value.value // 1000 if most == 9 else value.value
        )

    def name(self, letter: str) -> None:
        k = self.k
        field, names, first = NAMES[letter]
        table = b"".join(name.lower().encode().ljust(NAME_BYTES - 1, b"\0") + bytes([len(name)]) for name in names)
        packed = match_name(k, self.at.value, self.end, k.static(table), len(names))
        self.ok.set(packed >= 0)
        self.at.set(self.at.value + (k.select(packed < 0, k.i64(0), packed) & 15))
        self.fields[field].set((packed >> 4) + first)

    def half_day(self) -> None:
        k = self.k
        known = (self.at.value + 2).ule(self.end)
        self.ok.set(known)
        with k.when(known):
            first, second = (k.load("i8", self.at.value, i) | 32 for i in range(2))
            self.ok.set(((first == ord("a")) | (first == ord("p"))) & (second == ord("m")))
            self.fields["afternoon"].set((first == ord("p")).to("i64"))
            self.at.set(self.at.value + 2)

    def literal(self, text: str) -> None:
        k = self.k
        for piece in _pieces(text):
            with k.when(self.ok.value):
                if piece == " ":
                    past = skip_spaces(k, self.at.value, self.end)
                    self.ok.set(past != self.at.value)
                    self.at.set(past)
                else:
                    data = piece.encode()
                    fits = (self.at.value + len(data)).ule(self.end)
                    self.ok.set(fits)
                    with k.when(fits):
                        self.ok.set(str_eq(k, self.at.value, len(data), k.static(data), len(data)))
                        self.at.set(self.at.value + len(data))

    def utc_offset(self) -> None:
        """+HH, +HHMM or +HH:MM, with either sign."""
        k = self.k
        self.ok.set(self.at.value.ult(self.end))
        with k.when(self.ok.value):
            sign = k.load("i8", self.at.value)
            hours = parse_digits(k, self.at.value + 1, self.end, 2)
            self.ok.set(((sign == ord("+")) | (sign == ord("-"))) & ((hours & 15) == 2))
            after = k.var(self.at.value + 1 + (hours & 15))
            minutes = k.var(k.i64(0))
            with k.when(after.value.ult(self.end)):
                colon = (k.load("i8", after.value) == ord(":")).to("i64")
                read = parse_digits(k, after.value + colon, self.end, 2)
                with k.when((read & 15) == 2):
                    minutes.set(read >> 4)
                    after.set(after.value + colon + 2)
            total = (hours >> 4) * MICROS_PER_HOUR + minutes.value * MICROS_PER_MINUTE
            self.fields["offset"].set(k.select(sign == ord("-"), -total, total))
            self.at.set(after.value)

    def zone(self) -> None:
        """The one zone whose rules are known here."""
        k = self.k
        table = b"".join(name.ljust(NAME_BYTES - 1, b"\0") + bytes([len(name)]) for name in (b"utc", b"gmt"))
        packed = match_name(k, self.at.value, self.end, k.static(table), 2)
        self.ok.set(packed >= 0)
        self.at.set(self.at.value + (k.select(packed < 0, k.i64(0), packed) & 15))

    def item(self, item: str) -> None:
        if item not in SPECIFIERS:
            self.literal(item)
            return
        letter = item[-1]
        with self.k.when(self.ok.value):
            if letter in NUMBERS:
                self.number(letter)
            elif letter in FRACTIONS:
                self.fraction(letter)
            elif letter in NAMES:
                self.name(letter)
            elif letter == "p":
                self.half_day()
            elif letter == "z":
                self.utc_offset()
            else:
                self.zone()

    def days(self) -> Val:
        """Days since 1970 of the fields; clears `ok` for a day that the month does not have."""
        k = self.k
        if self.source == CONFLICT:
            self.ok.set(k.false)
        if self.source in (CONFLICT, YEAR, MONTH, ""):
            year, month, day = (self.value(n) for n in ("year", "month", "day"))
            self.ok.set(self.ok.value & (day <= days_in_month(k, year, month)))
            return days_from_civil(k, year, month, day)
        if self.source == "j":
            return days_from_civil(k, self.value("year"), 1, 1) + self.value("yearday") - 1
        if self.source == ISO:
            fourth = days_from_civil(k, self.value("iso_year"), 1, 4)
            return (
                fourth - floor_mod(k, fourth + 3, 7) + (self.value("iso_week") - 1) * 7 + self.value("iso_weekday") - 1
            )
        from_monday = self.source == "W"
        first = days_from_civil(k, self.value("year"), 1, 1)
        week_one = first + floor_mod(k, 7 - floor_mod(k, first + (3 if from_monday else 4), 7), 7)
        weekday = k.i64(0)
        if self.has("w"):
            weekday = floor_mod(k, self.value("weekday") + (6 if from_monday else 0), 7)
        return week_one + (self.value("week") - 1) * 7 + weekday

    def micros(self) -> Val:
        """Microseconds since 1970 of the fields."""
        hour = self.value("hour") if self.has("HI") else self.k.i64(0)
        if self.has("p"):
            # Twelve is the first hour of either half; from %H there may be more.
            self.ok.set(self.ok.value & (hour <= 12))
            hour = self.k.select(hour == 12, self.k.i64(0), hour) + self.value("afternoon") * 12
        time = hour * MICROS_PER_HOUR + self.value("micros") - self.value("offset")
        if self.has("M"):
            time = time + self.value("minute") * MICROS_PER_MINUTE
        if self.has("S"):
            time = time + self.value("second") * 1_000_000
        return self.days() * MICROS_PER_DAY + time


def _pieces(text: str) -> list[str]:
    """A literal cut into runs without spaces and single spaces that stand for a run of them."""
    pieces: list[str] = []
    for word in text.split(" "):
        if pieces and pieces[-1] != " ":
            pieces.append(" ")
        elif not pieces and text.startswith(" ") and not word:
            pieces.append(" ")
        if word:
            pieces.append(word)
    return pieces


SPECIAL = {b"infinity": TIMESTAMP_INFINITY, b"-infinity": -TIMESTAMP_INFINITY, b"epoch": 0}


def _read(k: PipelineKernel, items: list[str], text: Datum) -> tuple[Val, Val]:
    """(microseconds, whether the text fits the format)."""
    reader = Reader(k, text, items)
    reader.declare()
    for item in items:
        reader.item(item)
    rest = skip_spaces(k, reader.at.value, reader.end)
    micros = k.var(reader.micros())
    good = k.var(reader.ok.value & rest.uge(reader.end))
    with k.when(~good.value):
        for word, value in SPECIAL.items():
            with k.when(str_eq(k, text.ptr, text.len, k.static(word), len(word))):
                micros.set(k.i64(value))
                good.set(k.true)
    return micros.value, good.value


def _result_type(types: tuple[Type, ...], values: tuple[Any, ...]) -> Type:
    """TIMESTAMPTZ if the format has an offset or a time zone."""
    if values[1] and isinstance(values[1], str) and {"%z", "%Z"} & set(parse_format(values[1])):
        return TIMESTAMPTZ
    return TIMESTAMP


def _register(name: str, safe: bool) -> None:
    example = (f"{name}('Wed, 1 January 1992 - 08:38:40 PM', '%a, %-d %B %Y - %I:%M:%S %p')", None)

    @function(
        name,
        args=(VARCHAR, VARCHAR),
        returns=TIMESTAMP,
        returns_for=_result_type,
        constant=(1,),
        nulls="expression",
        can_fail=not safe,
        examples=(example,),
    )
    def strptime(k: PipelineKernel, call: Call, row: Row) -> Datum:
        from tsql.kernels.emit.expressions import emit

        text = constant_format(name, call.args[1], call)
        if text is None:
            return null(k, call.type)
        items = parse_format(text, call.position)
        d = emit(k, call.args[0], row)

        def body() -> Datum:
            micros, good = _read(k, items, d)
            if safe:
                return Datum(call.type, (micros,), good)
            k.fail(
                ~good,
                f'Could not parse string "{{detail}}" according to format specifier "{text}"',
                detail=(d.ptr, d.len),
            )
            return Datum(call.type, (micros,))

        return run_if_valid(k, call, d.valid, body)


_register("strptime", False)
_register("try_strptime", True)
