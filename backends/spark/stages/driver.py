"""Steps that run on the driver: behind `gather`, and those whose rows tasks need again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tsql.backends.local.run.dataset import ChunkData, Dataset
from tsql.backends.local.run.entry import chunk_columns
from tsql.backends.local.run.execution import Execution
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk
from tsql.backends.spark.limits import growing
from tsql.backends.spark.wire import Row, decode_chunks, encode_chunks
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.backends.spark.stages.stages import Stages


class DriverSteps:
    """The rows that the driver has in one run."""

    def __init__(self, stages: Stages):
        self.stages, self.cut, self.run, self.jobs = stages, stages.cut, stages.run, stages.jobs
        self.blobs: dict[int, list[Any]] = {}
        """Rows of steps that go to tasks, by the id of the step."""
        self.there: dict[int, list[Chunk]] = {}
        """Rows that the driver has already, by the id of their step (`Cut.there`)."""

    def driven(self, step: Step) -> list[Any]:
        """The rows of a step that runs on the driver, as blobs."""
        if id(step) not in self.blobs:
            given = self.there.get(id(step))
            self.blobs[id(step)] = self._computed(step) if given is None else list(encode_chunks(given))
        return self.blobs[id(step)]

    def chunks(self, step: Step) -> list[Chunk]:
        """The same as rows in columns."""
        return self._chunks(step, [(0, step.name, place, blob) for place, blob in enumerate(self.driven(step))])

    def _computed(self, step: Step) -> list[Any]:
        """The rows of a step that runs on the driver, as blobs: rows of tasks that it needs are collected first."""
        entries = self.cut.entries(step, on_driver=True)
        execution = Execution(self.run, None, inputs=self.collected(entries))
        try:
            with self.cut.plan.deep():
                lists = execution.chunks(step, 1)
            execution.tell()
            # Spilled rows are gone when the execution is closed.
            return list(encode_chunks(chunk for one in lists for chunk in one))
        finally:
            execution.close(improves=False)

    def collected(self, entries: list[Step], most: dict[int, int] | None = None) -> dict[int, Dataset | Flow]:
        """The rows of steps in tasks, in the driver's memory."""
        for step in entries:
            self.stages.broadcasts.collect(step)
        asked = most or {}
        found = dict(self.there)
        whole = [step for step in entries if id(step) not in asked and id(step) not in found]
        rows = self.jobs.collect_all([self.stages.gathered(step) for step in whole])
        found |= {id(step): self._chunks(step, rows.get(step.name, [])) for step in whole}
        for step in entries:
            if id(step) in asked:
                found[id(step)] = self._first_chunks(step, asked[id(step)])
        batch_rows = self.run.settings.batch_rows
        return {
            id(step): Flow(ChunkData(chunk_columns(step.schema), [found[id(step)]], batch_rows), step.schema)
            for step in entries
        }

    def _first_chunks(self, step: Step, most: int) -> list[Chunk]:
        """The first rows of a step, and perhaps some more: tasks run in growing waves until there are enough."""
        rows, transport = self.stages.gathered(step, most), self.stages.transport
        found: list[Chunk] = []
        waves = growing(transport.partitions(rows), transport.cores)
        for wave in self.jobs.waves(rows, waves, ahead=False):
            found += self._chunks(step, wave)
            if sum(chunk.rows for chunk in found) >= most:
                break
        return found

    def _chunks(self, step: Step, rows: list[Row]) -> list[Chunk]:
        columns = len(step.schema)
        ordered = sorted(rows, key=lambda row: row[2])
        return [chunk for _, _, place, blob in ordered for chunk in decode_chunks(blob, columns, place)]
