"""Snapshots in Python: their values, loops over them in threads, tasks and in the background, and what a run leaves
behind wherever it ends."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import tsql
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.progressive.scripted import SQL, Scripted, arrays
from tsql.backends.local.run import host
from tsql.kernels.expr.errors import CancelledError, CatalogError, ExecutionError
from tsql.snapshot_text import error_text, percent
from tsql.snapshots import Snapshot, Snapshots

GROUPS = "SELECT g, count(*) AS n, avg(x) AS m, sum(x) AS s FROM t GROUP BY g ORDER BY g"
EVERY = " PROGRESSIVE EVERY 10 PERCENT SEED 4"


def table(rows: int = 8_000) -> pa.Table:
    rng = np.random.default_rng(8)
    return pa.table({"g": rng.integers(0, 5, rows), "x": rng.gamma(2, 3, rows)})


@pytest.fixture
def db() -> Iterator[tsql.Session]:
    with tsql.connect(threads=2) as session:
        session.register("t", table())
        yield session


def connect(backend: Scripted) -> tsql.Session:
    return tsql.connect(backend=backend)


def own_threads() -> list[str]:
    names = ("tsql-snapshots", "tsql-watch")
    return [thread.name for thread in threading.enumerate() if thread.name in names]


# Values


def test_frames_and_errors(db: tsql.Session) -> None:
    """The last snapshot is DuckDB's answer in each form, and errors follow from bounds by their definition."""
    first, *_, last = db.sql(GROUPS + EVERY).snapshots()
    with duckdb.connect() as duck:
        duck.register("t", table())
        expected = duck.sql(GROUPS).fetchall()
    for frame in (last.pandas().itertuples(index=False), last.polars().iter_rows()):
        rows = [tuple(row) for row in frame]
        assert [row[:2] for row in rows] == [row[:2] for row in expected]
        assert np.allclose([row[2:] for row in rows], [row[2:] for row in expected])
    for place in range(5):
        low, high = first.bounds["m"].lower[place].as_py(), first.bounds["m"].upper[place].as_py()
        expected_error = (high - low) / 2 / first.table["m"][place].as_py()
        assert first.relative_error("m")[place].as_py() == pytest.approx(expected_error) and expected_error > 0
    assert last.relative_error("m").to_pylist() == [0.0] * 5
    assert first.relative_error("g").to_pylist() == [None] * 5, "a key has no bounds"


def test_columns_without_errors() -> None:
    with connect(Scripted()) as db:
        first = next(db.sql(SQL).snapshots())
    assert first.relative_error("m").to_pylist() == [0.04, None, None]
    with pytest.raises(CatalogError, match="no column x") as caught:
        first.relative_error("x")
    assert "name, n, m" in str(caught.value)
    with pytest.raises(CatalogError, match="has the type VARCHAR"):
        first.relative_error("name")


def test_what_a_backend_says_of_rows_and_columns() -> None:
    status = pa.chunked_array([["certain", "possible", None]])
    with connect(Scripted(notes={1: "observed so far", 2: "of the rows read"}, status=status)) as db:
        first = next(db.sql(SQL).snapshots())
    assert first.row_status is not None and first.row_status.to_pylist() == ["certain", "possible", None]
    assert first.notes == {"n": "observed so far", "m": "of the rows read"}
    assert first.bounds["m"].note == "of the rows read" and "n" not in first.bounds
    with connect(Scripted()) as db:
        plain = next(db.sql(SQL).snapshots())
    assert plain.row_status is None and plain.notes == {} and plain.bounds["m"].note is None


def test_names_that_repeat() -> None:
    """A name stands for the first column that has it; places tell them apart."""
    bounds = {place: (arrays(place, 0, 0), arrays(place + 1, 0, 0)) for place in (1, 2)}
    with connect(Scripted(bounds=bounds)) as db:
        first = next(db.sql(SQL.replace("AS m", "AS n")).snapshots())
    assert first.bounds["n"].lower[0].as_py() == 1 and first.bounds_at[2].lower[0].as_py() == 2
    assert first.pandas().columns.tolist() == ["name", "n", "n_1"]


def test_text() -> None:
    """Values with their errors, with the digits that count; rows and columns with what is said of them."""
    status = pa.chunked_array([["certain", "possible", None]])
    with connect(Scripted(notes={1: "observed so far"}, status=status)) as db:
        first, *_, last = db.sql(SQL).snapshots()
    shown = repr(first).splitlines()
    assert shown[0].startswith("20% of the input, 10 rows, ")
    assert shown[5:8] == [
        "│ a       │      0 │ 100.0 ± 4.0 │",
        "│ b       │      0 │  20.0       │ ?",
        "│ c       │      0 │        NULL │",
    ]
    assert shown[-2:] == [" ? may leave, or its place", " n: observed so far"]
    assert "±" not in repr(last) and "(exact)" in repr(last) and "observed" not in repr(last)


@pytest.mark.parametrize(
    ("error", "text"),
    [(0.0, "0"), (1234.4, "1234"), (14.21, "14"), (1.42, "1.4"), (0.0142, "0.014"), (2e-9, "2.0e-09")],
)
def test_digits_of_errors(error: float, text: str) -> None:
    assert error_text(error) == text


@pytest.mark.parametrize(("progress", "text"), [(0.0, "0%"), (0.29, "29%"), (0.999, "99%"), (1.0, "100%")])
def test_percent(progress: float, text: str) -> None:
    assert percent(progress) == text


# Loops


def test_stop_and_finish() -> None:
    backend = Scripted()
    with connect(backend) as db:
        snapshots = db.sql(SQL).snapshots()
        assert not snapshots.is_over
        first = next(snapshots)
        snapshots.stop()
        assert snapshots.is_over and not snapshots.is_complete and backend.ended.is_set() and backend.given == 1
        assert snapshots.last is first and list(snapshots) == []
        with pytest.raises(CancelledError, match="the query was stopped"):
            snapshots.finish()
        snapshots = db.sql(SQL).snapshots()
        next(snapshots)
        last = snapshots.finish()
        assert last.is_final and snapshots.finish() is last and snapshots.is_complete


def test_a_second_loop_is_empty() -> None:
    with connect(Scripted()) as db:
        snapshots = db.sql(SQL).snapshots()
        assert len(list(snapshots)) == 5
        assert list(snapshots) == [] and snapshots.last is not None and snapshots.last.is_final


def test_skipping_leaves_the_last() -> None:
    with connect(Scripted()) as db:
        snapshots = db.sql(SQL).snapshots()
        next(snapshots)
        snapshots.skip()
        assert [snap.is_final for snap in snapshots] == [True]


def test_threads_share_snapshots() -> None:
    """Each snapshot comes once, whoever asks."""
    found: list[Snapshot] = []
    with connect(Scripted(count=40)) as db:
        snapshots = db.sql(SQL).snapshots()
        threads = [threading.Thread(target=lambda: found.extend(snapshots)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(snap.rows_read for snap in found) == [10 * (number + 1) for number in range(40)]


@pytest.mark.parametrize("deaf", [False, True])
def test_stop_from_another_thread(deaf: bool) -> None:
    """The loop that waits for a snapshot ends, without an error, and without the one that comes nevertheless."""
    backend, found = Scripted(held=2, deaf=deaf), []
    with connect(backend) as db:
        snapshots = db.sql(SQL).snapshots()
        loop = threading.Thread(target=lambda: found.extend(snapshots))
        loop.start()
        assert backend.waits.wait(PATIENCE_SECONDS)
        if deaf:
            backend.go_on.wait = lambda _: snapshots._is_stopped  # type: ignore[method-assign]
        snapshots.stop()
        loop.join(PATIENCE_SECONDS)
        assert not loop.is_alive() and len(found) == 2 and backend.ended.is_set()


def test_pause_holds_the_next_snapshot() -> None:
    backend, found = Scripted(), []
    with connect(backend) as db:
        snapshots = db.sql(SQL).snapshots()
        next(snapshots)
        snapshots.pause()
        assert snapshots.is_paused
        loop = threading.Thread(target=lambda: found.extend(snapshots))
        loop.start()
        assert (backend.given, found) == (1, [])
        snapshots.resume()
        loop.join(PATIENCE_SECONDS)
        assert len(found) == 4 and not snapshots.is_paused
        # What ends a run wakes who waits for it.
        snapshots = db.sql(SQL).snapshots()
        snapshots.pause()
        stopper = threading.Thread(target=snapshots.stop)
        stopper.start()
        assert list(snapshots) == []
        stopper.join()
        snapshots = db.sql(SQL).snapshots()
        snapshots.pause()
        assert snapshots.finish().is_final


# Errors


@pytest.mark.parametrize("sql", ["CREATE TABLE made AS SELECT 1 AS x", "SHOW TABLES", "EXPLAIN SELECT 1"])
def test_statements_without_snapshots(db: tsql.Session, sql: str) -> None:
    relation = db.sql(sql)
    for use in (relation.snapshots, lambda: relation.watch(print)):
        with pytest.raises(CatalogError, match="has no snapshots"):
            use()


def test_an_error_ends_the_loop(db: tsql.Session) -> None:
    """It has a place in the text, as in any run, and what comes after it is nothing."""
    sql = "SELECT sum(CAST(CASE WHEN x > 0 THEN 'x' END AS INTEGER)) AS s FROM t PROGRESSIVE EVERY 10 PERCENT"
    snapshots = db.sql(sql).snapshots()
    with pytest.raises(ExecutionError, match="line 1, column 12: Could not convert"):
        next(snapshots)
    assert snapshots.is_over and list(snapshots) == []
    with pytest.raises(ExecutionError, match="the query has failed: Could not convert"):
        snapshots.finish()


def test_a_closed_session(db: tsql.Session) -> None:
    relation = db.sql(GROUPS + EVERY)
    begun, waiting = relation.snapshots(), relation.snapshots()
    next(begun)
    db.close()
    with pytest.raises(CancelledError, match="the connection was closed"):
        next(begun)
    for use in (lambda: next(waiting), relation.snapshots, lambda: relation.watch(print)):
        with pytest.raises(CatalogError, match="the session is closed"):
            use()
    assert own_threads() == []


def test_closing_wakes_a_paused_run() -> None:
    db = connect(Scripted())
    snapshots = db.sql(SQL).snapshots()
    next(snapshots)
    snapshots.pause()
    closer = threading.Thread(target=db.close)
    closer.start()
    with pytest.raises(CancelledError, match="the connection was closed"):
        next(snapshots)
    closer.join()


def test_cancel(db: tsql.Session) -> None:
    relation = db.sql(GROUPS + EVERY)
    snapshots = relation.snapshots()
    next(snapshots)
    relation.cancel()
    with pytest.raises(CancelledError, match="the query was cancelled"):
        next(snapshots)
    assert not relation._runs


def test_ctrl_c() -> None:
    backend = Scripted(held=1)
    with connect(backend) as db:
        snapshots = db.sql(SQL).snapshots()
        next(snapshots)
        thread = threading.Thread(
            target=lambda: (backend.waits.wait(PATIENCE_SECONDS), os.kill(os.getpid(), signal.SIGINT))
        )
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            next(snapshots)
        thread.join()
        assert snapshots.is_over and backend.ended.is_set()
        backend.go_on.set()
        assert db.sql(SQL).fetchall()[0][0] == "a", "the session works on"


# Tasks


def test_async_for(db: tsql.Session) -> None:
    async def shown(snapshots: Snapshots) -> list[Snapshot]:
        return [snap async for snap in snapshots]

    expected = [snap.table for snap in db.sql(GROUPS + EVERY).snapshots()]
    found = asyncio.run(shown(db.sql(GROUPS + EVERY).snapshots()))
    assert len(found) == len(expected) > 5
    assert all(one.table.equals(other) for one, other in zip(found[:1] + found[-1:], expected[:1] + expected[-1:]))
    assert wait_until(lambda: not own_threads())


def test_the_event_loop_is_not_blocked() -> None:
    """The query waits for an event that a task of the same loop sets."""
    backend = Scripted(held=2)

    async def other_work() -> None:
        while not backend.waits.is_set():
            await asyncio.sleep(0.001)
        backend.go_on.set()

    async def main() -> int:
        other = asyncio.create_task(other_work())
        async with db.sql(SQL).snapshots() as snapshots:
            count = len([snap async for snap in snapshots])
        await other
        return count

    with connect(backend) as db:
        assert asyncio.run(main()) == 5
    assert backend.threads == {"tsql-snapshots"}


@pytest.mark.parametrize("held", [0, 3])
def test_a_task_that_is_cancelled_ends_its_run(held: int) -> None:
    backend = Scripted(held=held)

    async def loop(snapshots: Snapshots) -> None:
        async for _ in snapshots:
            pass

    async def main() -> Snapshots:
        snapshots = db.sql(SQL).snapshots()
        task = asyncio.create_task(loop(snapshots))
        while not backend.waits.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert snapshots.is_over and backend.ended.is_set(), "when the task has ended, the run has too"
        assert [snap async for snap in snapshots] == []
        return snapshots

    with connect(backend) as db:
        assert (asyncio.run(main()).last is None) == (held == 0)
    assert wait_until(lambda: not own_threads())


def test_leaving_a_block_ends_the_run() -> None:
    backend = Scripted()

    async def main() -> None:
        async with db.sql(SQL).snapshots() as snapshots:
            async for _ in snapshots:
                break
        assert snapshots.is_over and backend.ended.is_set() and backend.given == 1

    with connect(backend) as db:
        asyncio.run(main())


def test_errors_of_a_query_reach_the_task() -> None:
    async def main() -> None:
        async for _ in db.sql(SQL).snapshots():
            pass

    with connect(Scripted(held=1, error=ExecutionError("broken"))) as db:
        db.backend.go_on.set()  # type: ignore[attr-defined]
        with pytest.raises(ExecutionError, match="broken"):
            asyncio.run(main())


# In the background


def test_watch(db: tsql.Session) -> None:
    found: list[Snapshot] = []
    watch = db.sql(GROUPS + EVERY).watch(found.append)
    assert watch.wait() and watch.is_over and watch.last is found[-1] and found[-1].is_final
    assert len(found) == len(list(db.sql(GROUPS + EVERY).snapshots()))
    assert watch.finish() is watch.last and watch.error is None and own_threads() == []
    assert repr(watch) == "<Watch: 100% of the input, over>"


def test_a_watch_that_is_paused() -> None:
    backend, found = Scripted(), []

    def pause(snap: Snapshot) -> None:
        found.append(snap)
        if len(found) == 2:
            made.wait(PATIENCE_SECONDS)
            watch.pause()

    with connect(backend) as db:
        made = threading.Event()
        watch = db.sql(SQL).watch(pause)
        made.set()
        assert wait_until(lambda: watch.is_paused)
        assert not watch.wait(0) and not watch.is_over
        assert (len(found), backend.given) == (2, 2) and repr(watch) == "<Watch: 40% of the input, paused>"
        watch.resume()
        assert watch.wait() and [snap.rows_read for snap in found] == [10, 20, 30, 40, 50]


def test_a_watch_that_is_stopped() -> None:
    backend, found = Scripted(held=2), []
    with connect(backend) as db:
        with db.sql(SQL).watch(found.append) as watch:
            assert backend.waits.wait(PATIENCE_SECONDS)
            watch.stop()
            assert watch.wait() and backend.ended.is_set()
        assert len(found) == 2 and watch.last is found[-1] and not found[-1].is_final
        with pytest.raises(CancelledError, match="the query was stopped"):
            watch.finish()
        assert own_threads() == []


def test_a_watch_that_is_finished() -> None:
    backend, found = Scripted(held=1), []
    with connect(backend) as db:
        watch = db.sql(SQL).watch(found.append)
        assert backend.waits.wait(PATIENCE_SECONDS)
        threading.Thread(target=lambda: (wait_until(lambda: watch._snapshots._skips), backend.go_on.set())).start()
        last = watch.finish()
        assert last is not None and last.is_final and found == [found[0], last]


def test_a_callback_may_use_its_watch() -> None:
    told: list[Any] = []

    def stop(snap: Snapshot) -> None:
        made.wait(PATIENCE_SECONDS)
        with suppress(CatalogError):
            watch.wait()
            told.append("waited")
        told.append(watch.last is snap)
        watch.stop()

    def finish(snap: Snapshot) -> None:
        made.wait(PATIENCE_SECONDS)
        told.append(watch.finish() is snap)

    with connect(Scripted()) as db:
        made = threading.Event()
        watch = db.sql(SQL).watch(stop)
        made.set()
        assert watch.wait() and told == [True]
        made.clear()
        watch = db.sql(SQL).watch(finish)
        made.set()
        assert watch.wait() and told == [True] * 3


def test_errors_of_a_callback() -> None:
    backend = Scripted()

    def fail(snap: Snapshot) -> None:
        raise ValueError(f"cannot draw {snap.rows_read}")

    with connect(backend) as db:
        watch = db.sql(SQL).watch(fail)
        for _ in range(2):
            with pytest.raises(ValueError, match="cannot draw 10"):
                watch.wait()
        with pytest.raises(ValueError, match="cannot draw 10"):
            watch.finish()
        assert watch.is_over and backend.ended.is_set() and isinstance(watch.error, ValueError)
        with pytest.raises(ValueError, match="cannot draw 10"):
            with db.sql(SQL).watch(fail) as watch:
                assert wait_until(lambda: watch.is_over)
        with pytest.raises(CatalogError, match="what is called with snapshots is a function, not str"):
            db.sql(SQL).watch("print")  # type: ignore[arg-type]


def test_errors_of_a_query_reach_who_waits(db: tsql.Session) -> None:
    sql = "SELECT sum(CAST(CASE WHEN x > 0 THEN 'x' END AS INTEGER)) AS s FROM t PROGRESSIVE EVERY 10 PERCENT"
    watch = db.sql(sql).watch(print)
    with pytest.raises(ExecutionError, match="line 1, column 12: Could not convert"):
        watch.wait()
    relation = db.sql(GROUPS + EVERY)
    watch = relation.watch(lambda _: relation.cancel())
    with pytest.raises(CancelledError, match="the query was cancelled"):
        watch.wait()


def test_ctrl_c_while_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Scripted(held=1)
    with connect(backend) as db:
        watch = db.sql(SQL).watch(lambda _: None)
        assert backend.waits.wait(PATIENCE_SECONDS)
        with monkeypatch.context() as patch:
            patch.setattr(watch._thread, "join", lambda _: signal.raise_signal(signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                watch.wait()
        assert watch.wait() and backend.ended.is_set()


# What is left


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[host.Shared]:
    """The accounts of memory of all runs."""
    made: list[host.Shared] = []
    begin = host.Shared.__init__
    monkeypatch.setattr(host.Shared, "__init__", lambda self, run: (begin(self, run), made.append(self))[0])
    return made


ENDS = {
    "before the first": lambda found, _: found.stop(),
    "after the first": lambda found, _: (next(found), found.stop()),
    "in the middle": lambda found, _: ([next(found) for _ in range(5)], found.stop()),
    "dropped": lambda found, _: [next(found) for _ in range(3)],
    "cancelled": lambda found, relation: (next(found), relation.cancel(), _fails(found)),
    "finished": lambda found, _: found.finish(),
}


def _fails(found: Snapshots) -> None:
    with pytest.raises(CancelledError):
        next(found)


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_left(end: str, shared: list[host.Shared], tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a run ends: no thread at work, no file, no memory."""
    with tsql.connect(threads=2, temp_directory=str(tmp_path)) as db:
        db.register("t", table())
        relation = db.sql("SELECT g, x::INT AS k, count(*) AS n, avg(x) AS m FROM t GROUP BY ALL" + EVERY)
        found = relation.snapshots()
        ENDS[end](found, relation)
        del found
        gc.collect()
        assert wait_until(lambda: [one.memory for one in shared] == [0] * len(shared))
        assert (shared == []) == (end == "before the first")
        assert wait_until(lambda: not relation._runs and not db._running.at_work)
        assert own_threads() == [] and list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("settled")
def test_stops_at_any_moment_leave_nothing(shared: list[host.Shared]) -> None:
    """In the background, stopped by another thread while the engine works."""
    with tsql.connect(threads=2) as db:
        db.register("t", table(40_000))
        for stop_after in range(8):
            calls = threading.Semaphore(0)
            watch = db.sql(GROUPS + EVERY).watch(lambda _, calls=calls: calls.release())  # type: ignore[misc]
            for _ in range(stop_after):
                assert calls.acquire(timeout=PATIENCE_SECONDS)
            watch.stop()
            assert watch.wait()
            del watch
        gc.collect()
        assert wait_until(lambda: [one.memory for one in shared] == [0] * len(shared))
        assert own_threads() == [] and not db._running.at_work
