"""How keys are dealt into parts: in which part a row is, and in which batch of the sample, as expressions over keys.

    part  = hash(user_id, #seed) % 1024
    batch = (part - #from) // #width

Rows without a key may be many, and so may those of one key. Where they are counted in full, they are in the first part,
and their batch is `NO_BATCH`: a stratum of its own beside the sample of the other keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from tsql.kernels.expr.nodes import Call, Case, Cast, Column, Expr, Literal, Parameter
from tsql.kernels.expr.types import BIGINT, BOOLEAN, UBIGINT
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.step import Step

PARTS = 1024
"""The keys are in so many parts, by their hash."""

FROM, TO, WIDTH, COUNT, SEED = "#from", "#to", "#width", "#batches", "#seed"
"""Parameters: the first part of a run, the one behind its last, how many parts a batch has, how many batches there are,
and what decides which keys are in which part."""

NO_BATCH = -1
"""The batch of groups that are counted in full, and are no part of the sample."""

HASHED, SPREAD, FIRST = "hashed", "spread", "first"
"""Where rows without a key are, of which there may be many: in the part of their hash, like others; in any part, by
their other columns; or in the first one, where they are counted in full."""

Keys = tuple[Expr, ...]


@dataclass(frozen=True)
class Dealing:
    """Rows are dealt by the hash of their keys. nulls: where those without a key are."""

    keys: Keys
    nulls: str = HASHED

    def over(self, keys: Keys, nulls: str | None = None) -> Self:
        """The same for the rows of a step below, whose keys are these."""
        return replace(self, keys=keys, nulls=self.nulls if nulls is None else nulls)

    def is_here(self, rows: Step) -> Expr:
        """Whether a row of a step is in the parts of a run."""
        part = _part(self.keys)
        if self.nulls != HASHED:
            part = self._or_if_null(part, _part(_columns(rows)) if self.nulls == SPREAD else Literal(0, BIGINT))
        ends = Call(">=", (part, Parameter(FROM, BIGINT)), BOOLEAN), Call("<", (part, Parameter(TO, BIGINT)), BOOLEAN)
        return Call("and", ends, BOOLEAN)

    def batch(self, rows: Step) -> Expr:
        """The batch of a row of a step."""
        first = Call("-", (_part(self.keys), Parameter(FROM, BIGINT)), BIGINT)
        batch = Call("//", (first, Parameter(WIDTH, BIGINT)), BIGINT)
        if self.nulls == HASHED:
            return batch
        spread = Call("%", (_part(_columns(rows)), Parameter(COUNT, BIGINT)), BIGINT)
        return self._or_if_null(batch, spread if self.nulls == SPREAD else Literal(NO_BATCH, BIGINT))

    def _or_if_null(self, part: Expr, otherwise: Expr) -> Expr:
        return Case(tuple((Call("is_null", (key,), BOOLEAN), otherwise) for key in self.keys), part)


def is_of_parts(condition: Expr) -> bool:
    """Whether a condition is `Dealing.is_here`."""
    return any(isinstance(e, Parameter) and e.name == FROM for e in condition.walk())


def _part(keys: Keys) -> Expr:
    hashed = Call("hash", (*keys, Parameter(SEED, BIGINT)), UBIGINT)
    return Cast(Call("%", (hashed, Literal(PARTS, UBIGINT)), UBIGINT), BIGINT)


def _columns(step: Step) -> Keys:
    return tuple(Column(f.name, f.type, f.nullable) for f in step.schema)
