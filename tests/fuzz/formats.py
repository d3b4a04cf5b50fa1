"""Random formats for printf, format, strftime and strptime, for both engines to fill."""

from __future__ import annotations

from random import Random

VALUES = {
    "BIGINT": [
        "0",
        "1",
        "-1",
        "42",
        "-42",
        "1234567",
        "-1234567",
        "9223372036854775807",
        "-9223372036854775808",
        "65",
        "255",
    ],
    "INTEGER": ["7", "-7", "100000"],
    "DOUBLE": [
        "0",
        "-0.0",
        "1",
        "-1.5",
        "3.14159265358979",
        "1e10",
        "1e-5",
        "123456789.123",
        "1e300",
        "inf",
        "-inf",
        "nan",
        "0.5",
        "2.5",
        "100",
    ],
    "VARCHAR": ["", "abc", "hello world", "äöü", "%d"],
    "BOOLEAN": ["true", "false"],
    "HUGEINT": ["170141183460469231731687303715884105727", "-5"],
    "DECIMAL(9,2)": ["12.35", "-0.50"],
}


def _some(rng: Random, letters: str, most: int) -> str:
    return "".join(rng.choice(letters) for _ in range(rng.choice((0, 0, 0, 1, 1, 2, most))))


def printf_format(rng: Random) -> str:
    """One conversion, perhaps with text around it."""
    spec = (
        "%"
        + _some(rng, "-+ #0", 3)
        + rng.choice(("", "", "", "5", "10", "12", "1"))
        + rng.choice(("", "", "", ".", ".0", ".1", ".3", ".10"))
    )
    spec += rng.choice(("", "", "", "", "l", "ll", "h", "z")) + rng.choice("dddiuoxXbBeEfFgGaAscp%")
    return rng.choice(("", "", "", "a", "%% ")) + spec + rng.choice(("", "", "", "z", "%%", "%"))


def brace_format(rng: Random) -> str:
    """The same between braces."""
    spec = (
        rng.choice(("", "", "", "<", ">", "^", "=", "*<", "*^", "x>", "0="))
        + rng.choice(("", "", "", "+", "-", " "))
        + rng.choice(("", "", "", "#"))
        + rng.choice(("", "", "", "0"))
    )
    spec += (
        rng.choice(("", "", "5", "10", "20"))
        + rng.choice(("", "", "", "", ",", "_", "'"))
        + rng.choice(("", "", "", ".0", ".2", ".10", "."))
        + rng.choice(
            ("", "", "d", "d", "x", "X", "o", "b", "B", "e", "E", "f", "F", "g", "G", "a", "s", "c", "n", "%", "p")
        )
    )
    field = (
        rng.choice(("{", "{", "{", "{0"))
        + (f":{spec}" if spec or rng.random() < 0.2 else "")
        + rng.choice(("}",) * 12 + ("", "}}"))
    )
    return rng.choice(("", "", "a", "{{", "}}")) + field + rng.choice(("", "", "z", "{{", "{}"))


SPECIFIERS = "aAwudDbBmyYHIpMSfgnzZjUWcxXGV%"


def strftime_format(rng: Random) -> str:
    """Specifiers with something between them."""
    parts = []
    for _ in range(rng.randint(1, 4)):
        parts.append("%" + rng.choice(("", "", "", "-")) + rng.choice("aAwudbBmyYHIpMSfgnzZjUWcxXGV%"))
    return rng.choice((" ", "-", "", "/", "T")).join(parts)
