"""expand: each row once per grouping set, with the keys that are not in the set set to NULL."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT
from tsql.planner.physical.attributes import first_twice
from tsql.planner.physical.properties import Properties
from tsql.planner.physical.step import Step


@dataclass(frozen=True)
class Expand(Step):
    """`keys` are columns of the input; `sets` tuples of indexes into them. Adds `grouping_id`: bit i is 1 where key i
    is not in the set, and `grouping_set`, the number of the set (equal sets give equal rows twice, as SQL wants)."""

    keys: tuple[str, ...] = ()
    sets: tuple[tuple[int, ...], ...] = ()

    op = "expand"
    label = "expanded"

    @cached_property
    def schema(self) -> Schema:
        fields = [Field(f.name, f.type, True) if f.name in self.keys else f for f in self.inputs[0].schema]
        return Schema((*fields, Field("grouping_id", BIGINT, False), Field("grouping_set", BIGINT, False)))

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return Properties(given[0].shards, replicated=given[0].replicated, copies=given[0].copies)

    def carries(self, column: str) -> list[tuple[Step, str]]:
        return [] if column in self.keys else super().carries(column)

    def attributes(self) -> list[tuple[str, str]]:
        from tsql.planner.physical.planfile import identifiers

        return [
            ("keys", identifiers(self.keys)),
            ("sets", "(" + ", ".join(identifiers(tuple(self.keys[i] for i in s)) for s in self.sets) + ")"),
        ]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Any, context: Any) -> Step:
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
