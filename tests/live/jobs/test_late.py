"""Rows that come too late for a job: ON LATE, over several partitions, in the order of arrival; the oracle is
`tests/temporal/reference/lateness.py`."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

import tsql
from tests.live.crashes import run_with_crashes
from tests.live.scripted import Piece, Script, ScriptedReader, cut, scripted
from tests.patience import wait_until
from tests.temporal.data import assert_same_rows, to_rows, to_table
from tests.temporal.reference.lateness import SlowLateness
from tests.temporal.reference.rows import SECOND, Rows, moment
from tsql.backends.io.watermark import Watermark
from tsql.backends.live.jobs import feed
from tsql.backends.live.jobs.feed import Wakeup
from tsql.backends.live.jobs.inputs import StreamInput
from tsql.backends.live.jobs.streams import StreamSource
from tsql.backends.live.sinks.connectors import sink_for
from tsql.backends.live.sources.reader import Arrival
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.planner.bind.binder import parse_expression

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))])
DELAY = "ts - INTERVAL '5 seconds'"
POLICIES = ("DROP", "ADJUST", "INTO")
ROWS = 60


def script_of(seed: int, partitions: int) -> Script:
    """Rows whose times go ahead, some of them far behind the others, and some without a time."""
    choose = random.Random(f"late {seed}")
    script = {}
    for number in range(partitions):
        rows: Rows = []
        for place in range(ROWS):
            at = None if choose.random() < 0.1 else (place - choose.choice((0, 0, 0, 3, 8, 30))) * SECOND
            rows.append({"id": 1000 * number + place, "ts": at})
        script[f"p{number}"] = cut(to_table(rows, SCHEMA), seed + number)
    return script


def slow_of(policy: str, allowed: int, partitions: int, arrived: list[tuple[str, int, Piece]]) -> SlowLateness:
    """What becomes of rows in the order in which they came. partitions: those that are known from the beginning."""
    slow = SlowLateness(5 * SECOND, allowed, policy, partitions)
    numbers = {f"p{number}": number for number in range(partitions)}
    for name, _, piece in arrived:
        if name not in numbers:
            numbers[name] = slow.partitions
            slow.partitions += 1
        for row in to_rows(piece.rows):
            slow.take(row, numbers[name])
    return slow


def late_session(into: str | None) -> tsql.Session:
    session = tsql.connect(threads=2)
    if into is not None:
        session.sql(f"CREATE TABLE {into} (id BIGINT, ts TIMESTAMP)")
    return session


@pytest.mark.parametrize("greets", [True, False], ids=["known", "appearing"])
@pytest.mark.parametrize("partitions", [1, 2, 3])
@pytest.mark.parametrize("allowed", [0, 4 * SECOND])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.in_turn(3)
def test_late_rows(policy: str, allowed: int, partitions: int, greets: bool, tmp_path: Path) -> None:
    """Stopped in the middle and resumed: what was known of each partition is in the checkpoint."""
    seed = POLICIES.index(policy) + 10 * partitions
    script = script_of(seed, partitions)
    into = "late" if policy == "INTO" else None
    with late_session(into) as session:
        readers = scripted(
            session, "events", script, SCHEMA, "ts", seed=seed, ends=False, watermark=DELAY, greets=greets,
            on_late=policy, into=into, allowed_lateness_us=allowed,
        )  # fmt: skip
        found: list[pa.RecordBatch] = []
        query = session.sql("SELECT id, ts FROM events")
        first = query.start(found.append, checkpoint=tmp_path / "state", interval=0.001)
        assert wait_until(lambda: first.progress().rows_in >= ROWS * partitions // 3)
        first.stop()
        offsets = first.progress().streams[0].offsets
        second = query.start(found.append, checkpoint=tmp_path / "state", interval=0.001)
        assert wait_until(lambda: second.progress().rows_in >= ROWS * partitions)
        second.stop(drain=True)

        arrived = [one for one in readers[0].given if one[1] <= offsets.get(one[0], 0)] + readers[1].given
        slow = slow_of(policy, allowed, partitions if greets else 0, arrived)
        assert slow.late
        assert_same_rows(to_rows(pa.Table.from_batches(found)), slow.kept)
        (stream,) = second.progress().streams
        assert (stream.late, second.progress().late) == (len(slow.late), len(slow.late))
        assert stream.without_time == sum(row["ts"] is None for row in slow.kept)
        if into is not None:
            assert_same_rows(to_rows(session.table(into).arrow()), slow.late)


def test_late_is_an_error(tmp_path: Path) -> None:
    rows = to_table([{"id": 1, "ts": 100 * SECOND}, {"id": 2, "ts": 0}], SCHEMA)
    with tsql.connect() as session:
        scripted(session, "events", {"p0": cut(rows, 0)}, SCHEMA, "ts", ends=False, watermark=DELAY, on_late="ERROR")
        job = session.sql("SELECT id FROM events").start()
        with pytest.raises(SourceError, match='a row is late: its "ts" is 1970-01-01 00:00:00, and rows before'):
            job.wait(60)
        assert job.state == "failed"


@pytest.mark.parametrize("seed", range(3))
def test_late_rows_once_whatever_crashes(seed: int, tmp_path: Path) -> None:
    """Into a table of a database on disk: exactly the late rows, each of them once."""
    script = script_of(seed, 1)
    with tsql.connect(tmp_path / "db") as session:
        session.sql("CREATE TABLE late (id BIGINT, ts TIMESTAMP)")

    def session_of(turn: int) -> tsql.Session:
        session = tsql.connect(tmp_path / "db", threads=1 + turn % 3)
        # The stream ends for the reader, but not for the catalog: late rows are late.
        scripted(session, "events", script, SCHEMA, "ts", seed=seed, ends=False, watermark=DELAY, on_late="INTO",
                 into="late")  # fmt: skip
        entry = session.catalog.entry("events")
        open_reader = entry.data.open_reader

        def ending(schema: Schema) -> ScriptedReader:
            reader = open_reader(schema)
            reader.ends = True
            return reader

        entry.data.open_reader = ending
        return session

    query = "SELECT count(*) AS n FROM TUMBLE(events, ts, INTERVAL '10 seconds') GROUP BY window_start"
    run_with_crashes(session_of, query, None, tmp_path / "state", seed, lambda: sink_for(tmp_path / "out"))
    slow = slow_of("INTO", 0, 1, [("p0", place, piece) for place, piece in enumerate(script["p0"])])
    with tsql.connect(tmp_path / "db") as session:
        assert_same_rows(to_rows(session.table("late").arrow()), slow.late)


def test_only_late_rows_are_progress(tmp_path: Path) -> None:
    """A stream that sends nothing but late rows: they are in their table, and behind the checkpoint."""
    early = to_table([{"id": 1, "ts": 1000 * SECOND}], SCHEMA)
    late = to_table([{"id": number, "ts": number} for number in range(2, 50)], SCHEMA)
    with late_session("late") as session:
        scripted(session, "events", {"p0": [Piece(early), *cut(late, 1)]}, SCHEMA, "ts", ends=False, watermark=DELAY,
                 on_late="INTO", into="late")  # fmt: skip
        job = session.sql("SELECT id FROM events").start(checkpoint=tmp_path / "state", interval=0.001)
        assert wait_until(lambda: session.sql("SELECT count(*) FROM late").fetchall() == [(48,)])
        job.stop()
        assert job.table().num_rows == 1


def test_drain_takes_what_was_read() -> None:
    """Also behind a batch of which all rows are late."""
    early = to_table([{"id": 1, "ts": 1000 * SECOND}], SCHEMA)
    late = to_table([{"id": number, "ts": 0} for number in range(3000)], SCHEMA)
    last = to_table([{"id": 2, "ts": 2000 * SECOND}], SCHEMA)
    with tsql.connect() as session:
        script = {"p0": [Piece(early), Piece(late), Piece(late), Piece(late), Piece(last)]}
        scripted(session, "events", script, SCHEMA, "ts", ends=False, watermark=DELAY)
        held = Held()
        job = session.sql("SELECT id FROM events").start(held)
        assert wait_until(lambda: job.progress().rows_in + job.progress().streams[0].queued == 9002)
        held.release()
        job.stop(drain=True)
        assert job.progress().late == 9000
        assert held.ids == [1, 2]


class Held:
    """A function that holds the job at its first row until it is released."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._free = threading.Event()
        self.release = self._free.set

    def __call__(self, batch: pa.RecordBatch) -> None:
        self.ids += batch.column(0).to_pylist()
        self._free.wait(60)


class Clock:
    now_us = 0

    def monotonic_ns(self) -> int:
        return self.now_us * 1000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(feed, "time", made)
    return made


def input_of(script: Script, order: list[str], idle_us: int) -> StreamInput:
    """The input of a stream that gives the pieces of these partitions one after the other."""
    columns = Schema.from_arrow(SCHEMA)
    mark = Watermark("ts", "ts", parse_expression("ts", columns), idle_timeout_us=idle_us)

    class Ordered(ScriptedReader):
        def poll(self, rows: int, seconds: float) -> list[Arrival] | None:
            if not self.greet and not order:
                time.sleep(0.001)
                return []
            self.choose.choice = lambda left: order.pop(0)  # type: ignore[assignment,method-assign]
            return super().poll(rows, seconds)

    source = StreamSource("events", columns, mark, lambda schema: Ordered(script, schema, 0, False), False)
    return StreamInput(source, ("events",), {"id", "ts"}, Wakeup())


def at(seconds: int) -> Piece:
    return Piece(pa.table({"id": [seconds], "ts": pa.array([moment(seconds * SECOND)], pa.timestamp("us"))}))


def test_rows_in_flight_are_not_overtaken(clock: Clock) -> None:
    """`a` has sent its rows in time, but the job was busy for longer than the timeout: nobody has idled."""
    stream = input_of({"a": [at(1), at(2)], "b": [at(900)]}, ["a", "b", "a"], 10 * SECOND)
    stream.start()
    try:
        assert wait_until(lambda: stream.feed.queued == 3)
        kept = [batch.num_rows for batch in stream.take(1)]
        clock.now_us = 60 * SECOND
        while stream.feed.queued:
            kept += [batch.num_rows for batch in stream.take(1)]
        assert (sum(kept), stream.late) == (3, 0)
        assert stream.lateness is not None and stream.lateness.current == 2 * SECOND
    finally:
        stream.close()


def test_idle_partitions_hold_nobody(clock: Clock) -> None:
    order = ["a"]
    stream = input_of({"a": [at(1), at(2)], "b": [at(900), at(901)]}, order, 10 * SECOND)
    stream.start()
    try:

        def takes(name: str) -> None:
            order.append(name)
            rows = stream.rows
            assert wait_until(lambda: bool(stream.take(10)) or stream.rows > rows)

        assert wait_until(lambda: bool(stream.take(10)))
        assert stream.promise() is None and stream.held_back_by == "b"
        clock.now_us = 5 * SECOND
        takes("b")
        assert stream.promise() == 1 * SECOND and stream.held_back_by == "a"
        clock.now_us = 11 * SECOND
        assert wait_until(lambda: stream.promise() == 900 * SECOND) and stream.held_back_by == "b"
        takes("a")  # it is back, and late
        assert (stream.late, stream.held_back_by) == (1, "a")
        takes("b")
        assert stream.promise() == 900 * SECOND
        clock.now_us = 60 * SECOND  # all of them are idle: nothing moves
        assert wait_until(lambda: stream.feed.quiet_since() == clock.now_us)
        assert stream.promise() == 900 * SECOND and stream.held_back_by is None
    finally:
        stream.close()
