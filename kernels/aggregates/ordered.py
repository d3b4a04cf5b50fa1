"""Aggregates that pick the value of one row: first, last, any_value, arg_min, arg_max.

Each ranks rows by some values and then by their position in the input, which makes the order total: the result does not
depend on how rows are batched, sharded or scheduled. ORDER BY inside the call ranks before the position.
"""

from __future__ import annotations

from tsql.kernels.aggregates.base import AggregateState, Body
from tsql.kernels.aggregates.basic import keep_string, same
from tsql.kernels.aggregates.registry import aggregate
from tsql.kernels.codegen.lang import Val, Var
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum, both
from tsql.kernels.expr.types import BIGINT, Type
from tsql.kernels.functions.comparison import compare
from tsql.kernels.process.quick_dataclass import dataclass


class Kept:
    """A value in the fields of a state from `at`: its parts (for a string also a capacity) and whether it is not
    NULL."""

    def __init__(self, type: Type, at: int):
        self.type, self.at = type, at
        self.fields = (*type.parts, *(("i64",) if type.is_string else ()), "i1")
        self.end = at + len(self.fields)

    def put(self, k: PipelineKernel, state: AggregateState, d: Datum) -> None:
        state.set(self.end - 1, k.true if d.valid is None else d.valid)
        if not self.type.is_string:
            for index, part in enumerate(d.wide().parts):
                state.set(self.at + index, part)
        elif d.valid is None:
            keep_string(k, state, self.at, d)
        else:
            with k.when(d.valid):
                keep_string(k, state, self.at, d)

    def get(self, state: AggregateState) -> Datum:
        parts = tuple(state.get(self.at + i) for i in range(len(self.type.parts)))
        return Datum(self.type, parts, state.get(self.end - 1))


@dataclass(frozen=True)
class Rank:
    """One value by which rows are ranked; the smallest is the best unless `descending`."""

    type: Type
    descending: bool = False
    nulls_first: bool = False


class Pick(Body):
    """The value of the best row. State: whether there is one, its position, its value, the values it was ranked by."""

    wants_position = True
    last = False
    """The last position is the best. An ORDER BY is reversed instead, and its ties go to the first row, as in
    DuckDB."""

    @property
    def wants_order(self) -> bool:
        return bool(self.order_keys)

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """What rows are ranked by, before the position."""
        turned = self.last
        return tuple(
            Rank(key.expr.type, key.descending != turned, key.nulls_first != turned) for key in self.order_keys
        )

    @property
    def kept(self) -> list[Kept]:
        at, kept = 2, []
        for t in (self.result, *(r.type for r in self.ranks)):
            kept.append(Kept(t, at))
            at = kept[-1].end
        return kept

    # Computed: the order keys are known only after the body is made.
    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("i1", "i64", *(f for kept in self.kept for f in kept.fields))

    def ranked_by(self, args: tuple[Datum, ...]) -> tuple[Datum, ...]:
        return self.order if self.order_keys else ()

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        self._offer(k, state, self.position, args[0], self.ranked_by(args))

    def _offer(
        self, k: PipelineKernel, state: AggregateState, position: Val, value: Datum, ranked_by: tuple[Datum, ...]
    ) -> None:
        seen = state.get(0)
        value_kept, *ranks_kept = self.kept
        better = k.var(~seen)
        with k.when(seen):
            held = state.get(1)
            if not ranked_by:
                # One row may become several at its position; they come in order.
                better.set(position >= held if self.last else position < held)
            else:
                tied = k.var(k.true)
                for rank, d, kept in zip(self.ranks, ranked_by, ranks_kept, strict=True):
                    with k.when(tied.value):
                        self._compare(k, rank, d, kept.get(state), better, tied)
                with k.when(tied.value):
                    better.set(position < held)
        with k.when(better.value):
            state.set(0, k.true)
            state.set(1, position)
            value_kept.put(k, state, value)
            for kept, d in zip(ranks_kept, ranked_by, strict=True):
                kept.put(k, state, d)

    def _compare(self, k: PipelineKernel, rank: Rank, a: Datum, b: Datum, better: Var, tied: Var) -> None:
        """Set whether a is better than b, and whether they tie."""
        a_null = k.false if a.valid is None else ~a.valid
        b_null = k.false if b.valid is None else ~b.valid
        with k.when(a_null | b_null):
            better.set(a_null & ~b_null if rank.nulls_first else b_null & ~a_null)
            tied.set(a_null & b_null)
        with k.otherwise():
            better.set(compare(k, ">" if rank.descending else "<", a.with_valid(None), b.with_valid(None)))
            tied.set(~better.value)
            with k.when(tied.value):
                tied.set(compare(k, "=", a.with_valid(None), b.with_valid(None)))

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        d = self.kept[0].get(state)
        return d.with_valid(both(d.valid, state.get(0)))

    def exported(self) -> tuple[Type, ...]:
        return (BIGINT, self.result, *(r.type for r in self.ranks))

    def export(self, k: PipelineKernel, state: AggregateState) -> tuple[Datum, ...]:
        """The position is NULL if there was no row."""
        seen = state.get(0)
        values = (kept.get(state) for kept in self.kept)
        return (Datum(BIGINT, (state.get(1),), seen), *(d.with_valid(both(d.valid, seen)) for d in values))

    def absorb(self, k: PipelineKernel, state: AggregateState, exported: tuple[Datum, ...]) -> None:
        position, value, *ranked_by = exported
        with k.when(k.true if position.valid is None else position.valid):
            self._offer(k, state, position.wide().value, value, tuple(ranked_by))

    def release(self) -> tuple[int, ...]:
        return tuple(kept.at for kept in self.kept if kept.type.is_string)


@aggregate("first", "first_value", "arbitrary", args=("any",), returns=same, ordered=True, ignores_repeats=True)
class First(Pick):
    """The value of the first row, NULL or not."""

    skips_nulls = False


@aggregate("any_value", args=("any",), returns=same, ordered=True, ignores_repeats=True)
class AnyValue(Pick):
    """The first value that is not NULL."""


@aggregate("last", "last_value", args=("any",), returns=same, ordered=True, ignores_repeats=True)
class Last(First):
    """The value of the last row, NULL or not."""

    last = True


class ByExtreme(Pick):
    """The value of the row in which the second argument is smallest or largest; the first such row in the input."""

    largest = False
    wanted: tuple[int, ...] = (0, 1)
    """The arguments that are not NULL in rows that count; windows ask for it."""

    @property
    def ranks(self) -> tuple[Rank, ...]:
        return (Rank(self.inputs[1].type, self.largest), *super().ranks)

    def ranked_by(self, args: tuple[Datum, ...]) -> tuple[Datum, ...]:
        return (args[1], *super().ranked_by(args))


@aggregate("arg_min", "argmin", "min_by", args=("any", "any"), returns=same, ordered=True, ignores_repeats=True)
class ArgMin(ByExtreme):
    """The first argument where the second is smallest; rows with a NULL in either do not count."""


@aggregate("arg_max", "argmax", "max_by", args=("any", "any"), returns=same, ordered=True, ignores_repeats=True)
class ArgMax(ByExtreme):
    """The first argument where the second is largest; rows with a NULL in either do not count."""

    largest = True


class ByExtremeWithNulls(ByExtreme):
    """As its base, but the value may be NULL: only rows in which the second argument is NULL do not count."""

    skips_nulls = False
    wanted = (1,)

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        if args[1].valid is None:
            super().update(k, state, args, mask)
            return
        with k.when(args[1].valid):
            super().update(k, state, args, mask)


@aggregate("arg_min_null", args=("any", "any"), returns=same, ordered=True, ignores_repeats=True)
class ArgMinNull(ByExtremeWithNulls):
    """The first argument, NULL or not, where the second is smallest."""


@aggregate("arg_max_null", args=("any", "any"), returns=same, ordered=True, ignores_repeats=True)
class ArgMaxNull(ByExtremeWithNulls):
    """The first argument, NULL or not, where the second is largest."""

    largest = True


class ByExtremeNullsLast(ByExtreme):
    """As its base, but every row counts: one in which the second argument is NULL only if there is no other."""

    skips_nulls = False
    wanted = ()


@aggregate("arg_min_nulls_last", args=("any", "any"), returns=same, ordered=True, ignores_repeats=True)
class ArgMinNullsLast(ByExtremeNullsLast):
    """The first argument, NULL or not, where the second is smallest, and of the first row where it is always NULL."""


@aggregate("arg_max_nulls_last", args=("any", "any"), returns=same, ordered=True, ignores_repeats=True)
class ArgMaxNullsLast(ByExtremeNullsLast):
    """The first argument, NULL or not, where the second is largest, and of the first row where it is always NULL."""

    largest = True
