"""recursive, working: rows computed from the rows of the previous round, until a round gives none."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Self

from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.cost import constants as cost
from tsql.planner.physical.estimate import Estimate, Machine
from tsql.planner.physical.operators.input import Given, read_fields
from tsql.planner.physical.properties import SINGLE, Properties, Requirement
from tsql.planner.physical.step import Step
from tsql.planner.physical.text import identifier

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext


@dataclass(frozen=True)
class Working(Given):
    """The rows that the last round added to the recursion over `table`; one shard."""

    table: str = ""

    op = "working"
    label = "working"

    def attributes(self) -> list[tuple[str, str]]:
        return [("table", identifier(self.table)), self.columns()]

    def expected_rows(self, given: tuple[Estimate, ...], machine: Machine) -> float:
        return cost.WORKING_ROWS

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        return cls((), table=attributes.name("table"), fields=read_fields(attributes, context))


@dataclass(frozen=True)
class Recursive(Step):
    """The rows of the first input, then round after round those of the second. There, `working` steps of the same table
    stand for the rows of the previous round. With `distinct=yes`, rows that occurred before are dropped. Steps of the
    second input that do not depend on the working table are computed once."""

    table: str = ""
    distinct: bool = False

    op = "recursive"
    label = "rounds"
    arity = (2, 2)

    @cached_property
    def schema(self) -> Schema:
        return Schema(tuple(Field(f.name, f.type) for f in self.inputs[0].schema))

    def requires(self) -> tuple[Requirement, ...]:
        return (SINGLE, SINGLE)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return Properties(1)

    def carries(self, column: str) -> list[tuple[Step, str]]:
        return []

    def attributes(self) -> list[tuple[str, str]]:
        return [("table", identifier(self.table))] + ([("distinct", "yes")] if self.distinct else [])

    def expected_rows(self, given: tuple[Estimate, ...], machine: Machine) -> float:
        return given[0].rows * cost.ROUNDS

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        table, distinct = attributes.name("table"), attributes.flag("distinct")
        types = [[f.type for f in i.schema] for i in inputs]
        if types[0] != types[1]:
            raise context.error(f"{inputs[0].name} and {inputs[1].name} have columns of other types")
        for step in inputs[1].walk():
            if isinstance(step, Working) and step.table == table and [f.type for f in step.fields] != types[0]:
                raise context.error(f"the columns of {step.name} have other types than those of {inputs[0].name}")
        return cls(inputs, table=table, distinct=distinct)


def wrong_rounds(root: Step) -> tuple[Step, str, str] | None:
    """What is wrong with the recursions of a plan, if something is: the step, the message and what would fix it."""
    owners: dict[int, Step] = {}
    for step in root.walk():
        if not isinstance(step, Recursive):
            continue
        working = [s for s in step.inputs[1].walk() if isinstance(s, Working) and s.table == step.table]
        if not working:
            message = (
                f"step {step.name}: {step.inputs[1].name} does not use the working table {step.table}, so that "
                "its rounds would give the same rows without end"
            )
            return (
                step,
                message,
                f"use the rows of the round before: working table={step.table}, or union without rounds",
            )
        for leaf in working:
            owner = owners.setdefault(id(leaf), step)
            if owner is not step:
                return (
                    step,
                    f"step {step.name}: the working table {leaf.name} is used by the rounds of {owner.name} already",
                    "give each recursion a working step and a table of its own",
                )
    return None


def loose_tables(root: Step) -> dict[int, frozenset[str]]:
    """By id of each step, the working tables below it that no recursion below it fills."""
    found: dict[int, frozenset[str]] = {}
    for step in root.walk():
        below = [found[id(i)] for i in step.inputs]
        match step:
            case Working():
                found[id(step)] = frozenset((step.table,))
            case Recursive():
                found[id(step)] = below[0] | (below[1] - {step.table})
            case _:
                found[id(step)] = frozenset().union(*below)
    return found
