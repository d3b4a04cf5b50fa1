"""Targets of the tests of sinks: each makes sinks that write to one place, and reads what everybody sees there."""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from psycopg import sql

from tests.live.sinks.jobs import Row
from tests.patience import PATIENCE_SECONDS
from tsql.backends.live.sinks.connectors import sink_of
from tsql.backends.live.sinks.memory import MemorySink
from tsql.backends.live.sinks.sink import Sink


class Target:
    """A place that sinks write to. is_whole: readers see whole epochs even after a crash and before the recovery.
    has_files: its sinks write through staging.py, where the tests let calls fail. is_shared: other processes see it."""

    is_whole = True
    has_files = True
    is_shared = True

    def __init__(self, folder: Path, url: str = ""):
        self.folder = folder
        self.url = url

    def sink(self) -> Sink:
        raise NotImplementedError

    def rows(self) -> list[Row]:
        raise NotImplementedError


class InMemory(Target):
    """Sinks of one object: what dies is the job, not the process."""

    has_files = False
    is_shared = False

    def __init__(self, folder: Path, url: str = ""):
        super().__init__(folder, url)
        self.memory = MemorySink()

    def sink(self) -> Sink:
        return self.memory

    def rows(self) -> list[Row]:
        return rows_in(self.memory.table())


def rows_in(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns))) if len(table) else []


class Parquet(Target):
    def sink(self) -> Sink:
        return sink_of("parquet", {"path": str(self.folder / "out"), "row_group_rows": 7})

    def rows(self) -> list[Row]:
        found: list[Row] = []
        for name in sorted(glob.glob(str(self.folder / "out" / "*.parquet"))):
            found += rows_in(pq.ParquetFile(name).read())
        return found


class Ndjson(Target):
    is_whole = False

    @property
    def path(self) -> Path:
        return self.folder / "out.ndjson"

    def sink(self) -> Sink:
        return sink_of("ndjson", {"path": str(self.path)})

    def rows(self) -> list[Row]:
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        assert not text or text.endswith("\n"), text[-100:]
        return [self.row(line) for line in text.split("\n")[:-1]]

    @staticmethod
    def row(line: str) -> Row:
        found = json.loads(line)
        return (found["epoch"], found["row"], found["text"], datetime.fromisoformat(found["ts"]))


class Delta(Target):
    def sink(self) -> Sink:
        return sink_of("delta", {"path": str(self.folder / "out"), "row_group_rows": 7})

    def rows(self) -> list[Row]:
        from deltalake import DeltaTable

        if not (self.folder / "out" / "_delta_log").is_dir() or not os.listdir(self.folder / "out" / "_delta_log"):
            return []
        uris = sorted(DeltaTable(self.folder / "out").file_uris())
        return [row for uri in uris for row in rows_in(pq.ParquetFile(uri.removeprefix("file://")).read())]


class Kafka(Target):
    """A topic of the cluster that librdkafka plays for tests. It lives as long as this object."""

    has_files = False
    is_shared = False

    def __init__(self, folder: Path, url: str = ""):
        super().__init__(folder, url)
        from confluent_kafka import Producer

        self._cluster = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 2})
        brokers = self._cluster.list_topics(timeout=PATIENCE_SECONDS).brokers.values()
        self.servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def sink(self, **more: Any) -> Sink:
        return sink_of("kafka", {"brokers": self.servers, "topic": "out", **more}, self.folder / "checkpoint")

    def messages(self, topic: str = "out") -> list[tuple[bytes | None, bytes | None]]:
        """Keys and values, by partition and in their order there."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        settings = {"bootstrap.servers": self.servers, "group.id": "reader", "log_level": 2, "fetch.wait.max.ms": 10}
        consumer = Consumer(settings | {"isolation.level": "read_committed", "enable.partition.eof": True})
        found: list[tuple[bytes | None, bytes | None]] = []
        for partition in consumer.list_topics(topic, timeout=PATIENCE_SECONDS).topics[topic].partitions:
            consumer.assign([TopicPartition(topic, partition, 0)])
            while True:
                message = consumer.poll(PATIENCE_SECONDS)
                assert message is not None
                if (error := message.error()) is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    break
                found.append((message.key(), message.value()))
        consumer.close()
        return found

    def rows(self) -> list[Row]:
        return [Ndjson.row(value.decode()) for _, value in self.messages() if value is not None]


class Postgres(Target):
    """A table in a schema of its own: databases take long to make."""

    has_files = False

    def __init__(self, folder: Path, url: str = ""):
        super().__init__(folder, url)
        self.schema = "s" + hashlib.sha256(str(folder).encode()).hexdigest()[:16]
        with psycopg.connect(self.url) as connection:
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self.schema)))

    def sink(self) -> Sink:
        return sink_of("postgres", {"url": self.url, "table": f"{self.schema}.out"})

    def rows(self) -> list[Row]:
        with psycopg.connect(self.url) as connection:
            if connection.execute("SELECT to_regclass(%s)", (f"{self.schema}.out",)).fetchone() == (None,):
                return []
            text = sql.SQL("SELECT epoch, row, text, ts FROM {}.out").format(sql.Identifier(self.schema))
            return connection.execute(text).fetchall()


TARGETS: dict[str, Callable[..., Any]] = {
    "memory": InMemory,
    "parquet": Parquet,
    "ndjson": Ndjson,
    "delta": Delta,
    "kafka": Kafka,
    "postgres": Postgres,
}
