"""CSV values beyond the ordinary ones of `text`: nan and infinities, times before year 1 and after 9999, times for a
date column, integers of 39 digits.

`text` and pyarrow read the values of almost all files. This module is only used for values that they refuse, so it
costs nothing otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tsql.backends.io.text import (
    ISO,
    TextFormat,
    convert_text,
    from_stored,
    parse_date,
    parse_timestamp,
    parse_timestamptz,
    parser,
)
from tsql.backends.io.text import detect as detect_ordinary
from tsql.kernels.expr.types import DATE, DECIMAL, DOUBLE, HUGEINT, TIMESTAMP, TIMESTAMPTZ, VARCHAR, Type
from tsql.kernels.process.arrow_compute import pc
from tsql.kernels.runtime.calendar import (
    DATE_INFINITY,
    DATE_MAX,
    DATE_MIN,
    MICROS_PER_DAY,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
)

_TIMES = (DATE, TIMESTAMP, TIMESTAMPTZ)
_NAN = ("nan", "-nan")
_INFINITIES = {"infinity": 1, "inf": 1, "-infinity": -1, "-inf": -1}
_DATED = re.compile(
    r"(?P<sign>-?)(?P<year>[0-9]{3,7})(?P<day>(?P<sep>[-/ ])[0-9]{1,2}(?P=sep)[0-9]{1,2})(?P<bc> \(BC\))?(?P<clock>.*)",
    re.IGNORECASE | re.DOTALL,
)
_WHOLE = re.compile(r"(?:0|[1-9][0-9]{0,38}|-[0-9]{1,39})")
_ZONE = re.compile(r"\s*(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)\Z")
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""The calendar repeats after this many years and days."""

_FITTING = {
    "DATE": ("date", "infinity", "epoch"),
    "TIMESTAMP": ("timestamp", "date"),
    "TIMESTAMPTZ": ("zoned", "timestamp", "date", "infinity", "epoch"),
}
"""For each type, the shapes of values that do not change the type of a column."""

_WHOLE_NUMBERS, _FRACTIONS = "^-?[0-9]{1,18}$", r"^-?[0-9]{1,18}(\.[0-9]{0,18})?$"
"""Numbers that pyarrow casts like we do."""

TRUE_WORDS = ["true", "True", "TRUE", "t", "T", "yes", "Yes", "YES"]
FALSE_WORDS = ["false", "False", "FALSE", "f", "F", "no", "No", "NO"]
"""What pyarrow takes for true and false."""

_LONGEST_SHOWN = 60


def detect(texts: Iterable[str]) -> tuple[Type, TextFormat]:
    """The type of a column with these values (NULLs left out) and how its dates are written, as DuckDB detects it."""
    values = list(dict.fromkeys(texts))
    kind, format = _ordinary(values)
    if kind == VARCHAR and values:
        return _from_shapes(values) or VARCHAR, ISO
    if kind == DOUBLE and _are_hugeints(values):
        return HUGEINT, ISO
    return kind, format


def _ordinary(values: list[str]) -> tuple[Type, TextFormat]:
    """The type of values that are all written alike. They are checked in bulk, one per line. A line break inside a
    value would split it, so it is replaced by another white space, which means the same."""
    return detect_ordinary([value.replace("\n", "\v") for value in values] if "\n" in "".join(values) else values)


def _are_hugeints(values: list[str]) -> bool:
    """Whether the values are integers some of which have 39 digits, the most that a HUGEINT has."""
    if max(map(len, values)) < 39:
        return False
    low, high = HUGEINT.bounds
    return all(_WHOLE.fullmatch(value.strip()) and low <= int(value) <= high for value in values)


def _from_shapes(values: list[str]) -> Type | None:
    """The type of values that are not all written alike. As in DuckDB, the first one decides between numbers, dates and
    timestamps, so `inf` before numbers is taken for a date and makes the column text. In a TIMESTAMP column, values
    other than plain times (a zone, `infinity`, `epoch`) make it a TIMESTAMPTZ."""
    first = _shape(values[0])
    shapes = {first}
    for value in values:
        shape = _shape(value)
        if shape is None:
            return None
        shapes.add(shape)
    if first in ("number", "nan"):
        return DOUBLE if shapes <= {"number", "nan", "infinity"} else None
    if first in ("date", "infinity", "epoch"):
        return DATE if shapes <= {"date", "infinity", "epoch"} else None
    if shapes & {"number", "nan"}:
        return None
    return TIMESTAMP if shapes <= {"timestamp", "date"} else TIMESTAMPTZ


def _shape(text: str) -> str | None:
    """What a value looks like; None for text."""
    if text.lower() in _NAN:
        return "nan"
    text = text.strip()
    if text.lower() in _INFINITIES:
        return "infinity"
    if text.lower() == "epoch":
        return "epoch"
    dated = _DATED.fullmatch(text)
    if dated is None:
        return "number" if _WHOLE.fullmatch(text) or _ordinary([text])[0].is_numeric else None
    shape, kind = (
        ("date", DATE)
        if not dated["clock"]
        else ("zoned", TIMESTAMPTZ)
        if _ZONE.search(dated["clock"])
        else ("timestamp", TIMESTAMP)
    )
    return None if reader(kind)(text) is None else shape


def reader(kind: Type, format: TextFormat = ISO) -> Callable[[str], Any]:
    """The function that reads a value from text like DuckDB's cast: the stored form, or None if it is invalid."""
    ordinary = parser(kind, format)
    if kind not in _TIMES or format != ISO:
        return ordinary

    def read(text: str) -> int | None:
        value = ordinary(text)
        return _unusual_time(text.strip(), kind) if value is None else value

    return read


def fits(text: str, kind: Type, format: TextFormat) -> bool:
    """Whether detection accepts the text as a value of this column type. Stricter than a cast: `epoch` above a column
    of timestamps, or a time above one of dates, is a header."""
    return parser(kind, format)(text) is not None or (format == ISO and _shape(text) in _FITTING.get(kind.name, ()))


def _unusual_time(text: str, kind: Type) -> int | None:
    """infinity, epoch, a time of any year, or one with more parts than the type keeps: a DATE drops the time, a
    TIMESTAMP the zone."""
    word = text.lower()
    if word in _INFINITIES:
        return _INFINITIES[word] * (DATE_INFINITY if kind == DATE else TIMESTAMP_INFINITY)
    if word == "epoch":
        return 0
    dated = _DATED.fullmatch(text)
    if dated is None or (dated["bc"] and (dated["sign"] or int(dated["year"]) == 0)):
        return None
    year = 1 - int(dated["year"]) if dated["bc"] else int(dated["sign"] + dated["year"])
    cycles, near = divmod(year - 2000, _CYCLE_YEARS)
    return _moved(f"{2000 + near}{dated['day']}", dated["clock"], cycles * _CYCLE_DAYS, kind)


def _moved(day: str, clock: str, days: int, kind: Type) -> int | None:
    """A time, written in two parts, moved by `days` days; None outside the range of the type."""
    if parse_timestamptz(day + clock) is None:
        return None
    if kind == DATE:
        value, low, high = parse_date(day), DATE_MIN, DATE_MAX
    else:
        value = parse_timestamptz(day + clock) if kind == TIMESTAMPTZ else parse_timestamp(day + _ZONE.sub("", clock))
        low, high, days = TIMESTAMP_MIN, TIMESTAMP_MAX, days * MICROS_PER_DAY
    return value + days if value is not None and low <= value + days <= high else None


def convert_column(
    array: pa.Array, kind: Type, format: TextFormat, lost: Callable[[], None] = lambda: None
) -> tuple[pa.Array, pa.Array | None]:
    """Text as values of `kind`, and which rows could not be converted, if any: ordinary values first, then the
    others."""
    if format.thousands and kind.is_numeric:
        array = pc.replace_substring(array, format.thousands, "")
        plain = (
            _WHOLE_NUMBERS
            if kind.is_integer and kind != HUGEINT
            else _FRACTIONS
            if kind == DOUBLE and format.decimal == "."
            else None
        )
        if (
            plain is not None
            and array.type == pa.string()
            and pc.all(pc.match_substring_regex(array, plain)).as_py() is not False
        ):
            try:
                return array.cast(kind.to_arrow()), None
            except pa.ArrowInvalid:
                pass  # out of range: looked at one by one below
        format = replace(format, thousands="")
    # Arrow does not convert numbers to decimals of 39 digits, though it can hold them: they are left for the second
    # step.
    found, wrong = convert_text(array, DECIMAL(38, 0) if kind == HUGEINT else kind, format, lost)
    if wrong is None or not (kind == HUGEINT or kind in _TIMES):
        return found, wrong
    rest = array.filter(wrong).dictionary_encode()
    read = reader(kind, format)
    values = [_read_bytes(read, raw) for raw in rest.dictionary.to_pylist()]
    stored = from_stored(values, kind)
    found = pc.replace_with_mask(found, wrong, stored.take(rest.indices))
    if None not in values:
        return found, None
    return found, pc.replace_with_mask(
        wrong, wrong, pa.array([value is None for value in values], pa.bool_()).take(rest.indices)
    )


def _read_bytes(read: Callable[[str], Any], raw: bytes | str) -> Any:
    try:
        return read(raw.decode("utf-8") if isinstance(raw, bytes) else raw)
    except UnicodeDecodeError:
        return None


def shown(text: str) -> str:
    """A value for an error message: on one line and shortened."""
    cut = text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + ".."
    return cut.replace("\r", "\\r").replace("\n", "\\n")
