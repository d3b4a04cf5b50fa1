"""`NewFiles`: the column files that one commit writes. They become part of the database with the commit; if it fails
they are removed."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

from tsql.kernels.blocks.encode import BlockColumn
from tsql.kernels.blocks.file import write_columns
from tsql.kernels.expr.errors import StorageError
from tsql.storage.disk import Disk

Origin = tuple[str, str, int]
"""The position of a column on disk: file, name in it, first row."""


class NewFiles:
    """The files that a commit has written so far. Columns learn their position on disk only in `adopt`: before that, no
    commit refers to these files."""

    def __init__(self, disk: Disk, folder: Path):
        self._disk, self._folder = disk, folder
        self._names: list[str] = []
        self._origins: dict[int, tuple[BlockColumn, Origin]] = {}

    def origin(self, column: BlockColumn) -> Origin | None:
        """Where a column is on disk, or will be when the commit is done."""
        known = self._origins.get(id(column))
        return column.origin if known is None else known[1]

    def write(self, rows: int, columns: list[BlockColumn]) -> None:
        """Write columns of `rows` rows to a new file."""
        name = f"data-{secrets.token_hex(8)}.col"
        self._names.append(name)
        try:
            with self._disk.new_file(self._folder / name) as stream:
                write_columns(stream, rows, columns)
        except OSError as error:
            raise StorageError(
                f"cannot write {name}: {error.strerror or error}", hint="the statement was undone"
            ) from error
        for column in columns:
            self._origins[id(column)] = column, (name, column.source.name, 0)

    def sync(self) -> None:
        """Let the names of the files be on disk."""
        if not self._names:
            return
        try:
            self._disk.sync_folder(self._folder)
        except OSError as error:
            raise StorageError(
                f"cannot write in {self._folder}: {error.strerror or error}", hint="the statement was undone"
            ) from error

    def adopt(self) -> None:
        """The commit is done."""
        for column, origin in self._origins.values():
            column.origin = origin

    def discard(self) -> None:
        """The commit has failed. A file that cannot be removed now is removed with the other garbage later."""
        for name in self._names:
            with contextlib.suppress(OSError):
                self._disk.remove(self._folder / name)
