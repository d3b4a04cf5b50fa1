"""The state of a shard on disk: its held rows as Arrow files, and its marks. A version is a list of names of files:
rows that were written once are named again and not written again.

Files are written by tasks, each under a name that no other attempt has. They count once the driver names them in an
epoch; the others are removed."""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection
from dataclasses import field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tsql.backends.io.durable import sync_file, sync_folder
from tsql.backends.live.fragments import to_table
from tsql.backends.live.jobs.parts import LEAST_ROWS, joined
from tsql.backends.local.run.host import Chunk
from tsql.backends.spark.streaming.part_query import PartQuery
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process.quick_dataclass import dataclass

ENDING = ".arrow"
_NAME = re.compile(r"[0-9a-f]{32}\.arrow")


@dataclass
class Written:
    """Which file has which rows, of the state of one shard in one worker. Chunks never change."""

    files: dict[int, tuple[Chunk, str]] = field(default_factory=dict)

    def write(self, query: PartQuery, folder: str, sync: bool) -> dict[str, Any]:
        """Write what no file has yet. Gives the state as plain data."""
        kept: dict[int, tuple[Chunk, str]] = {}
        tables: dict[str, list[str]] = {}
        fresh: list[Path] = []
        for name, held in query.tables().items():
            names, small = [], []
            for chunk in held.rows:
                known = self.files.get(id(chunk))
                if known is None and (chunk.rows < LEAST_ROWS or not len(held.schema)):
                    small.append(chunk)
                    continue
                if known is None:
                    known = (chunk, write_rows(folder, [chunk], held.schema, fresh))
                kept[id(chunk)] = known
                names.append(known[1])
            if small:
                names.append(write_rows(folder, small, held.schema, fresh))
            tables[name] = names
        if sync and fresh:
            for path in fresh:
                sync_file(path)
            sync_folder(Path(folder))
        self.files = kept
        return {"token": uuid.uuid4().hex, "marks": query.marks(), "tables": tables}


def write_rows(folder: str, chunks: list[Chunk], schema: Schema, fresh: list[Path]) -> str:
    """Write rows to a new file, and add it to `fresh`."""
    path = Path(folder) / f"{uuid.uuid4().hex}{ENDING}"
    table = to_table(chunks, schema).combine_chunks()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    fresh.append(path)
    return path.name


def read_rows(folder: str, name: str) -> pa.Table:
    """The rows of a file. They are mapped and not copied."""
    if not _NAME.fullmatch(name):
        raise SourceError(f"{name} is no file of a job's state")
    path = Path(folder) / name
    try:
        with pa.memory_map(str(path)) as source:
            return pa.ipc.open_file(source).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise SourceError(
            f"the state of the job cannot be read: {path}: {error}",
            hint="all machines of the cluster must see the checkpoint under the same path",
        ) from error


def table_of(folder: str, names: list[str]) -> pa.Table:
    """The rows of several files."""
    return joined([batch for name in names for batch in read_rows(folder, name).to_batches()])


def restored(query: PartQuery, state: dict[str, Any], folder: str) -> Written:
    """Go on from a state, in a query that has not begun. What several files hold is written again as one, later."""
    query.go_on(state["marks"], {name: table_of(folder, files) for name, files in state["tables"].items()})
    written = Written()
    for name, held in query.tables().items():
        files = state["tables"][name]
        if len(files) == len(held.rows) == 1:
            written.files[id(held.rows[0])] = (held.rows[0], files[0])
    return written


def files_of(states: Collection[dict[str, Any]]) -> set[str]:
    """The files that states name."""
    return {file for state in states for files in state["tables"].values() for file in files}
