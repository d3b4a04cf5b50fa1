"""`OuterNames`: tables that a backend knows besides those of a session's catalog. Spark has some; `Catalog` asks."""

from __future__ import annotations

from typing import Any, Protocol

from tsql.backends.io import Source
from tsql.kernels.process.quick_dataclass import dataclass


class Use(Protocol):
    """What a query read under a name, and whether the name still means the same."""

    def is_current(self) -> bool: ...


@dataclass(frozen=True)
class FoundTable:
    """A table under a name, and its use by a query."""

    source: Source
    use: Use


class StandIn(Protocol):
    """An entry of a catalog that stands for a table, which it tells at each use."""

    schema: Any

    def resolved(self) -> FoundTable: ...


class OuterNames(Protocol):
    """Names outside of a session's catalog. `parts` are those of a qualified name: ("db", "t")."""

    def find(self, parts: tuple[str, ...]) -> FoundTable | None: ...

    def scan(self, kind: str, path: str | tuple[str, ...], options: dict[str, Any]) -> FoundTable | None:
        """A table of a lake (`delta`, `iceberg`) that only the backend reads; None if it does not."""
        ...

    def remember(self, paths: list[str]) -> None:
        """Take the credentials for files elsewhere from the backend's settings."""
        ...

    def names(self) -> list[str]:
        """Names to suggest beside a wrong one."""
        ...


@dataclass(frozen=True)
class Absent:
    """A name that meant nothing to `names` when a query was analyzed."""

    names: Any
    parts: tuple[str, ...]

    def is_current(self) -> bool:
        return self.names.find(self.parts) is None


@dataclass(frozen=True)
class NeverKept:
    """The use of a table whose rows may be others at the next query, without a way to tell: its plan is not kept."""

    def is_current(self) -> bool:
        return False
