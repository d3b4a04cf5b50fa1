"""Rows that the workers of one executor share: computed once, also if a worker is killed or fails meanwhile, and
nothing is left."""

from __future__ import annotations

import errno
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.spark.cluster import InProcess, Moved
from tests.spark.queries import bag, files, fill, oracle
from tsql.backends.spark import siblings
from tsql.backends.spark.siblings import can_share, shared_blobs
from tsql.backends.spark.transport.transport import TaskWork
from tsql.backends.spark.wire import Row

pytestmark = pytest.mark.skipif(not can_share(), reason="abstract sockets are Linux's")

WORKER = """
import json, os, sys, time
from pathlib import Path
from tsql.backends.spark.siblings import shared_blobs

name, number, folder, what = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]

def compute():
    (folder / f"computes-{number}").touch()
    if what == "waits":
        while not (folder / "go").exists():
            time.sleep(0.005)
    if what == "fails":
        raise ValueError("no rows")
    yield b"a" * 100
    yield b""
    yield b"b" * 300_000

try:
    found = shared_blobs(name, compute)
    told = [[blob.size, blob.to_pybytes()[:1].decode(), blob.address % 64] for blob in found.blobs]
    print(json.dumps(told), flush=True)
except ValueError as error:
    print(json.dumps(str(error)), flush=True)
sys.stdin.read()
"""
EXPECTED = [[100, "a", 0], [0, "", 0], [300_000, "b", 0]]


class Worker:
    """A process whose parent is this one, as that of its siblings."""

    def __init__(self, name: str, number: int, folder: Path, what: str = "computes"):
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, name, str(number), str(folder), what],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def found(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def end(self, kill: bool = False) -> None:
        if kill:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex


def computed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("computes-*"))


def is_there(name: str) -> bool:
    """Whether a process has the name."""
    return siblings._address(name)[1:].decode() in Path("/proc/net/unix").read_text()


def test_one_worker_computes(name: str, tmp_path: Path) -> None:
    workers = [Worker(name, number, tmp_path, "waits") for number in range(4)]
    wait_until(lambda: bool(computed(tmp_path)))
    (tmp_path / "go").touch()
    assert [worker.found() for worker in workers] == [EXPECTED] * 4
    assert len(computed(tmp_path)) == 1
    late = Worker(name, 4, tmp_path)
    assert late.found() == EXPECTED
    assert len(computed(tmp_path)) == 1
    for worker in [*workers, late]:
        worker.end()


def test_a_worker_that_is_killed(name: str, tmp_path: Path) -> None:
    """Whoever waits for it computes the rows."""
    first = Worker(name, 1, tmp_path, "waits")
    wait_until(lambda: computed(tmp_path) == ["computes-1"])
    second = Worker(name, 2, tmp_path)
    first.end(kill=True)
    assert second.found() == EXPECTED
    assert computed(tmp_path) == ["computes-1", "computes-2"]
    # What it has mapped stays, and what it has served is gone with it.
    third = Worker(name, 3, tmp_path)
    assert third.found() == EXPECTED
    second.end(kill=True)
    fourth = Worker(name, 4, tmp_path)
    assert fourth.found() == EXPECTED
    assert computed(tmp_path) == ["computes-1", "computes-2", "computes-4"]
    third.end()
    fourth.end()


def test_a_worker_that_fails(name: str, tmp_path: Path) -> None:
    """An error is not shared: each worker has its own, with its own position."""
    first, second = (Worker(name, number, tmp_path, "fails") for number in (1, 2))
    assert [first.found(), second.found()] == ["no rows", "no rows"]
    assert computed(tmp_path) == ["computes-1", "computes-2"]
    first.end()
    second.end()


def test_another_user_has_the_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is not read."""
    theirs = shared_blobs(name, lambda: [b"theirs"])
    monkeypatch.setattr(siblings, "_user", lambda other: os.geteuid() + 1)
    mine = shared_blobs(name, lambda: [b"mine"])
    assert [blob.to_pybytes() for blob in mine.blobs] == [b"mine"]
    theirs.close()


def test_nothing_is_left(name: str) -> None:
    one = shared_blobs(name, lambda: [b"one"])
    two = shared_blobs(name, lambda: [b"two"])
    assert [blob.to_pybytes() for blob in two.blobs] == [b"one"]
    assert is_there(name)
    one.close()
    wait_until(lambda: not is_there(name))
    assert [blob.to_pybytes() for blob in two.blobs] == [b"one"]
    three = shared_blobs(name, lambda: [b"three"])
    assert [blob.to_pybytes() for blob in three.blobs] == [b"three"]
    three.close()
    wait_until(lambda: not is_there(name))


def failing(monkeypatch: pytest.MonkeyPatch, name: str, error: OSError) -> None:
    """The first `accept` of the worker that has this name fails."""
    plain, left = socket.socket.accept, [error]

    def accept(listening: Any) -> Any:
        if left and listening.getsockname() == siblings._address(name):
            raise left.pop()
        return plain(listening)

    monkeypatch.setattr(socket.socket, "accept", accept)


def test_a_server_that_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a worker that cannot answer: the name is free."""
    failing(monkeypatch, name, OSError(errno.EMFILE, "too many open files"))
    one = shared_blobs(name, lambda: [b"one"])
    assert wait_until(lambda: not is_there(name))
    two = shared_blobs(name, lambda: [b"two"])
    three = shared_blobs(name, lambda: [b"three"])
    assert [found.blobs[0].to_pybytes() for found in (one, two, three)] == [b"one", b"two", b"two"]
    for found in (one, two, three):
        found.close()


def test_a_sibling_that_goes_before_it_is_answered(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are served."""
    failing(monkeypatch, name, ConnectionAbortedError(errno.ECONNABORTED, "it has gone"))
    before = set(threading.enumerate())
    one = shared_blobs(name, lambda: [b"one"])
    (server,) = set(threading.enumerate()) - before
    found: list[Any] = []
    other = threading.Thread(target=lambda: found.append(shared_blobs(name, lambda: [b"two"])), daemon=True)
    other.start()
    other.join(PATIENCE_SECONDS)
    assert [shared.blobs[0].to_pybytes() for shared in found] == [b"one"]
    one.close()
    server.join(PATIENCE_SECONDS)
    assert not server.is_alive()


def test_no_thread_to_serve(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose system starts no more threads has its rows, and leaves the name to others."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        one = shared_blobs(name, lambda: [b"one"])
    assert not is_there(name)
    two = shared_blobs(name, lambda: [b"two"])
    assert [found.blobs[0].to_pybytes() for found in (one, two)] == [b"one", b"two"]
    two.close()


TASK = """
import pickle, sys
from tsql.backends.spark.task import Task

part, number, given, shared, rows = pickle.load(sys.stdin.buffer)
found = [(*row[:3], bytes(row[3])) for row in Task(part, number, given, shared).run(iter(rows))]
sys.stdout.buffer.write(pickle.dumps(found))
sys.stdout.buffer.flush()
sys.stdin.read()
"""


class Processes(InProcess):
    """Each task runs in a process of its own, all tasks of a stage at the same time, as on one executor."""

    def computed(self, rows: Moved, work: TaskWork) -> Moved:
        def compute() -> list[list[Row]]:
            workers = []
            for number, mine in enumerate(rows()):
                worker = subprocess.Popen([sys.executable, "-c", TASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                pickle.dump((work.part, number, work.given.get(number, []), work.shared, mine), worker.stdin)
                worker.stdin.flush()
                workers.append(worker)
            # A worker stays until all have ended, as those of Spark do.
            found = [pickle.load(worker.stdout) for worker in workers]
            for worker in workers:
                worker.communicate()
            return found

        return Moved(compute)


def test_a_broadcast_is_read_once_per_executor(tmp_path: Path) -> None:
    files(tmp_path)
    pq.write_table(pa.table({"k": list(range(4)), "name": ["a", "b", None, "d"]}), tmp_path / "names.pq")
    sql = "SELECT name, count(*) AS n, sum(v) AS s FROM f JOIN names ON f.k = names.k WHERE names.k > 0 GROUP BY name"
    with tsql.connect(spark=Processes(2)) as db, oracle(f"{tmp_path}/*.parquet") as duck:
        fill(db, f"{tmp_path}/*.parquet")
        db.sql(f"CREATE VIEW names AS FROM read_parquet('{tmp_path}/names.pq')")
        duck.sql(f"CREATE VIEW names AS FROM read_parquet('{tmp_path}/names.pq')")
        relation = db.sql(sql)
        assert "how=read" in relation.plan()
        assert bag(relation.fetchall()) == bag(duck.sql(sql).fetchall())
        (line,) = (line for line in db.sql(sql).explain("analyze").splitlines() if " filter " in line)
        assert "# 3 rows" in line
