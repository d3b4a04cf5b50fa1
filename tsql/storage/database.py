"""`Database`: stores the tables, views and macros of a session in a folder, durably.

A commit writes new columns to new files, syncs them to disk, and then appends one record to the journal; that record is
the commit. Nothing that is referenced is ever overwritten. When the journal has grown, the state is written as the
first record of another journal, and the file CURRENT is replaced to name that one."""

from __future__ import annotations

import contextlib
import os
import secrets
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tsql.catalog.catalog import Catalog
from tsql.catalog.definition import Macro, Table
from tsql.kernels.blocks.file import ColumnFile
from tsql.kernels.emit.batch import Dictionary
from tsql.kernels.expr.errors import StorageError
from tsql.kernels.process import forks
from tsql.kernels.process.held_signals import held_signals
from tsql.statements.transactions import Changes
from tsql.storage import disk as disks
from tsql.storage import entries
from tsql.storage.disk import Disk
from tsql.storage.journal import JournalWriter, encode_record, read_journal
from tsql.storage.new_files import NewFiles
from tsql.storage.owner import LOCK, READERS, Owner
from tsql.storage.place import check_place

CURRENT = "CURRENT"
GROWN_BYTES = 16 << 20
"""A journal is replaced once it has this size and has doubled since its start."""

_UNKNOWN = "it is not known whether the last statement was committed: its record could be neither confirmed nor removed"


class Database:
    """A folder on disk. One process writes. Any number may read; each sees the commits that existed when it opened."""

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False, disk: Disk | None = None):
        self.path, self.read_only = Path(path), read_only
        self.commits = 0
        """The number of commits that this object has made. An interrupted caller checks it to see whether its own
        commit is included."""
        self._disk = disk or disks.DISK
        self._mutex = forks.rlock()
        self._owner: Owner | None = None
        self._files: weakref.WeakValueDictionary[str, ColumnFile] = weakref.WeakValueDictionary()
        self._dictionaries: weakref.WeakValueDictionary[Any, Dictionary] = weakref.WeakValueDictionary()
        self._entries: dict[str, tuple[str, entries.Entry]] = {}
        self._macros: dict[str, Macro] = {}
        self._journal: JournalWriter | None = None
        self._first_bytes = 0
        self._unsynced = False
        self._broken: str | None = None
        self._notes: list[str] = []
        self._waiting: dict[str, list[pa.RecordBatch]] = {}
        try:
            self._open()
        except OSError as error:
            self.close()
            raise StorageError(f"cannot open the database {self.path}: {error.strerror or error}") from error
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        check_place(self.path)
        if self.path.exists() and not self.path.is_dir():
            raise StorageError(f"{self.path} is a file; a database is a folder")
        is_new = not (self.path / CURRENT).exists()
        if is_new and self.read_only:
            raise StorageError(
                f"there is no database at {self.path}", hint="connect(path) without read_only=True makes one"
            )
        if is_new and self.path.is_dir() and any(not _may_be_left(child.name) for child in self.path.iterdir()):
            raise StorageError(
                f"{self.path} is a folder with other files in it, and no database",
                hint="name a folder that is empty or not there",
            )
        if not self.path.is_dir():
            self._make_folder()
        self._owner = Owner(self.path, read_only=self.read_only)
        self._owner.on_fork = weakref.WeakMethod(self._forked)
        if not (self.path / CURRENT).exists():
            self._start("journal-000001", b"")
            self._sync_names()
            return
        name = self._current()
        records, size = read_journal(self.path / name)
        for data, blobs in records:
            self._replay(data, blobs)
        self._append_waiting()
        if not self.read_only:
            self._journal = JournalWriter(self.path / name, size, self._disk)
            self._first_bytes = size
            self._unsynced = True  # CURRENT may have been replaced by a process that died before this was on the disk
            self._collect_garbage()

    def _make_folder(self) -> None:
        try:
            self._disk.make_folder(self.path)
            self._disk.sync_folder(self.path.absolute().parent)
        except FileExistsError:
            pass  # made by another process in this moment
        except OSError as error:
            raise StorageError(
                f"cannot make {self.path}: {error.strerror or error}",
                hint="the folder above it must be there, and writable",
            ) from error

    def _current(self) -> str:
        try:
            name = (self.path / CURRENT).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise StorageError(f"cannot read {CURRENT} of {self.path}: {error}") from error
        if not name.startswith("journal-") or not (self.path / name).is_file():
            raise StorageError(
                f"{self.path} is damaged: {CURRENT} names no journal", hint="restore the database from a copy"
            )
        return name

    def _start(self, name: str, record: bytes) -> None:
        """Begin a journal with one record and make it the current one. If this raises, the old journal is still
        current."""
        partial = self.path / f".{CURRENT}.{secrets.token_hex(4)}"
        journal: JournalWriter | None = None
        try:
            journal = JournalWriter(self.path / name, disk=self._disk)
            if record:
                journal.append(record)
            with self._disk.new_file(partial) as stream:
                stream.write(f"{name}\n".encode("ascii"))
            self._disk.sync_folder(self.path)
            self._rename(partial, name)
        except BaseException:
            if journal is not None:
                journal.close()
            for unneeded in (partial, self.path / name) if self._broken is None else ():
                with contextlib.suppress(OSError):
                    self._disk.remove(unneeded)
            raise
        old, self._journal, self._first_bytes, self._unsynced = self._journal, journal, journal.bytes, True
        if old is not None:
            old.close()

    def _rename(self, partial: Path, name: str) -> None:
        """Replace CURRENT. A file system may report an error for a rename that succeeded (NFS does), so the result is
        checked."""
        try:
            self._disk.rename(partial, self.path / CURRENT)
        except OSError as error:
            try:
                if (self.path / CURRENT).read_text(encoding="ascii").strip() == name:
                    return
            except FileNotFoundError:
                pass
            except (OSError, UnicodeDecodeError):
                self._broken = f"{CURRENT} of the database {self.path} can be neither written nor read"
            raise error

    def _sync_names(self) -> None:
        """Sync CURRENT to disk. No later commit counts before that: it would be in a journal that nothing names."""
        if self._unsynced:
            try:
                self._disk.sync_folder(self.path)
            except OSError as error:
                raise StorageError(
                    f"cannot write in {self.path}: {error.strerror or error}", hint="the statement was undone"
                ) from error
            self._unsynced = False

    def _replay(self, data: dict[str, Any], blobs: list[bytes]) -> None:
        entries.check_record(data)
        written = {entries.name_of(put).lower() for put in data.get("put", ())}
        for key in (*data.get("drop", ()), *written):
            self._waiting.pop(key, None)
        for key in data.get("drop", ()):
            self._entries.pop(key, None)
        for put in data.get("put", ()):
            name = entries.name_of(put)
            self._entries[name.lower()] = (name, entries.decode_entry(put, blobs, self._file))
        for key, number in data.get("append", {}).items():
            self._waiting.setdefault(key, []).extend(entries.decode_rows(blobs[number]))
        for key in data.get("drop_macros", ()):
            self._macros.pop(key, None)
        for macro in data.get("macros", ()):
            self._macros[macro["name"].lower()] = entries.decode_macro(macro)

    def _append_waiting(self) -> None:
        """Append the rows of all small commits to their tables at once."""
        for key, batches in self._waiting.items():
            shown, table = self._entries[key]
            self._entries[key] = (shown, Table(table.definition, table.data.append(batches)))
        self._waiting.clear()

    def _file(self, name: str) -> ColumnFile:
        found = self._files.get(name)
        if found is None:
            found = self._files[name] = ColumnFile(self.path / name, self._share)
        return found

    def _share(self, key: Any, make: Callable[[], Dictionary]) -> Dictionary:
        """One object for equal dictionaries, because kernels compare them by identity. The key holds lengths and
        checksums."""
        made = make()
        known = self._dictionaries.get(key)
        if known is not None and known.values.equals(made.values):
            return known
        self._dictionaries[key] = made
        return made

    def load(self, catalog: Catalog) -> None:
        """Put everything into a session's catalog."""
        for shown, entry in self._entries.values():
            catalog.add(shown, entry)
        for macro in self._macros.values():
            catalog.put_macro(macro.name, macro)

    def commit(self, catalog: Catalog, changes: Changes) -> None:
        """Write the changes; they are on disk when this returns. If it raises, `commits` tells whether they are
        committed anyway."""
        with self._mutex:
            before = self.commits
            files = NewFiles(self._disk, self.path)
            try:
                self._commit(catalog, changes, files)
            except BaseException:
                if self.commits == before and self._broken is None:
                    files.discard()
                raise
            if self.commits > before:
                self._maintain()

    def _commit(self, catalog: Catalog, changes: Changes, files: NewFiles) -> None:
        data: dict[str, Any] = {}
        blobs: list[bytes] = []
        new = self._appended(catalog, changes, data, blobs)
        put: list[tuple[str, entries.Entry]] = []
        for key in sorted(changes.names):
            entry = catalog.entry(key)
            if isinstance(entry, entries.Entry) and not entry.temporary:
                new[key] = (catalog.shown_name(key), entry)
                put.append(new[key])
            elif key in self._entries:
                new[key] = None
                data.setdefault("drop", []).append(key)
        macros = self._changed_macros(catalog, changes, data)
        if self._owner is None:
            raise StorageError("the database is closed")
        if not data and not put:
            return
        self._check()
        if put:
            data["put"] = [entries.encode_entry(shown, entry, files, blobs) for shown, entry in put]
        files.sync()
        record = encode_record(data, blobs)
        with held_signals():
            self._append(record)
            files.adopt()
            for key, pair in new.items():
                self._entries.pop(key, None)
                if pair is not None:
                    self._entries[key] = pair
            self._macros = macros
            changes.clear()
            self.commits += 1

    def _appended(
        self, catalog: Catalog, changes: Changes, data: dict[str, Any], blobs: list[bytes]
    ) -> dict[str, tuple[str, entries.Entry] | None]:
        """Add the rows that were appended to tables to the record; returns the tables."""
        found: dict[str, tuple[str, entries.Entry] | None] = {}
        for key, batches in changes.appended.items():
            entry = catalog.entry(key)
            if not isinstance(entry, Table) or entry.temporary:
                continue
            before = self._entries.get(key)
            if before is None or not isinstance(before[1], Table) or before[1].data.extents != entry.data.extents:
                changes.names.add(key)  # rows of the tail have become blocks: the table is written as it is now
                continue
            found[key] = (catalog.shown_name(key), entry)
            data.setdefault("append", {})[key] = len(blobs)
            blobs.append(entries.encode_rows(batches, entry.definition.schema))
        return found

    def _append(self, record: bytes) -> None:
        """Write a record to the journal: that is the commit."""
        self._check()
        self._sync_names()
        try:
            self._writer.append(record)
        except BaseException as error:
            if self._writer.doubtful:
                # The record cannot be removed from this journal, but the state before it can start another one.
                try:
                    self._rewrite()
                except BaseException:
                    self._broken = _UNKNOWN
                    raise StorageError(
                        f"{_reason(error)}; {_UNKNOWN}", hint="close the database, and open it again to see"
                    ) from error
            raise

    def _check(self) -> None:
        """Refuse to write where that could lose something."""
        if self._owner is not None and not self.read_only:
            self._owner.check()
        if self._broken is not None:
            raise StorageError(self._broken, hint="close the database, and open it again to see")
        if not self._writer.is_untouched():
            raise StorageError(
                f"{self._writer.path.name} of the database {self.path} was changed by another process",
                hint="nothing more is written through this connection; close it and open the database again",
            )

    @property
    def _writer(self) -> JournalWriter:
        if self._journal is None:
            raise StorageError(
                "the database is closed" if not self.read_only else "the database is open for reading only"
            )
        return self._journal

    def _maintain(self) -> None:
        """Start a new journal if this one has grown. The commit before it stands even if this fails."""
        if self._writer.bytes <= max(GROWN_BYTES, 2 * self._first_bytes):
            return
        try:
            self._rewrite()
        except (StorageError, OSError) as error:
            self._first_bytes = self._writer.bytes  # tried again when the journal has doubled
            self._notes.append(f"the journal could not be written anew, and goes on growing: {_reason(error)}")

    def take_notes(self) -> list[str]:
        """What the user should hear of commits since the last call: maintenance that failed."""
        taken, self._notes = self._notes, []
        return taken

    def _changed_macros(self, catalog: Catalog, changes: Changes, data: dict[str, Any]) -> dict[str, Macro]:
        macros = dict(self._macros)
        for key in sorted(changes.macros):
            macro = catalog.macro(key)
            if macro is not None and not macro.temporary:
                macros[key] = macro
                data.setdefault("macros", []).append(entries.encode_macro(macro))
            elif macros.pop(key, None) is not None:
                data.setdefault("drop_macros", []).append(key)
        return macros

    def checkpoint(self, catalog: Catalog) -> None:
        """Start a new journal and remove files that nothing needs."""
        if self.read_only:
            return
        with self._mutex:
            self._check()
            try:
                self._rewrite()
            except OSError as error:
                raise StorageError(
                    f"cannot write {self.path}: {error.strerror or error}", hint="every commit is safe"
                ) from error

    def _rewrite(self) -> None:
        """Write the state as the first record of another journal. If this raises, `_journal` is the one that CURRENT
        names."""
        with held_signals():
            blobs: list[bytes] = []
            files = NewFiles(self._disk, self.path)
            try:
                put = [entries.encode_entry(shown, entry, files, blobs) for shown, entry in self._entries.values()]
                data = {"put": put, "macros": [entries.encode_macro(macro) for macro in self._macros.values()]}
                number = int(self._writer.path.name.removeprefix("journal-")) + 1
                self._start(f"journal-{number:06d}", encode_record(data, blobs))
            except BaseException:
                if self._broken is None:
                    files.discard()
                raise
            files.adopt()
            self._collect_garbage()

    def _collect_garbage(self) -> None:
        """Remove files that no commit refers to, unless another process may still read them, or may need them after a
        crash."""
        with contextlib.suppress(OSError, StorageError):
            self._sync_names()
            assert self._owner is not None
            with self._owner.without_readers() as alone:
                if not alone:
                    return
                needed = {self._writer.path.name}.union(
                    *(entries.files_of(entry) for _, entry in self._entries.values())
                )
                for child in self.path.iterdir():
                    if child.name not in needed and child.name.startswith(("data-", "journal-", f".{CURRENT}.")):
                        file = self._files.get(child.name)
                        if file is not None:
                            file.hold()  # a reader of an older version in this process keeps its columns
                        self._disk.remove(child)

    def _forked(self) -> None:
        """In a forked child: give up the journal. Data in memory can still be read."""
        if self._journal is not None:
            self._journal.close(is_forked=True)
            self._journal = None

    def close(self) -> None:
        """Close the database; everything committed is on disk already."""
        with self._mutex:
            try:
                if self._journal is not None:
                    self._shorten()
            finally:
                with held_signals():
                    self._let_go()

    def _shorten(self) -> None:
        """Start a new journal if that makes the next opening faster."""
        with contextlib.suppress(StorageError, OSError):
            if self._writer.bytes > 2 * self._first_bytes and self._writer.bytes > GROWN_BYTES // 16:
                self._check()
                self._rewrite()

    def _let_go(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if self._owner is not None:
            self._owner.close()
            self._owner = None

    def __del__(self) -> None:
        """Release a database that was never closed, so that others can open it."""
        if self._owner is not None and self._owner.is_mine:
            self._let_go()


def _may_be_left(name: str) -> bool:
    """Whether a file may be left over from an interrupted creation of a database."""
    return name in (LOCK, READERS) or name.startswith(("journal-", f".{CURRENT}."))


def _reason(error: BaseException) -> str:
    return error.message if isinstance(error, StorageError) else str(getattr(error, "strerror", None) or error)
