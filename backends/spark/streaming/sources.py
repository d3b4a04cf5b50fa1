"""Streams of the catalog as one streaming DataFrame, whose micro-batches Spark chooses and can give again.

Spark lists the files of a stream and remembers which of them belong to which micro-batch; tasks read them with the
readers of tsql, so that a file means the same in a stream and in a table. Messages of Kafka come as bytes and are
decoded by tsql, too. A streaming DataFrame of the user comes as it is."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from tsql.backends.live.jobs.streams import StreamSource
from tsql.backends.live.sources.connectors import connector_of
from tsql.backends.live.sources.options import checked
from tsql.backends.spark.failures import SPARK_ERRORS
from tsql.backends.spark.streaming.arriving import MESSAGE_COLUMNS, NUMBER, column_name
from tsql.backends.spark.streaming.marks import watermark_to_json
from tsql.backends.spark.streaming.spec import StreamSpec
from tsql.kernels.expr.errors import CatalogError, PlanError
from tsql.kernels.expr.schema import Schema
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.step import PhysicalPlan

FILES_SCHEMA = "path STRING, modificationTime TIMESTAMP, length LONG, content BINARY"
FILES = ("path", "length", "unix_micros(modificationTime) AS changed_us")

MOST_FILES = "spark.tsql.maxFilesPerTrigger"
MOST_BYTES = "spark.tsql.maxBytesPerTrigger"
"""Settings of the Spark session: how much of a stream over files one micro-batch takes at most."""

DEFAULT_BYTES_PER_CORE = 128 << 20

MESSAGE_OPTIONS = ("format", "ignore_errors", "delim", "quote", "nullstr")
"""Options of the connector kafka that say how messages are written."""

KAFKA_PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13"


class ClusterStream:
    """A stream of a job: its place in the plan, and where its rows come from. entry: of the catalog."""

    def __init__(self, number: int, source: StreamSource, scans: list[Scan], entry: Any):
        self.number, self.source, self.entry = number, source, entry
        self.scans = [scan.name for scan in scans]
        needed = {column for scan in scans for column in scan.columns}
        mark = source.watermark
        if mark is not None:
            needed |= {mark.column, *mark.expression.columns()}
            needed |= set(source.schema.names) if mark.into is not None else set()
        names = needed or {source.schema.names[0]}
        self.schema = Schema(tuple(field for field in source.schema if field.name in names))

    @property
    def name(self) -> str:
        return self.source.catalog_name

    @property
    def kind(self) -> str:
        if getattr(self.entry.data, "goes_on", False):
            return "frame"
        if self.entry.files is not None:
            return "files"
        if self.entry.connection is not None and self.entry.connection.connector == "kafka":
            return "messages"
        what = "data in memory" if self.entry.connection is None else f"connector '{self.entry.connection.connector}'"
        raise PlanError(
            f"the stream {self.name} is {what}, which a job on Spark does not read",
            hint="Spark reads files, Kafka and streaming DataFrames; tsql.connect() without backend= reads this one",
        )

    def spec(self) -> StreamSpec:
        """What tasks are told of it."""
        schema = self.source.schema
        files = self.entry.files if self.kind == "files" else None
        options = self._message_options() if self.kind == "messages" else dict(files.options) if files else {}
        return StreamSpec(
            self.name,
            self.number,
            self.kind,
            self.scans,
            [[field.name, str(field.type)] for field in self.schema],
            [[field.name, str(field.type)] for field in schema],
            watermark_to_json(self.source.watermark),
            files.kind if files is not None else "",
            options,
        )

    def frame(self, session: Any, cores: int) -> Any:
        """Its streaming DataFrame, with the columns that tasks expect."""
        match self.kind:
            case "files":
                frame, columns = self._files(session, cores), list(FILES)
            case "messages":
                frame, columns = self._messages(session), list(MESSAGE_COLUMNS)
            case _:
                frame = self.entry.data.stream(self.schema.names)
                columns = [f"`{name.replace('`', '``')}`" for name in self.schema.names]
        plain = frame.selectExpr(*columns)
        return plain.toDF(*(column_name(self.number, name) for name in plain.columns))

    def _files(self, session: Any, cores: int) -> Any:
        def of(path: str) -> Any:
            reader = session.readStream.format("binaryFile").schema(FILES_SCHEMA)
            reader = reader.option("recursiveFileLookup", "true")
            if files is not None:
                return reader.option("maxFilesPerTrigger", files).load(path)
            return reader.option("maxBytesPerTrigger", bytes).load(path)

        files = session.conf.get(MOST_FILES, None)
        bytes = session.conf.get(MOST_BYTES, str(DEFAULT_BYTES_PER_CORE * cores))

        paths = [os.path.abspath(path) if "://" not in path else path for path in self.entry.files.paths]
        missing = next((path for path in paths if "://" not in path and not os.path.isdir(_folder(path))), None)
        if missing is not None:
            raise CatalogError(
                f"the stream {self.name}: there is no folder {_folder(missing)}", hint="make it before the job starts"
            )
        return reduce(lambda left, right: left.unionAll(right), [of(path) for path in paths])

    def _messages(self, session: Any) -> Any:
        settings = self._settings()
        reader = session.readStream.format("kafka").option("kafka.bootstrap.servers", settings["brokers"])
        reader = reader.option("subscribe", settings["topic"]).option("startingOffsets", settings["start"])
        try:
            return reader.load()
        except SPARK_ERRORS as error:
            if "kafka" not in str(error).lower():
                raise
            raise CatalogError(
                "this Spark session has no source for Kafka",
                hint=f'set "spark.jars.packages" to {KAFKA_PACKAGE}:{session.version} before it starts',
            ) from error

    def _settings(self) -> dict[str, Any]:
        """The options of a topic. Properties of its client mean something else to Spark, whose client is another."""
        about, given = connector_of("kafka"), dict(self.entry.connection.options)
        own = next((name for name in given if name.lower().startswith(about.prefix)), None)
        if own is not None:
            raise PlanError(
                f"option {own} is for the client of one machine, and Spark has its own",
                hint=f'db.stream("{self.name}", spark.readStream.format("kafka").., time=..), with its rows as columns',
            )
        return checked("kafka", given, about.options)

    def _message_options(self) -> dict[str, Any]:
        return {name: value for name, value in self._settings().items() if name in MESSAGE_OPTIONS}


def _folder(path: str) -> str:
    """The folder of a path before its first pattern."""
    found = path
    while any(sign in found for sign in "*?[{") or (not os.path.isdir(found) and os.path.splitext(found)[1]):
        found = os.path.dirname(found)
    return found


def streams_of(plan: PhysicalPlan, entries: Mapping[str, Any]) -> list[ClusterStream]:
    """The streams that a plan reads, each once."""
    scans: dict[int, list[Scan]] = {}
    for step in plan.root.walk():
        if isinstance(step, Scan) and isinstance(step.source, StreamSource):
            scans.setdefault(id(step.source), []).append(step)
    found = [
        ClusterStream(number, mine[0].source, mine, entries[mine[0].source.catalog_name])
        for number, mine in enumerate(scans.values())
    ]
    ends = {stream.source.ends for stream in found}
    if len(ends) > 1:
        going = next(stream.name for stream in found if not stream.source.ends)
        over = next(stream.name for stream in found if stream.source.ends)
        raise PlanError(
            f"the stream {over} ends and {going} goes on, which a job on Spark does not read together",
            hint=f"CREATE STREAM {over} .. WITH (.., follow = true), or CREATE TABLE",
        )
    return found


def frame_of(streams: Sequence[ClusterStream], session: Any, cores: int) -> Any:
    """The streams as one streaming DataFrame."""
    from pyspark.sql import functions as F

    frames = [stream.frame(session, cores) for stream in streams]
    fields = [field for frame in frames for field in frame.schema.fields]
    tagged = []
    for stream, frame in zip(streams, frames, strict=True):
        mine = set(frame.columns)
        columns = [
            F.col(field.name) if field.name in mine else F.lit(None).cast(field.dataType).alias(field.name)
            for field in fields
        ]
        tagged.append(frame.select(F.lit(stream.number).alias(NUMBER), *columns))
    return reduce(lambda left, right: left.unionAll(right), tagged)
