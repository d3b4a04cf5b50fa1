"""Counts of rows that tasks have left out (`Run.count`) and their notes, sent to the driver in a Spark accumulator with
one entry per stage and shard.

If Spark runs a task twice, its entry arrives twice but counts once."""

from __future__ import annotations

from typing import Any

from pyspark.accumulators import AccumulatorParam

from tsql.backends import Run

Tally = dict[tuple[str, int], tuple[dict[str, int], list[str]]]
"""(stage, shard) to the counts and notes of its task."""


class TallyParam(AccumulatorParam[Tally]):
    """How Spark merges tallies: entries of the same stage and shard are equal."""

    def zero(self, value: Tally) -> Tally:
        return {}

    def addInPlace(self, value1: Tally, value2: Tally) -> Tally:  # noqa: N802  (Spark's name)
        value1.update(value2)
        return value1


def accumulator(context: Any) -> Any:
    """A new accumulator; tasks add `{(stage, shard): (counts, notes)}` to it."""
    return context.accumulator({}, TallyParam())


def collect(tallies: Any, run: Run) -> None:
    """Add the counts and notes of the tasks to the driver's run."""
    for counts, notes in tallies.value.values():
        for note in notes:
            run.note(note)
        for what, rows in counts.items():
            run.count(what, rows)
