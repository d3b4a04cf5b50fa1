"""`Cluster`: one micro-batch as one job of Spark. The rows that have come go through the intake, then through the live
parts, and what leaves those comes to the driver, with the states that the shards have now."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import field
from functools import partial
from typing import Any

from tsql.backends import Run
from tsql.backends.spark.failures import SPARK_ERRORS
from tsql.backends.spark.frame import FrameSource
from tsql.backends.spark.jobs import Jobs
from tsql.backends.spark.stages.scans import scan_rows, scanned
from tsql.backends.spark.streaming.marks import StreamMarks
from tsql.backends.spark.streaming.parts import Part, Parts
from tsql.backends.spark.streaming.spec import LATE, IntakeSpec, LiveSpec, Program, StreamSpec
from tsql.backends.spark.streaming.task import run_partition
from tsql.backends.spark.transport.transport import Rows, TaskWork, Transport
from tsql.backends.spark.wire import Row, about, decode_error
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.operators.scan import Scan

States = dict[str, dict[str, dict[str, Any]]]
"""The state of each shard of each part."""

Letters = dict[str, list[tuple[int, Any]]]
"""(place, blob) pairs by the name of what they belong to."""


@dataclass
class Batch:
    """A micro-batch before it runs. frame: the rows that have come; None if none have. look: how far ahead rows are
    shown that are not final. is_first: tables are read, too."""

    number: int
    frame: Any
    marks: dict[str, StreamMarks]
    states: States
    look: str | None = None
    is_first: bool = False


@dataclass
class Outcome:
    """What a micro-batch gave. told: what the tasks of intakes count, by stream. live: what live tasks tell, by part
    and shard. late: blobs of late rows, by stream and place. letters: what came to the driver."""

    letters: Letters = field(default_factory=dict)
    late: dict[str, dict[int, Any]] = field(default_factory=dict)
    told: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    live: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)

    def states(self) -> States:
        """The states that the shards have now."""
        found: States = {}
        for (part, shard), one in self.live.items():
            found.setdefault(part, {})[str(shard)] = one["state"]
        return found


class Cluster:
    """Runs micro-batches of one job. folder: where the states of shards are kept."""

    def __init__(
        self, transport: Transport, parts: Parts, program: Program, streams: list[StreamSpec], folder: str, sync: bool
    ):
        self.transport, self.parts, self.program, self.streams = transport, parts, program, streams
        self.folder, self.sync = folder, sync
        times = {spec.name: (spec.watermark or [""])[0] for spec in streams}
        self.scans = {scan: f"{spec.name}\0{times[spec.name]}" for spec in streams for scan in spec.scans}

    def intake_scans(self, part: Part) -> dict[str, str]:
        """The stream and the time column of each scan of an intake part."""
        return {scan.name: self.scans[scan.name] for scan in part.streams}

    def run(self, batch: Batch, run: Run) -> Outcome:
        """The outcome of a micro-batch."""
        jobs = Jobs(self.transport, run)
        made: list[Rows] = []
        try:
            last = self._stages(batch, run, jobs, made)
            return self._sorted_out(jobs.raw(self.transport.together(last)))
        finally:

            def release() -> None:
                with suppress(*SPARK_ERRORS):
                    self.transport.free(made)

            jobs.at_rest(release)

    def _stages(self, batch: Batch, run: Run, jobs: Jobs, made: list[Rows]) -> list[Rows]:
        """The stages whose rows come to the driver."""
        of: dict[str, list[Rows]] = {part.name: [] for part in self.parts.all}
        for for_driver in (False, True):
            intakes = [part for part in self.parts.all if part.is_intake and self._is_last(part) == for_driver]
            reading = [part for part in intakes if part.streams]
            if reading and batch.frame is not None:
                rows = jobs.act(partial(self.transport.frame, batch.frame))
                if self.transport.partitions(rows):
                    self._intake(batch, reading, rows, {}, None, of, made)
            if batch.is_first:
                self._tables(batch, intakes, run, jobs, of, made)
        for part in self.parts.live:
            self._live(batch, part, of, made)
        last = [one for entry in self.parts.driver.entries for one in of[entry.name]]
        if not last:
            # Nothing has come: a task that does nothing stands for it.
            last = [self._computed(self.transport.given([[]]), self._empty(batch), "nothing", made)]
        return list({id(one): one for one in last}.values())

    def _is_last(self, part: Part) -> bool:
        return part.users == [self.parts.driver.name]

    def _empty(self, batch: Batch) -> str:
        return IntakeSpec(self.program, batch.number, [], 0, [], {}, {"": {}}).encode()

    def _computed(self, rows: Any, text: str, name: str, made: list[Rows]) -> Rows:
        found = self.transport.computed(rows, TaskWork(text, {}, {}, name, run_partition))
        made.append(found)
        return found

    def _intake(
        self,
        batch: Batch,
        parts: list[Part],
        rows: Any,
        tables: dict[str, Any],
        frame_of: str | None,
        of: dict[str, list[Rows]],
        made: list[Rows],
    ) -> None:
        """Add the stage of an intake to those of its parts."""
        targets = [(part.name, self.parts.targets(part)) for part in parts]
        read = {scan.name for part in parts for scan in part.streams}
        spec = IntakeSpec(
            self.program,
            batch.number,
            targets,
            max(count for _, count in targets),
            [] if tables else [stream for stream in self.streams if read & set(stream.scans)],
            {name: marks.to_json() for name, marks in batch.marks.items()},
            tables,
            frame_of,
        )
        found = self._computed(rows, spec.encode(), f"the intake of {', '.join(p.name for p in parts)}", made)
        for part in parts:
            of[part.name].append(found)

    def _tables(
        self,
        batch: Batch,
        parts: list[Part],
        run: Run,
        jobs: Jobs,
        of: dict[str, list[Rows]],
        made: list[Rows],
    ) -> None:
        """The rows of tables, which come with the first batch."""
        for part in parts:
            for scan in part.scans:
                if scan in part.streams:
                    continue
                if isinstance(scan.source, FrameSource):
                    frame = scan.source.select(scan.columns)
                    rows = jobs.act(partial(self.transport.frame, frame))
                    if self.transport.partitions(rows):
                        self._intake(batch, [part], rows, {scan.name: {}}, scan.name, of, made)
                    continue
                self._table(batch, part, scan, run, of, made)

    def _table(
        self, batch: Batch, part: Part, scan: Scan, run: Run, of: dict[str, list[Rows]], made: list[Rows]
    ) -> None:
        tasks = self.parts.plan.shards
        entry, splits = scanned(scan, run, tasks)
        given: dict[int, list[Row]] = {}
        for task, row in scan_rows(scan, splits, tasks, run):
            given.setdefault(task, []).append(row)
        if not given:
            return
        rows = self.transport.given([given.get(task, []) for task in range(tasks)])
        about_it = {"description": None if splits is None else entry.description}
        self._intake(batch, [part], rows, {scan.name: about_it}, None, of, made)

    def _live(self, batch: Batch, part: Part, of: dict[str, list[Rows]], made: list[Rows]) -> None:
        senders = [self.parts[entry.name] for entry in part.entries]
        spec = LiveSpec(
            self.program,
            batch.number,
            part.name,
            self.parts.targets(part),
            {one.name: self.intake_scans(one) for one in senders if one.is_intake},
            {one.name: one.shards for one in senders if not one.is_intake},
            {name: marks.to_json() for name, marks in batch.marks.items()},
            batch.states.get(part.name, {}),
            batch.look,
            self.folder,
            self.sync,
            part.one_copy,
        )
        inputs = list({id(one): one for sender in senders for one in of[sender.name]}.values())
        if inputs:
            rows = self.transport.placed(inputs, part.shards)
        else:
            rows = self.transport.given([[] for _ in range(part.shards)])
        of[part.name].append(self._computed(rows, spec.encode(), f"part {part.name}", made))

    def _sorted_out(self, rows: Iterable[Row]) -> Outcome:
        """What tasks have told, and the rows of the last parts. Raises the first error of the query."""
        found = Outcome()
        seen: set[tuple[str, int]] = set()
        owner: dict[str, str] = {}
        for _, name, place, blob in rows:
            if name is None:
                data = about(blob)
                if "error" in data:
                    error = decode_error(blob)
                    assert error is not None
                    raise error
                if "state" in data:
                    found.live[(data["part"], data["shard"])] = data
                elif "stream" in data and owner.setdefault(data["stream"], data["parts"]) == data["parts"]:
                    if (data["stream"], data["task"]) not in seen:
                        seen.add((data["stream"], data["task"]))
                        found.told.setdefault(data["stream"], []).append(data)
            elif name.startswith(LATE):
                first, _, stream = name.removeprefix(LATE).partition("\0")
                if owner.setdefault(stream, first) == first:
                    found.late.setdefault(stream, {})[place] = blob
            else:
                found.letters.setdefault(name, []).append((place, blob))
        return found
