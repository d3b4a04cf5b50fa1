"""What tasks tell the driver besides rows: counts (`Run.count`), notes, and for `explain analyze` rows and times of
their steps. A tally is a row of the wire, so what a task sent before it was lost and ran again counts once."""

from __future__ import annotations

import json
from typing import Any

from tsql.backends import Run
from tsql.backends.run import StageRun
from tsql.backends.spark.part import StagePart


def of(part: StagePart, shard: int, run: Run, ms: float, bytes_in: int, bytes_out: int) -> bytes | None:
    """The tally of one shard; None if there is nothing to tell."""
    if not (run.counts or run.notes or part.profile):
        return None
    told: dict[str, Any] = {"stage": part.stage, "shard": shard, "counts": run.counts, "notes": run.notes}
    if part.profile:
        told |= {
            "top": part.movement or part.top,
            "ms": ms,
            "bytes_in": bytes_in,
            "bytes_out": bytes_out,
            "rows_of": run.rows_of,
            "steps": run.steps,
            "choices": run.choices,
        }
    return json.dumps({"tally": told}).encode()


class Tallies:
    """What the tasks of a run have told."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self._known: set[tuple[int, int]] = set()

    def add(self, told: dict[str, Any]) -> None:
        # Rows that two stages read bring their tally twice.
        key = (told["stage"], told["shard"])
        if key not in self._known:
            self._known.add(key)
            self.told.append(told)

    def tell(self, run: Run) -> None:
        """Add everything to the driver's run."""
        for one in self.told:
            for note in one["notes"]:
                run.note(note)
            for what, rows in one["counts"].items():
                run.count(what, rows)
            for name, rows in one.get("rows_of", {}).items():
                run.rows_of[name] = run.rows_of.get(name, 0) + rows
            run.choices |= one.get("choices", {})
            for name, step in one.get("steps", {}).items():
                known = run.steps.setdefault(name, {"rows": 0, "ms": 0.0})
                known["rows"] += step["rows"]
                known["ms"] += step["ms"]
                known["tasks"] = known.get("tasks", 0) + 1
                known["slowest_ms"] = max(known.get("slowest_ms", 0.0), step["ms"])
                if step.get("spilled"):
                    known["spilled"] = known.get("spilled", 0) + step["spilled"]
        self._tell_stages(run)

    def _tell_stages(self, run: Run) -> None:
        found: dict[int, StageRun] = {}
        for one in self.told:
            if "ms" in one:
                stage = found.setdefault(one["stage"], StageRun(one["stage"], one["top"]))
                stage.ms.append(one["ms"])
                stage.bytes_in.append(one["bytes_in"])
                stage.bytes_out.append(one["bytes_out"])
        run.stages += [found[number] for number in sorted(found)]
