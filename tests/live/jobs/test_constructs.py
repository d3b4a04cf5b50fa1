"""Every temporal construct as a job: whatever the cuts, the order and the promises, and resumed on the way, the rows
are those of the reference."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tsql
from tests.live.crashes import run_with_crashes
from tests.live.scripted import Piece, Script, scripted
from tests.temporal.arrivals import HOW, Message, Punctuation, arrivals
from tests.temporal.constructs import Construct, tables
from tests.temporal.data import to_rows
from tests.temporal.live.test_live import TIMES
from tests.temporal.test_constructs import CONSTRUCTS, REARRANGED, assert_answers, expected_of
from tsql.backends.live.sinks.memory import MemorySink

EMITS = ("", " EMIT CHANGES", " EMIT EVERY INTERVAL '1 ms' BEFORE WATERMARK")


def script_of(table: pa.Table, time: str, how: str, seed: int) -> Script:
    """The rows of a table as they arrive, with promises."""
    pieces: list[Piece] = []
    for message in arrivals(to_rows(table), time, how, seed):
        pieces.append(piece_of(message, table.schema))
    return {"only": pieces}


def piece_of(message: Message, schema: pa.Schema) -> Piece:
    if isinstance(message, Punctuation):
        return Piece(schema.empty_table(), message.time_us)
    return Piece(pa.Table.from_pylist(message, schema=schema))


def session_of(construct: Construct, data: dict[str, pa.Table], how: str, seed: int, threads: int) -> tsql.Session:
    """A session with the tables as streams; those that the construct makes of them, with their periods, too."""
    session = tsql.connect(threads=threads)
    for name, table in data.items():
        session.register(name, table)
    for statement in construct.setup:
        session.sql(statement)
    made = {name: entry for name, entry in session.catalog.entries() if getattr(entry, "period", None) is not None}
    for name, entry in made.items():
        rows = session.table(name).arrow()
        session.catalog.drop(name)
        script = script_of(rows, entry.period[0], how, seed)
        scripted(session, name, script, rows.schema, entry.period[0], seed=seed, period=entry.period)
    for name in TIMES:
        script = script_of(data[name], TIMES[name], how, seed)
        scripted(session, name, script, data[name].schema, TIMES[name], seed=seed)
    return session


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("construct", CONSTRUCTS, ids=lambda construct: construct.name)
@pytest.mark.in_turn(3)
def test_a_job_is_the_reference(construct: Construct, how: str, tmp_path: Path) -> None:
    """Once as it is, and once with EMIT CHANGES or its like, folded at the end."""
    seed = CONSTRUCTS.index(construct)
    data = tables(REARRANGED[(seed + HOW.index(how)) % len(REARRANGED)], seed=5, rows=16)
    emit = EMITS[(seed + HOW.index(how)) % len(EMITS)]
    with session_of(construct, data, how, seed, 1 + seed % 3) as session:
        job = session.sql(construct.sql + emit).start(interval=0.01)
        job.wait(60)
        assert isinstance(job.sink, MemorySink)
        assert_answers(construct, to_rows(job.sink.result()), expected_of(construct, data))


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("construct", CONSTRUCTS, ids=lambda construct: construct.name)
@pytest.mark.in_turn(3)
def test_a_job_that_crashes_is_the_reference(construct: Construct, how: str, tmp_path: Path) -> None:
    """Killed at a few moments, and resumed with another number of threads."""
    seed = CONSTRUCTS.index(construct)
    data = tables(REARRANGED[seed % len(REARRANGED)], seed=5, rows=16)
    sink = MemorySink()
    emit = EMITS[(seed // 3) % len(EMITS)]

    def session(turn: int) -> tsql.Session:
        return session_of(construct, data, how, seed, 1 + (seed + turn) % 3)

    run_with_crashes(session, construct.sql + emit, sink, tmp_path / "state", seed)
    assert_answers(construct, to_rows(sink.result()), expected_of(construct, data))
