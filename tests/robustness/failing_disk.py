"""A disk that fails at a chosen call, and the state that a database must have then.

`python -m tests.robustness.failing_disk [ROUNDS]` makes every call of every statement fail in every way; the way
"chance" runs with that many seeds. After each failure the session and a fresh reader must see the same rows: the
acknowledged ones."""

from __future__ import annotations

import errno
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.compute as pc

import tsql
from tsql.kernels.expr.errors import StorageError
from tsql.storage import database
from tsql.storage.disk import Disk

WAYS = (
    "before",
    "after",
    "short",
    "twice",
    "after twice",
    "from now on",
    "full from now on",
    "interrupt before",
    "interrupt after",
    "chance",
)
"""How a call fails: without an effect, with its effect, after half of a write, together with the next one (which mostly
is what should undo it), together with all later ones, together with all later ones that need room, by a Ctrl-C around
it, or together with every later one by chance."""

UNKNOWN = "it is not known whether"


class FailingDisk(Disk):
    """Counts its calls, and fails at the one with the number `at`."""

    def __init__(self) -> None:
        self.calls, self.at, self.way = 0, -1, ""
        self._chance = random.Random()

    def arm(self, at: int, way: str, seed: int = 0) -> None:
        self.calls, self.at, self.way = 0, at, way
        self._chance.seed(1000 * seed + at)

    def disarm(self) -> None:
        self.at = -1

    @property
    def has_failed(self) -> bool:
        return 0 <= self.at < self.calls

    def _call(self, action: Callable[[], Any], needs_room: bool = False) -> Any:
        number, self.calls = self.calls, self.calls + 1
        if self.at < 0 or number < self.at:
            return action()
        match self.way:
            case "from now on":
                raise OSError(errno.EROFS, "Read-only file system")
            case "full from now on":
                if needs_room:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return action()
            case "chance":
                if self._chance.random() < 0.5:
                    return action()
                if self._chance.random() < 0.5:
                    action()
                raise OSError(errno.EIO, "Input/output error")
        if number > self.at + self.way.endswith("twice"):
            return action()
        if self.way == "interrupt before":
            signal.raise_signal(signal.SIGINT)
        result = action() if self.way.startswith(("after", "interrupt")) else None
        if self.way == "interrupt after":
            signal.raise_signal(signal.SIGINT)
        if self.way.startswith("interrupt"):
            return result
        raise OSError(errno.EIO, "Input/output error")

    def make_folder(self, path: Path) -> None:
        self._call(lambda: super(FailingDisk, self).make_folder(path), True)

    def create(self, path: Path) -> int:
        return self._call(lambda: super(FailingDisk, self).create(path), True)

    def open(self, path: Path) -> int:
        return self._call(lambda: super(FailingDisk, self).open(path))

    def write(self, handle: int, data: memoryview, offset: int) -> int:
        if self.calls == self.at and self.way in ("short", "full from now on"):
            super().write(handle, data[: len(data) // 2], offset)
        return self._call(lambda: super(FailingDisk, self).write(handle, data, offset), True)

    def sync(self, handle: int) -> None:
        self._call(lambda: super(FailingDisk, self).sync(handle))

    def truncate(self, handle: int, bytes: int) -> None:
        self._call(lambda: super(FailingDisk, self).truncate(handle, bytes))

    def rename(self, old: Path, new: Path) -> None:
        self._call(lambda: super(FailingDisk, self).rename(old, new))

    def remove(self, path: Path) -> None:
        self._call(lambda: super(FailingDisk, self).remove(path))

    def sync_folder(self, path: Path) -> None:
        self._call(lambda: super(FailingDisk, self).sync_folder(path))


SETUP = (
    "CREATE TABLE small (id INTEGER PRIMARY KEY, s VARCHAR)",
    "INSERT INTO small VALUES (1, 'one'), (2, NULL)",
    "CREATE TABLE large AS SELECT i, i % 7 AS k FROM range(70000) t(i)",
    "CREATE VIEW v AS SELECT id FROM small; CREATE MACRO twice(x) AS x * 2",
)
STATEMENTS = {
    "insert": "INSERT INTO small VALUES (3, 'three')",
    "insert many": "INSERT INTO large SELECT i + 100000, 1 FROM range(66000) t(i)",
    "update": "UPDATE large SET k = 100 WHERE i = 5",
    "delete": "DELETE FROM large WHERE i < 10",
    "create": "CREATE TABLE more AS SELECT i * 2 AS d FROM range(66000) t(i)",
    "alter": "ALTER TABLE large ADD COLUMN added INTEGER DEFAULT 4",
    "drop": "DROP TABLE large",
    "macro": "CREATE OR REPLACE MACRO twice(x) AS x + x",
    "transaction": (
        "BEGIN; INSERT INTO small VALUES (3, 'three'); UPDATE large SET k = 9 WHERE i = 6; CREATE TABLE n AS "
        "SELECT 1 AS one; COMMIT"
    ),
    "checkpoint": "CHECKPOINT",
    "grown journal": "INSERT INTO small SELECT i, 'text' FROM range(10, 400) t(i)",
}
GROWN_BYTES = 6_000
"""A journal that has grown past this is rewritten after a commit: the last of the statements makes it large enough."""


def state(db: tsql.Session) -> dict[str, Any]:
    """What the database holds: rows of small tables, sums over large ones."""
    found: dict[str, Any] = {"macros": [macro.text for macro in db.catalog.macros()]}
    for name in db.tables():
        entry = db.catalog.entry(name)
        if name == "v":
            found[name] = entry.text
        else:
            columns = {column: entry.data.column(column) for column in entry.definition.names}
            found[name] = {
                c: v.to_pylist() if len(v) < 1000 else (len(v), pc.sum(v).as_py(), pc.max(v).as_py())
                for c, v in columns.items()
            }
    return found


@dataclass
class Case:
    """A database and a statement, with what the database holds before and behind it."""

    name: str
    folder: Path
    before: dict[str, Any]
    after: dict[str, Any]

    @property
    def statement(self) -> str:
        return STATEMENTS[self.name]


def make_cases(folder: Path) -> list[Case]:
    """The statements, each with what the database holds without a failure."""
    base = folder / "base"
    with tsql.connect(base) as db:
        for statement in SETUP:
            db.execute(statement)
        before = state(db)
    cases = []
    for name in STATEMENTS:
        shutil.copytree(base, folder / "copy")
        with tsql.connect(folder / "copy") as db:
            db.execute(STATEMENTS[name])
            cases.append(Case(name, base, before, state(db)))
        shutil.rmtree(folder / "copy")
    return cases


def fails_at(case: Case, at: int, way: str, copy: Path, seed: int = 0) -> bool:
    """Let one call of a statement fail, and check what is there; False if the statement makes fewer calls."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(case.folder, copy)
    disk = FailingDisk()
    grown = GROWN_BYTES if case.name == "grown journal" else database.GROWN_BYTES
    with mock.patch("tsql.storage.disk.DISK", disk), mock.patch("tsql.storage.database.GROWN_BYTES", grown):
        with tsql.connect(copy) as db:
            disk.arm(at, way, seed)
            outcome = _run(db, case.statement)
            has_failed = disk.has_failed
            if not has_failed and outcome != "acknowledged":
                raise AssertionError(f"nothing has failed, and the statement has: {outcome}")
            found = _same_rows(case, db, copy, outcome)
            disk.disarm()
            # When the disk works again, so does the session, unless it has said that it cannot.
            found = _goes_on(db, copy, found, outcome)
        with tsql.connect(copy) as db:
            assert found is None or state(db) == found, "other rows after opening again"
            needed = {file for _, entry in db.catalog.entries() for file in database.entries.files_of(entry)}
            assert {path.name for path in copy.glob("data-*")} == needed, "files that nothing needs are left"
    return has_failed


def _run(db: tsql.Session, statement: str) -> str:
    try:
        db.execute(statement)
    except KeyboardInterrupt:
        return "interrupted"
    except StorageError as error:
        return str(error)
    return "acknowledged"


def _same_rows(case: Case, db: tsql.Session, copy: Path, outcome: str) -> dict[str, Any] | None:
    """What the session and a fresh reader both hold; None if the error says that this is not known."""
    if outcome != "acknowledged" and db.transactions.is_open:
        db.execute("ROLLBACK")  # a statement of the transaction has failed
    mine = state(db)
    if UNKNOWN in outcome:
        return None
    allowed = {"acknowledged": [case.after], "interrupted": [case.before, case.after]}.get(outcome, [case.before])
    assert mine in allowed, f"the session holds other rows than it should: {outcome}"
    with tsql.connect(copy, read_only=True) as reader:
        assert state(reader) == mine, f"a fresh reader sees other rows than the session: {outcome}"
    return mine


def _goes_on(db: tsql.Session, copy: Path, found: dict[str, Any] | None, outcome: str) -> dict[str, Any] | None:
    again = _run(db, "CREATE TABLE behind AS SELECT 1 AS one")
    if UNKNOWN in outcome:
        assert UNKNOWN in again, f"the session goes on although it does not know its state: {again}"
        return None
    assert again == "acknowledged", f"the session does not go on: {again}"
    expected = {**(found or {}), "behind": {"one": [1]}}
    assert state(db) == expected
    with tsql.connect(copy, read_only=True) as reader:
        assert state(reader) == expected, "a fresh reader does not see the next commit"
    return expected


def points(case: Case, way: str, copy: Path, seed: int = 0) -> Iterator[int]:
    """Let every call of a statement fail in one way; yields the numbers of the calls."""
    at = 0
    while fails_at(case, at, way, copy, seed):
        yield at
        at += 1


def main(rounds: int) -> int:
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in make_cases(Path(folder)):
            for way in WAYS:
                for seed in range(rounds if way == "chance" else 1):
                    total += sum(1 for _ in points(case, way, Path(folder) / "copy", seed))
            print(f"{case.name}: {total} points so far", flush=True)
    print(f"{total} points, no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
