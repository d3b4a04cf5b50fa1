"""What the tasks of a scan are given: the splits of files that each of them reads, or rows of a table in the driver's
memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tsql.backends import Run
from tsql.backends.io import Split, tell_lost
from tsql.backends.io.open import description_by_split, portable
from tsql.backends.local.run.dataset import SourceData
from tsql.backends.local.run.entry import facts_of
from tsql.backends.local.run.host import Shared
from tsql.backends.spark.datasets import ClusterDataset
from tsql.backends.spark.frame import FrameSource
from tsql.backends.spark.part import Entry
from tsql.backends.spark.splits import dealt, plain
from tsql.backends.spark.wire import Row, encode_batches
from tsql.kernels.blocks.table import BlockTable
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.step import Step


def scanned(scan: Scan, run: Run, shards: int) -> tuple[Entry, list[Split] | None]:
    """The entry of a scan with so many shards, and its splits if tasks read them; None if the driver sends its rows."""
    source = scan.source
    if isinstance(source, BlockTable):
        return Entry(scan.name, "table", facts=_block_facts(scan)), None
    data = SourceData(source, scan.columns, scan.where, 1, 0, Shared(run))
    few = description_by_split(source)
    description = portable(source) if few is None else few
    known = [split.expected if split.rows is None else split.rows for split in data.splits]
    if data.splits and all(rows is not None for rows in known):
        run.total_rows = (run.total_rows or 0) + sum(known)
    if description is None:
        return Entry(scan.name, "table", facts=facts_of(data)), None
    paths = getattr(source, "paths", ())
    files = hashlib.blake2b("\0".join(map(str, paths)).encode(), digest_size=12).hexdigest()
    entry = Entry(
        scan.name, "splits", description, facts_of(data), scan.late, files, some=few is not None, is_one=shards == 1
    )
    return entry, list(data.splits)


def scan_rows(scan: Scan, splits: list[Split] | None, tasks: int, run: Run) -> Iterator[tuple[int, Row]]:
    """(task, row) pairs: the splits that each task reads, or rows of a table in memory."""
    if splits is not None:
        for task, mine in enumerate(dealt(splits, min(tasks, len(splits))) if splits else ()):
            yield task, (task, scan.name, 0, json.dumps([plain(split) for split in mine]).encode())
        return
    for number, (task, blob) in enumerate(_dealt(table_batches(scan, run), tasks)):
        yield task, (task, scan.name, number, blob)


def table_batches(scan: Scan, run: Run) -> list[pa.RecordBatch]:
    """The rows of a table in the driver's memory."""
    source = scan.source
    if isinstance(source, BlockTable):
        if scan.columns:
            return list(source.batches(scan.columns))
        return [pa.RecordBatch.from_arrays([pa.nulls(source.rows)], ["rows"])]
    splits = source.splits(scan.columns, scan.where)
    found = [with_rows(batch) for split in splits for batch in source.read(split, scan.columns)]
    tell_lost(source, scan.columns, run)
    return found


def is_there(step: Step) -> bool:
    """Whether rows are in the cluster already: of a DataFrame, or of a dataset."""
    return isinstance(step, Scan) and isinstance(step.source, FrameSource | ClusterDataset)


def with_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch that keeps its row count on the wire, where a batch without columns would lose it."""
    return batch if batch.num_columns else pa.RecordBatch.from_arrays([pa.nulls(batch.num_rows)], ["rows"])


def _dealt(batches: list[pa.RecordBatch], shards: int) -> Iterator[tuple[int, bytes]]:
    """(shard, blob) pairs: the rows in order, in equal parts."""
    total = sum(batch.num_rows for batch in batches)
    for shard in range(shards):
        low, high = shard * total // shards, (shard + 1) * total // shards
        mine, position = [], 0
        for batch in batches:
            start, stop = max(low - position, 0), min(high - position, batch.num_rows)
            if start < stop:
                mine.append(batch.slice(start, stop - start))
            position += batch.num_rows
        yield from ((shard, blob.to_pybytes()) for blob in encode_batches(mine))


def _block_facts(step: Scan) -> dict[str, Any]:
    facts = {}
    for column in step.source.source_columns(step.columns):
        bounded = column.range is not None and (
            column.type.is_integer or column.type.is_decimal or column.type.is_temporal
        )
        facts[column.name] = [column.layout.nullable, list(column.range) if bounded else None]
    return facts
