"""A job for the tests of sinks: rows that tell their epoch, a checkpoint, and the calls that a live job makes."""

from __future__ import annotations

import datetime
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from tsql.backends.live.sinks.sink import Output, Sink
from tsql.kernels.expr.types import BIGINT, TIMESTAMP, VARCHAR

SCHEMA = pa.schema([("epoch", pa.int64()), ("row", pa.int64()), ("text", pa.string()), ("ts", pa.timestamp("us"))])
TYPES = (BIGINT, BIGINT, VARCHAR, TIMESTAMP)
START = datetime.datetime(2024, 1, 1)

Row = tuple[Any, ...]


def output(job: str = "job-a", **more: Any) -> Output:
    return Output(SCHEMA, TYPES, job, **more)


def rows_of(epoch: int, job: str = "job-a") -> list[Row]:
    """The rows of an epoch, always the same. Every fourth epoch has none."""
    if epoch % 4 == 0:
        return []
    made = random.Random(f"{job} {epoch}")
    texts = [None, "", "plain", 'say "hi"', "two\nlines", "a\\b", "é—☃", "\\."]
    count = made.choice((1, 5, 40))
    return [(epoch, row, made.choice(texts), START + datetime.timedelta(microseconds=row)) for row in range(count)]


def batches_of(epoch: int, job: str = "job-a") -> Iterator[pa.RecordBatch]:
    rows = rows_of(epoch, job)
    cut = len(rows) // 3
    for part in (rows[:cut], rows[cut:]):
        columns = [list(column) for column in zip(*part)] if part else [[] for _ in SCHEMA]
        yield pa.record_batch([pa.array(c, field.type) for c, field in zip(columns, SCHEMA)], schema=SCHEMA)


def expected(epochs: int, job: str = "job-a") -> list[Row]:
    return [row for epoch in range(1, epochs + 1) for row in rows_of(epoch, job)]


def ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row[0], row[1]))


class Checkpoint:
    """The last durable epoch of a job and its token, as JSON."""

    def __init__(self) -> None:
        self.text = "[0, null]"

    def get(self) -> tuple[int, Any]:
        epoch, token = json.loads(self.text)
        return epoch, token

    def put(self, epoch: int, token: Any) -> None:
        self.text = json.dumps([epoch, token])


class CheckpointFile(Checkpoint):
    def __init__(self, path: Path):
        super().__init__()
        self.path = path
        if path.exists():
            self.text = path.read_text()

    def put(self, epoch: int, token: Any) -> None:
        super().put(epoch, token)
        new = self.path.with_suffix(".new")
        new.write_text(self.text)
        os.replace(new, self.path)


def nothing(step: str) -> None:
    """A process that is not killed."""


def run(
    sink: Sink,
    checkpoint: Checkpoint,
    epochs: int,
    about: Output,
    step: Callable[[str], None] = nothing,
    is_ahead: bool = False,
) -> None:
    """Run the job up to an epoch, from its checkpoint on. is_ahead: the next epoch begins before a commit, as it does
    where checkpoints are made in the background."""
    sink.open(about)
    epoch, token = checkpoint.get()
    sink.recover(epoch, token)
    written = epoch
    for number in range(epoch + 1, epochs + 1):
        if written < number:
            for rows in batches_of(number, about.job):
                sink.write(rows)
            written = number
        token = sink.prepare(number)
        step("before the checkpoint")
        checkpoint.put(number, token)
        step("behind the checkpoint")
        if is_ahead and number < epochs:
            for rows in batches_of(number + 1, about.job):
                sink.write(rows)
            written = number + 1
        sink.commit(number, checkpoint.get()[1])
        step("committed")
    sink.close()
