"""Pipes as sources: read once and kept, right however often a query names them, and waited for no longer than one
likes."""

from __future__ import annotations

import gc
import gzip
import io
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.patience import PATIENCE_SECONDS, wait_until
from tsql.backends.io.pipes import Pipes
from tsql.kernels.expr.errors import CancelledError, TsqlError

ROWS = [(1, "x"), (2, "y")]
TABLE = pa.table({"a": [1, 2], "b": ["x", "y"]})


def written(write: Callable[[Any], None]) -> bytes:
    sink = io.BytesIO()
    write(sink)
    return sink.getvalue()


def stream_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


CONTENTS = {
    "csv": b"a,b\n1,x\n2,y\n",
    "gzipped csv": gzip.compress(b"a,b\n1,x\n2,y\n"),
    "ndjson": b'{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n',
    "array": b'[{"a": 1, "b": "x"},\n{"a": 2, "b": "y"}]',
    "parquet": written(lambda sink: pq.write_table(TABLE, sink)),
    "ipc": stream_of(TABLE),
}


@pytest.fixture
def db() -> Any:
    with tsql.connect() as session:
        yield session


@contextmanager
def fed(fifo: Path, *contents: bytes) -> Iterator[None]:
    """A FIFO to which these contents are written, each by a writer of its own."""
    if not fifo.exists():
        os.mkfifo(fifo)

    def write() -> None:
        for content in contents:
            with open(fifo, "wb") as file:
                file.write(content)
            time.sleep(0.05)  # the reader sees the end before the next writer comes

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    yield
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


@contextmanager
def descriptor(content: bytes) -> Iterator[str]:
    """The path of the end of an anonymous pipe that holds this content."""
    out, into = os.pipe()
    thread = threading.Thread(target=lambda: (os.write(into, content), os.close(into)))
    thread.start()
    try:
        yield f"/dev/fd/{out}"
    finally:
        thread.join()
        os.close(out)


@pytest.mark.parametrize("kind", CONTENTS)
def test_every_kind_of_file_is_read_from_a_pipe(tmp_path: Path, db: Any, kind: str) -> None:
    with fed(tmp_path / "p", CONTENTS[kind]):
        assert db.sql(f"SELECT * FROM '{tmp_path}/p' ORDER BY a").fetchall() == ROWS
    with descriptor(CONTENTS[kind]) as path:
        assert db.sql(f"SELECT * FROM '{path}' ORDER BY a").fetchall() == ROWS


def test_a_pipe_that_is_named_twice_is_read_once(tmp_path: Path, db: Any) -> None:
    with fed(tmp_path / "p", CONTENTS["csv"]):
        assert (
            db.sql(
                f"SELECT l.a, r.b FROM '{tmp_path}/p' l JOIN read_csv('{tmp_path}/p') r ON l.a = r.a ORDER BY 1"
            ).fetchall()
            == ROWS
        )
    with descriptor(CONTENTS["csv"]) as path:
        assert db.sql(f"SELECT l.a, (SELECT max(b) FROM '{path}') FROM '{path}' l ORDER BY 1").fetchall() == [
            (1, "y"),
            (2, "y"),
        ]
        assert db.sql(f"SELECT count(*) FROM '{path}'").fetchall() == [(2,)]


def test_a_fifo_is_read_anew_by_each_statement_and_a_relation_keeps_its_rows(tmp_path: Path, db: Any) -> None:
    with fed(tmp_path / "p", b"a\n1\n", b"a\n2\n", b"a\n3\n"):
        query = f"SELECT a FROM read_csv('{tmp_path}/p')"
        first = db.sql(query)
        assert first.fetchall() == first.fetchall() == [(1,)]
        assert db.sql(query).fetchall() == [(2,)]
        assert db.sql(query).fetchall() == [(3,)]
        assert first.fetchall() == [(1,)]


def test_large_pipes(tmp_path: Path, db: Any) -> None:
    rows = 700_000
    content = b"a,b\n" + b"".join(b"%d,text %d\n" % (i, i) for i in range(rows))
    with fed(tmp_path / "p", content):
        assert db.sql(f"SELECT count(*), sum(a), max(b) FROM '{tmp_path}/p'").fetchall() == [
            (rows, rows * (rows - 1) // 2, "text 99999")
        ]
    lines = b"".join(b'{"a": %d}\n' % i for i in range(rows))
    with fed(tmp_path / "p", lines):
        assert db.sql(f"SELECT count(*), sum(a) FROM read_json('{tmp_path}/p')").fetchall() == [
            (rows, rows * (rows - 1) // 2)
        ]


def test_pipes_with_options_and_in_other_statements(tmp_path: Path, db: Any) -> None:
    with fed(tmp_path / "p", "p;q\n1.000,5;é\n".encode("latin-1")):
        found = db.read_csv(
            tmp_path / "p",
            encoding="latin-1",
            thousands=".",
            decimal_separator=",",
            schema={"p": "DOUBLE"},
            filename=True,
        )
        assert found.fetchall() == [(1000.5,)]
    db.sql("CREATE TABLE t (a INTEGER, b VARCHAR)")
    with fed(tmp_path / "p", CONTENTS["csv"], CONTENTS["csv"]):
        db.sql(f"COPY t FROM '{tmp_path}/p'")
        db.sql(f"CREATE TABLE u AS FROM '{tmp_path}/p'")
    assert db.sql("FROM t").fetchall() == db.sql("FROM u").fetchall() == ROWS
    with pytest.raises(TsqlError, match=r"p is a pipe: .*\n(.*\n)*.*CREATE TABLE s AS FROM"):
        db.sql(f"CREATE STREAM s WITH (connector = 'csv', path = '{tmp_path}/p')")


def test_nothing_stays_in_the_temporary_folder(tmp_path: Path, db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    with fed(tmp_path / "p", CONTENTS["parquet"]):
        relation = db.read_parquet(tmp_path / "p")
        assert relation.fetchall() == ROWS
    assert not list((tmp_path / "temp").iterdir())


def test_an_empty_pipe(tmp_path: Path, db: Any) -> None:
    with fed(tmp_path / "p", b""):
        assert db.sql(f"SELECT * FROM '{tmp_path}/p'").fetchall() == []
    with fed(tmp_path / "p", b""), pytest.raises(TsqlError, match="p: "):
        db.read_parquet(tmp_path / "p")


def test_paths_that_are_no_pipes_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    for path in (str(tmp_path / "f"), str(tmp_path), str(tmp_path / "missing"), "a\0b", "*.csv"):
        assert Pipes().path(path) is path


class Waiting:
    """A thread that waits for what it does, and what became of it."""

    def __init__(self, work: Callable[[], Any]):
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self.thread.start()

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as error:
            self.error = error

    def ended(self) -> BaseException | None:
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive()
        return self.error


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "ipc"])
def test_closing_the_session_ends_waiting_for_a_writer(tmp_path: Path, kind: str) -> None:
    os.mkfifo(tmp_path / "p")
    session = tsql.connect()
    waiting = Waiting(lambda: session.sql(f"SELECT * FROM read_{kind}('{tmp_path}/p')").fetchall())
    time.sleep(0.1)
    assert waiting.thread.is_alive()
    session.close()
    assert isinstance(waiting.ended(), CancelledError)


@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize("way", ["cancel", "close"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_query_that_waits_for_the_rest_of_a_pipe_is_cancelled(
    tmp_path: Path, kind: str, way: str, threads: int
) -> None:
    os.mkfifo(tmp_path / "p")
    line = b"1,some text\n" if kind == "csv" else b'{"a": 1, "b": "some text"}\n'
    released = threading.Event()
    relation = waiting = pipe = None
    writer = Waiting(lambda: _hold(tmp_path / "p", line * 250_000, released))
    try:
        session = tsql.connect(threads=threads)
        relation = session.sql(f"SELECT * FROM read_{kind}('{tmp_path}/p')")
        waiting = Waiting(relation.fetchall)
        assert wait_until(lambda: bool(relation._runs))
        time.sleep(0.2)
        assert waiting.thread.is_alive()
        if way == "close":
            session.catalog.pipes.close()
        else:
            relation.cancel()
        assert isinstance(waiting.ended(), CancelledError)
        # The workers are free again.
        assert session.sql("SELECT sum(i) FROM range(100000) AS r(i)").fetchall() == [(4999950000,)]
        pipe = relation.source.paths[0].pipe
        assert wait_until(lambda: not pipe._lock.locked())
        session.close()
    finally:
        released.set()
        relation = waiting = pipe = None
        gc.collect()
        writer.ended()  # with the last reader its pipe is gone


def _hold(fifo: Path, content: bytes, released: threading.Event, opened: threading.Event | None = None) -> None:
    with open(fifo, "wb") as file:
        if opened is not None:
            opened.set()
        file.write(content)
        file.flush()
        released.wait(PATIENCE_SECONDS)


PROGRAM = """
    import sys
    import tsql
    db = tsql.connect()
    print("ready", flush=True)
    try:
        db.sql(f"SELECT count(*) FROM read_csv('{sys.argv[1]}')").fetchall()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print(db.sql("SELECT 1").fetchall(), flush=True)
"""


@pytest.mark.parametrize("content", [None, b"1,some text\n" * 250_000], ids=["no writer", "more than a sample"])
def test_ctrl_c_ends_waiting(tmp_path: Path, content: bytes | None) -> None:
    os.mkfifo(tmp_path / "p")
    released = threading.Event()
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path / "p")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    writer = None
    try:
        assert child.stdout.readline() == "ready\n"
        if content is not None:
            opened = threading.Event()
            writer = Waiting(lambda: _hold(tmp_path / "p", content, released, opened))
            assert opened.wait(PATIENCE_SECONDS)
        time.sleep(0.5)  # somewhere in the middle of waiting, wherever that is on this machine
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
        assert child.stdout.readline() == "[(1,)]\n"
        assert child.wait(PATIENCE_SECONDS) == 0, child.stderr.read()
    finally:
        child.kill()
        child.communicate()
        released.set()
        if writer is not None:
            writer.ended()
