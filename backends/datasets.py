"""Datasets that stay in a cluster, by name. All sessions on the same cluster see them, until one of them drops them.

`CREATE TABLE t WITH (target = 'spark') AS ..` makes one. Catalogs ask `datasets_of` behind their own names."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

from tsql.backends.io import Source, Statistics
from tsql.kernels.expr.errors import CatalogError
from tsql.kernels.process import forks


class KeptDataset(Source, Protocol):
    """Rows that a cluster keeps, as a source of queries."""

    name: str

    def complete(self, known: Statistics) -> None:
        """The rows are there, and this is known of them."""
        ...

    def is_current(self) -> bool:
        """Whether the cluster still keeps the rows."""
        ...

    def drop(self) -> None:
        """Free the rows. A second call does nothing."""
        ...


class Datasets:
    """The datasets of one cluster. Names are found without regard to case."""

    def __init__(self) -> None:
        self._known: dict[str, KeptDataset] = {}
        self._lock = forks.lock()

    def find(self, name: str) -> KeptDataset | None:
        return self._known.get(name.lower())

    def all(self) -> list[KeptDataset]:
        return list(self._known.values())

    def add(self, dataset: KeptDataset, replace: bool) -> None:
        """Give a dataset its name. One that it replaces is dropped."""
        with self._lock:
            before = self._known.get(dataset.name.lower())
            if before is not None and not replace:
                raise CatalogError(
                    f'Table with name "{before.name}" already exists', hint="use CREATE OR REPLACE, or IF NOT EXISTS"
                )
            self._known[dataset.name.lower()] = dataset
        if before is not None:
            before.drop()

    def drop(self, name: str) -> None:
        """Forget a dataset and free its rows."""
        with self._lock:
            found = self._known.pop(name.lower(), None)
        if found is not None:
            found.drop()

    def clear(self) -> None:
        for dataset in self.all():
            self.drop(dataset.name)


_clusters: weakref.WeakKeyDictionary[Any, Datasets] = weakref.WeakKeyDictionary()
_lock = forks.lock()


def datasets_of(cluster: Any) -> Datasets:
    """The datasets of a cluster: of a SparkContext."""
    with _lock:
        if cluster not in _clusters:
            _clusters[cluster] = Datasets()
        return _clusters[cluster]


def any_kept() -> bool:
    """Whether any cluster of this process keeps a dataset. If not, nobody need start one to look for a name."""
    with _lock:
        return any(known.all() for known in _clusters.values())
