"""Jobs on a stand-in for a cluster: micro-batches run in this process, through the same cutting, wire, tasks and
states. What Spark itself does (offsets, its own checkpoint) is left out: `test_jobs.py` has that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import tsql
from tests.spark.cluster import InProcess, Moved
from tsql.backends import Run
from tsql.backends.io.watermark import Watermark
from tsql.backends.live.jobs.job import Spec
from tsql.backends.live.jobs.streams import StreamSource
from tsql.backends.spark import SparkBackend
from tsql.backends.spark.streaming import ClusterRun
from tsql.backends.spark.streaming import warm as kept
from tsql.backends.spark.streaming.arriving import NUMBER, column_name
from tsql.catalog.external import External
from tsql.kernels.expr.schema import Schema
from tsql.planner.bind.binder import parse_expression

Batches = Sequence[dict[str, pa.Table]]
"""Rows of each stream, by micro-batch."""


class Cluster(InProcess):
    """Runs tasks of streams, too. A DataFrame of a micro-batch is a list of partitions."""

    takes_streams = True
    shares_nothing = False
    forgets = False
    """Whether workers keep no query: every shard reads its state."""

    @property
    def is_one_machine(self) -> bool:
        return not self.shares_nothing

    def frame(self, frame: list[list[pa.RecordBatch]]) -> Moved:
        if self.forgets:
            kept._kept.clear()
        return Moved(lambda: frame)


class InProcessRun(ClusterRun):
    """A job whose micro-batches are given. stops_after: the job is killed after so many of them."""

    batches: Batches = ()
    stops_after: int | None = None

    def _open(self) -> None:
        pass

    def _stream(self) -> None:
        for number, batch in enumerate(self.batches):
            if self.stops_after is not None and number >= self.stops_after:
                raise Killed
            self._called(self._tagged(batch), number)

    def _tagged(self, batch: dict[str, pa.Table]) -> list[list[pa.RecordBatch]]:
        """A partition for each half of the rows of each stream."""
        names = [column_name(one.number, field.name) for one in self.streams for field in one.schema]
        found = []
        for one in self.streams:
            rows = batch[one.name]
            half = rows.num_rows // 2
            for mine in (rows.slice(0, half), rows.slice(half)):
                columns: dict[str, Any] = {NUMBER: pa.array([one.number] * mine.num_rows, pa.int32())}
                for name in names:
                    columns[name] = pa.nulls(len(columns[NUMBER]))
                for field in one.schema:
                    columns[column_name(one.number, field.name)] = mine.column(field.name)
                found.append(pa.table(columns).combine_chunks().to_batches())
        return found


class Killed(BaseException):
    """The process has been killed."""


def declare(
    session: tsql.Session, name: str, schema: pa.Schema, time: str | None, period: Any = None, **more: Any
) -> None:
    """Make a stream whose rows are given."""
    columns = Schema.from_arrow(schema)
    text = more.pop("watermark", time)
    mark = None if time is None else Watermark(time, text, parse_expression(text, columns), **more)

    def nowhere(schema: Schema) -> Any:
        raise AssertionError("no reader is opened")

    source = StreamSource(name, columns, mark, nowhere, True, f"given {name}")
    source.goes_on = True  # type: ignore[attr-defined]
    session.catalog.add(name, External("stream", source.schema, None, source, period, mark, True))


def run(
    session: tsql.Session,
    sql: str,
    batches: Batches,
    sink: Any,
    checkpoint: Path | None = None,
    stops_after: int | None = None,
    transport: Cluster | None = None,
) -> InProcessRun:
    """Run a query to the end of its micro-batches, or until it is killed."""
    from tsql.backends.live.jobs.checkpoint import Checkpoint
    from tsql.catalog.streams import Streams

    made: list[InProcessRun] = []

    def start(query: Any, *given: Any, **more: Any) -> Any:
        plan = query.plan(Streams(session.catalog))
        place = None if checkpoint is None else Checkpoint(checkpoint)
        spec = Spec("clicks", "job-a", plan, sink, place)
        backend = SparkBackend(transport or Cluster(3))
        try:
            handle = Run(settings=session.settings, parameters=query.values)
            job = InProcessRun(backend, session.catalog.entry, spec, handle)
        except BaseException:
            if place is not None:
                place.close()
            raise
        made.append(job)
        job.batches, job.stops_after = batches, stops_after
        try:
            job.begin()
            job.run()
        finally:
            job.close()
        return job

    session._queries.start_job = start
    try:
        session.sql(sql).start()
    except Killed:
        pass
    return made[-1]
