"""`StreamSource`: a stream in the place of a table, in the plan of a job. The planner knows its columns and nothing of
its rows; the job opens its reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pyarrow as pa

from tsql.backends.io import Split, Statistics
from tsql.backends.io.watermark import Watermark
from tsql.backends.live.sources.reader import StreamReader
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Field, Schema

OpenReader = Callable[[Schema], StreamReader]
"""Makes the reader of a stream for some of its columns."""


class StreamSource:
    """A stream of the catalog. ends: whether its rows come to an end, so that none of them is late. declaration: what
    made it, by which a checkpoint knows the stream again."""

    is_live = True

    def __init__(
        self,
        name: str,
        schema: Schema,
        watermark: Watermark | None,
        open_reader: OpenReader,
        ends: bool,
        declaration: str = "",
    ):
        self.catalog_name, self.watermark, self.open_reader = name, watermark, open_reader
        self.schema = Schema(tuple(Field(f.name, f.type) for f in schema))
        self.ends, self.declaration = ends, declaration

    @property
    def time(self) -> str | None:
        """The column that punctuations are about."""
        return None if self.watermark is None else self.watermark.column

    def statistics(self) -> Statistics:
        return Statistics()

    def splits(self, columns: tuple[str, ...], filter: Expr | None) -> list[Split]:
        self._refuse()

    def read(self, split: Split, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        self._refuse()

    def describe(self) -> dict[str, Any] | None:
        return None

    def _refuse(self) -> NoReturn:
        raise SourceError(f"the rows of the stream {self.catalog_name} are read by a job", hint="start() the query")
