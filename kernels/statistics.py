"""What is known of a relation before it is read; sources and tables provide it, the planner and the kernels use it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ColumnStatistics:
    """What is known of a column; minimum and maximum are in the stored form of `kernels.expr.Literal`. Unknown is None.
    `exact` says that minimum and maximum hold for every row (they may be used for correctness, not only for cost)."""

    minimum: Any = None
    maximum: Any = None
    nulls: int | None = None
    distinct: int | None = None
    exact: bool = False


@dataclass(frozen=True)
class Statistics:
    """What is known of a relation."""

    rows: int | None = None
    bytes: int | None = None
    columns: dict[str, ColumnStatistics] = field(default_factory=dict)
