"""Splits of a source that another process has chosen, together with the facts about its columns. Tasks of a cluster
read these: to ask the source itself would open every file."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa

from tsql.backends.io import Source, Split
from tsql.backends.local.run.dataset import SourceData
from tsql.backends.local.run.host import Shared
from tsql.kernels.emit.batch import SourceColumn, arrow_layout


class SplitData(SourceData):
    """Some splits of a source. `facts` are (nullable, bounds) of each column."""

    def __init__(
        self,
        source: Source,
        columns: tuple[str, ...],
        splits: list[Split],
        facts: dict[str, Any],
        shards: int,
        batch_rows: int,
        shared: Shared,
        late: bool = False,
    ):
        self.late, self.facts = late, facts
        self.source, self.columns, self.batch_rows, self.shared = source, columns, batch_rows, shared
        self.shards, self.splits = shards, splits
        self.statistics = None
        known = [split.rows for split in splits]
        self.rows = None if any(rows is None for rows in known) else sum(rows for rows in known if rows is not None)
        self._next = 0
        self._lock = threading.Lock()
        self._columns: dict[tuple[str, pa.DataType], SourceColumn] = {}

    def _made_column(self, name: str, arrow: pa.DataType) -> SourceColumn:
        nullable, bounds = self.facts.get(name, (True, None))
        kind = self.source.schema[name].type
        return SourceColumn(
            name, kind, arrow_layout(kind, arrow, nullable), None if bounds is None else (bounds[0], bounds[1])
        )
