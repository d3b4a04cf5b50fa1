"""`Database`: keeps the tables, views and macros of a session in a folder, safely.

A commit writes the columns that are new to files of their own, lets them reach the disk, and then appends one record to the
journal; that record is the commit. Nothing that is referred to is ever overwritten. When the journal has grown, the state
is written as the first record of another journal, and the file CURRENT is replaced to name that one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tsql.catalog import Catalog
from tsql.definition import Macro, Table
from tsql.kernels.batch import Dictionary
from tsql.kernels.blocks.encode import BlockColumn
from tsql.kernels.blocks.file import ColumnFile, write_columns
from tsql.kernels.errors import StorageError
from tsql.storage import entries
from tsql.storage.journal import JournalWriter, encode_record, read_journal, sync_folder
from tsql.storage.place import check_place
from tsql.transactions import Changes

CURRENT, LOCK, READERS = "CURRENT", "lock", "readers"
GROWN_BYTES = 16 << 20
"""A journal of this size, and twice the size that it had at first, is replaced."""


class Database:
    """A folder on disk. One process writes; any number may read, each sees the commits that were there when it opened."""

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False):
        self.path, self.read_only = Path(path), read_only
        self._locks: list[int] = []
        self._files: weakref.WeakValueDictionary[str, ColumnFile] = weakref.WeakValueDictionary()
        self._dictionaries: weakref.WeakValueDictionary[Any, Dictionary] = weakref.WeakValueDictionary()
        self._entries: dict[str, tuple[str, entries.Entry]] = {}
        self._macros: dict[str, Macro] = {}
        self._journal: JournalWriter | None = None
        self._first_bytes = 0
        self._waiting: dict[str, list[pa.RecordBatch]] = {}
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        check_place(self.path)
        if self.path.exists() and not self.path.is_dir():
            raise StorageError(f"{self.path} is a file; a database is a folder")
        is_new = not (self.path / CURRENT).exists()
        if is_new and self.read_only:
            raise StorageError(f"there is no database at {self.path}", hint="connect(path) without read_only=True makes one")
        if is_new and self.path.is_dir() and any(child.name not in (LOCK, READERS) and not child.name.startswith("journal-") for child in self.path.iterdir()):
            raise StorageError(f"{self.path} is a folder with other files in it, and no database", hint="name a folder that is empty or not there")
        try:
            self.path.mkdir(exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot make {self.path}: {error.strerror or error}") from error
        if self.read_only:
            self._lock(READERS, fcntl.LOCK_SH)
        else:
            self._lock(LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not (self.path / CURRENT).exists():
            self._start("journal-000001", b"")
            return
        name = self._current()
        records, size = read_journal(self.path / name)
        for data, blobs in records:
            self._replay(data, blobs)
        self._append_waiting()
        if not self.read_only:
            self._journal = JournalWriter(self.path / name, size)
            self._first_bytes = size
            self._collect_garbage()

    def _lock(self, name: str, how: int) -> None:
        try:
            handle = os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            if not self.read_only:
                raise StorageError(f"cannot write in {self.path}", hint="connect(path, read_only=True)") from None
            return  # a folder that nobody can write to needs no protection from writers
        try:
            fcntl.flock(handle, how)
        except OSError:
            os.close(handle)
            raise StorageError(
                f"the database {self.path} is open for writing in another process, or in another session of this one", hint="close it there, or connect(path, read_only=True)"
            ) from None
        self._locks.append(handle)

    def _current(self) -> str:
        try:
            name = (self.path / CURRENT).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise StorageError(f"cannot read {CURRENT} of {self.path}: {error}") from error
        if not name.startswith("journal-") or not (self.path / name).is_file():
            raise StorageError(f"{self.path} is damaged: {CURRENT} names no journal", hint="restore the database from a copy")
        return name

    def _start(self, name: str, record: bytes) -> None:
        """Begin a journal with one record, and make it the current one."""
        journal = JournalWriter(self.path / name)
        if record:
            journal.append(record)
        partial = self.path / f".{CURRENT}.{secrets.token_hex(4)}"
        with open(partial, "w", encoding="ascii") as stream:
            stream.write(name + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, self.path / CURRENT)
        sync_folder(self.path)
        old, self._journal, self._first_bytes = self._journal, journal, journal.bytes
        if old is not None:
            old.close()

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
        """Add the rows of all small commits to their tables at once."""
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
        """One object for equal dictionaries: kernels tell them apart by identity. The key holds lengths and checksums."""
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
        """Write what has changed; it is on disk when this returns."""
        data: dict[str, Any] = {}
        blobs: list[bytes] = []
        new: dict[str, tuple[str, entries.Entry] | None] = {}
        for key, batches in changes.appended.items():
            entry = catalog.entry(key)
            if not isinstance(entry, Table) or entry.temporary:
                continue
            before = self._entries.get(key)
            if before is None or not isinstance(before[1], Table) or before[1].data.extents != entry.data.extents:
                changes.names.add(key)  # rows of the tail have become blocks: the table is written as it is now
                continue
            new[key] = (catalog.shown_name(key), entry)
            data.setdefault("append", {})[key] = len(blobs)
            blobs.append(entries.encode_rows(batches, entry.definition.schema))
        for key in sorted(changes.names):
            entry = catalog.entry(key)
            if isinstance(entry, entries.Entry) and not entry.temporary:
                new[key] = (catalog.shown_name(key), entry)
                data.setdefault("put", []).append(entries.encode_entry(new[key][0], entry, self._write_file, blobs))
            elif key in self._entries:
                new[key] = None
                data.setdefault("drop", []).append(key)
        macros = self._changed_macros(catalog, changes, data)
        if not data:
            return
        self._writer.append(encode_record(data, blobs))
        for key, pair in new.items():
            self._entries.pop(key, None)
            if pair is not None:
                self._entries[key] = pair
        self._macros = macros
        if self._writer.bytes > max(GROWN_BYTES, 2 * self._first_bytes):
            self._rewrite()

    @property
    def _writer(self) -> JournalWriter:
        if self._journal is None:
            raise StorageError("the database is closed" if not self.read_only else "the database is open for reading only")
        return self._journal

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

    def _write_file(self, rows: int, columns: list[BlockColumn]) -> str:
        name = f"data-{secrets.token_hex(8)}.col"
        try:
            write_columns(self.path / name, rows, columns)
            sync_folder(self.path)
        except OSError as error:
            (self.path / name).unlink(missing_ok=True)
            raise StorageError(f"cannot write {name}: {error.strerror or error}", hint="the statement was undone") from error
        return name

    def checkpoint(self, catalog: Catalog) -> None:
        """Begin the journal anew, and remove files that nothing needs."""
        if not self.read_only:
            self._rewrite()

    def _rewrite(self) -> None:
        blobs: list[bytes] = []
        put = [entries.encode_entry(shown, entry, self._write_file, blobs) for shown, entry in self._entries.values()]
        data = {"put": put, "macros": [entries.encode_macro(macro) for macro in self._macros.values()]}
        number = int(self._writer.path.name.removeprefix("journal-")) + 1
        self._start(f"journal-{number:06d}", encode_record(data, blobs))
        self._collect_garbage()

    def _collect_garbage(self) -> None:
        """Remove files that no commit refers to, unless another process may still read them."""
        try:
            handle = os.open(self.path / READERS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            needed = {self._writer.path.name, CURRENT, LOCK, READERS}.union(*(entries.files_of(entry) for _, entry in self._entries.values()))
            for child in self.path.iterdir():
                if child.name not in needed and child.name.startswith(("data-", "journal-", f".{CURRENT}.")):
                    file = self._files.get(child.name)
                    if file is not None:
                        file.memory  # noqa: B018  (a reader of an older version keeps its memory)
                    child.unlink(missing_ok=True)
        except OSError:
            return
        finally:
            os.close(handle)

    def close(self) -> None:
        """Leave the database; everything that was committed is on disk already."""
        if self._journal is not None:
            with contextlib.suppress(StorageError, OSError):
                if self._journal.bytes > 2 * self._first_bytes and self._journal.bytes > GROWN_BYTES // 16:
                    self._rewrite()
            self._journal.close()
            self._journal = None
        while self._locks:
            os.close(self._locks.pop())
