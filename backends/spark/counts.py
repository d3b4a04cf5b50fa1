"""Counts of rows that tasks have left out (`Run.count`), on their way to the driver: a Spark accumulator of one entry for each stage and shard.

A task that Spark runs twice gives its entry twice, and it counts once.
"""

from __future__ import annotations

from typing import Any

from pyspark.accumulators import AccumulatorParam

from tsql.backends import Run

Tally = dict[tuple[str, int], dict[str, int]]
"""(stage, shard) to what its task has counted."""


class TallyParam(AccumulatorParam[Tally]):
    """How Spark adds tallies up: entries of the same stage and shard are the same."""

    def zero(self, value: Tally) -> Tally:
        return {}

    def addInPlace(self, value1: Tally, value2: Tally) -> Tally:  # noqa: N802  (Spark's name)
        value1.update(value2)
        return value1


def accumulator(context: Any) -> Any:
    """A new accumulator; tasks add `{(stage, shard): counts}` to it."""
    return context.accumulator({}, TallyParam())


def collect(tallies: Any, run: Run) -> None:
    """Add what the tasks have counted to the driver's run."""
    for counts in tallies.value.values():
        for what, rows in counts.items():
            run.count(what, rows)
