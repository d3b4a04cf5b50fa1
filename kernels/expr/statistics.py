"""What is known of a relation before it is read; sources and tables provide it, the planner and the kernels use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any

from tsql.kernels.process.quick_dataclass import dataclass


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
    columns: Mapping[str, ColumnStatistics] = field(default_factory=dict)


class LazyColumns(Mapping[str, ColumnStatistics]):
    """Column statistics that are computed one by one on first use (footers of wide files are large)."""

    def __init__(self, names: tuple[str, ...], compute: Callable[[str], ColumnStatistics]):
        self._names = dict.fromkeys(names)
        self._compute = compute
        self._known: dict[str, ColumnStatistics] = {}

    def __getitem__(self, name: str) -> ColumnStatistics:
        if name not in self._known:
            if name not in self._names:
                raise KeyError(name)
            self._known[name] = self._compute(name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
