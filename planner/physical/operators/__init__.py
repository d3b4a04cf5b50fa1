"""The operators of the sharded algebra, one file each. `all_steps` discovers them. Movement is in
`physical/movement.py`."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tsql.planner.physical.step import STEPS, Step


def all_steps() -> dict[str, type[Step]]:
    """Every step that there is, by its `op`."""
    import_module("tsql.planner.physical.movement")
    for found in iter_modules(__path__):
        import_module(f"{__name__}.{found.name}")
    return STEPS
