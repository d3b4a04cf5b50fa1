"""Which casts exist: asked by the binder before a query runs, and by `cast.py` to choose the family of a cast."""

from __future__ import annotations

from tsql.kernels.expr.types import Type

TIME_CASTS = {
    "DATE": {"TIMESTAMP", "TIMESTAMPTZ"},
    "TIMESTAMP": {"DATE", "TIME", "TIMESTAMPTZ"},
    "TIMESTAMPTZ": {"DATE", "TIMESTAMP"},
}
"""Casts between times, beside those from and to text."""


def is_number(t: Type) -> bool:
    """Whether a type takes part in the casts between numbers; a BOOLEAN counts as 0 or 1."""
    return t.is_numeric or t.name == "BOOLEAN"


def can_cast(source: Type, target: Type) -> bool:
    """Whether CAST(source AS target) exists (it may still fail for a value)."""
    if source == target or source.name == "NULL":
        return True
    if target.name == "NULL":
        return False
    if source.name == "VARCHAR" or target.name == "VARCHAR":
        return True
    if is_number(source) and is_number(target):
        return True
    return target.name in TIME_CASTS.get(source.name, ())
