"""Values written as text (CSV fields, JSON strings, hive folders): which SQL type they look like, and what they mean.

`detect` does what DuckDB's sniffer does for ordinary values: the first of BOOLEAN, BIGINT, HUGEINT, DOUBLE, TIME, DATE,
TIMESTAMP, TIMESTAMPTZ in which every sampled value is written, else VARCHAR. Parsers give the stored form of
`kernels.expr.Literal`, or None for text that is not a value of the type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any

import pyarrow as pa

from tsql.kernels.expr.types import BIGINT, BOOLEAN, DATE, DOUBLE, HUGEINT, TIME, TIMESTAMP, TIMESTAMPTZ, VARCHAR, Type
from tsql.kernels.process.arrow_compute import pc
from tsql.kernels.process.quick_dataclass import dataclass

_TRUE, _FALSE = {"true", "t", "yes"}, {"false", "f", "no"}
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_PLAIN_INTEGER = re.compile(r"(?:0|[1-9][0-9]*|-[0-9]+)\Z")
_PLAIN_DOUBLE = re.compile(r"(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|-?\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
_DOUBLE = re.compile(
    r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf(?:inity)?|nan)\Z", re.IGNORECASE
)
_TIME = r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]{1,9}))?)?"
_ZONE = r"\s*(?P<zone>Z|UTC|[+-][0-9]{2}(?::?[0-9]{2})?)"
_DATES = {
    "ymd": r"(?P<year>[0-9]{4})(?P<sep>[-/. ])(?P<month>[0-9]{1,2})(?P=sep)(?P<day>[0-9]{1,2})",
    "dmy": r"(?P<day>[0-9]{1,2})(?P<sep>[-/.])(?P<month>[0-9]{1,2})(?P=sep)(?P<year>[0-9]{4})",
    "mdy": r"(?P<month>[0-9]{1,2})(?P<sep>[-/.])(?P<day>[0-9]{1,2})(?P=sep)(?P<year>[0-9]{4})",
}
_DATE_PATTERNS = {order: re.compile(text + r"\Z") for order, text in _DATES.items()}
_STAMP_PATTERNS = {order: re.compile(rf"{text}(?:T|\s+){_TIME}(?:{_ZONE})?\Z") for order, text in _DATES.items()}
_TIME_PATTERN = re.compile(_TIME + r"\Z")
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class TextFormat:
    """How the values of a column are written: the order of year, month and day, or an explicit strptime format; the
    decimal separator and the thousands separator (empty for none)."""

    order: str = "ymd"
    strptime: str | None = None
    decimal: str = "."
    thousands: str = ""


ISO = TextFormat()


def parse_boolean(text: str, words: bool = True) -> bool | None:
    """True and false as DuckDB spells them; a cast (`words=False`) also takes y, n, 1 and 0."""
    lowered = text.strip().lower()
    if lowered in _TRUE or (not words and lowered in ("1", "y")):
        return True
    return False if lowered in _FALSE or (not words and lowered in ("0", "n")) else None


def parse_integer(text: str) -> int | None:
    text = text.strip()
    return int(text) if _INTEGER.match(text) and len(text) <= 60 else None


def parse_double(text: str) -> float | None:
    text = text.strip()
    return float(text) if _DOUBLE.match(text) else None


def parse_time(text: str) -> int | None:
    """Microseconds since midnight."""
    match = _TIME_PATTERN.match(text.strip())
    return None if match is None else _clock(match)


def parse_date(text: str, format: TextFormat = ISO) -> int | None:
    """Days since 1970-01-01."""
    if format.strptime is not None:
        stamp = _strptime(text, format.strptime)
        return None if stamp is None else stamp.toordinal() - _EPOCH
    match = _DATE_PATTERNS[format.order].match(text.strip())
    return None if match is None else _days(match)


def parse_timestamp(text: str, format: TextFormat = ISO) -> int | None:
    """Microseconds since 1970-01-01; a bare date is its midnight, a zone other than UTC is not a TIMESTAMP."""
    return _stamp(text, format, zone=False)


def parse_timestamptz(text: str, format: TextFormat = ISO) -> int | None:
    """Microseconds since 1970-01-01 in UTC; without a zone the text is taken as UTC."""
    return _stamp(text, format, zone=True)


def _stamp(text: str, format: TextFormat, zone: bool) -> int | None:
    if format.strptime is not None:
        stamp = _strptime(text, format.strptime)
        if stamp is None:
            return None
        utc = stamp.astimezone(UTC).replace(tzinfo=None) if stamp.tzinfo else stamp
        return (
            (utc.toordinal() - _EPOCH) * 86_400_000_000
            + (utc.hour * 3600 + utc.minute * 60 + utc.second) * 1_000_000
            + utc.microsecond
        )
    text = text.strip()
    match = _STAMP_PATTERNS[format.order].match(text)
    if match is None:
        day = parse_date(text, format)
        return None if day is None else day * 86_400_000_000
    day, clock = _days(match), _clock(match)
    offset = _offset(match["zone"])
    if day is None or clock is None or offset is None or (match["zone"] not in (None, "UTC") and not zone):
        return None
    return day * 86_400_000_000 + clock - offset


def _strptime(text: str, format: str) -> datetime | None:
    try:
        return datetime.strptime(text.strip(), format)
    except ValueError:
        return None


def _days(match: re.Match[str]) -> int | None:
    try:
        return date(int(match["year"]), int(match["month"]), int(match["day"])).toordinal() - _EPOCH
    except ValueError:
        return None


def _clock(match: re.Match[str]) -> int | None:
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    micros = int((match["fraction"] or "0").ljust(6, "0")[:6])
    if hour == 24 and not (minute or second or micros):
        return 86_400_000_000
    if hour > 23 or minute > 59 or second > 59:
        return None
    return (hour * 3600 + minute * 60 + second) * 1_000_000 + micros


def _offset(zone: str | None) -> int | None:
    if zone in (None, "Z", "UTC"):
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 15 or minutes > 59:
        return None
    micros = (hours * 60 + minutes) * 60_000_000
    return -micros if zone[0] == "-" else micros


def _in_range(text: str, low: int, high: int) -> bool:
    return bool(_PLAIN_INTEGER.match(text)) and len(text) <= 41 and low <= int(text) <= high


def _is_timestamp(text: str, order: str) -> bool:
    match = _STAMP_PATTERNS[order].match(text)
    return match is not None and match["zone"] in (None, "UTC") and parse_timestamp(text, TextFormat(order)) is not None


def _is_timestamptz(text: str, order: str) -> bool:
    match = _STAMP_PATTERNS[order].match(text)
    return (
        match is not None
        and match["zone"] not in (None, "UTC")
        and parse_timestamptz(text, TextFormat(order)) is not None
    )


_PLAIN_TESTS: tuple[tuple[Type, Callable[[str], bool]], ...] = (
    (BOOLEAN, lambda text: parse_boolean(text) is not None),
    (BIGINT, lambda text: _in_range(text, -(2**63), 2**63 - 1)),
    (HUGEINT, lambda text: _in_range(text, 1 - 10**38, 10**38 - 1)),
    (DOUBLE, lambda text: bool(_PLAIN_DOUBLE.match(text))),
    (TIME, lambda text: parse_time(text) is not None),
)
_DATED_TESTS: tuple[tuple[Type, Callable[[str, str], bool]], ...] = (
    (DATE, lambda text, order: parse_date(text, TextFormat(order)) is not None),
    (TIMESTAMP, _is_timestamp),
    (TIMESTAMPTZ, _is_timestamptz),
)


# Regular expressions check the common forms in bulk. Values that do not match are checked one by one.
_BULK = (
    (BIGINT, re.compile(r"(?:(?:0|[1-9][0-9]{0,17}|-[0-9]{1,18})\n)+\Z")),
    (DOUBLE, re.compile(r"(?:-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]*)?\n)+\Z")),
)


def detect(texts: Iterable[str], orders: tuple[str, ...] = ("ymd", "dmy", "mdy")) -> tuple[Type, TextFormat]:
    """The type of a column with these values (NULLs left out) and how its dates are written; VARCHAR if there is
    none."""
    values = [text.strip() for text in dict.fromkeys(texts)]
    if not values:
        return VARCHAR, ISO
    joined = "\n".join(values) + "\n"
    for kind, pattern in _BULK:
        if pattern.match(joined):
            return kind, ISO
    for kind, accepts in _PLAIN_TESTS:
        if all(map(accepts, values)):
            return kind, ISO
    for kind, accepts_order in _DATED_TESTS:
        for order in orders:
            if all(accepts_order(text, order) for text in values):
                return kind, TextFormat(order)
    return VARCHAR, ISO


def parser(kind: Type, format: TextFormat = ISO) -> Callable[[str], Any]:
    """The function that reads a value of type `kind` from text: the stored form, or None where it is not one."""
    if format.thousands and kind.is_numeric:
        whole = parser(kind, TextFormat(decimal=format.decimal))
        return lambda text: whole(text.replace(format.thousands, ""))
    if format.decimal != "." and kind.is_numeric:
        plain = parser(kind)
        return lambda text: None if "." in text else plain(text.replace(format.decimal, "."))
    if kind.is_integer:
        low, high = kind.bounds

        def integer(text: str) -> int | None:
            value = parse_integer(text)
            if value is None:
                value = _rounded(text, 0)
            return value if value is not None and low <= value <= high else None

        return integer
    if kind.is_decimal:
        return lambda text: _parse_decimal(text, kind)
    match kind.name:
        case "BOOLEAN":
            return lambda text: parse_boolean(text, words=False)
        case "FLOAT" | "DOUBLE":
            return parse_double
        case "DATE":
            return lambda text: parse_date(text, format)
        case "TIME":
            return parse_time
        case "TIMESTAMP":
            return lambda text: parse_timestamp(text, format)
        case "TIMESTAMPTZ":
            return lambda text: parse_timestamptz(text, format)
        case "BLOB":
            return str.encode
        case "VARCHAR":
            return lambda text: text
    raise ValueError(f"no column of a text file can have type {kind}")


def _parse_decimal(text: str, kind: Type) -> int | None:
    value, (low, high) = _rounded(text, kind.scale), kind.bounds
    return value if value is not None and low <= value <= high else None


def _rounded(text: str, scale: int) -> int | None:
    """The number times 10^scale, rounded half away from zero."""
    if not _DOUBLE.match(text.strip()):
        return None
    try:
        exact = Decimal(text.strip())
    except InvalidOperation:
        return None
    if not exact.is_finite() or exact.adjusted() > 40:
        return None
    with localcontext(prec=max(len(exact.as_tuple().digits), 1) + 80):
        return int(exact.scaleb(scale).to_integral_value("ROUND_HALF_UP"))


def _decimals(values: list[int | None], arrow: pa.DataType) -> pa.Array:
    """Decimals and HUGEINTs by their bytes, which hold the 39 digits of a HUGEINT. Python's Decimal would round to
    28."""
    data = b"".join((value or 0).to_bytes(16, "little", signed=True) for value in values)
    valid = None if None not in values else pa.array([value is not None for value in values], pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(arrow, len(values), [valid, pa.py_buffer(data)])


def from_stored(values: list[Any], kind: Type) -> pa.Array:
    """An Arrow array of `kind` from values in stored form."""
    arrow = kind.to_arrow()
    if pa.types.is_decimal(arrow):
        return _decimals(values, arrow)
    if kind.name == "DATE":
        return pa.array(values, pa.int32()).view(arrow)
    if kind.name in ("TIME", "TIMESTAMP", "TIMESTAMPTZ"):
        return pa.array(values, pa.int64()).view(arrow)
    if kind.name == "INTERVAL":
        return pa.array([None if v is None else pa.MonthDayNano([v[0], v[1], v[2] * 1000]) for v in values], arrow)
    return pa.array(values, arrow)


_NANOSECONDS = re.compile(rb"\.[0-9]{6}[0-9]*[1-9]")


def has_nanoseconds(text: str | bytes) -> bool:
    """Whether a time has more digits than microseconds."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    return len(raw) > 15 and _NANOSECONDS.search(raw) is not None


def convert_text(
    array: pa.Array, kind: Type, format: TextFormat = ISO, lost: Callable[[], None] = lambda: None
) -> tuple[pa.Array, pa.Array | None]:
    """Text as values of `kind`, with each distinct text converted once; and which rows failed, if any. Dates and times
    in the usual form go through pyarrow's cast, which accepts a subset of our grammar. It refuses times with
    nanoseconds, which are converted here and reported to `lost`."""
    if kind.name in ("DATE", "TIMESTAMP", "TIMESTAMPTZ") and format == ISO and array.type == pa.string():
        try:
            return array.cast(kind.to_arrow()), None
        except pa.ArrowInvalid:
            pass  # another spelling, or no value at all: looked at one by one below
    read: Callable[[str], Any] = parser(kind, format)
    encoded = array.dictionary_encode()
    values: list[Any] = []
    bad = []
    texts = encoded.dictionary.to_pylist()
    if kind.is_temporal and any(map(has_nanoseconds, texts)):
        lost()
    for raw in texts:
        try:
            value = read(raw.decode("utf-8") if isinstance(raw, bytes) else raw)
        except UnicodeDecodeError:
            value = None
        values.append(value)
        bad.append(value is None)
    result = pc.take(from_stored(values, kind), encoded.indices)
    if not any(bad):
        return result, None
    return result, pc.fill_null(pc.take(pa.array(bad, pa.bool_()), encoded.indices), False)
