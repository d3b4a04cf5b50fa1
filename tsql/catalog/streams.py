"""Streams of the catalog as what a job reads: the plan of a query gets a `StreamSource` in the place of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tsql.backends.io import Source
from tsql.backends.live.jobs.splits import ReplayReader, SplitReader
from tsql.backends.live.jobs.streams import StreamSource
from tsql.backends.live.sources.reader import StreamReader
from tsql.catalog.external import External
from tsql.kernels.expr.errors import CatalogError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.tree import nodes, transform_up
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.step import PhysicalPlan, Step, rebuild


@dataclass(frozen=True)
class Replay:
    """Files and tables in the order of their times. speed: how many times as fast as they happened; 0: as fast as they
    can be read. until_us: rows at this time or later are left out."""

    speed: float = 0.0
    until_us: int | None = None


def stream_source(
    name: str, entry: External, source: Source | None = None, replay: Replay | None = None
) -> StreamSource:
    """A stream for a job. source: its files or its rows as they are now, for one that ends, or that is replayed."""
    connection, time = entry.connection, entry.event_time
    text = entry.create_text(name)
    if replay is None and getattr(entry.data, "goes_on", False):

        def nowhere(schema: Schema) -> StreamReader:
            raise CatalogError(f"the stream {name} is a streaming DataFrame", hint="connect(spark=its session)")

        return StreamSource(name, entry.schema, entry.watermark, nowhere, False, text)
    if replay is not None or connection is None:
        if source is None:
            raise CatalogError(f"the stream {name} is not kept anywhere, so it cannot be replayed")
        if replay is not None and time is None:
            raise CatalogError(f"the stream {name} has no WATERMARK, so its rows have no time to be replayed by")

        def read(schema: Schema) -> StreamReader:
            if replay is None:
                return SplitReader(source, schema, time)
            assert time is not None
            return ReplayReader(source, schema, time, replay.speed, replay.until_us)

        return StreamSource(name, entry.schema, entry.watermark, read, True, text)

    def connect(schema: Schema) -> StreamReader:
        from tsql.backends.live.sources.connectors import open_reader

        return open_reader(connection.connector, dict(connection.options), schema, name)

    return StreamSource(name, entry.schema, entry.watermark, connect, False, text)


class Streams:
    """The streams that queries of a session read, as sources of one job: each stream once, whoever reads it."""

    def __init__(self, catalog: Any, replay: Replay | None = None):
        self._catalog, self._replay = catalog, replay
        self._made: dict[int, StreamSource] = {}
        self._entries: dict[str, tuple[str, External]] = {
            name.lower(): (name, entry)
            for name, entry in catalog.entries()
            if isinstance(entry, External) and entry.kind == "stream"
        }

    def live(self, source: Any) -> StreamSource | None:
        """The stream that a source of a plan stands for; None if it is a table."""
        found = self._entry_of(source)
        if found is None:
            return None
        name, entry = found
        if isinstance(source, StreamSource) and entry.connection is None:
            self._made[id(entry)] = source
        if id(entry) not in self._made:
            # The files as they are now: the query may be of an earlier time.
            kept = self._catalog.lookup(name) if entry.files is not None else entry.data
            self._made[id(entry)] = stream_source(name, entry, kept, self._replay)
        return self._made[id(entry)]

    def _entry_of(self, source: Any) -> tuple[str, External] | None:
        by_name = self._entries.get(str(getattr(source, "catalog_name", "")).lower())
        if by_name is not None:
            return by_name
        return next(
            (found for found in self._entries.values() if found[1].data is not None and found[1].data is source), None
        )

    def in_query(self, query: logical.Output) -> logical.Output:
        """The query with streams in the place of the files that they are now."""

        def change(node: logical.Node) -> logical.Node:
            if not isinstance(node, logical.Scan):
                return node
            live = self.live(node.source)
            return node if live is None else replace(node, source=live, filter=None)

        found = transform_up(query, change)
        assert isinstance(found, logical.Output)
        return found

    def in_plan(self, plan: PhysicalPlan) -> PhysicalPlan:
        """The plan with streams in the place of the files that they are now."""

        def change(_: Step, step: Step) -> Step:
            if not isinstance(step, Scan):
                return step
            live = self.live(step.source)
            if live is None:
                return step
            if step.ranges is not None or step.filled or step.late:
                raise CatalogError(
                    f"step {step.name} relies on what the files of the stream {live.catalog_name} hold now",
                    hint="leave ranges, filled and late out, or plan the query again",
                )
            return replace(step, source=live, progress=None, where=None)

        return replace(plan, root=rebuild(plan.root, change))

    def __len__(self) -> int:
        return len(self._made)


def endless(query: logical.Output, catalog: Any) -> bool | None:
    """Whether a query reads a stream that does not end; None if it reads no stream at all."""
    streams = Streams(catalog)
    found = [streams.live(node.source) for node in nodes(query) if isinstance(node, logical.Scan)]
    known = [stream for stream in found if stream is not None]
    return any(not stream.ends for stream in known) if known else None
