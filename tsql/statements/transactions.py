"""Transactions of a session: the changes since the last commit, and how to undo them.

The catalog maps names to immutable objects, so a transaction is a copy of that map, taken at BEGIN; ROLLBACK restores
it. Without BEGIN every statement commits by itself. A session on disk hands each commit to its database. When that
returns, the commit is on disk; if it raises, the catalog is restored, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from tsql.catalog.catalog import Catalog, CatalogSnapshot
from tsql.kernels.expr.errors import StorageError, TransactionError
from tsql.kernels.process import forks, stopping
from tsql.kernels.process.held_signals import held_signals
from tsql.kernels.process.quick_dataclass import dataclass


@dataclass
class Changes:
    """The changes of a commit. `appended` has the tables to which rows were only added, with these rows; `names` and
    `macros` have all others."""

    names: set[str] = field(default_factory=set)
    macros: set[str] = field(default_factory=set)
    appended: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)

    def note(self, name: str, appended: list[pa.RecordBatch] | None = None) -> None:
        """Record that a name has a new value; with `appended`, that these rows were added to its table."""
        key = name.lower()
        if appended is not None and key not in self.names:
            self.appended.setdefault(key, []).extend(appended)
        else:
            self.appended.pop(key, None)
            self.names.add(key)

    def clear(self) -> None:
        """Forget everything."""
        self.names.clear()
        self.macros.clear()
        self.appended.clear()

    def __bool__(self) -> bool:
        return bool(self.names or self.macros or self.appended)


class CommitStore(Protocol):
    """Where commits go, and where a session's catalog comes from."""

    path: Path
    read_only: bool
    commits: int

    def load(self, catalog: Catalog) -> None: ...

    def commit(self, catalog: Catalog, changes: Changes) -> None: ...

    def checkpoint(self, catalog: Catalog) -> None: ...

    def take_notes(self) -> list[str]: ...

    def close(self) -> None: ...


class Transactions:
    """The transaction that is open, if any. `lock` is held while a statement changes the catalog."""

    def __init__(self, catalog: Catalog, store: CommitStore | None = None):
        self.catalog, self.store = catalog, store
        self.lock = forks.rlock()
        self.changes = Changes()
        self._started: tuple[CatalogSnapshot, int] | None = None
        """The catalog and the number of commits when the current statement began."""
        self._begun: CatalogSnapshot | None = None
        self._begun_commits = 0
        self._failed = False

    @property
    def is_open(self) -> bool:
        return self._begun is not None

    @contextmanager
    def statement(self) -> Iterator[Changes]:
        """Around a statement that changes the catalog: committed at its end, undone if it fails."""
        with self.lock:
            self._settle()
            stopping.check()
            self._started = self.catalog.snapshot(), self._commits
            try:
                yield self.changes
                if not self.is_open:
                    self._write()
                self._started = None
            finally:
                with held_signals():
                    self._settle()

    def _settle(self) -> None:
        """Undo a statement that did not finish, and leave a transaction that was committed. Usually that is the
        statement that has just failed. But an interrupt may come between any two steps of Python and end a statement in
        the middle of its own undo, or after its commit; the next statement then cleans up."""
        if self._started is not None:
            before, commits = self._started
            if self._commits == commits:
                self.catalog.restore(before)
            if self.is_open:
                self._failed = True  # what the statement has noted is not what the catalog holds
            else:
                self.changes.clear()
            self._started = None
        if self._begun is not None and self._commits != self._begun_commits:
            self._begun, self._failed = None, False
            self.changes.clear()

    @property
    def _commits(self) -> int:
        return 0 if self.store is None else self.store.commits

    def _write(self) -> None:
        """Commit the changes. The store clears them at the moment the commit takes effect."""
        if self.store is not None and self.changes:
            self.store.commit(self.catalog, self.changes)
        self.changes.clear()

    def take_notes(self) -> list[str]:
        """What the user should hear of the commits since the last call."""
        return [] if self.store is None else self.store.take_notes()

    def step(self, step: str) -> None:
        """BEGIN, COMMIT, ROLLBACK or CHECKPOINT."""
        with self.lock:
            self._settle()
            match step:
                case "begin":
                    if self.is_open:
                        raise TransactionError("cannot start a transaction within a transaction")
                    self._begun, self._begun_commits = self.catalog.snapshot(), self._commits
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
        begun = self._begun
        try:
            if step == "commit" and not self._failed:
                self._write()
        except StorageError as error:
            error.hint = None if error.hint is None else error.hint.replace("the statement", "the transaction")
            raise
        finally:
            with held_signals():
                if self._commits == self._begun_commits and (self.changes or step == "rollback" or self._failed):
                    self.catalog.restore(begun)
                self._begun, self._failed = None, False
                self.changes.clear()

    def fail(self) -> None:
        """A statement in the transaction has failed: only ROLLBACK is allowed, and COMMIT does the same."""
        if self.is_open:
            self._failed = True

    def check(self, statement: Any) -> None:
        """Refuse a statement in a transaction that has failed."""
        if self._failed and getattr(statement, "step", None) not in ("rollback", "commit"):
            raise TransactionError("Current transaction is aborted (please ROLLBACK)")
