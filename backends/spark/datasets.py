"""`ClusterDataset`: rows that executors keep as blobs of the wire, as a source of queries.

The blobs are a persisted RDD, or a persisted DataFrame. It has the lineage of the query that made it: what a lost
executor kept is computed again. What that takes (broadcasts, files of shuffles) is freed when the dataset is dropped.

Its statistics serve estimates only. A query that computes lost rows again may find other ones, if its files have
changed: no kernel may rely on bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from tsql.backends.io import Split, Statistics
from tsql.backends.io.normalize import batch_of
from tsql.backends.spark.part import Entry
from tsql.backends.spark.transport.transport import Rows
from tsql.backends.spark.wire import about, decode_batches, decode_error
from tsql.kernels.expr.errors import CatalogError
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Schema


class ClusterDataset:
    """A named dataset. collect: brings rows of the wire to the driver. forget: frees the rows. close: frees what it
    takes to compute them again. used: the datasets that they were computed from."""

    in_cluster = True

    def __init__(
        self,
        name: str,
        schema: Schema,
        kept: Rows,
        collect: Callable[[Rows], list[tuple[int, str | None, int, bytes]]],
        forget: Callable[[Rows], None],
        close: Callable[[], None],
        used: list[ClusterDataset],
    ):
        self.name, self.schema = name, schema
        self._kept, self._collect, self._forget, self._close = kept, collect, forget, close
        self._used, self._users = used, 0
        for one in used:
            one._users += 1
        self._statistics = Statistics(None, None, {})
        self._is_complete = False
        self._is_dropped = False

    def rows(self) -> Rows:
        """The rows of the wire that the cluster keeps."""
        if self._is_dropped:
            raise CatalogError(f'the dataset "{self.name}" was dropped', hint="run the statement again")
        return self._kept

    def entry(self, name: str) -> Entry:
        """Where the rows enter a part of a plan. The first query tells what the tasks that made them had to tell."""
        return Entry(name, "kept", {"columns": list(self.schema.names), "tells": not self._is_complete})

    def complete(self, known: Statistics) -> None:
        self._statistics, self._is_complete = known, True

    def is_current(self) -> bool:
        return not self._is_dropped

    def drop(self) -> None:
        if not self._is_dropped:
            self._is_dropped = True
            self._forget(self._kept)
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        """Free what lost rows need, unless another dataset may need these rows again to compute its own."""
        if self._is_dropped and not self._users:
            self._close()
            for one in self._used:
                one._users -= 1
                one._close_if_unused()

    def statistics(self) -> Statistics:
        return self._statistics

    def splits(self, columns: tuple[str, ...], filter: Expr | None) -> list[Split]:
        return [Split(0, None, self._statistics.rows, None)]

    def read(self, split: Split, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """The rows on the driver, for steps that cannot run in tasks."""
        found = sorted(self._collect(self.rows()), key=lambda row: row[2])
        for _, name, _, blob in found:
            error = decode_error(blob) if name is None and "error" in about(blob) else None
            if error is not None:
                raise error
        for _, name, _, blob in found:
            if name is not None:
                yield from chosen(blob, self.schema.names, columns)

    def describe(self) -> None:
        return None


def chosen(blob: object, names: tuple[str, ...] | list[str], columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Some of the columns of a blob. Batches without columns have rows still."""
    places = {name: place for place, name in enumerate(names)}
    for batch in decode_batches(blob):
        yield batch_of([batch.column(places[name]) for name in columns], columns, batch.num_rows)


__all__ = ["ClusterDataset", "chosen"]
