"""Reads the settings of a session from keyword arguments, `SET name = value` and `--set name=value` into `Settings`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tsql.backends import Settings
from tsql.kernels.expr.errors import CatalogError
from tsql.planner.physical.properties import MAX_SHARDS

_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
_BOOLEANS = {"true": True, "on": True, "1": True, "yes": True, "false": False, "off": False, "0": False, "no": False}
MOST = {"threads": 1024, "shards": MAX_SHARDS}
"""The largest values of these settings; all others are limited to 31 bits."""
NAMES = tuple(f.name for f in fields(Settings))
_UTC = ("utc", "uct", "universal", "zulu", "gmt", "gmt0", "gmt+0", "gmt-0", "greenwich")
UTC_NAMES = frozenset((*_UTC, *(f"etc/{name}" for name in _UTC)))
"""The names, in lower case, of the only supported time zone in DuckDB and other engines."""


def parse_bytes(value: int | str) -> int:
    """A size in bytes from a number or a text such as `2GB`, `512 MiB`."""
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(value))
        if match is None or match.group(2).upper() not in _UNITS:
            raise CatalogError(
                f"{value!r} is no size", hint="write a number of bytes, or one with KB, MB, GB, KiB, MiB or GiB"
            )
        size = int(float(match.group(1)) * _UNITS[match.group(2).upper()])
    if size <= 0:
        raise CatalogError(f"a size is more than zero bytes, not {value}")
    return size


def change(settings: Settings, name: str, value: Any) -> None:
    """Set one setting; None resets it to its default."""
    key = name.strip().lower()
    if key == "timezone":
        return _check_time_zone(value)
    if key not in NAMES:
        import difflib

        close = difflib.get_close_matches(key, NAMES, 1)
        raise CatalogError(
            f"unknown setting {name}", hint=f"did you mean {close[0]}?" if close else f"settings are {', '.join(NAMES)}"
        )
    default = getattr(Settings(), key)
    if value is None or (isinstance(value, str) and value.lower() == "default"):
        setattr(settings, key, default)
    elif key == "memory_limit":
        setattr(settings, key, parse_bytes(value))
    elif isinstance(default, bool):
        flag = _BOOLEANS.get(str(value).lower())
        if flag is None:
            raise CatalogError(f"{key} is true or false, not {value!r}")
        setattr(settings, key, flag)
    elif isinstance(default, int):
        setattr(settings, key, _count(key, value))
    else:
        setattr(settings, key, str(value))


def _check_time_zone(value: Any) -> None:
    """Accept UTC and refuse any other time zone: all times are in UTC."""
    if value is not None and str(value).lower() not in (*UTC_NAMES, "default"):
        raise CatalogError(
            f"the time zone is UTC, and cannot be {value!r}",
            hint="SET TimeZone = 'UTC' works, and so do its other names, such as 'Etc/UTC' and 'GMT'",
        )


def _count(key: str, value: Any) -> int:
    try:
        number = int(str(value))
    except ValueError:
        raise CatalogError(f"{key} is a whole number, not {value!r}") from None
    most = MOST.get(key, 2**31 - 1)
    if not 0 <= number <= most:
        raise CatalogError(
            f"{key} is at least 0, not {number}" if number < 0 else f"{key} is at most {most}, not {number}"
        )
    return number


def from_values(values: Mapping[str, Any]) -> Settings:
    """Settings with these values; None leaves the default."""
    settings = Settings()
    for name, value in values.items():
        if value is not None:
            change(settings, name, value)
    return settings


def key_of(settings: Settings) -> tuple[Any, ...]:
    """The values that a plan may depend on, to find it again in the cache."""
    return tuple(vars(settings).values())
