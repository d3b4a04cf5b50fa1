"""Targets of the tests of sinks: each makes sinks that write to one place, and reads what everybody sees there."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.live.sinks.jobs import Row
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


TARGETS: dict[str, Callable[..., Any]] = {
    "memory": InMemory,
    "parquet": Parquet,
    "ndjson": Ndjson,
    "delta": Delta,
}
