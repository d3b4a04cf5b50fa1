"""Counts of rows that tasks have left out (`Run.count`) and their notes, on their way to the driver: a Spark
accumulator of one entry for each stage and shard.

A task that Spark runs twice gives its entry twice, and it counts once.
"""

from __future__ import annotations

from typing import Any

from pyspark.accumulators import AccumulatorParam

from tsql.backends import Run

Tally = dict[tuple[str, int], tuple[dict[str, int], list[str]]]
"""(stage, shard) to what its task has counted and noted."""


class TallyParam(AccumulatorParam[Tally]):
    """How Spark adds tallies up: entries of the same stage and shard are the same."""

    def zero(self, value: Tally) -> Tally:
        return {}

    def addInPlace(self, value1: Tally, value2: Tally) -> Tally:  # noqa: N802  (Spark's name)
        value1.update(value2)
        return value1


def accumulator(context: Any) -> Any:
    """A new accumulator; tasks add `{(stage, shard): (counts, notes)}` to it."""
    return context.accumulator({}, TallyParam())


def collect(tallies: Any, run: Run) -> None:
    """Add what the tasks have counted and noted to the driver's run."""
    for counts, notes in tallies.value.values():
        for note in notes:
            run.note(note)
        for what, rows in counts.items():
            run.count(what, rows)
