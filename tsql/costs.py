"""The file with the costs of this machine. `tsql calibrate` writes it, and every plan uses it.

It is `$XDG_CONFIG_HOME/tsql/cost.toml` (`~/.config` by default). Without it the defaults of `planner/cost/constants.py`
apply. It is read when a plan is made, and again only after it has changed."""

from __future__ import annotations

import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tsql.kernels.expr.errors import PlanError
from tsql.planner.cost.constants import DEFAULT, NAMES, Costs

VERSION = 1
HINT = "run `tsql calibrate` again, or remove the file"
MOST = 1e9
"""The largest accepted cost: a second per row."""

_read: dict[Path, tuple[tuple[int, int], Costs]] = {}


def cost_file() -> Path:
    """Where the costs of this user's machine are kept. The XDG specification ignores a path that is not absolute."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".config") / "tsql" / "cost.toml"


def calibrated() -> Costs:
    """The costs to plan with."""
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
    values: dict[str, Any] = found.get("costs", {})
    if not isinstance(values, dict):
        raise PlanError(f"{path} is damaged: costs is no table", hint=HINT)
    for name, value in values.items():
        if name not in NAMES:
            raise PlanError(f"{path}: there is no cost {name}", hint=f"costs are {', '.join(NAMES)}")
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or not 0 < value <= MOST
        ):
            raise PlanError(f"{path}: {name} is a number above 0, not {value}", hint=HINT)
    return Costs(**{name: float(value) for name, value in values.items()})


def save(costs: Costs, path: Path, comment: str) -> None:
    """Write the file atomically."""
    lines = [
        f"# {comment}",
        "# Nanoseconds of one core, except pipeline_us. Remove the file to plan with the defaults.",
        f"version = {VERSION}",
        "",
        "[costs]",
    ]
    lines += [f"{name} = {value:.6g}" for name, value in asdict(costs).items()]
    import tempfile

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=".cost-", delete=False) as file:
            file.write("\n".join(lines) + "\n")
        os.replace(file.name, path)
    except OSError as error:
        raise PlanError(f"cannot write {path}: {error.strerror or error}") from error
