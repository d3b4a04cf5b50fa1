"""`Sinks`: what the tasks of a cluster write by themselves, so that no rows pass through the driver. `Backend.sinks`
gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tsql.backends.datasets import Datasets, KeptDataset
from tsql.backends.io.folders import FolderTarget
from tsql.backends.run import Run
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process.quick_dataclass import dataclass

if TYPE_CHECKING:
    from tsql.planner.physical.step import PhysicalPlan


@dataclass(frozen=True)
class TableTarget:
    """A table of the cluster's own catalogs. mode: "create", "replace", "append", or "overwrite" (the rows are replaced
    and the table stays). format: None for the cluster's default. by: the columns that it is partitioned by. static:
    partition columns that have one value, which says what is overwritten."""

    parts: tuple[str, ...]
    mode: str
    format: str | None = None
    by: tuple[str, ...] = ()
    static: tuple[tuple[str, Any], ...] = ()


class Sinks(Protocol):
    """Where the result of a plan can go from the tasks that compute it."""

    has_tables: bool
    """Whether the cluster has catalogs of its own."""

    def write_folder(self, plan: PhysicalPlan, run: Run, target: FolderTarget) -> int:
        """Write a folder of files, all of them or none. Returns the number of rows."""
        ...

    def table_exists(self, parts: tuple[str, ...]) -> bool:
        """Whether the cluster's catalogs have a table of this name."""
        ...

    def table_schema(self, parts: tuple[str, ...]) -> Schema | None:
        """The columns of a table of the cluster's catalogs; None if there is none."""
        ...

    def table_partitions(self, parts: tuple[str, ...]) -> list[str]:
        """The columns that a table of the cluster's catalogs is partitioned by."""
        ...

    def save_table(self, plan: PhysicalPlan, run: Run, target: TableTarget) -> int:
        """Store the rows of a plan in a table of the cluster's catalogs. Returns their number."""
        ...

    def keep(self, plan: PhysicalPlan, run: Run, name: str) -> KeptDataset:
        """The rows of a plan as a dataset that the cluster keeps, from the first query over it on."""
        ...

    def datasets(self) -> Datasets:
        """The datasets that the cluster keeps."""
        ...

    def drop_table(self, parts: tuple[str, ...]) -> None:
        """Drop a table of the cluster's catalogs that is there."""
        ...
