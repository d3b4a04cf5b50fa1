"""Aggregates inside a kernel: a state of a few machine words, and five functions over it.

A body is made per use, with the types of its arguments and what is known of them (`AggregateArgument`). The state lives
in registers (one group), in an array (dense groups) or in a hash table's entry; `AggregateState` hides which. A partial
aggregate passes on its state as SQL values (`export`), and `absorb` merges such values."""

from __future__ import annotations

from tsql.kernels.codegen.kir import BYTES
from tsql.kernels.codegen.lang import Val, Var
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.nodes import Literal, SortKey
from tsql.kernels.expr.types import Type
from tsql.kernels.process.quick_dataclass import dataclass


@dataclass(frozen=True)
class AggregateArgument:
    """What is known of an argument: its type, its bounds, whether it may be NULL, and its value if it is constant."""

    type: Type
    range: tuple[int, int] | None = None
    nullable: bool = True
    constant: Literal | None = None

    @property
    def literal(self) -> Literal:
        """The value of an argument that the binder has checked to be constant."""
        if self.constant is None:
            raise TypeError("the argument is not constant")
        return self.constant


class AggregateState:
    """The fields of one aggregate's state."""

    def get(self, index: int) -> Val:
        raise NotImplementedError

    def set(self, index: int, value: Val) -> None:
        raise NotImplementedError


class MemoryState(AggregateState):
    """Fields at fixed offsets from a pointer."""

    def __init__(self, k: PipelineKernel, pointer: Val, types: tuple[str, ...], offset: int):
        self.k, self.pointer, self.types = k, pointer, types
        self.offsets = field_offsets(types, offset)

    def get(self, index: int) -> Val:
        return self.k.load(self.types[index], self.k.offset(self.pointer, self.offsets[index]))

    def set(self, index: int, value: Val) -> None:
        self.k.store(self.k.offset(self.pointer, self.offsets[index]), value)


class RegisterState(AggregateState):
    """Fields in variables, for the one group of an aggregate without keys."""

    def __init__(self, variables: list[Var]):
        self.variables = variables

    def get(self, index: int) -> Val:
        return self.variables[index].value

    def set(self, index: int, value: Val) -> None:
        self.variables[index].set(value)


def field_offsets(types: tuple[str, ...], start: int) -> list[int]:
    """Offsets of consecutive fields, each in whole words."""
    offsets = []
    for t in types:
        offsets.append(start)
        start += max(8, BYTES[t])
    return offsets


def fields_bytes(types: tuple[str, ...]) -> int:
    return sum(max(8, BYTES[t]) for t in types)


class Body:
    """Base of aggregates. Subclasses set `fields` (KIR types of the state) in `__init__` and write the functions below.

    decomposable: the state can be exported as SQL values and merged, so partial aggregation is possible. skips_nulls:
    rows with a NULL argument do not count (all aggregates but count(*), first, last and similar ones). branchless:
    `update` takes a mask and needs no branch, so loops over one group vectorise. family: aggregates of one family over
    the same arguments share one state. wants_position: before `update`, `position` is set to the row's position in the
    input (i64). wants_order: before `update`, `order` is set to the values of the call's ORDER BY keys (`order_keys`).
    counter: the field that counts the rows taken in, if there is one. removable: `remove` takes a row, and `difference`
    a whole state, out of a state exactly, so frames and windows can slide (kernels/windows). rows: an upper bound on
    the rows of any one state, or None."""

    decomposable = True
    skips_nulls = True
    branchless = False
    family: str | None = None
    wants_position = False
    counter: int | None = None
    removable = False
    order_keys: tuple[SortKey, ...] = ()
    fields: tuple[str, ...] = ()
    position: Val
    order: tuple[Datum, ...]
    transient = ("order", "position")

    def __init__(self, inputs: tuple[AggregateArgument, ...], result: Type, rows: int | None):
        self.inputs, self.result, self.rows = inputs, result, rows

    @property
    def wants_order(self) -> bool:
        return False

    def init(self, k: PipelineKernel, state: AggregateState) -> None:
        """Set the state of an empty group; zeros unless overridden."""
        for index, t in enumerate(self.fields):
            state.set(index, k.const(t, 0))

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        """Add a row. If `branchless`, only where `mask` holds (None: always); otherwise the caller has branched."""
        raise NotImplementedError

    def remove(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        """With `removable`: remove a row that was added before, where `mask` holds (None: always)."""
        raise NotImplementedError

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        """The result."""
        raise NotImplementedError

    def exported(self) -> tuple[Type, ...]:
        """SQL types of the exported state."""
        raise NotImplementedError

    def export(self, k: PipelineKernel, state: AggregateState) -> tuple[Datum, ...]:
        """The state as SQL values."""
        raise NotImplementedError

    def absorb(self, k: PipelineKernel, state: AggregateState, exported: tuple[Datum, ...]) -> None:
        """Merge an exported state."""
        raise NotImplementedError

    def difference(self, k: PipelineKernel, state: AggregateState, exported: tuple[Datum, ...]) -> None:
        """With `removable`: remove the rows of an exported state that were added before."""
        raise NotImplementedError

    def compact(self) -> Body:
        """The same aggregate with a smaller state, for states that no other aggregate shares and from which no row is
        removed; itself if there is none."""
        return self

    def release(self) -> tuple[int, ...]:
        """Fields that are malloc'ed pointers, to be freed with the group."""
        return ()


class ValueBody(Body):
    """An aggregate whose state is a value of the result's type, and which absorbs such values as it adds rows."""

    def exported(self) -> tuple[Type, ...]:
        return (self.result,)

    def export(self, k: PipelineKernel, state: AggregateState) -> tuple[Datum, ...]:
        return (self.finish(k, state),)

    def absorb(self, k: PipelineKernel, state: AggregateState, exported: tuple[Datum, ...]) -> None:
        self.update(k, state, exported, exported[0].valid)
