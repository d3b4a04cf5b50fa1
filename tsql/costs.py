"""The file with the costs of this machine. `tsql calibrate` writes it, and every plan uses it.

It is `$XDG_CONFIG_HOME/tsql/cost.toml` (`~/.config` by default). Its part `[costs]` is of this machine, `[spark]` of a
cluster. What it leaves out has the defaults of `planner/cost/constants.py`. It is read when a plan is made, and again
only after it has changed."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from tsql.kernels.expr.errors import PlanError
from tsql.planner.cost.constants import DEFAULT, LOCAL_NAMES, NAMES, SPARK_NAMES, Costs

VERSION = 1
PARTS = {"costs": NAMES, "spark": SPARK_NAMES}
"""The names that each part may have. Files of earlier versions have those of Spark among the others."""

HINT = "run `tsql calibrate` again, or remove the file"
MOST = 1e9
"""The largest accepted cost: a second per row."""

_read: dict[Path, tuple[tuple[int, int], Costs]] = {}


def cost_file() -> Path:
    """Where the costs of this user's machine are kept. The XDG specification ignores a path that is not absolute."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".config") / "tsql" / "cost.toml"


def costs_for(broadcast_bytes: int | None) -> Costs:
    """The costs to plan with on a backend whose machines have room for so much of a broadcast; None: not known."""
    return calibrated() if broadcast_bytes is None else replace(calibrated(), broadcast_bytes=broadcast_bytes)


def calibrated() -> Costs:
    """The costs of the file."""
    try:
        path = cost_file()
    except RuntimeError:  # a user without a home
        return DEFAULT
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return DEFAULT
    except OSError as error:
        raise PlanError(f"cannot read {path}: {error.strerror or error}", hint=HINT) from error
    print_of_file = (status.st_mtime_ns, status.st_size)
    known = _read.get(path)
    if known is None or known[0] != print_of_file:
        known = _read[path] = (print_of_file, load(path))
    return known[1]


def load(path: Path) -> Costs:
    """The costs of a file; a PlanError says what is wrong with it. Names that it leaves out have their defaults."""
    import tomllib

    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise PlanError(f"cannot read {path}: {error.strerror or error}", hint=HINT) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"{path} is damaged: {error}", hint=HINT) from error
    if found.get("version") != VERSION:
        raise PlanError(f"{path} is not of version {VERSION}", hint=HINT)
    values: dict[str, float] = {}
    for part, names in PARTS.items():
        values |= _checked(path, part, names, found.get(part, {}))
    return Costs(**values)


def _checked(path: Path, part: str, names: tuple[str, ...], values: Any) -> dict[str, float]:
    if not isinstance(values, dict):
        raise PlanError(f"{path} is damaged: {part} is no table", hint=HINT)
    for name, value in values.items():
        if name not in names:
            raise PlanError(f"{path}: there is no cost {name} in [{part}]", hint=f"costs are {', '.join(names)}")
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or not 0 < value <= MOST
        ):
            raise PlanError(f"{path}: {name} is a number above 0, not {value}", hint=HINT)
    return {name: float(value) for name, value in values.items()}


def saved(path: Path) -> Costs:
    """The costs of a file as far as it can be read: what a new measurement adds to."""
    try:
        return load(path)
    except PlanError:
        return DEFAULT


def save(costs: Costs, path: Path, comment: str) -> None:
    """Write the file atomically. A part in which all is default is left out: nobody has measured it."""
    lines = [
        f"# {comment}",
        "# Nanoseconds of one core, microseconds where the name says so. Remove the file to plan with the defaults.",
        f"version = {VERSION}",
    ]
    for part, names in (("costs", LOCAL_NAMES), ("spark", SPARK_NAMES)):
        if any(getattr(costs, name) != getattr(DEFAULT, name) for name in names):
            lines += ["", f"[{part}]", *(f"{name} = {getattr(costs, name):.6g}" for name in names)]
    import tempfile

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=".cost-", delete=False) as file:
            file.write("\n".join(lines) + "\n")
        os.replace(file.name, path)
    except OSError as error:
        raise PlanError(f"cannot write {path}: {error.strerror or error}") from error
