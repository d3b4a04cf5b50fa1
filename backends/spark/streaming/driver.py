"""`DriverPart`: the part of a plan behind the last gather, and what EMIT asks for. It runs in this process, over what a
micro-batch has brought."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tsql.backends import Run
from tsql.backends.live.fragments import Rows
from tsql.backends.live.jobs.emission import Emitter
from tsql.backends.live.jobs.parts import Parts as Held
from tsql.backends.live.jobs.parts import joined
from tsql.backends.spark.streaming.batch import Cluster, Letters, Outcome
from tsql.backends.spark.streaming.marks import StreamMarks
from tsql.backends.spark.streaming.part_query import PartQuery
from tsql.backends.spark.streaming.spec import AHEAD, PROGRESS
from tsql.backends.spark.streaming.task import held_of, intake_progress, of_senders
from tsql.backends.spark.wire import decode_chunks
from tsql.planner.logical.emission import AT_ONCE, Emission
from tsql.planner.physical.progress import Progress
from tsql.planner.physical.step import PhysicalPlan


class DriverPart:
    """The last part of a job. rows: those that leave go to the sink by `emit`."""

    def __init__(self, cluster: Cluster, plan: PhysicalPlan, emission: Emission, run: Run):
        self.cluster, self.plan, self.emission = cluster, plan, emission
        part = cluster.parts.driver
        self.entries = part.entries
        self.query = PartQuery(part.top, part.entries, run, output=(plan.columns, plan.names))
        self._held = Held()
        self._ahead: list[pa.RecordBatch] = []
        self.emitter = Emitter(self, emission, ())  # type: ignore[arg-type]

    def look(self) -> str | None:
        """How far ahead the next micro-batch shows rows that are not final; None: it does not."""
        if not self.emission.has_changes or self.emitter.wait not in (0.0, None):
            return None
        return "now" if self.emission.horizon == AT_ONCE else "watermark"

    def take(self, outcome: Outcome, marks: dict[str, StreamMarks], look: str | None) -> None:
        """What a micro-batch has brought. marks: the streams behind it."""
        now, then = self._promises(outcome.letters, marks, look)
        rows = self.query.pass_on(self._rows(outcome.letters, ""), now)
        self._ahead = []
        if look is not None:
            self._ahead = self.query.look(self._rows(outcome.letters, AHEAD), then)
        self.emitter.take(rows, moved=True)

    def peek(self, promises: dict[str, int | None]) -> list[pa.RecordBatch]:
        """What the emitter asks a query for: rows that are not final."""
        return self._ahead

    def _rows(self, letters: Letters, kind: str) -> dict[str, Rows]:
        found = {}
        for entry in self.entries:
            blobs = sorted(letters.get(entry.name + kind, ()), key=lambda letter: letter[0])
            columns = len(entry.schema)
            found[entry.name] = [c for place, blob in blobs for c in decode_chunks(blob, columns, place)]
        return found

    def _promises(
        self, letters: Letters, marks: dict[str, StreamMarks], look: str | None
    ) -> tuple[dict[str, Progress], dict[str, Progress]]:
        now: dict[str, Progress] = {}
        then: dict[str, Progress] = {}
        for entry in self.entries:
            part = self.cluster.parts[entry.name]
            if part.is_intake:
                scans = self.cluster.intake_scans(part)
                now[entry.name] = intake_progress(entry, scans, marks)
                then[entry.name] = intake_progress(entry, scans, marks, look)
            else:
                now[entry.name] = self._of_shards(letters, entry.name + PROGRESS, part.shards)
                then[entry.name] = now[entry.name]
                if look is not None:
                    then[entry.name] = self._of_shards(letters, entry.name + PROGRESS + AHEAD, part.shards)
        return now, then

    def _of_shards(self, letters: Letters, name: str, shards: int) -> Progress:
        return of_senders([blob for _, blob in letters.get(name, ())], shards)

    def held(self) -> dict[str, list[Any]]:
        """What its steps hold."""
        return held_of(self.query)

    def tables(self) -> dict[str, list[pa.RecordBatch]]:
        """The parts of its state, for a checkpoint. Nothing is copied."""
        held = {f"held {name}": parts for name, parts in self._held.of(self.query.tables()).items()}
        return held | {f"shown {name}": table.to_batches() for name, table in self.emitter.state().items()}

    def restore(self, marks: dict[str, Any], tables: dict[str, list[pa.RecordBatch]]) -> None:
        """Go on from a checkpoint."""
        whole = {name: joined(parts) for name, parts in tables.items()}
        held = {name.removeprefix("held "): one for name, one in whole.items() if name.startswith("held ")}
        self.query.go_on(marks, held)
        self.emitter.restore({name: whole[f"shown {name}"] for name in ("ahead", "final")})
