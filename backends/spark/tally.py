"""What tasks tell the driver besides rows: counts (`Run.count`), notes, and for `explain analyze` rows and times of
their steps. A tally is a row of the wire, so what a task sent before it was lost and ran again counts once.

Several parts may compute the same rows: those of a WITH query that is joined with itself, or of a broadcast, which each
worker reads for itself. Such rows count once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import field
from typing import Any

from tsql.backends import Run
from tsql.backends.run import StageRun
from tsql.backends.spark.part import StagePart
from tsql.kernels.expr.nodes import Call
from tsql.kernels.functions.datetime.presence import NAMES as COUNTING
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.step import Step

Told = dict[str, Any]
"""Plain data."""


def counted(run: Run, top: Step, entries: Iterable[str]) -> Told:
    """What a run of the steps from `top` down to these entries has counted; nothing if there is nothing to tell."""
    if not (run.counts or run.notes or run.rows_of):
        return {}
    by = counting(top, set(entries)) if run.counts else []
    return {"counts": run.counts, "by": by, "notes": run.notes, "rows_of": run.rows_of}


def counting(top: Step, entries: set[str]) -> list[str]:
    """What counts rows for the user between these boundaries: places in the text of the query, since a WITH query that
    is used twice may be several steps. What has no place goes by the name of its step."""
    found: set[str] = set()
    seen: set[str] = set()
    waiting = [top]
    while waiting:
        step = waiting.pop()
        if step.name in entries or step.name in seen:
            continue
        seen.add(step.name)
        waiting += step.inputs
        if isinstance(step, Filter):
            calls = (node for node in step.predicate.walk() if isinstance(node, Call) and node.name in COUNTING)
            found.update(step.name if call.position is None else str(call.position) for call in calls)
    return sorted(found)


def of(
    part: StagePart,
    shard: int,
    run: Run,
    mine: Told,
    reads: dict[str, Told],
    ms: float,
    bytes_in: int,
    bytes_out: int,
) -> bytes | None:
    """The tally of one shard; None if there is nothing to tell. `mine`: what its own steps have counted, `reads`: what
    was counted for the rows of broadcasts."""
    reads = {name: one for name, one in reads.items() if one}
    if not (mine or reads or part.profile):
        return None
    told: Told = {"stage": part.stage, "shard": shard, "counted": mine, "reads": reads}
    if part.profile:
        told |= {
            "top": part.movement or part.top,
            "ms": ms,
            "bytes_in": bytes_in,
            "bytes_out": bytes_out,
            "steps": run.steps,
            "choices": run.choices,
        }
    return json.dumps({"tally": told}).encode()


@dataclass
class Counts:
    """What the tasks of one part have counted, and what (`by`) counts rows for the user."""

    by: frozenset[str] = frozenset()
    counts: Counter[str] = field(default_factory=Counter)
    rows_of: Counter[str] = field(default_factory=Counter)

    def add(self, told: Told) -> None:
        self.by |= frozenset(told.get("by", ()))
        self.counts.update(told.get("counts", {}))
        self.rows_of.update(told.get("rows_of", {}))


class Tallies:
    """What the tasks of a run have told."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self._known: set[tuple[int, int]] = set()

    def add(self, told: Told) -> None:
        # Rows that two stages read bring their tally twice.
        key = (told["stage"], told["shard"])
        if key not in self._known:
            self._known.add(key)
            self.told.append(told)

    def tell(self, run: Run) -> None:
        """Add everything to the driver's run."""
        self._tell_counts(run)
        for one in self.told:
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

    def _tell_counts(self, run: Run) -> None:
        parts: dict[tuple[str, Any], Counts] = {}
        for one in self.told:
            for note in [*one["counted"].get("notes", ()), *(n for r in one["reads"].values() for n in r["notes"])]:
                run.note(note)
            parts.setdefault(("stage", one["stage"]), Counts()).add(one["counted"])
            for name, read in one["reads"].items():
                if ("read", name) not in parts:
                    parts["read", name] = Counts()
                    parts["read", name].add(read)
        taken: list[frozenset[str]] = []
        for part in sorted(parts.values(), key=lambda part: (len(part.by), part.counts.total()), reverse=True):
            for step, rows in part.rows_of.items():
                run.rows_of[step] = max(run.rows_of.get(step, 0), rows)
            # The same rows were counted in another part.
            if part.by and any(part.by <= other for other in taken):
                continue
            taken.append(part.by)
            for what, rows in part.counts.items():
                run.count(what, rows)

    def _tell_stages(self, run: Run) -> None:
        found: dict[int, StageRun] = {}
        for one in self.told:
            if "ms" in one:
                stage = found.setdefault(one["stage"], StageRun(one["stage"], one["top"]))
                stage.ms.append(one["ms"])
                stage.bytes_in.append(one["bytes_in"])
                stage.bytes_out.append(one["bytes_out"])
        run.stages += [found[number] for number in sorted(found)]
