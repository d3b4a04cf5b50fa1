"""Renders Arrow results as canonical text, the same way for every engine, and compares results."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

LETTERS = {
    "BOOLEAN": "B", "FLOAT": "R", "DOUBLE": "R", "DECIMAL": "R", "VARCHAR": "T", "BLOB": "T", "DATE": "D", "TIME": "D",
    "INTERVAL": "D", "TIMESTAMP": "P", "TIMESTAMPTZ": "P",
}  # fmt: skip
TOLERANCE = {"DOUBLE": 1e-9, "FLOAT": 1e-6}
"""Relative tolerances. A FLOAT has 24 bits, so its last bit is worth 1e-7."""

_ARROW_NAMES = {
    pa.bool_(): "BOOLEAN", pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT", pa.uint16(): "USMALLINT", pa.uint32(): "UINTEGER", pa.uint64(): "UBIGINT",
    pa.float32(): "FLOAT", pa.float64(): "DOUBLE", pa.string(): "VARCHAR", pa.large_string(): "VARCHAR",
    pa.string_view(): "VARCHAR", pa.binary(): "BLOB", pa.large_binary(): "BLOB", pa.binary_view(): "BLOB",
    pa.date32(): "DATE", pa.time64("us"): "TIME", pa.month_day_nano_interval(): "INTERVAL", pa.null(): "INTEGER",
}  # fmt: skip


def type_name(arrow: pa.DataType) -> str:
    """The SQL type of a result column. The type of a bare NULL is INTEGER; DECIMAL(38,0) and HUGEINT are one Arrow
    type."""
    if pa.types.is_decimal(arrow):
        return "HUGEINT" if (arrow.precision, arrow.scale) == (38, 0) else f"DECIMAL({arrow.precision},{arrow.scale})"
    if pa.types.is_timestamp(arrow) and arrow.unit == "us":
        return "TIMESTAMPTZ" if arrow.tz else "TIMESTAMP"
    return _ARROW_NAMES.get(arrow, f"Arrow {arrow}")


@dataclass
class Result:
    """A rendered result: column names, SQL type names, and rows of canonical text."""

    names: list[str]
    types: list[str]
    rows: list[tuple[str, ...]]

    @property
    def letters(self) -> str:
        return "".join(LETTERS.get(name.partition("(")[0], "I" if "Arrow" not in name else "?") for name in self.types)

    def sorted(self, mode: str) -> list[tuple[str, ...]]:
        if mode == "rowsort":
            return sorted(self.rows, key=_sort_key)
        if mode == "valuesort":
            return sorted(((value,) for row in self.rows for value in row), key=_sort_key)
        return self.rows


def _sort_key(row: tuple[str, ...]) -> list[str]:
    """The two zeros are one value: either may represent a group."""
    return ["0.0" if value == "-0.0" else value for value in row]


def render(table: pa.Table) -> Result:
    types = [type_name(field.type) for field in table.schema]
    columns = [_column(table.column(index), name) for index, name in enumerate(types)]
    return Result(table.column_names, types, list(zip(*columns, strict=True)) if columns else [()] * table.num_rows)


def _column(column: pa.ChunkedArray, name: str) -> list[str]:
    match name.partition("(")[0]:
        case "BOOLEAN":
            return [_null(v, lambda v: "true" if v else "false") for v in column.to_pylist()]
        case "VARCHAR":
            return [_null(v, text) for v in column.to_pylist()]
        case "BLOB":
            return [_null(v, blob) for v in column.to_pylist()]
        case "FLOAT":
            return [_null(v, lambda v: repr(float(str(np.float32(v))))) for v in column.to_pylist()]
        case "DOUBLE":
            return [_null(v, repr) for v in column.to_pylist()]
        case "DATE":
            return [_null(v, date) for v in column.cast(pa.int32()).to_pylist()]
        case "TIME":
            return [_null(v, time) for v in column.cast(pa.int64()).to_pylist()]
        case "TIMESTAMP":
            return [_null(v, timestamp) for v in column.cast(pa.int64()).to_pylist()]
        case "TIMESTAMPTZ":
            return [_null(v, lambda v: timestamp(v) + "+00") for v in column.cast(pa.int64()).to_pylist()]
        case "INTERVAL":
            return [_null(v, lambda v: interval(v.months, v.days, v.nanoseconds // 1000)) for v in column.to_pylist()]
        case _:
            return [
                _null(v, lambda v: format(v, "f") if hasattr(v, "as_tuple") else str(v)) for v in column.to_pylist()
            ]


def _null(value: object, shown) -> str:
    return "NULL" if value is None else shown(value)


_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": "\\0"}


def text(value: str) -> str:
    """Text on one line, without ambiguity: `(empty)`, escapes for control characters, `\\s` for a space at either
    end."""
    if value == "":
        return "(empty)"
    if value in ("NULL", "(empty)"):
        return f'"{value}"'
    shown = "".join(_ESCAPES.get(c) or (c if c >= " " and c != "\x7f" else f"\\x{ord(c):02X}") for c in value)
    stripped = shown.strip(" ")
    if not stripped:
        return "\\s" * len(shown)
    left, right = len(shown) - len(shown.lstrip(" ")), len(shown) - len(shown.rstrip(" "))
    return "\\s" * left + stripped + "\\s" * right


def blob(value: bytes) -> str:
    return "".join(chr(b) if 33 <= b < 127 and b != 92 else f"\\x{b:02X}" for b in value) or "(empty)"


def date(days: int) -> str:
    if abs(days) == 2**31 - 1:
        return "infinity" if days > 0 else "-infinity"
    year, month, day = _civil(days)
    return f"{year:04d}-{month:02d}-{day:02d}" if year > 0 else f"{1 - year:04d}-{month:02d}-{day:02d} (BC)"


def time(micros: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    shown = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{shown}.{fraction:06d}".rstrip("0") if fraction else shown


def timestamp(micros: int) -> str:
    if abs(micros) == 2**63 - 1:
        return "infinity" if micros > 0 else "-infinity"
    days, rest = divmod(micros, 86_400_000_000)
    day, _, era = date(days).partition(" ")
    return f"{day} {time(rest)}" + (f" {era}" if era else "")


def interval(months: int, days: int, micros: int) -> str:
    years, months = divmod(abs(months), 12) if months >= 0 else tuple(-part for part in divmod(-months, 12))
    parts = [
        f"{n} {unit}{'' if n in (1, -1) else 's'}"
        for n, unit in ((years, "year"), (months, "month"), (days, "day"))
        if n
    ]
    if micros or not parts:
        parts.append(("-" if micros < 0 else "") + time(abs(micros)))
    return " ".join(parts)


def _civil(days: int) -> tuple[int, int, int]:
    """Days since 1970 to the proleptic Gregorian date (Howard Hinnant, `civil_from_days`); Python's dates end at
    9999."""
    days += 719468
    era, of_era = divmod(days, 146097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year_of_era + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def differing_row(
    left: list[tuple[str, ...]], right: list[tuple[str, ...]], types: list[str], *, by_value: bool = False
) -> str | None:
    """The first difference between two lists of rows, or None. Numbers with a point are compared with a tolerance."""
    tolerances = [TOLERANCE.get(name) for name in types]
    if by_value:
        tolerances = [max((t for t in tolerances if t), default=None)]
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b and (
            len(a) != len(b)
            or not all(x == y or (t and close(x, y, t)) for x, y, t in zip(a, b, tolerances, strict=True))
        ):
            return f"row {index + 1}: {' | '.join(a)}  instead of  {' | '.join(b)}"
    if len(left) != len(right):
        extra = (left if len(left) > len(right) else right)[min(len(left), len(right))]
        return (
            f"{len(left)} rows instead of {len(right)}; the first "
            f"{'extra' if len(left) > len(right) else 'missing'} one: {' | '.join(extra)}"
        )
    return None


def close(left: str, right: str, tolerance: float) -> bool:
    try:
        a, b = float(left), float(right)
    except ValueError:
        return False
    return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=tolerance)
