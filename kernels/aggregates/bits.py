"""bit_and, bit_or, bit_xor of integers."""

from __future__ import annotations

from tsql.kernels.aggregates.base import AggregateArgument, AggregateState, ValueBody
from tsql.kernels.aggregates.basic import masked, same
from tsql.kernels.aggregates.registry import aggregate
from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import Type


class BitFold(ValueBody):
    """State: the bits so far, whether there was a value."""

    branchless = True
    start = 0

    def __init__(self, inputs: tuple[AggregateArgument, ...], result: Type, rows: int | None):
        super().__init__(inputs, result, rows)
        self.fields = (*result.parts, "i1")

    def fold(self, a: Val, b: Val) -> Val:
        raise NotImplementedError

    def init(self, k: PipelineKernel, state: AggregateState) -> None:
        state.set(0, k.const(self.fields[0], self.start))
        state.set(1, k.false)

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        state.set(
            0, self.fold(state.get(0), masked(k, mask, args[0].wide().value, k.const(self.fields[0], self.start)))
        )
        state.set(1, state.get(1) | (k.true if mask is None else mask))

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        return Datum(self.result, (state.get(0),), state.get(1))


@aggregate("bit_and", args=("integer",), returns=same, ignores_repeats=True)
class BitAnd(BitFold):
    """The bits that are set in all values."""

    start = -1

    def fold(self, a: Val, b: Val) -> Val:
        return a & b


@aggregate("bit_or", args=("integer",), returns=same, ignores_repeats=True)
class BitOr(BitFold):
    """The bits that are set in any value."""

    def fold(self, a: Val, b: Val) -> Val:
        return a | b


@aggregate("bit_xor", args=("integer",), returns=same)
class BitXor(BitFold):
    """The bits that are set in an odd number of values."""

    def fold(self, a: Val, b: Val) -> Val:
        return a ^ b
