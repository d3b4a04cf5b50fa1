"""What plans ask of a source of rows. Sources belong to the backends; only their metadata is used here."""

from __future__ import annotations

from typing import Any


def is_sorted(source: Any, column: str) -> bool:
    """Whether a source can deal out its rows by ranges of a column."""
    known = getattr(source, "is_sorted", None)
    return known is not None and known(column)


def is_filled(source: Any, column: str) -> bool:
    """Whether a column of a source holds no NULL, as far as it can be told without reading it."""
    if not source.schema[column].nullable:
        return True
    known = source.statistics().columns.get(column) if hasattr(source, "statistics") else None
    return known is not None and known.nulls == 0


def has_progress(source: Any, column: str, columns: tuple[str, ...]) -> bool:
    """Whether a scan can say, part by part, how far a time column has come."""
    if getattr(source, "split_bounds", None) is None or column not in columns:
        return False
    return source.schema[column].type.name in ("TIMESTAMP", "TIMESTAMPTZ", "DATE")


def reads_late(source: Any) -> bool:
    """Whether a source can read some of its columns for some of its rows."""
    return hasattr(source, "open_lanes")


def is_in_cluster(source: Any) -> bool:
    """Whether the rows of a source are spread over a cluster, so that no single machine can read them."""
    return getattr(source, "in_cluster", False)


def is_portable(source: Any) -> bool:
    """Whether another process can open a source: files, but not tables in memory."""
    known = getattr(source, "describe", None)
    return known is not None and known() is not None


def is_live(source: Any) -> bool:
    """Whether the rows of a source arrive while the plan runs."""
    return getattr(source, "is_live", False)
