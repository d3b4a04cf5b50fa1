"""Sources: where rows come from. Each kind of file is one module; all implement `Source` below.

A source is opened once (schema, statistics, list of splits) and read by many threads, split by split. Errors are
`SourceError`s that name the file. Nothing here evaluates SQL: a filter passed to `splits` is only used for skipping."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.statistics import ColumnStatistics, LazyColumns, Statistics
from tsql.kernels.process.quick_dataclass import dataclass


@dataclass(frozen=True)
class Split:
    """A part of a source that one task reads: (path, what) for files. `order` numbers the splits of a source.

    A source that does not know what is in a split may give a part of a file: its method `opened` makes splits of it
    that can be read, with the same order. `first` is then the number of rows before them, and `expected` the estimated
    rows of the part. `constants` are the values of the columns that are constant in the file, for a process that has
    not listed the files."""

    order: int
    path: str | None
    rows: int | None
    detail: Any = None
    first: int = 0
    expected: int | None = None
    constants: list[Any] | None = None

    @property
    def file(self) -> str:
        """The path of a part of a file."""
        if self.path is None:
            raise TypeError(f"{self} is not part of a file")
        return self.path

    @property
    def known_rows(self) -> int:
        """The number of rows where the source knows it."""
        if self.rows is None:
            raise TypeError(f"{self} does not know its rows")
        return self.rows


class Source(Protocol):
    """A readable relation. `describe()` returns plain data (kind, paths, options) from which `open_source` can reopen
    it, for plan files and Spark tasks. In-memory sources have no such description and return None.

    A source of files may have `read_in_tasks()`: it is told that other processes will read it, and need not look into
    all of its files then."""

    schema: Schema

    def statistics(self) -> Statistics: ...

    def splits(self, columns: tuple[str, ...], filter: Expr | None) -> list[Split]: ...

    def read(self, split: Split, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Batches with exactly these columns, in the types of `schema.to_arrow()`, with two exceptions. A VARCHAR or
        BLOB may be a dictionary with int8, int16 or int32 indices, and the dictionary may differ between batches. A
        DECIMAL of at most 18 digits may be an int64 array of its unscaled values. A batch without columns still has its
        row count."""
        ...

    def describe(self) -> dict[str, Any] | None: ...


def tell_lost(source: Any, columns: tuple[str, ...], run: Any) -> None:
    """Tell the user which columns had more digits than their type holds. Sources of such data (nanoseconds) collect the
    names of these columns in a set `lost` when they meet the first such value."""
    lost = getattr(source, "lost", None)
    for name in (name for name in columns if name in lost) if lost else ():
        run.note(f"digits below microseconds of column {name} were dropped")


__all__ = ["ColumnStatistics", "LazyColumns", "Source", "Split", "Statistics", "tell_lost"]
