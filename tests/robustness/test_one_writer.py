"""A database has one writer: not two processes, not a parent and its fork, not whoever removes the lock file."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import tsql
from tests.patience import wait_until
from tsql.kernels.expr.errors import StorageError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tsql.connect(tmp_path / "db") as db:
        db.execute("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1)")
        db.execute("CREATE TABLE large AS SELECT i FROM range(70000) t(i)")
    return tmp_path / "db"


def rows(db: tsql.Session) -> list[int]:
    return [row[0] for row in db.sql("SELECT a FROM t ORDER BY a").fetchall()]


def in_child(work: Callable[[], None]) -> None:
    """Run something in a fork of this process; its exception is shown, and an error here."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.stderr)
        finally:
            os._exit(code)
    ended: list[int] = []

    def has_ended() -> bool:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            ended.append(os.waitstatus_to_exitcode(status))
        return bool(pid)

    if not wait_until(has_ended):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == [0], "the child has failed, or did not end"


def test_a_forked_child_reads_and_does_not_write(path: Path) -> None:
    with tsql.connect(path) as db:

        def child() -> None:
            assert rows(db) == [1]
            assert db.sql("SELECT count(*) FROM large").fetchall() == [(70000,)]
            for statement in (
                "INSERT INTO t VALUES (2)",
                "UPDATE large SET i = 0",
                "CHECKPOINT",
                "CREATE TABLE u AS SELECT 1 AS one",
            ):
                with pytest.raises(
                    StorageError, match=f"was opened by process {os.getppid()}, of which this one .* is a fork"
                ):
                    db.execute(statement)
            assert rows(db) == [1]
            db.execute("CREATE TEMP TABLE mine AS SELECT 1 AS one")
            with pytest.raises(StorageError, match="is open for writing in another process"):
                tsql.connect(path)
            db.close()

        in_child(child)
        db.execute("INSERT INTO t VALUES (3)")
        in_child(child_of_child(db))
        db.execute("CHECKPOINT; INSERT INTO t VALUES (4)")
        assert rows(db) == [1, 3, 4]
    with tsql.connect(path) as db:
        assert rows(db) == [1, 3, 4]


def child_of_child(db: tsql.Session) -> Callable[[], None]:
    def refused() -> None:
        with pytest.raises(StorageError, match="is a fork"):
            db.execute("INSERT INTO t VALUES (2)")

    return lambda: in_child(refused)


def test_a_child_does_not_keep_the_parents_lock(path: Path) -> None:
    """The parent closes the database while a child lives: somebody else may write then."""
    reading, writing = os.pipe()
    started = os.pipe()
    db = tsql.connect(path)
    child = os.fork()
    if child == 0:
        os.write(started[1], b"x")
        os.read(reading, 1)
        os._exit(0)
    try:
        os.read(started[0], 1)
        db.close()
        with tsql.connect(path) as again:
            again.execute("INSERT INTO t VALUES (2)")
            assert rows(again) == [1, 2]
    finally:
        os.write(writing, b"x")
        os.waitpid(child, 0)
        for handle in (reading, writing, *started):
            os.close(handle)


def test_a_child_keeps_the_files_that_it_may_read(path: Path) -> None:
    """The parent drops a table and collects garbage; the child has not looked at its columns yet."""
    reading, writing = os.pipe()
    with tsql.connect(path) as db:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.read(reading, 1)
                code = 0 if db.sql("SELECT sum(i) FROM large").fetchall() == [(70000 * 69999 // 2,)] else 2
            finally:
                os._exit(code)
        db.execute("DROP TABLE large; CHECKPOINT")
        os.write(writing, b"x")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        db.execute("CHECKPOINT")
        assert list(path.glob("data-*")) == []
    os.close(reading)
    os.close(writing)


def _count(path: str) -> int:
    with tsql.connect(path, read_only=True) as db:
        return db.sql("SELECT count(*) FROM large").fetchall()[0][0]


def test_a_fork_pool_reads(path: Path) -> None:
    with tsql.connect(path) as db:
        db.execute("INSERT INTO t VALUES (5)")
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(_count, [str(path)] * 4) == [70000] * 4
        db.execute("INSERT INTO t VALUES (6)")
        assert rows(db) == [1, 5, 6]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_lost_lock_file_is_noticed(path: Path, is_replaced: bool) -> None:
    with tsql.connect(path) as db:
        (path / "lock").unlink()
        if is_replaced:
            (path / "lock").write_bytes(b"")
        # The journal is locked, too, so that a second writer does not come in.
        with pytest.raises(StorageError, match="is being written by another process"):
            tsql.connect(path)
        for statement in ("INSERT INTO t VALUES (2)", "CHECKPOINT"):
            with pytest.raises(StorageError, match="the lock file of the database .* was removed or replaced"):
                db.execute(statement)
        assert rows(db) == [1]
    with tsql.connect(path) as db:
        db.execute("INSERT INTO t VALUES (3)")
        assert rows(db) == [1, 3]


def test_a_journal_that_another_process_has_changed_is_noticed(path: Path) -> None:
    with tsql.connect(path) as db:
        with open(path / "journal-000001", "ab") as stream:
            stream.write(b"somebody else's")
        with pytest.raises(StorageError, match="journal-000001 of the database .* was changed by another process"):
            db.execute("INSERT INTO t VALUES (2)")
        assert rows(db) == [1]


def test_a_moved_database_is_noticed(path: Path) -> None:
    with tsql.connect(path) as db:
        path.rename(path.parent / "moved")
        with pytest.raises(StorageError, match="was removed or replaced"):
            db.execute("INSERT INTO t VALUES (2)")
    with tsql.connect(path.parent / "moved") as db:
        assert rows(db) == [1]
