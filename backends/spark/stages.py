"""Builds the DataFrames of a run on the driver: one `mapInArrow` per part of the plan, with rows placed by shard in
between."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tsql.backends import Run
from tsql.backends.io import tell_lost
from tsql.backends.io.open import portable
from tsql.backends.local.run.dataset import SourceData
from tsql.backends.local.run.entry import facts_of
from tsql.backends.spark import counts
from tsql.backends.spark.cut import Cut
from tsql.backends.spark.frame import FrameSource, spark_schema
from tsql.backends.spark.jobs import Jobs
from tsql.backends.spark.task import Entry, StagePart, run_frame, run_part
from tsql.backends.spark.wire import (
    WIRE,
    Row,
    decode_error,
    encode_batches,
    encode_value,
    expression_nodes,
    wire_rows,
    wire_table,
)
from tsql.kernels.blocks.table import BlockTable
from tsql.kernels.expr.nodes import Parameter
from tsql.planner.physical.movement import Broadcast, Gather, Movement
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.step import Step


class Stages:
    """The DataFrames of one run of one plan."""

    def __init__(self, spark: SparkSession, cut: Cut, run: Run, jobs: Jobs):
        self.spark, self.cut, self.run, self.jobs = spark, cut, run, jobs
        travelling = cut.travelling()
        nodes = list(expression_nodes(travelling.root))
        kinds = {node.name: str(node.type) for node in nodes if isinstance(node, Parameter)}
        settings = run.settings
        self.common: dict[str, Any] = {
            "text": travelling.text(),
            "run": uuid.uuid4().hex,
            "positions": [node.position for node in nodes],
            "parameters": {name: encode_value(run.parameters[name]) for name in kinds},
            "parameter_types": kinds,
            "settings": {
                "threads": 1,
                "shards": 1,
                "memory_limit": settings.memory_limit,
                "batch_rows": settings.batch_rows,
                "equal_hashes": settings.equal_hashes,
            },
            "wall_clock": run.wall_clock,
        }
        self.tallies = counts.accumulator(spark.sparkContext)
        self.moved: dict[int, DataFrame] = {}
        self.users = self._users()
        self.kept: list[Any] = []

    def close(self) -> None:
        """Release what the cluster keeps for this run."""
        for one in self.kept:
            one.unpersist()

    def gathered(self, step: Step) -> DataFrame:
        """The rows of a step for the driver."""
        top = step.inputs[0] if isinstance(step, Gather) else step
        return self._stage(top, step if isinstance(step, Gather) else None, 1)

    def result(self) -> DataFrame:
        """The result of the plan as a DataFrame with its own columns. Steps after `gather` run in one task."""
        plan, cut = self.cut.plan, self.cut
        top = plan.root
        while isinstance(top, Gather) and cut.in_tasks[id(top.inputs[0])]:
            top = top.inputs[0]
        return self._stage(top, None, 1, output=(plan.columns, plan.names))

    def _users(self) -> dict[int, int]:
        """The number of steps that read the rows of each movement."""
        users: dict[int, int] = {}
        for step in self.cut.plan.root.walk():
            for child in step.inputs:
                users[id(child)] = users.get(id(child), 0) + 1
        return users

    def _stage(
        self,
        top: Step,
        movement: Step | None,
        targets: int,
        output: tuple[tuple[str, ...], tuple[str, ...]] | None = None,
    ) -> DataFrame:
        """The rows of `top`, sent where `movement` says."""
        on_driver = not self.cut.in_tasks[id(top)]
        steps = self.cut.entries(top, on_driver)
        copied = self.cut.properties[id(top)].replicated
        entries = [self._entry(step) for step in steps]
        part = StagePart(
            top=top.name,
            movement=None if movement is None else movement.name,
            targets=targets,
            entries=entries,
            output=output,
            one_copy=copied,
            **self.common,
        )
        schema = WIRE if output is None else spark_schema(self.cut.plan)
        if len(steps) == 1 and isinstance(steps[0], Scan) and isinstance(steps[0].source, FrameSource):
            return self._frame(steps[0]).mapInArrow(partial(run_frame, part.encode(), self.tallies), schema)
        rows, broadcasts = self._rows(steps, on_driver)
        return rows.mapInArrow(partial(run_part, part.encode(), broadcasts, self.tallies), schema)

    def _entry(self, step: Step) -> Entry:
        if not isinstance(step, Scan):
            return Entry(step.name, "chunks")
        if isinstance(step.source, FrameSource):
            return Entry(step.name, "chunks")
        if isinstance(step.source, BlockTable):
            return Entry(step.name, "table", facts=_block_facts(step))
        data = SourceData(step.source, step.columns, step.where, 1, 0, self.run)
        description = portable(step.source)
        return Entry(step.name, "table" if description is None else "splits", description, facts_of(data))

    def _rows(self, steps: list[Step], on_driver: bool) -> tuple[DataFrame, dict[str, Any]]:
        """The rows that enter a part, each in the partition of its shard, and what is broadcast to all of them."""
        local: list[Row] = []
        frames: list[DataFrame] = []
        broadcasts: dict[str, Any] = {}
        # What is broadcast goes to wherever the other rows are: beside rows in one shard there is one task.
        spread = [step for step in steps if not isinstance(step, Broadcast)] or steps
        shards = 1 if on_driver else max((self.cut.shards(step) for step in spread), default=1)
        for step in steps:
            if isinstance(step, Scan):
                if isinstance(step.source, FrameSource):
                    frames.append(self._framed(step, shards))
                else:
                    local += self._scan_rows(step, shards)
            elif isinstance(step, Broadcast):
                broadcasts[step.name] = self._broadcast(step)
            else:
                frames.append(self._moved(step))
        if broadcasts or not steps:
            local += [(shard, None, 0, b"") for shard in range(shards)]
        if local or not frames:
            frames.append(self.spark.createDataFrame(wire_table(local), WIRE))
        rows = union(frames)
        # A scan's shard is one row: Spark spreads so few rows evenly by itself, and a shuffle would only cost time.
        alone = (
            len(frames) == 1
            and local
            and len({row[0] for row in local}) == len(local) <= self.spark.sparkContext.defaultParallelism
        )
        return (rows if alone else rows.repartitionById(shards, "shard")), broadcasts

    def _moved(self, step: Step) -> DataFrame:
        """The rows that a movement between tasks, or a step with one shard, sends to its users. Computed once for all
        of them."""
        if id(step) not in self.moved:
            if isinstance(step, Movement):
                frame = self._stage(step.inputs[0], step, step.shards or self.cut.plan.shards)
            elif self.cut.in_tasks[id(step)] or (isinstance(step, Gather) and self.cut.in_tasks[id(step.inputs[0])]):
                frame = self.gathered(step)
            else:
                frame = self._stage(step, None, 1)
            if self.users.get(id(step), 0) > 1:
                frame = frame.persist()
                self.kept.append(frame)
            self.moved[id(step)] = frame
        return self.moved[id(step)]

    def _broadcast(self, step: Step) -> Any:
        """The blobs of a step, on every machine."""
        if id(step) not in self.moved:
            rows = sorted(collect_rows(self._stage(step.inputs[0], step, 1), self.jobs), key=lambda row: row[2])
            shared = self.spark.sparkContext.broadcast([bytes(row[3]) for row in rows])
            self.kept.append(shared)
            self.moved[id(step)] = shared
        return self.moved[id(step)]

    def _scan_rows(self, step: Scan, shards: int) -> Iterator[Row]:
        """One row per shard with the splits that it reads, or with rows of a table in memory."""
        source = step.source
        if isinstance(source, BlockTable):
            batches = (
                source.batches(step.columns)
                if step.columns
                else iter([pa.RecordBatch.from_arrays([pa.nulls(source.rows)], ["rows"])])
            )
        else:
            splits = source.splits(step.columns, step.where)
            known = [s.rows for s in splits]
            if splits and all(rows is not None for rows in known):
                self.run.total_rows = (self.run.total_rows or 0) + sum(known)
            if portable(source) is not None:
                shards = min(shards, len(splits))
                for shard in range(shards):
                    mine = [
                        [s.order, s.path, s.rows, s.detail]
                        for s in splits[shard * len(splits) // shards : (shard + 1) * len(splits) // shards]
                    ]
                    yield shard, step.name, 0, json.dumps(mine).encode()
                return
            batches = (_with_rows(batch) for split in splits for batch in source.read(split, step.columns))
        for number, (shard, blob) in enumerate(_dealt(list(batches), shards)):
            yield shard, step.name, number, blob
        tell_lost(source, step.columns, self.run)

    def _frame(self, step: Scan) -> DataFrame:
        return step.source.select(step.columns)

    def _framed(self, step: Scan, shards: int) -> DataFrame:
        """A DataFrame that is unioned with other inputs: its rows become blobs first."""
        part = StagePart(
            top=step.name, movement=None, targets=shards, entries=[Entry(step.name, "table")], **self.common
        )
        return self._frame(step).mapInArrow(partial(run_frame, part.encode(), self.tallies), WIRE)


def union(frames: list[DataFrame]) -> DataFrame:
    """The rows of all DataFrames."""
    return reduce(lambda left, right: left.unionAll(right), frames)


def collect_rows(frame: DataFrame, jobs: Jobs) -> list[Row]:
    """The rows of a DataFrame of the wire; raises the first error among them."""
    found = [row for batch in jobs.collect(frame).to_batches() for row in wire_rows(batch)]
    for _, name, _, blob in found:
        error = decode_error(blob) if name is None else None
        if error is not None:
            raise error
    return [row for row in found if row[1] is not None]


def _with_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
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
        yield from ((shard, blob) for blob in encode_batches(mine))


def _block_facts(step: Scan) -> dict[str, Any]:
    facts = {}
    for column in step.source.source_columns(step.columns):
        bounded = column.range is not None and (
            column.type.is_integer or column.type.is_decimal or column.type.is_temporal
        )
        facts[column.name] = [column.layout.nullable, list(column.range) if bounded else None]
    return facts
