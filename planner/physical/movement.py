"""Movement: the steps that place rows. Query logic never moves rows, and movement never changes rows (Quill, section
3)."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from tsql.kernels.expr.nodes import Column, Expr, SortKey
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.cost import constants as cost
from tsql.planner.physical.estimate import Cost, Estimate, Machine, width
from tsql.planner.physical.progress import Progress
from tsql.planner.physical.properties import EVEN, KEYED, ONCE, SINGLE, Properties, Requirement
from tsql.planner.physical.step import Step
from tsql.planner.physical.text import identifiers

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext

SCOPES = ("local", "global")
HEAVIES = ("split", "copy")
"""What becomes of the rows of heavy keys."""
HOWS = ("read", "send", "collect")
"""How a broadcast reaches other machines."""


@dataclass(frozen=True)
class Rekey(Step):
    """Sets the key of each row; moves nothing."""

    key: tuple[str, ...] = ()

    op = "rekey"
    label = "keyed"
    is_movement = True
    is_stateless = True

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return replace(given[0], key=self.key)

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        return self.used(*wanted, *self.key)

    def promised(self, below: list[Progress]) -> Progress:
        return below[0]

    def expected_cost(self, given: tuple[Estimate, ...], rows: float, properties: Properties, machine: Machine) -> Cost:
        return Cost()

    def attributes(self) -> list[tuple[str, str]]:
        return [("key", identifiers(self.key))]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        return cls(inputs, key=attributes.columns("key", inputs[0].schema, inputs[0].name))


@dataclass(frozen=True)
class Movement(Step):
    """Base of the steps that move rows, between cores (scope=local) or machines (scope=global)."""

    scope: str = "local"
    shards: int | None = None

    is_movement = True
    is_stateless = True

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        return self.used(*wanted)

    def promised(self, below: list[Progress]) -> Progress:
        return below[0]

    def expected_cost(self, given: tuple[Estimate, ...], rows: float, properties: Properties, machine: Machine) -> Cost:
        (below,) = given
        copies = self.copies(properties)
        moved = below.rows * copies * width(self.schema)
        work = machine.work(below.rows * copies * machine.costs.move_ns, below.properties.shards, moved, breaks=True)
        if self.scope == "local":
            return work + Cost(local_bytes=moved)
        # The first task of each core is part of what a stage costs.
        further = max(0, -(-(self.shards or machine.shards) // machine.shards) - 1)
        return work + Cost(
            moved * machine.costs.global_byte_ns / max(1, min(below.properties.shards, machine.shards))
            + (machine.costs.stage_us + further * machine.costs.task_us) * 1000,
            global_bytes=moved,
        )

    def copies(self, properties: Properties) -> int:
        """The maximum number of shards that get a row, for an output with these properties."""
        return 1

    def attributes(self) -> list[tuple[str, str]]:
        return [("scope", self.scope)] + ([("shards", str(self.shards))] if self.shards is not None else [])

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        return cls(inputs, scope=attributes.choice("scope", SCOPES, "local"), shards=attributes.shards())


@dataclass(frozen=True)
class Redistribute(Movement):
    """Rows of one key to one shard. heavy, for the two sides of a join between machines: the rows of a key that many
    rows share stay spread on one side ("split"), and go to all shards on the other ("copy")."""

    heavy: str | None = None

    op = "redistribute"
    label = "placed"

    def requires(self) -> tuple[Requirement, ...]:
        return (KEYED,)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        targets = self.shards or shards
        if self.heavy is not None:
            return Properties(targets, key=given[0].key, copies=1 if self.heavy == "split" else targets)
        return Properties(targets, placed=given[0].key, key=given[0].key)

    def attributes(self) -> list[tuple[str, str]]:
        return super().attributes() + ([("heavy", self.heavy)] if self.heavy is not None else [])

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        found = super().read(inputs, attributes, context)
        heavy = attributes.choice("heavy", HEAVIES) if attributes.optional("heavy") is not None else None
        if heavy is not None and found.scope == "local":
            raise attributes.error("heavy", f"heavy={heavy} is for scope=global", hint="leave heavy out")
        return replace(found, heavy=heavy)


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
    """Every shard gets everything. how, between machines: "read": each machine computes the rows by itself, from one
    shard; "send": the driver computes them and sends them with the tasks; "collect": tasks compute them, the driver
    collects them and sends them to all machines. The same rows in any case."""

    how: str | None = None

    op = "broadcast"
    label = "everywhere"

    def requires(self) -> tuple[Requirement, ...]:
        return (SINGLE if self.how in ("read", "send") else ONCE,)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return Properties(self.shards or shards, replicated=self.scope, key=given[0].key)

    def expected_cost(self, given: tuple[Estimate, ...], rows: float, properties: Properties, machine: Machine) -> Cost:
        if self.scope == "local":
            # The shards share one copy.
            return Cost()
        (below,) = given
        moved = below.rows * width(self.schema)
        if self.how == "read":
            # Each machine holds what it has computed.
            return Cost(moved * cost.HELD_BYTE, memory_bytes=moved)
        # The driver sends one copy, and machines pass it on to each other.
        sent = moved * machine.costs.broadcast_byte_ns
        if self.how != "send":
            sent += (machine.costs.stage_us + machine.costs.job_us) * 1000
        return Cost(sent, memory_bytes=moved * properties.shards, global_bytes=moved * properties.shards)

    def copies(self, properties: Properties) -> int:
        return properties.shards

    def attributes(self) -> list[tuple[str, str]]:
        return super().attributes() + ([("how", self.how)] if self.how is not None else [])

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        found = super().read(inputs, attributes, context)
        how = attributes.choice("how", HOWS) if attributes.optional("how") is not None else None
        if how is not None and found.scope == "local":
            raise attributes.error("how", f"how={how} is for scope=global: cores share one copy", hint="leave how out")
        return replace(found, how=how)


@dataclass(frozen=True)
class Multicast(Movement):
    """Sends each row to zero or more shards: `to` gives their numbers, from 0 on, or NULLs. A shard gets a row at most
    once.

    The author of the plan must ensure that rows of two multicasts meet: a join of them looks only within each shard."""

    to: tuple[Expr, ...] = ()

    op = "multicast"
    label = "directed"

    def requires(self) -> tuple[Requirement, ...]:
        return (ONCE,)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        targets = self.shards or shards
        return Properties(targets, key=given[0].key, copies=min(len(self.to), targets))

    def expected_rows(self, given: tuple[Estimate, ...], machine: Machine) -> float:
        return given[0].rows * len(self.to)

    def copies(self, properties: Properties) -> int:
        return properties.copies or 1

    def attributes(self) -> list[tuple[str, str]]:
        return [("to", f"({', '.join(map(str, self.to))})"), *super().attributes()]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        to = tuple(context.expression(item, inputs[0].schema) for item in attributes.items("to"))
        if not to:
            raise attributes.error("to", "to=(..) gives the shards that a row goes to: one expression or more")
        for expr in to:
            if not expr.type.is_integer or expr.type.bits > 64:
                raise attributes.error("to", f"to=({expr}): the number of a shard is an integer, not {expr.type}")
        return replace(super().read(inputs, attributes, context), to=to)


@dataclass(frozen=True)
class Arrange(Movement):
    """Rows to shards by ranges of sort keys: the rows of each shard come before those of the next. Where the ranges end
    is found from a sample of the rows."""

    keys: tuple[SortKey, ...] = ()

    op = "arrange"
    label = "arranged"

    def requires(self) -> tuple[Requirement, ...]:
        return (ONCE,)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return Properties(self.shards or shards, key=given[0].key)

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        return self.used(*wanted)

    def expected_cost(self, given: tuple[Estimate, ...], rows: float, properties: Properties, machine: Machine) -> Cost:
        found = super().expected_cost(given, rows, properties, machine)
        # The sample is a job of its own.
        return found + Cost(machine.costs.job_us * 1000) if self.scope == "global" else found

    def attributes(self) -> list[tuple[str, str]]:
        return [("by", f"({', '.join(map(str, self.keys))})"), *super().attributes()]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        keys = tuple(context.sort_key(item, inputs[0].schema) for item in attributes.items("by"))
        if not keys:
            raise attributes.error("by", "by=() of an arrange has no key", hint="by=(column), or by=(column desc)")
        for key in keys:
            if not isinstance(key.expr, Column) or key.expr.type.name == "INTERVAL":
                raise attributes.error(
                    "by",
                    f"by=({key}): rows are arranged by columns that are no intervals",
                    hint="put a project before it that makes the key a column",
                )
        return replace(super().read(inputs, attributes, context), keys=keys)


@dataclass(frozen=True)
class Gather(Step):
    """Everything to one shard, in input order. Of a replicated dataset, one copy."""

    op = "gather"
    label = "gathered"
    is_movement = True
    is_stateless = True

    def requires(self) -> tuple[Requirement, ...]:
        return (EVEN,)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        ordered = given[0].shards == 1 or given[0].in_sequence
        return Properties(1, key=given[0].key, order=given[0].order if ordered else ())

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        return self.used(*wanted)

    def promised(self, below: list[Progress]) -> Progress:
        return below[0]

    def expected_cost(self, given: tuple[Estimate, ...], rows: float, properties: Properties, machine: Machine) -> Cost:
        # States are merged where they are, and rows are collected shard by shard; only machines have to send them.
        if not machine.is_cluster or given[0].properties.shards == 1:
            return Cost()
        moved = given[0].rows * width(self.schema)
        return Cost(moved * machine.costs.global_byte_ns, global_bytes=moved)
