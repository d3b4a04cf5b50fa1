"""Transactions of a session: what has changed since the last commit, and the way back.

The catalog maps names to immutable objects, so a transaction is a copy of that map, taken at BEGIN; ROLLBACK puts it back.
Without BEGIN every statement commits by itself. A session on disk hands each commit to its database, which either has it
on disk when this returns, or raises: then the catalog is put back, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from tsql.catalog import Catalog, Snapshot
from tsql.kernels import forks
from tsql.kernels.errors import TransactionError


@dataclass
class Changes:
    """What a commit changes. `appended` has the tables to which rows were only added, with these rows; `names` and `macros` all others."""

    names: set[str] = field(default_factory=set)
    macros: set[str] = field(default_factory=set)
    appended: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)

    def note(self, name: str, appended: list[pa.RecordBatch] | None = None) -> None:
        """A name stands for something else now; with `appended`, for a table that has these rows more."""
        key = name.lower()
        if appended is not None and key not in self.names:
            self.appended.setdefault(key, []).extend(appended)
        else:
            self.appended.pop(key, None)
            self.names.add(key)

    def __bool__(self) -> bool:
        return bool(self.names or self.macros or self.appended)


class Store(Protocol):
    """Where commits go, and where a session's catalog comes from."""

    path: Path
    read_only: bool

    def load(self, catalog: Catalog) -> None: ...

    def commit(self, catalog: Catalog, changes: Changes) -> None: ...

    def checkpoint(self, catalog: Catalog) -> None: ...

    def close(self) -> None: ...


class Transactions:
    """The transaction that is open, if any. `lock` is held while a statement changes the catalog."""

    def __init__(self, catalog: Catalog, store: Store | None = None):
        self.catalog, self.store = catalog, store
        self.lock = forks.rlock()
        self.changes = Changes()
        self._begun: Snapshot | None = None
        self._failed = False

    @property
    def is_open(self) -> bool:
        return self._begun is not None

    @contextmanager
    def statement(self) -> Iterator[Changes]:
        """Around a statement that changes the catalog: committed at its end, undone if it fails."""
        with self.lock:
            before = self.catalog.snapshot()
            try:
                yield self.changes
                if not self.is_open:
                    self._write()
            except BaseException:
                self.catalog.restore(before)
                if not self.is_open:
                    self.changes = Changes()
                raise

    def _write(self) -> None:
        changes, self.changes = self.changes, Changes()
        if changes and self.store is not None:
            self.store.commit(self.catalog, changes)

    def step(self, step: str) -> None:
        """BEGIN, COMMIT, ROLLBACK or CHECKPOINT."""
        with self.lock:
            match step:
                case "begin":
                    if self.is_open:
                        raise TransactionError("cannot start a transaction within a transaction")
                    self._begun = self.catalog.snapshot()
                case "checkpoint":
                    if self.is_open:
                        raise TransactionError("cannot checkpoint - a transaction is active")
                    if self.store is not None:
                        self.store.checkpoint(self.catalog)
                case _:
                    self._end(step)

    def _end(self, step: str) -> None:
        if self._begun is None:
            raise TransactionError(f"cannot {step} - no transaction is active")
        begun, failed = self._begun, self._failed
        self._begun, self._failed = None, False
        if step == "rollback" or failed:
            self.changes = Changes()
            self.catalog.restore(begun)
            return
        try:
            self._write()
        except BaseException:
            self.catalog.restore(begun)
            raise

    def fail(self) -> None:
        """A statement inside the transaction has failed: only ROLLBACK is left, and COMMIT does the same."""
        if self.is_open:
            self._failed = True

    def check(self, statement: Any) -> None:
        """Refuse a statement in a transaction that has failed."""
        if self._failed and getattr(statement, "step", None) not in ("rollback", "commit"):
            raise TransactionError("Current transaction is aborted (please ROLLBACK)")
