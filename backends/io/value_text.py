"""Columns as text in DuckDB's spelling, for CSV and JSON files.

`texts` returns a string array per column (NULL stays NULL), `json_texts` the same as JSON literals. Both convert whole
columns with pyarrow where its spelling equals DuckDB's, and the rest value by value (floats, intervals, dates far
away)."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa

from tsql.kernels.process.arrow_compute import pc

_DAY_US = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31: between them, pyarrow's spelling equals ours."""
_JSON_SPECIAL = '["\\\\\\x00-\\x1f]'
_JSON_ESCAPES = {i: f"\\u{i:04X}" for i in range(32)} | {
    8: "\\b",
    9: "\\t",
    10: "\\n",
    12: "\\f",
    13: "\\r",
    34: '\\"',
    92: "\\\\",
}
_BLOB_ESCAPED = frozenset(b"\\'\"")


def texts(column: pa.Array) -> pa.Array:
    """The values of a column as DuckDB casts them to VARCHAR."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return texts(column.dictionary_decode())
    if pa.types.is_string(kind):
        return column
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.string())
    if pa.types.is_decimal(kind):
        return pa.array([None if value is None else format(value, "f") for value in column.to_pylist()], pa.string())
    if pa.types.is_float32(kind):
        return pa.array(
            [None if value is None else repr(float(str(np.float32(value)))) for value in column.to_pylist()],
            pa.string(),
        )
    if pa.types.is_floating(kind):
        return pa.array([None if value is None else repr(value) for value in column.to_pylist()], pa.string())
    if pa.types.is_date(kind):
        return _dates(column.cast(pa.date32()))
    if pa.types.is_timestamp(kind):
        return _stamps(column.cast(pa.timestamp("us", kind.tz), safe=False))
    if pa.types.is_time(kind):
        micros = column.cast(pa.time64("us"), safe=False).cast(pa.int64())
        return pa.array([None if value is None else clock_text(value) for value in micros.to_pylist()], pa.string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.array([None if value is None else blob_text(value) for value in column.to_pylist()], pa.string())
    if kind == pa.month_day_nano_interval():
        return pa.array(
            [
                None if value is None else interval_text(value.months, value.days, value.nanoseconds // 1000)
                for value in column.to_pylist()
            ],
            pa.string(),
        )
    return column.cast(pa.string())


def json_texts(column: pa.Array) -> pa.Array:
    """The values of a column as JSON literals; NULL becomes null. DuckDB writes decimals of up to 18 digits as
    doubles."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or (pa.types.is_decimal(kind) and kind.precision > 18):
        found = texts(column)
    elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        found = pa.array(
            [None if value is None else json_number(float(value)) for value in column.to_pylist()], pa.string()
        )
    else:
        found = _json_strings(texts(column))
    return pc.fill_null(found, "null")


def _json_strings(column: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(column, _JSON_SPECIAL)).as_py():
        return pa.array([None if value is None else json_string(value) for value in column.to_pylist()], pa.string())
    return pc.binary_join_element_wise('"', column, '"', "")


def json_string(value: str) -> str:
    """A JSON string; control characters in upper-case hex, other characters as they are."""
    return f'"{value.translate(_JSON_ESCAPES)}"'


def json_number(value: float) -> str:
    """The shortest number that reads back to the same double: plain digits from 1e-6 to below 1e21, else an
    exponent."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    # Finite numbers have a number for an exponent; the others are dealt with above.
    exponent = int(exponent) + len(digits) - len(text)
    point = len(text) + exponent
    mark = "-" if sign else ""
    if text == "0":
        return f"{mark}0.0"
    if -6 < point <= 21:
        if point <= 0:
            return f"{mark}0.{'0' * -point}{text}"
        return f"{mark}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"
    return f"{mark}{text[0]}{'.' + text[1:] if len(text) > 1 else ''}e{point - 1}"


def _dates(column: pa.Array) -> pa.Array:
    if _within(column.cast(pa.int32()), _FIRST_DAY, _LAST_DAY):
        return column.cast(pa.string())
    return pa.array(
        [None if day is None else date_text(day) for day in column.cast(pa.int32()).to_pylist()], pa.string()
    )


def _stamps(column: pa.Array) -> pa.Array:
    zone = "+00" if column.type.tz else ""
    micros = column.cast(pa.int64())
    if _within(micros, _FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1):
        plain = micros.cast(pa.timestamp("us")).cast(pa.string())
        short = pc.replace_substring_regex(plain, r"\.?0*$", "", max_replacements=1)
        return pc.binary_join_element_wise(short, zone, "") if zone else short
    return pa.array(
        [None if value is None else _zoned(stamp_text(value), zone) for value in micros.to_pylist()], pa.string()
    )


def _within(column: pa.Array, low: int, high: int) -> bool:
    bounds = pc.min_max(column)
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    return least is None or (low <= least and most <= high)


def date_text(day: int) -> str:
    """A date, with (BC) for years before 1."""
    if day in (2**31 - 1, -(2**31 - 1)):
        return "infinity" if day > 0 else "-infinity"
    year, month, of_month = _civil(day)
    return f"{year:04d}-{month:02d}-{of_month:02d}" if year > 0 else f"{1 - year:04d}-{month:02d}-{of_month:02d} (BC)"


def _zoned(text: str, zone: str) -> str:
    """Infinity has no zone."""
    return text if text.endswith("infinity") else text + zone


def stamp_text(micros: int) -> str:
    """A timestamp without a zone."""
    if micros in (2**63 - 1, -(2**63 - 1)):
        return "infinity" if micros > 0 else "-infinity"
    return f"{date_text(micros // _DAY_US)} {clock_text(micros % _DAY_US)}"


def clock_text(micros: int) -> str:
    """A time of day, with as many digits of its fraction as it has."""
    seconds, rest = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{rest:06d}".rstrip("0") if rest else text


def _civil(day: int) -> tuple[int, int, int]:
    """Year, month and day of the proleptic Gregorian calendar (Howard Hinnant's days-to-civil), for any year."""
    day += 719_468
    era, of_era = divmod(day, 146_097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year_of_era + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def interval_text(months: int, days: int, micros: int) -> str:
    """An interval: years, months, days and a time, each if it is there."""
    parts = []
    years, months = (abs(months) // 12 * (1 if months >= 0 else -1), abs(months) % 12 * (1 if months >= 0 else -1))
    for count, unit in ((years, "year"), (months, "month"), (days, "day")):
        if count:
            parts.append(f"{count} {unit}{'' if abs(count) == 1 else 's'}")
    if micros or not parts:
        parts.append(("-" if micros < 0 else "") + clock_text(abs(micros)))
    return " ".join(parts)


def blob_text(value: bytes) -> str:
    """Bytes as printable ASCII, the others as \\xHH."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte not in _BLOB_ESCAPED else f"\\x{byte:02X}" for byte in value)
