"""ORDER BY across tasks: a sample of the keys decides where the range of each shard ends.

The sample is a job over some tasks of the stage that computes the rows. What lies behind a shuffle is computed once for
both jobs. In a lazy DataFrame there is no job: Spark places the rows by ranges itself, and the kernels sort them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tsql.backends.local.run.arranging import Boundary
from tsql.backends.spark.frame import spark_type
from tsql.backends.spark.wire import about, decode_value, encode_value
from tsql.kernels.expr.nodes import Column
from tsql.planner.physical.movement import Arrange, Gather
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.sort import Sort
from tsql.planner.physical.step import PhysicalPlan, Step, named

SAMPLING_TASKS = 2
"""Tasks per core that are asked for a sample."""


def chosen(partitions: int, cores: int) -> list[int]:
    """The tasks that are asked for a sample, at even distances."""
    wanted = min(partitions, SAMPLING_TASKS * cores)
    return sorted({number * partitions // wanted for number in range(wanted)})


def encode_boundaries(found: list[Boundary]) -> list[list[Any]]:
    return [[encode_value(value) for value in row] for row in found]


def decode_boundaries(data: list[list[Any]]) -> list[Boundary]:
    return [tuple(decode_value(value) for value in row) for row in data]


def decode_sample(blobs: list[Any]) -> list[Boundary]:
    """The keys that tasks have sent."""
    return [row for blob in blobs for row in decode_boundaries(about(blob)["sample"])]


def lazily_sorted(plan: PhysicalPlan) -> PhysicalPlan:
    """The plan of a DataFrame whose ORDER BY runs in many tasks, if its last steps are a sort of gathered rows and what
    changes no order. Other plans stay as they are."""
    above: list[Step] = []
    step = plan.root
    while isinstance(step, Project | Filter):
        above.append(step)
        step = step.inputs[0]
    if not (isinstance(step, Sort) and step.limit is None and isinstance(step.inputs[0], Gather)):
        return plan
    (rows,) = step.inputs[0].inputs
    known = all(spark_type(field.type) is not None for field in rows.schema)
    if not known or not all(isinstance(key.expr, Column) for key in step.keys):
        return plan
    found: Step = replace(step, inputs=(Arrange((rows,), scope="global", shards=plan.shards, keys=step.keys),))
    for one in reversed(above):
        found = one.with_inputs((found,))
    return replace(plan, root=named(Gather((found,))))
