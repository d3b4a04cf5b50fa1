"""Rows of the wire as DataFrames of a Spark Connect session, whose driver is a server elsewhere.

There is no SparkContext: no RDDs, no broadcasts, no job groups. Whatever moves, moves inside of one job; what this
process sends goes with the plan, and large tables as chunks that PySpark uploads. Results stream in, batch by batch."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import pyarrow as pa

from tsql.backends.spark.failures import telling
from tsql.backends.spark.transport.cluster import slots
from tsql.backends.spark.transport.frames import Computed, FrameTransport, Read, Together
from tsql.backends.spark.transport.reach import check_server
from tsql.backends.spark.travel.check import make_ready
from tsql.backends.spark.travel.look import looked_batches
from tsql.backends.spark.wire import Row, wire_rows
from tsql.kernels.expr.errors import CatalogError

CANCELS, CANCEL_SECONDS = 100, 0.1
"""How often a cancelled job is cancelled again: Spark may not know it yet."""

MOST_SENT_BYTES = 8 << 20
"""A message to the server has at most 128 MB, with the functions of all stages."""


MOST_GIVEN_BYTES = 1 << 20
"""An upload is a request of its own to the server."""


class ConnectTransport(FrameTransport):
    """Moves rows with DataFrames of a Spark Connect session."""

    most_sent_bytes = MOST_SENT_BYTES
    most_given_bytes = MOST_GIVEN_BYTES
    streams = True

    def __init__(self, session: Any):
        super().__init__(session)
        check_server(session)
        self.running: Counter[str] = Counter()
        """The actions that run, by their group."""
        self._lock = threading.Lock()

    @cached_property
    def cores(self) -> int:
        """By Spark's default number of partitions, as its plan of a range tells it: no job runs."""
        with telling():
            (found,) = self.session.sql("EXPLAIN SELECT id FROM range(1)").collect()
            cpus = self.session.conf.get("spark.task.cpus", None)
        splits = re.search(r"splits=(\d+)", str(found[0]))
        return slots(int(splits.group(1)) if splits else 1, cpus)

    @cached_property
    def executors(self) -> int:
        with telling():
            conf = self.session.conf.getAll
        master = conf.get("spark.master", "")
        if master.startswith("local"):
            workers = re.match(r"local-cluster\[\s*(\d+)", master)
            return int(workers.group(1)) if workers else 1
        if conf.get("spark.executor.instances", "").isdigit():
            return max(1, int(conf["spark.executor.instances"]))
        if conf.get("spark.executor.cores", "").isdigit():
            return max(1, self.cores // int(conf["spark.executor.cores"]))
        return 1

    def prepare(self) -> None:
        make_ready(self.session.session_id, self._look, self._send)

    def _look(self, names: tuple[str, ...]) -> list[str]:
        frame = self.session.range(0, self.cores, 1, self.cores).mapInArrow(looked_batches(names), "found string")
        return [str(text) for text in frame.toArrow().column(0).to_pylist()]

    def _send(self, path: str) -> None:
        self.session.addArtifacts(path, pyfile=True)

    def frame(self, frame: Any) -> Read:
        if getattr(frame, "_session", None) is not self.session:
            raise CatalogError(
                "a DataFrame of another Spark session cannot be read by this Spark Connect session",
                hint="register a DataFrame of the session that tsql.connect(spark=session) was given",
            )
        return super().frame(frame)

    @property
    def cluster(self) -> Any:
        return self.session

    def collect(self, rows: Computed | Together, partitions: list[int], group: str) -> Iterator[Row]:
        client = self.session.client
        with self.in_group(group):
            plan = self.chosen(rows, partitions)._plan
            for found in client.to_table_as_iterator(plan.to_proto(client), plan.observations):
                if isinstance(found, pa.Table):
                    for batch in found.to_batches():
                        yield from wire_rows(batch)

    @contextmanager
    def in_group(self, group: str) -> Iterator[None]:
        with self._lock:
            self.running[group] += 1
        self.session.addTag(group)
        try:
            yield
        finally:
            self.session.removeTag(group)
            with self._lock:
                self.running[group] -= 1
                if not self.running[group]:
                    del self.running[group]

    def cancel(self, group: str) -> None:
        for _ in range(CANCELS):
            if group not in self.running:
                return
            self.session.interruptTag(group)
            time.sleep(CANCEL_SECONDS)
