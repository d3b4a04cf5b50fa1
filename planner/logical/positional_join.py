"""The logical node of POSITIONAL JOIN. It is no `Join`: a filter below it would change which rows meet, and so would
another order of its inputs."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property

from tsql.kernels.expr.schema import Schema
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.nodes import Binary, Node, joined_schema


@dataclass(frozen=True)
class PositionalJoin(Binary):
    """The first row of the left with the first of the right, the second with the second, ..; the shorter side goes on
    with NULLs. The names of the two sides differ."""

    left: Node
    right: Node
    position: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        both = set(self.left.schema.names) & set(self.right.schema.names)
        if both:
            raise ValueError(f"both sides of a join have columns {sorted(both)}")

    @cached_property
    def schema(self) -> Schema:
        return joined_schema("full", self.left.schema, self.right.schema, None)

    def needs(self, wanted: set[str]) -> list[set[str]]:
        return [wanted & set(side.schema.names) for side in self.inputs]

    def describe(self) -> str:
        return "positional join"
