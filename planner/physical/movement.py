"""Movement: the steps that place rows. Query logic never moves rows, and these steps never change them (Quill, section
3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tsql.kernels.expr.nodes import Expr
from tsql.planner.physical.properties import EVEN, KEYED, ONCE, Properties, Requirement
from tsql.planner.physical.step import Step

SCOPES = ("local", "global")


@dataclass(frozen=True)
class Rekey(Step):
    """Sets the key of each row; moves nothing."""

    key: tuple[str, ...] = ()

    op = "rekey"
    label = "keyed"

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return replace(given[0], key=self.key)

    def attributes(self) -> list[tuple[str, str]]:
        from tsql.planner.physical.planfile import identifiers

        return [("key", identifiers(self.key))]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Any, context: Any) -> Step:
        return cls(inputs, key=attributes.columns("key", inputs[0].schema, inputs[0].name))


@dataclass(frozen=True)
class Movement(Step):
    """Base of the steps that move rows, between cores (scope=local) or machines (scope=global)."""

    scope: str = "local"
    shards: int | None = None

    def attributes(self) -> list[tuple[str, str]]:
        return [("scope", self.scope)] + ([("shards", str(self.shards))] if self.shards is not None else [])

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Any, context: Any) -> Step:
        return cls(inputs, scope=attributes.choice("scope", SCOPES, "local"), shards=attributes.shards())


@dataclass(frozen=True)
class Redistribute(Movement):
    """Rows of one key to one shard."""

    op = "redistribute"
    label = "placed"

    def requires(self) -> tuple[Requirement, ...]:
        return (KEYED,)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return Properties(self.shards or shards, placed=given[0].key, key=given[0].key)


@dataclass(frozen=True)
class Reshard(Movement):
    """Whole batches round robin, to even sizes."""

    op = "reshard"
    label = "even"

    def requires(self) -> tuple[Requirement, ...]:
        return (ONCE,)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return Properties(self.shards or shards, key=given[0].key)


@dataclass(frozen=True)
class Broadcast(Movement):
    """Every shard gets everything."""

    op = "broadcast"
    label = "everywhere"

    def requires(self) -> tuple[Requirement, ...]:
        return (ONCE,)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return Properties(self.shards or shards, replicated=self.scope, key=given[0].key)


@dataclass(frozen=True)
class Multicast(Movement):
    """Each row to zero or more shards: `to` gives their numbers, from 0 on, or NULLs. A shard gets a row once.

    Where rows of two multicasts meet is for who writes the plan to see to: a join of them looks in each shard for
    itself."""

    to: tuple[Expr, ...] = ()

    op = "multicast"
    label = "directed"

    def requires(self) -> tuple[Requirement, ...]:
        return (ONCE,)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        targets = self.shards or shards
        return Properties(targets, key=given[0].key, copies=min(len(self.to), targets))

    def attributes(self) -> list[tuple[str, str]]:
        return [("to", f"({', '.join(map(str, self.to))})"), *super().attributes()]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Any, context: Any) -> Step:
        to = tuple(context.expression(item, inputs[0].schema) for item in attributes.items("to"))
        if not to:
            raise attributes.error("to", "to=(..) gives the shards that a row goes to: one expression or more")
        for expr in to:
            if not expr.type.is_integer or expr.type.bits > 64:
                raise attributes.error("to", f"to=({expr}): the number of a shard is an integer, not {expr.type}")
        return replace(super().read(inputs, attributes, context), to=to)


@dataclass(frozen=True)
class Gather(Step):
    """Everything to one shard, in input order. Of a replicated dataset, one copy."""

    op = "gather"
    label = "gathered"

    def requires(self) -> tuple[Requirement, ...]:
        return (EVEN,)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return Properties(1, key=given[0].key, order=given[0].order if given[0].shards == 1 else ())

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Any, context: Any) -> Step:
        return cls(inputs)
