"""A disk that forgets: at a power cut, unsynced data is there in part or not at all.

The model is POSIX. A file has its content at the last sync plus any prefix of the writes since then, cut at any byte,
with zeros where the file was extended. Names have the state of the last sync of their folder, plus a prefix of the
changes since then."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

from tsql.storage.disk import Disk


class PowerCut(BaseException):
    """The machine stops here."""


class File:
    """The content of a file: what is on the disk for certain, and what was done to it since."""

    def __init__(self) -> None:
        self.durable = b""
        self.since: list[tuple[int, bytes | None]] = []

    def content(self, random: Random) -> bytes:
        """What may be there after a power cut."""
        found = bytearray(self.durable)
        kept = random.choice((0, len(self.since), random.randint(0, len(self.since))))
        for number, (offset, data) in enumerate(self.since[:kept]):
            if data is None:
                del found[offset:]
                continue
            if number == kept - 1 and random.random() < 0.6:
                data = (
                    data[: random.randint(0, len(data))]
                    + (bytes(len(data)) if random.random() < 0.3 else b"")[: len(data)]
                )
            found[len(found) : offset] = bytes(max(0, offset - len(found)))
            found[offset : offset + len(data)] = data
        return bytes(found)


class ForgetfulDisk(Disk):
    """A disk that records what is durable, and stops the machine at the call with the number `at`."""

    def __init__(self, folder: Path, at: int):
        self.folder, self.at, self.calls = folder, at, 0
        self.names: dict[str, File] = {}
        self.changes: list[tuple[str, str, File | None]] = []
        self._open: dict[int, File] = {}
        self._all: dict[str, File] = {}
        for path in folder.iterdir() if folder.is_dir() else ():
            file = self._all[path.name] = self.names[path.name] = File()
            file.durable = path.read_bytes()

    def _count(self, in_flight: Callable[[], None] | None = None) -> None:
        """Count a call. A change in flight when the machine stops may still reach the disk; later ones do not."""
        self.calls += 1
        if in_flight is not None and self.calls <= self.at + 1:
            in_flight()
        if self.calls > self.at:
            raise PowerCut

    def create(self, path: Path) -> int:
        self._count()
        handle = super().create(path)
        file = self._open[handle] = self._all[path.name] = File()
        self.changes.append(("link", path.name, file))
        return handle

    def open(self, path: Path) -> int:
        handle = super().open(path)
        self._open[handle] = self._all[path.name]
        return handle

    def write(self, handle: int, data: memoryview, offset: int) -> int:
        self._count(lambda: self._open[handle].since.append((offset, bytes(data))))
        return super().write(handle, data, offset)

    def truncate(self, handle: int, bytes: int) -> None:
        self._count(lambda: self._open[handle].since.append((bytes, None)))
        super().truncate(handle, bytes)

    def sync(self, handle: int) -> None:
        self._count()
        file = self._open[handle]
        file.durable, file.since = os.pread(handle, os.fstat(handle).st_size, 0), []

    def rename(self, old: Path, new: Path) -> None:
        self._count(lambda: self.changes.extend((("unlink", old.name, None), ("link", new.name, self._all[old.name]))))
        self._all[new.name] = self._all.pop(old.name)
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        self._count(lambda: self.changes.append(("unlink", path.name, None)))
        super().remove(path)

    def sync_folder(self, path: Path) -> None:
        self._count()
        if path == self.folder:
            self._apply(self.names, len(self.changes))
            self.changes.clear()

    def _apply(self, names: dict[str, File], count: int) -> dict[str, File]:
        for kind, name, file in self.changes[:count]:
            if kind == "unlink":
                names.pop(name, None)
            else:
                assert file is not None
                names[name] = file
        return names

    def restart(self, folder: Path, random: Random) -> None:
        """Make the folder as it may be when the machine runs again."""
        folder.mkdir()
        kept = random.choice((0, len(self.changes), random.randint(0, len(self.changes))))
        # A rename is one change: its two halves happen together.
        while (
            0 < kept < len(self.changes) and self.changes[kept - 1][0] == "unlink" and self.changes[kept][0] == "link"
        ):
            kept += 1
        for name, file in self._apply(dict(self.names), kept).items():
            (folder / name).write_bytes(file.content(random))
