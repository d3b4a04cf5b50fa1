"""Databases on disks that fail: what was acknowledged is there, nothing else is, and the session knows the same as the
disk."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from unittest import mock

import pytest

import tsql
from tests.robustness.failing_disk import GROWN_BYTES, SETUP, STATEMENTS, WAYS, make_cases, points, state
from tests.robustness.power_cut import ForgetfulDisk, PowerCut
from tsql.kernels.expr.errors import StorageError


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return {case.name: case for case in make_cases(tmp_path_factory.mktemp("disk"))}


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", STATEMENTS)
def test_every_call_fails_in_turn(cases: dict, name: str, way: str, tmp_path: Path) -> None:
    assert list(points(cases[name], way, tmp_path / "copy"))


@pytest.mark.parametrize("seed", range(4))
def test_power_cuts(seed: int, tmp_path: Path) -> None:
    """The machine stops at each call in turn: every commit that was acknowledged is there, and at most one more."""
    print(f"seed {seed}")
    base = tmp_path / "base"
    with tsql.connect(base) as db:
        db.execute("; ".join(SETUP))
        states = [state(db)]
        for number in range(20):
            db.execute(
                f"INSERT INTO small VALUES ({100 + number}, repeat('x', 200))" if number != 9 else STATEMENTS["update"]
            )
            states.append(state(db))
    shutil.rmtree(base)
    with tsql.connect(base) as db:
        db.execute("; ".join(SETUP))
    random, at, running = Random(seed), seed, True
    while running:
        copy, restarted = tmp_path / "copy", tmp_path / "restarted"
        shutil.copytree(base, copy)
        disk, acknowledged = ForgetfulDisk(copy, at), 0
        with mock.patch("tsql.storage.disk.DISK", disk), mock.patch("tsql.storage.database.GROWN_BYTES", GROWN_BYTES):
            try:
                db = tsql.connect(copy)
                for number in range(20):
                    db.execute(
                        f"INSERT INTO small VALUES ({100 + number}, repeat('x', 200))"
                        if number != 9
                        else STATEMENTS["update"]
                    )
                    acknowledged += 1
                running = False
            except PowerCut:
                pass
        disk.restart(restarted, random)
        with tsql.connect(restarted) as db:
            assert state(db) in states[acknowledged : acknowledged + 2], (
                f"call {at}: {acknowledged} commits were acknowledged"
            )
        db.close()
        shutil.rmtree(copy)
        shutil.rmtree(restarted)
        at += 4
    assert at > 40


@pytest.fixture
def small_file_system(tmp_path: Path) -> Iterator[Path]:
    """A folder with 3 MB of room: a file system of its own where the process may mount one, else a limit on the size of
    files."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True, check=False
        ).returncode
        == 0
    )
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if not mounted:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, limits[1]))
    try:
        yield folder
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(small_file_system: Path) -> None:
    """Rows of 100 KB until the disk is full, then small ones: each is there if its statement said so, and only then."""
    path, acknowledged, refused = small_file_system / "db", [], []
    with mock.patch("tsql.storage.database.GROWN_BYTES", 1 << 20), tsql.connect(path) as db:
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, s VARCHAR)")
        for number in range(60):
            size = 100_000 if number % 4 else 10
            try:
                db.execute(f"INSERT INTO t SELECT {number}, repeat('x', {size})")
                acknowledged.append(number)
            except StorageError as error:
                assert "undone" in str(error)
                refused.append(number)
            assert [row[0] for row in db.sql("SELECT id FROM t ORDER BY id").fetchall()] == acknowledged
            with tsql.connect(path, read_only=True) as reader:
                assert [row[0] for row in reader.sql("SELECT id FROM t ORDER BY id").fetchall()] == acknowledged
        assert acknowledged and refused
    with tsql.connect(path) as db:
        assert [row[0] for row in db.sql("SELECT id FROM t ORDER BY id").fetchall()] == acknowledged


def test_a_transaction_that_cannot_be_committed_is_undone(tmp_path: Path) -> None:
    with tsql.connect(tmp_path / "db") as db:
        db.execute("CREATE TABLE t (a INTEGER); BEGIN; INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)")
        with mock.patch("tsql.storage.disk.Disk.write", side_effect=OSError(28, "No space left on device")):
            with pytest.raises(StorageError, match="(?s)No space left on device.*the transaction was undone"):
                db.execute("COMMIT")
        assert db.sql("FROM t").fetchall() == []
        db.execute("INSERT INTO t VALUES (3)")
    with tsql.connect(tmp_path / "db") as db:
        assert db.sql("FROM t").fetchall() == [(3,)]


def test_failed_maintenance_is_a_note(tmp_path: Path) -> None:
    with mock.patch("tsql.storage.database.GROWN_BYTES", 1_000), tsql.connect(tmp_path / "db") as db:
        db.execute("CREATE TABLE t (s VARCHAR)")
        with mock.patch("tsql.storage.database.Database._start", side_effect=OSError(28, "No space left on device")):
            relation = db.sql("INSERT INTO t SELECT repeat('x', 2000)")
            assert relation.notes == [
                "the journal could not be written anew, and goes on growing: No space left on device"
            ]
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(1,)]
    with tsql.connect(tmp_path / "db") as db:
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(1,)]


def test_a_database_whose_making_was_interrupted(tmp_path: Path) -> None:
    """Whatever call fails when a database is made, the next try succeeds."""
    from tests.robustness.failing_disk import FailingDisk

    for way in ("before", "after", "from now on"):
        for at in range(20):
            path, disk = tmp_path / f"{way} {at}", FailingDisk()
            with mock.patch("tsql.storage.disk.DISK", disk):
                disk.arm(at, way)
                try:
                    tsql.connect(path).close()
                except StorageError as error:
                    assert "Input/output error" in str(error) or "Read-only" in str(error)
                failed = disk.has_failed
                disk.disarm()
                with tsql.connect(path) as db:
                    db.execute("CREATE TABLE t (a INTEGER)")
            if not failed:
                break
        assert at > 4


def test_an_interrupt_inside_of_a_transaction_aborts_it(tmp_path: Path) -> None:
    with tsql.connect(tmp_path / "db") as db:
        db.execute("CREATE TABLE t (a INTEGER); BEGIN; INSERT INTO t VALUES (1)")
        with (
            mock.patch("tsql.statements.changes.Work.store", side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            db.execute("INSERT INTO t VALUES (2)")
        with pytest.raises(tsql.TsqlError, match="transaction is aborted"):
            db.execute("INSERT INTO t VALUES (3)")
        db.execute("ROLLBACK; INSERT INTO t VALUES (4)")
        assert db.sql("FROM t").fetchall() == [(4,)]


def test_signals_wait_for_the_commit() -> None:
    """In a process of its own: SIGINT and a SIGTERM whose handler raises come during a commit, and take effect behind
    it."""
    script = """
import signal, sys, tempfile, tsql
from tsql.storage.disk import Disk
class Stop(Exception): pass
def stop(*_): raise Stop
signal.signal(signal.SIGTERM, stop)
number = getattr(signal, sys.argv[1])
sync = Disk.sync
with tempfile.TemporaryDirectory() as folder:
    db = tsql.connect(folder + "/db")
    db.execute("CREATE TABLE t (a INTEGER)")
    Disk.sync = lambda self, handle: (signal.raise_signal(number), sync(self, handle), signal.raise_signal(number))
    try:
        db.execute("INSERT INTO t VALUES (1)")
    except (KeyboardInterrupt, Stop) as error:
        print(type(error).__name__)
    Disk.sync = sync
    print(db.sql("FROM t").fetchall(), tsql.connect(folder + "/db", read_only=True).sql("FROM t").fetchall())
    assert signal.getsignal(signal.SIGTERM) is stop and signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""
    for name, error in (("SIGINT", "KeyboardInterrupt"), ("SIGTERM", "Stop")):
        found = subprocess.run(
            [sys.executable, "-c", script, name], capture_output=True, text=True, env=os.environ, check=False
        )
        assert (found.stdout, found.stderr) == (f"{error}\n[(1,)] [(1,)]\n", "")
