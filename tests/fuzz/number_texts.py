"""Random texts of numbers: long runs of digits, zeros in front and behind, exponents that bring them back into range,
and what is no number."""

from __future__ import annotations

from random import Random

TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
         "DECIMAL(4,1)", "DECIMAL(9,2)", "DECIMAL(18,0)", "DECIMAL(18,4)",
         "DECIMAL(38,0)", "DECIMAL(38,10)", "DECIMAL(38,38)", "DOUBLE", "FLOAT")  # fmt: skip

LIMITS = [str(2**bits + step) for bits in (7, 8, 15, 16, 31, 32, 63, 64, 127, 128) for step in (-1, 0)] + [
    "9" * n for n in (2, 3, 4, 7, 9, 14, 18, 19, 28, 37, 38, 39)
]


def _digits(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(LIMITS)
    if kind < 0.5:
        return "".join(rng.choice("09") for _ in range(rng.randint(1, 45)))
    if kind < 0.6:
        return "0" * rng.randint(1, 45) + rng.choice(LIMITS)
    if kind < 0.7:
        return rng.choice(LIMITS) + "0" * rng.randint(1, 25)
    return "".join(
        rng.choice("0123456789") for _ in range(rng.choice((1, 2, 3, 5, 10, 18, 19, 20, 37, 38, 39, 40, 60)))
    )


def number_text(rng: Random) -> str:
    """One text."""
    digits = _digits(rng)
    point = rng.random()
    if point < 0.55:
        at = rng.randint(0, len(digits))
        digits = f"{digits[:at]}.{digits[at:]}"
    elif point < 0.65:
        digits = f"0.{'0' * rng.randint(0, 40)}{digits}"
    exponent = ""
    if rng.random() < 0.5:
        size = rng.choice((0, 1, 2, 3, 5, 10, 18, 19, 20, 30, 36, 37, 38, 39, 40, 50, 60, rng.randint(0, 80)))
        exponent = f"{rng.choice('eE')}{rng.choice(('', '+', '-', '-'))}{'0' * rng.choice((0, 0, 0, 2))}{size}"
    text = rng.choice(("", "", "", "-", "-", "+")) + digits + exponent
    if rng.random() < 0.05:
        at = rng.randint(0, len(text))
        text = text[:at] + rng.choice(("_", " ", "e", ".", "-", "x", "0", "\t")) + text[at:]
    return text
