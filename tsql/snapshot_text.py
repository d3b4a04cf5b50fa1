"""Values and their errors as text, with the digits that count. The command line and notebooks show snapshots so."""

from __future__ import annotations

import math

import pyarrow as pa


def percent(progress: float) -> str:
    """A part of the input as text. All of it is less than 100 % until the last row was read."""
    return f"{math.floor(progress * 100 + 1e-6)}%"


def value_text(value: pa.Scalar, text: str | None, error: float | None) -> str | None:
    """A value as text. A double has no more digits than its error tells about."""
    if text is None or not error or not pa.types.is_floating(value.type):
        return text
    number = value.as_py()
    digits = _digits(error)
    return text if digits is None or not abs(number) < 1e15 else f"{number:.{digits}f}"


def error_text(error: float) -> str:
    """An error with two digits that count."""
    if error == 0:
        return "0"
    digits = _digits(error)
    return f"{error:.1e}" if digits is None else f"{error:.{digits}f}"


def _digits(error: float) -> int | None:
    """How many digits behind the point an error is shown with; None for an exponent."""
    return max(0, 1 - math.floor(math.log10(error))) if 1e-6 <= error < 1e15 else None
