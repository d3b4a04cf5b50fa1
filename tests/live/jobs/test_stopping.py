"""How jobs end: stopped, drained, dropped, by an error of a stream, of a sink or of the query, with their session."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.live.jobs.test_emit import SCHEMA, WINDOWS, events
from tests.live.scripted import Piece, ScriptedReader, cut, scripted
from tests.patience import wait_until
from tests.temporal.asking import ask_engine
from tests.temporal.data import assert_same_rows, to_rows
from tsql.backends.live.sinks.memory import MemorySink
from tsql.kernels.expr.errors import CatalogError, ExecutionError, OutOfMemoryError, PlanError, SourceError, TsqlError

ROWS = 80
TABLE = events(5, ROWS)
DELAY = "ts - INTERVAL '6 seconds'"


def session_of(ends: bool = False, name: str = "events", **settings: Any) -> tsql.Session:
    session = tsql.connect(threads=1, **settings)
    scripted(session, name, {"p": cut(TABLE, 5)}, SCHEMA, "ts", ends=ends, watermark=DELAY)
    return session


def read_all(job: tsql.Job) -> bool:
    return wait_until(lambda: job.progress().rows_in == ROWS)


def test_stop_keeps_what_is_open(tmp_path: Path) -> None:
    """Windows that are open stay open in the checkpoint; drained, they leave."""
    found: list[pa.RecordBatch] = []
    with session_of() as session:
        job = session.sql(WINDOWS).start(found.append, checkpoint=tmp_path / "state")
        assert read_all(job)
        job.stop()
        assert job.state == "stopped" and job.is_over
        job.stop()  # a second time does nothing
        early = sum(batch.num_rows for batch in found)
        job = session.sql(WINDOWS).start(found.append, checkpoint=tmp_path / "state")
        job.stop(drain=True)
        assert job.state == "finished" and sum(batch.num_rows for batch in found) > early
    assert_same_rows(to_rows(pa.Table.from_batches(found)), to_rows(ask_engine(WINDOWS, {"events": TABLE})))


def test_stop_now_drops_the_open_epoch(tmp_path: Path) -> None:
    with session_of() as session:
        sink = MemorySink()
        job = session.sql("SELECT id FROM events").start(sink, checkpoint=tmp_path / "state", interval=1000)
        assert read_all(job)
        job.stop(now=True)
        assert job.state == "stopped" and sink.table().num_rows == 0
        job.wait()  # it is no error
        job = session.sql("SELECT id FROM events").start(sink, checkpoint=tmp_path / "state", interval=1000)
        assert read_all(job)
        job.stop()
        assert sorted(sink.table()["id"].to_pylist()) == list(range(ROWS))


def test_wait_has_a_timeout() -> None:
    with session_of() as session:
        job = session.sql("SELECT id FROM events").start()
        assert job.wait(0) is False and job.wait(0.01) is False and job.state == "running"
        with pytest.raises(PlanError, match="drained or stopped at once"):
            job.stop(drain=True, now=True)
        job.stop(drain=True)
        assert job.wait() is True


def test_jobs_end_with_their_session() -> None:
    session = session_of()
    scripted(session, "others", {"p": cut(TABLE, 5)}, SCHEMA, "ts", ends=False)
    jobs = [session.sql(f"SELECT id FROM {name}").start(name=name) for name in ("events", "others")]
    assert [job.name for job in session.jobs()] == ["events", "others"]
    session.close()
    assert [job.state for job in jobs] == ["stopped", "stopped"]
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"tsql-job-events", "tsql-job-others", "tsql-stream-events", "tsql-stream-others"}


def test_a_session_closes_beside_a_sink_that_fails() -> None:
    """The error is that of its job; the other one is stopped, and the session is closed."""
    session = session_of()
    other = session.sql("SELECT id FROM events").start()
    failing = Sink("close")
    job = session.sql("SELECT id FROM events").start(failing)
    session.close()
    assert other.state == "stopped" and job.is_over


class Sink(MemorySink):
    """Raises in one of its methods."""

    def __init__(self, method: str) -> None:
        super().__init__()

        def fail(*_: Any) -> Any:
            raise ValueError(f"no {method} today")

        setattr(self, method, fail)


@pytest.mark.parametrize("method", ["open", "recover", "write", "prepare", "commit", "close"])
def test_a_sink_that_raises(method: str, tmp_path: Path) -> None:
    """Its error is the job's, and the checkpoint is free again."""
    with session_of(ends=True) as session:
        query = session.sql("SELECT id FROM events")
        with pytest.raises(ValueError, match=f"no {method} today"):
            query.start(Sink(method), checkpoint=tmp_path / "state").wait(60)
        sink = MemorySink()
        if method == "commit":
            return  # what was prepared is gone with its sink
        if method == "close":
            return  # all of it was committed
        query.start(sink, checkpoint=tmp_path / "state").wait(60)
        assert sink.table().num_rows == ROWS


def test_a_source_that_raises(tmp_path: Path) -> None:
    """What it gave before is computed, the error is the job's, and the next one goes on behind the last epoch."""
    left = [2]

    class Failing(ScriptedReader):
        def poll(self, rows: int, seconds: float) -> Any:
            if left and not self.greet and self.places["p"] == 5:
                left[0] -= 1
                if left[0] == 0:
                    left.clear()
                raise SourceError("the wire is cut")
            return super().poll(rows, seconds)

    with session_of(ends=True) as session:
        entry: Any = session.catalog.entry("events")
        script = {"p": cut(TABLE, 5)}
        entry.data.open_reader = lambda schema: Failing(script, schema, 0, True)
        sink = MemorySink()
        for _ in range(2):
            with pytest.raises(SourceError, match="the wire is cut"):
                session.sql("SELECT id FROM events").start(sink, checkpoint=tmp_path / "s", interval=0.001).wait(60)
        session.sql("SELECT id FROM events").start(sink, checkpoint=tmp_path / "s", interval=0.001).wait(60)
        assert sorted(sink.table()["id"].to_pylist()) == list(range(ROWS))


def test_errors_say_where(tmp_path: Path) -> None:
    with session_of(ends=True) as session:
        job = session.sql("SELECT id,\n  CAST(k || 'x' AS BIGINT) AS bad FROM events").start()
        with pytest.raises(TsqlError) as failed:
            job.wait(60)
        assert "line 2, column" in str(failed.value) and job.state == "failed"
        with pytest.raises(TsqlError):
            job.stop()


def test_no_stream() -> None:
    with tsql.connect() as session:
        with pytest.raises(CatalogError, match="a job needs a stream, and the query reads none"):
            session.sql("SELECT 1").start()


NEVER = {
    "no time": "SELECT k, count(*) FROM events GROUP BY k",
    "order": "SELECT id FROM events ORDER BY v",
    "distinct": "SELECT DISTINCT k FROM events ORDER BY k",
}


@pytest.mark.parametrize("what", NEVER)
def test_a_query_that_never_answers(what: str) -> None:
    """Refused in one sentence, with ways; its streams are closed."""
    with session_of() as session:
        entry: Any = session.catalog.entry("events")
        made: list[Any] = []
        opens = entry.data.open_reader
        entry.data.open_reader = lambda schema: made.append(opens(schema)) or made[-1]
        with pytest.raises(PlanError, match="over a stream that does not end, this query could not do") as refused:
            session.sql(NEVER[what]).start()
        assert "hint:" in str(refused.value)
        assert all(reader.closed for reader in made)


def test_a_sink_that_takes_no_changes(tmp_path: Path) -> None:
    class Plain(MemorySink):
        takes_changes = False

    with session_of() as session:
        with pytest.raises(PlanError, match="the sink takes final rows, and the query gives changes"):
            session.sql("SELECT k, count(*) AS n FROM events GROUP BY k EMIT CHANGES").start(Plain())
        session.sql("CREATE TABLE t (k BIGINT, n BIGINT)")
        with pytest.raises(CatalogError, match="no primary key that is the key of the result \\(k\\)"):
            session.sql("SELECT k, count(*) AS n FROM events GROUP BY k EMIT CHANGES").start("t")


def test_a_stream_that_cannot_be_read_again(tmp_path: Path) -> None:
    with session_of() as session:
        entry: Any = session.catalog.entry("events")
        opens = entry.data.open_reader

        def once(schema: Any) -> Any:
            reader = opens(schema)
            reader.replays = False
            return reader

        entry.data.open_reader = once
        job = session.sql("SELECT id FROM events").start(checkpoint=tmp_path / "state")
        assert any("the stream events cannot be read again" in note for note in job.notes)
        job.stop()


def test_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that may not go into files (they would be too small for one)."""
    monkeypatch.setattr("tsql.backends.live.operator.LEAST_BYTES", 1 << 40)
    big = pa.concat_tables([TABLE] * 4000).combine_chunks()
    with tsql.connect(threads=1, memory_limit="4MB") as session:
        scripted(session, "events", {"p": [Piece(big)]}, SCHEMA, "ts", ends=False, watermark="ts - INTERVAL '1 day'")
        job = session.sql("SELECT id, v FROM events ORDER BY ts").start()
        with pytest.raises(OutOfMemoryError, match="memory_limit"):
            job.wait(60)


def test_two_jobs_and_many_who_look() -> None:
    """Partitions come up while other threads ask for the progress."""
    script = {f"p{number}": cut(TABLE.slice(number * 2, 2), 1, most=1) for number in range(ROWS // 2)}
    with tsql.connect(threads=1) as session:
        for name in ("events", "others"):
            scripted(session, name, script, SCHEMA, "ts", ends=False, watermark=DELAY, greets=False)
        jobs = [session.sql(f"SELECT id FROM {name}").start() for name in ("events", "others")]
        errors: list[BaseException] = []
        stopped = threading.Event()

        def look() -> None:
            try:
                while not stopped.is_set():
                    for job in jobs:
                        job.progress()
                        job.metrics()
                        job.result()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert all(map(read_all, jobs))
        for job in jobs:
            job.stop(drain=True)
        stopped.set()
        for thread in threads:
            thread.join()
        assert not errors
        assert all(job.result().num_rows + job.progress().late == ROWS for job in jobs)


def test_a_fork() -> None:
    """The child has no job, and does not wait for it; the parent's goes on."""
    with session_of() as session:
        job = session.sql("SELECT id FROM events").start()
        child = os.fork()
        if not child:
            code = 1
            try:
                job.wait(60)
            except ExecutionError as error:
                code = 0 if "runs in another process" in str(error) else 2
                session.close()
            os._exit(code)
        begun = time.monotonic()
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert time.monotonic() - begun < 60
        assert read_all(job)
        job.stop(drain=True)
        assert job.table().num_rows == ROWS


def test_rows_that_cannot_be_read_again_are_computed_when_a_job_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is slow, and stopped while rows wait in the queue: nobody could read them a second time."""
    monkeypatch.setattr("tsql.backends.live.jobs.job.LEAST_ROWS", 1)
    monkeypatch.setattr("tsql.backends.live.jobs.job.MOST_ROWS", 1)
    monkeypatch.setattr("tests.live.scripted.ScriptedReader.replays", False)
    with tsql.connect(threads=1) as session:
        readers = scripted(session, "events", {"p": cut(TABLE, 3, most=2)}, SCHEMA, "ts", ends=False, watermark=DELAY)
        job = session.sql("SELECT id FROM events").start()
        assert wait_until(lambda: bool(readers) and readers[0].behind() < len(readers[0].script["p"]))
        job.stop()
        given = sum(piece.rows.num_rows for piece in readers[0].script["p"][: readers[0].places["p"]])
        assert 0 < job.table().num_rows == job.progress().rows_in <= given
        assert job.progress().streams[0].queued == 0
