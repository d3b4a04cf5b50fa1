"""Failures and interrupts at the worst moments: while something is being undone, closed, or put back."""

from __future__ import annotations

import errno
import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

import tsql
from tests.patience import PATIENCE_SECONDS, wait_until
from tsql.kernels.expr.errors import StorageError
from tsql.kernels.process import held_signals as holding
from tsql.storage import database
from tsql.storage.disk import Disk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tsql.connect(tmp_path / "db") as db:
        db.execute("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1)")
    return tmp_path / "db"


def rows(db: tsql.Session) -> list[int]:
    return [row[0] for row in db.sql("SELECT a FROM t ORDER BY a").fetchall()]


def on_disk(path: Path) -> list[int]:
    with tsql.connect(path, read_only=True) as reader:
        return rows(reader)


@contextmanager
def interrupted_once(where: str) -> Iterator[None]:
    """Ctrl-C at the next entry of `held_signals`, as it may come at any step of Python."""
    real, came = holding.held_signals, []

    def held() -> object:
        if not came:
            came.append(True)
            raise KeyboardInterrupt
        return real()

    with mock.patch(where, held):
        yield
    assert came


def test_a_file_that_could_not_be_written_leaves_no_bytes_behind(tmp_path: Path) -> None:
    """A stream with bytes in its buffer must not write them later, to whatever file has its number by then."""

    class Full(Disk):
        def write(self, handle: int, data: memoryview, offset: int) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    kept = None
    try:
        with Full().new_file(tmp_path / "new") as stream:
            stream.write(b"x" * 1000)
            stream.flush()
    except OSError as error:
        kept = error
    victim = tmp_path / "victim"
    victim.write_bytes(b"words")
    handles = [os.open(victim, os.O_RDWR) for _ in range(6)]
    del stream
    kept.__traceback__ = kept = None
    gc.collect()
    assert victim.read_bytes() == b"words"
    for handle in handles:
        os.close(handle)


def test_an_interrupt_behind_a_commit(path: Path) -> None:
    with tsql.connect(path) as db:
        db.execute("BEGIN; INSERT INTO t VALUES (2)")
        with interrupted_once("tsql.statements.transactions.held_signals"), pytest.raises(KeyboardInterrupt):
            db.execute("COMMIT")
        with pytest.raises(tsql.TsqlError, match="no transaction is active"):
            db.execute("ROLLBACK")
        assert rows(db) == on_disk(path) == [1, 2]
        db.execute("INSERT INTO t VALUES (3)")
        assert rows(db) == on_disk(path) == [1, 2, 3]


def test_an_interrupt_while_a_statement_is_undone(path: Path) -> None:
    with tsql.connect(path) as db:
        with (
            mock.patch.object(database.Database, "commit", side_effect=StorageError("full")),
            interrupted_once("tsql.statements.transactions.held_signals"),
            pytest.raises(KeyboardInterrupt),
        ):
            db.execute("INSERT INTO t VALUES (2)")
        db.execute("INSERT INTO t VALUES (3)")
        assert rows(db) == on_disk(path) == [1, 3]


def test_a_handle_that_is_stale(path: Path) -> None:
    """Nothing works any more once the record is written, not even asking for the file's size: the error says that
    nobody knows."""

    class Stale(Disk):
        is_stale = False

        def sync(self, handle: int) -> None:
            Stale.is_stale = True
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

        def truncate(self, handle: int, bytes: int) -> None:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    def fstat(handle: int) -> os.stat_result:
        if Stale.is_stale:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return real(handle)

    real = os.fstat
    with tsql.connect(path) as db:
        db._store._disk = db._store._journal._disk = Stale()
        db._store._unsynced = False
        with (
            mock.patch("tsql.storage.journal.os.fstat", fstat),
            pytest.raises(StorageError, match="it is not known whether"),
        ):
            db.execute("INSERT INTO t VALUES (2)")
        with pytest.raises(StorageError, match="it is not known whether"):
            db.execute("INSERT INTO t VALUES (3)")
    with tsql.connect(path) as db:
        assert rows(db) in ([1], [1, 2])


def test_ctrl_c_while_a_database_is_closed(path: Path) -> None:
    class Interrupting(Disk):
        def rename(self, old: Path, new: Path) -> None:
            signal.raise_signal(signal.SIGINT)
            super().rename(old, new)

    db = tsql.connect(path)
    for number in range(10):
        db.execute(f"INSERT INTO t VALUES ({number})")
    db._store._disk = Interrupting()
    db._store._first_bytes = 1
    with mock.patch.object(database, "GROWN_BYTES", 64), pytest.raises(KeyboardInterrupt):
        db.close()
    with tsql.connect(path) as db:
        assert len(rows(db)) == 11


def test_a_statement_that_waits_while_the_connection_is_closed(path: Path) -> None:
    """It waits for the lock longer than close() waits for it; then it must not be acknowledged."""
    db, outcomes = tsql.connect(path), []

    def make() -> None:
        try:
            outcomes.append(db.execute("CREATE TABLE late (a INTEGER)").message)
        except tsql.TsqlError as error:
            outcomes.append(error)

    with mock.patch("tsql.running.CLOSE_SECONDS", 0.2):
        db.transactions.lock.acquire()
        thread = threading.Thread(target=make)
        thread.start()
        assert wait_until(lambda: bool(db._running.at_work))
        closing = threading.Thread(target=db.close)
        closing.start()
        closing.join(PATIENCE_SECONDS)
        db.transactions.lock.release()
        thread.join(PATIENCE_SECONDS)
    assert len(outcomes) == 1 and isinstance(outcomes[0], tsql.TsqlError)
    with tsql.connect(path) as db:
        assert db.tables() == ["t"]


def test_a_table_that_is_registered_while_a_statement_fails() -> None:
    with tsql.connect() as db:
        db.execute("CREATE TABLE k (a BIGINT PRIMARY KEY); INSERT INTO k VALUES (1)")
        thread = threading.Thread(target=lambda: db.register("mine", pa.table({"z": [1]})))

        def meanwhile(*arguments: object) -> None:
            thread.start()
            thread.join(0.2)
            raise tsql.TsqlError("fails")

        with mock.patch("tsql.statements.dml.check_keys", meanwhile), pytest.raises(tsql.TsqlError, match="fails"):
            db.execute("INSERT INTO k VALUES (2)")
        thread.join(PATIENCE_SECONDS)
        assert db.tables() == ["k", "mine"]


def test_a_session_that_nobody_has_closed(path: Path) -> None:
    db = tsql.connect(path)
    db.execute("INSERT INTO t VALUES (2)")
    del db
    gc.collect()
    with tsql.connect(path) as db:
        assert rows(db) == [1, 2]


def test_handlers_come_back_although_one_raises() -> None:
    """A signal whose handler raises comes just when the handlers are put back."""

    class Alarm(Exception):
        pass

    def alarm(*_: object) -> None:
        raise Alarm

    real, came = signal.signal, []

    def put_back(number: int, handler: object) -> object:
        found = real(number, handler)
        if handler is alarm and not came:
            came.append(True)
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
            signal.raise_signal(signal.SIGALRM)
        return found

    before = real(signal.SIGALRM, alarm)
    try:
        with pytest.raises(Alarm), holding.held_signals():
            signal.signal = put_back
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGALRM) is alarm
    finally:
        signal.signal = real
        real(signal.SIGALRM, before)
