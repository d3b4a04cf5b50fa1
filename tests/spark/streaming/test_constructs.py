"""Every temporal construct as a job on a cluster: whatever the micro-batches, the shards and the restarts, the rows are
those of the reference."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.spark.streaming.in_process import Batches, Cluster, declare, run
from tests.temporal.constructs import Construct, tables
from tests.temporal.data import to_rows
from tests.temporal.live.test_live import TIMES
from tests.temporal.reference.rows import Rows
from tests.temporal.test_constructs import CONSTRUCTS, REARRANGED, assert_answers, expected_of
from tsql.backends.live.sinks.memory import MemorySink

EMITS = ("", " EMIT CHANGES", "", " EMIT FINAL, CHANGES AFTER WATERMARK")


def in_batches(table: pa.Table, time: str, count: int, seed: int) -> list[pa.Table]:
    """The rows in the order of their times, cut anywhere; rows without one come anywhere. Those of one batch are in
    disorder, unless they have equal times: ties follow the input."""
    choose = random.Random(f"batches {seed}")
    times = table.column(time).to_pylist()
    timed = sorted((place for place, at in enumerate(times) if at is not None), key=lambda place: times[place])
    cuts = sorted(choose.randint(0, len(timed)) for _ in range(count - 1))
    found = [timed[start:end] for start, end in zip([0, *cuts], [*cuts, len(timed)], strict=True)]
    timeless = [place for place, at in enumerate(times) if at is None]
    for place, batch in zip(timeless, sorted(choose.randrange(count) for _ in timeless), strict=True):
        found[batch].append(place)
    return [table.take(pa.array(sorted(places), pa.int64())) for places in found]


def session_of(
    construct: Construct, data: dict[str, pa.Table], seed: int
) -> tuple[tsql.Session, list[dict[str, pa.Table]]]:
    """A session with the tables as streams, and their rows by micro-batch."""
    session = tsql.connect(threads=2)
    for name, table in data.items():
        session.register(name, table)
    for statement in construct.setup:
        session.sql(statement)
    made = {name: entry for name, entry in session.catalog.entries() if getattr(entry, "period", None) is not None}
    count = 1 + seed % 4
    batches: list[dict[str, Any]] = [{} for _ in range(count)]
    streams = {name: (data[name], TIMES[name], None) for name in TIMES}
    for name, entry in made.items():
        streams[name] = (session.table(name).arrow(), entry.period[0], entry.period)
        session.catalog.drop(name)
    for name, (table, time, period) in streams.items():
        declare(session, name, table.schema, time, period)
        for batch, rows in zip(batches, in_batches(table, time, count, seed), strict=True):
            batch[name] = rows
    return session, batches


def whole(session: tsql.Session, construct: Construct, batches: Batches, seed: int, folder: Path) -> Rows:
    """Once through, and folded where changes come."""
    sink = MemorySink()
    run(session, construct.sql + EMITS[seed % len(EMITS)], batches, sink)
    return to_rows(sink.result())


def resumed(session: tsql.Session, construct: Construct, batches: Batches, seed: int, folder: Path) -> Rows:
    """Killed after some micro-batches, and resumed by workers that know nothing, with another number of shards."""
    sink = MemorySink()
    run(session, construct.sql, batches, sink, folder / "state", seed % (len(batches) + 1))
    other = Cluster(2 if seed % 2 else 5)
    other.forgets = True
    job = run(session, construct.sql, batches, sink, folder / "state", transport=other)
    assert job.has_ended
    return to_rows(sink.result())


@pytest.mark.parametrize("construct", CONSTRUCTS, ids=lambda construct: construct.name)
@pytest.mark.parametrize("way", (whole, resumed))
@pytest.mark.in_turn(2)
def test_a_job_is_the_reference(construct: Construct, way: Any, tmp_path: Path) -> None:
    seed = CONSTRUCTS.index(construct)
    data = tables(REARRANGED[seed % len(REARRANGED)], seed=5, rows=16)
    session, batches = session_of(construct, data, seed)
    with session:
        assert_answers(construct, way(session, construct, batches, seed, tmp_path), expected_of(construct, data))
