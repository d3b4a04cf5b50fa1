"""Splits of a source that another process has chosen, together with the facts about its columns. Tasks of a cluster
read these: to ask the source itself would open every file."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tsql.backends.io import Source, Split
from tsql.backends.local.run.dataset import SourceData
from tsql.backends.local.run.host import Shared
from tsql.kernels.emit.batch import SourceColumn, arrow_layout
from tsql.kernels.expr.nodes import Expr


class SplitData(SourceData):
    """Some splits of a source. `facts` are (nullable, bounds) of each column. Row groups that cannot pass `where` are
    not read."""

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
        where: Expr | None = None,
    ):
        self.late, self.facts, self.where = late, facts, where
        self.source, self.columns, self.batch_rows, self.shared = source, columns, batch_rows, shared
        self.shards, self.splits = shards, splits
        self.statistics = None
        self.count()
        self._start()
        self._columns: dict[tuple[str, pa.DataType], SourceColumn] = {}

    def _made_column(self, name: str, arrow: pa.DataType) -> SourceColumn:
        nullable, bounds = self.facts.get(name, (True, None))
        kind = self.source.schema[name].type
        return SourceColumn(
            name, kind, arrow_layout(kind, arrow, nullable), None if bounds is None else (bounds[0], bounds[1])
        )
