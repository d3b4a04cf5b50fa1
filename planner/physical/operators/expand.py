"""expand: each row once per grouping set; keys outside the set become NULL."""

from __future__ import annotations

from collections.abc import Set
from functools import cached_property
from typing import TYPE_CHECKING, Self

from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical import nodes as logical
from tsql.planner.physical.attributes import first_twice
from tsql.planner.physical.estimate import Estimate, Machine
from tsql.planner.physical.progress import Progress
from tsql.planner.physical.properties import Properties
from tsql.planner.physical.step import Step
from tsql.planner.physical.text import identifiers

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext


@dataclass(frozen=True)
class Expand(Step):
    """`keys` are columns of the input; `sets` tuples of indexes into them. Adds `grouping_id`: bit i is 1 where key i
    is not in the set, and `grouping_set`, the number of the set (equal sets give equal rows twice, as SQL wants)."""

    keys: tuple[str, ...] = ()
    sets: tuple[tuple[int, ...], ...] = ()

    op = "expand"
    label = "expanded"
    is_stateless = True

    @cached_property
    def schema(self) -> Schema:
        fields = [Field(f.name, f.type, True) if f.name in self.keys else f for f in self.inputs[0].schema]
        return Schema((*fields, Field("grouping_id", BIGINT, False), Field("grouping_set", BIGINT, False)))

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return Properties(given[0].shards, replicated=given[0].replicated, copies=given[0].copies)

    def carries(self, column: str) -> list[tuple[Step, str]]:
        return [] if column in self.keys else super().carries(column)

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        own = {*self.keys, *wanted}
        return (frozenset(n for n in self.inputs[0].schema.names if n in own),)

    def promised(self, below: list[Progress]) -> Progress:
        return below[0]

    def expected_rows(self, given: tuple[Estimate, ...], machine: Machine) -> float:
        return given[0].rows * len(self.sets)

    def shadow(self, given: tuple[Estimate, ...]) -> logical.Node:
        return self.unknown

    def attributes(self) -> list[tuple[str, str]]:
        return [
            ("keys", identifiers(self.keys)),
            ("sets", "(" + ", ".join(identifiers(tuple(self.keys[i] for i in s)) for s in self.sets) + ")"),
        ]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        keys = attributes.columns("keys", inputs[0].schema, inputs[0].name)
        sets = []
        for item in attributes.items("sets"):
            names = tuple(context.name(n) for n in attributes.parts("sets", item))
            if len(set(names)) != len(names):
                raise attributes.error("sets", f"the grouping set {item} has {first_twice(names)} twice")
            for n in names:
                if n not in keys:
                    raise attributes.error("sets", f"{n} is in a grouping set but not in keys")
            sets.append(tuple(keys.index(n) for n in names))
        return cls(inputs, keys=keys, sets=tuple(sets))
