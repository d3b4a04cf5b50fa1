"""`Checkpoint`: the folder in which a job survives.

    lock                     one process at a time
    job.json                 the name of the job
    epochs/000000012.json    an epoch: the plan and the streams, offsets, marks, the sink's token, and which files hold
                             the state
    state/*.arrow            held rows and states, as Arrow files that any reader opens

An epoch is durable once its file is there: files of state are written and synced first, then the epoch's file under
another name, which a rename makes the real one. Chunks of state never change, so those that an earlier epoch wrote are
named again and not written again. Files that none of the last epochs names are removed. All files have checksums: one
that is damaged is an error."""

from __future__ import annotations

import fcntl
import json
import os
import re
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tsql.backends.io.durable import replace_text, sync_folder
from tsql.backends.live.jobs.kept_rows import read_rows, write_rows
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.process.quick_dataclass import dataclass

KEPT_EPOCHS = 2
LOOKS = 100
VERSION = 1
CHECKSUM = "checksum"
_EPOCH = re.compile(r"(\d{9})\.json$")

KeptPart = tuple[str, int]
"""A file of state, and its checksum."""


@dataclass
class Epoch:
    """What a job needs to go on. about: plain values. tables: held rows by name, each as a list of parts; parts that
    are the same objects as in an earlier epoch are not written again."""

    number: int
    about: dict[str, Any]
    token: Any
    tables: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)


class Checkpoint:
    """The folder of one job. Opened by one process at a time; the others get an error."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        try:
            for name in ("epochs", "state"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SourceError(f"the checkpoint {self.path} cannot be opened: {error.strerror or error}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise SourceError(
                f"the checkpoint {self.path} is used by another job", hint="stop that one, or name another folder"
            ) from None
        self._written: dict[int, tuple[pa.RecordBatch, KeptPart]] = {}
        self._next_file = 1 + max(
            (int(path.stem) for path in (self.path / "state").glob("*.arrow") if path.stem.isdigit()), default=0
        )

    @staticmethod
    def kept_by(path: str | os.PathLike[str]) -> dict[str, Any] | None:
        """The plain values of the last epoch in a folder that a job may be using; None if there is none."""
        for _ in range(LOOKS):
            found = [file for file in Path(path, "epochs").glob("*.json") if _EPOCH.match(file.name)]
            data = read_json(max(found)) if found else None
            if data is not None or not found:  # a file that is gone was replaced by a later one
                return None if data is None else data.get("about")
        return None

    def job(self) -> dict[str, Any] | None:
        """What the job of this folder is; None if the folder is new."""
        return read_json(self.path / "job.json")

    def describe(self, about: Mapping[str, Any]) -> None:
        """Keep what the job is."""
        self._write_json(self.path / "job.json", {"version": VERSION, **about})

    def about(self) -> dict[str, Any] | None:
        """The plain values of the last durable epoch."""
        numbers = self._numbers()
        return None if not numbers else (read_json(self._file(numbers[-1])) or {}).get("about")

    def last(self) -> Epoch | None:
        """The last durable epoch."""
        numbers = self._numbers()
        return None if not numbers else self._load(numbers[-1])

    def write(self, epoch: Epoch) -> None:
        """Make an epoch durable."""
        names: dict[str, list[KeptPart]] = {}
        written: dict[int, tuple[pa.RecordBatch, KeptPart]] = {}
        for table, parts in epoch.tables.items():
            names[table] = []
            for part in parts:
                known = self._written.get(id(part)) or written.get(id(part)) or (part, self._write_part(part))
                written[id(part)] = known
                names[table].append(known[1])
        sync_folder(self.path / "state")
        self._write_json(
            self._file(epoch.number),
            {"version": VERSION, "epoch": epoch.number, "about": epoch.about, "token": epoch.token, "tables": names},
        )
        self._written = written
        self._remove_old()

    def close(self) -> None:
        if self._lock >= 0:
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # a child of a fork may have it open
            os.close(self._lock)
            self._lock = -1

    def _file(self, number: int) -> Path:
        return self.path / "epochs" / f"{number:09d}.json"

    def _numbers(self) -> list[int]:
        found = (_EPOCH.match(path.name) for path in (self.path / "epochs").iterdir())
        return sorted(int(match.group(1)) for match in found if match is not None)

    def _load(self, number: int) -> Epoch:
        path = self._file(number)
        data = read_json(path)
        try:
            if data is None or data["version"] != VERSION:
                raise KeyError("version")
            tables = {name: [self._read_part(*file) for file in files] for name, files in data["tables"].items()}
            found = Epoch(data["epoch"], data["about"], data["token"], tables)
        except (LookupError, TypeError, ValueError, OSError) as error:
            raise damaged(path, error) from error
        for name, files in data["tables"].items():
            kept = [(file[0], file[1]) for file in files]
            self._written.update({id(part): (part, file) for part, file in zip(tables[name], kept, strict=True)})
        return found

    def _write_part(self, part: pa.RecordBatch) -> KeptPart:
        name = f"{self._next_file:09d}.arrow"
        self._next_file += 1
        return name, write_rows(self.path / "state" / name, [part], part.schema, "lz4")

    def _read_part(self, name: str, checksum: int) -> pa.RecordBatch:
        if not re.fullmatch(r"\d{9}\.arrow", name):
            raise ValueError(f"{name} is no file of state")
        return read_rows(self.path / "state" / name, checksum)[0]

    def _write_json(self, path: Path, data: Mapping[str, Any]) -> None:
        replace_text(path, json.dumps({**data, CHECKSUM: _checksum(data)}, ensure_ascii=False))

    def _remove_old(self) -> None:
        numbers = self._numbers()
        for number in numbers[:-KEPT_EPOCHS]:
            self._file(number).unlink(missing_ok=True)
        kept: set[str] = set()
        for number in numbers[-KEPT_EPOCHS:]:
            data = read_json(self._file(number)) or {}
            kept.update(file for files in data.get("tables", {}).values() for file, _ in files)
        for path in (self.path / "state").iterdir():
            if path.name not in kept:
                path.unlink(missing_ok=True)


class Writer:
    """Writes epochs in a thread of its own, one at a time, while the job goes on."""

    def __init__(self, checkpoint: Checkpoint, done: Callable[[], None]):
        self._checkpoint, self._done = checkpoint, done
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def begin(self, epoch: Epoch) -> None:
        self._thread = threading.Thread(target=self._write, args=(epoch,), name="tsql-checkpoint", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def wait(self) -> None:
        """Wait until the epoch is durable; raises why it is not."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def settle(self) -> None:
        """Wait until nothing is being written, whatever came of it."""
        if self._thread is not None:
            self._thread.join()

    def _write(self, epoch: Epoch) -> None:
        try:
            self._checkpoint.write(epoch)
        except OSError as error:
            self._error = SourceError(
                f"the checkpoint {self._checkpoint.path} cannot be written: {error.strerror or error}"
            )
            self._error.__cause__ = error
        except BaseException as error:  # raised again in the thread of the job, by `wait`
            self._error = error
        self._done()


def _checksum(data: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def damaged(path: object, error: object) -> SourceError:
    return SourceError(f"the checkpoint {path} cannot be read: {error}", hint="begin again with another folder")


def read_json(path: Path) -> dict[str, Any] | None:
    """An object in a file, with the checksum that it says; None if the file is not there."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise damaged(path, error) from error
    if not isinstance(found, dict) or found.pop(CHECKSUM, None) != _checksum(found):
        raise damaged(path, "it is not what was written")
    return found
