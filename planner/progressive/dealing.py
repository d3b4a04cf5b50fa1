"""How keys are dealt into parts: in which part a row is, and in which batch of the sample, as expressions over keys.

    part  = hash(user_id, #seed) % 1024
    batch = (part - #from) // #width

Rows without a key may be many, and so may those of one key. These are counted in full: they are in the first part, and
their batch is `NO_BATCH`, a stratum of its own beside the sample of the other keys. A run names heavy keys by their
*marks*, 62 bits of the hash, so that the keys of both sides of a join are the same, whatever their type."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
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

MARKS = 2**62

NO_MARK = -1
"""In the place of a heavy key that there is not."""

HASHED, SPREAD, FIRST = "hashed", "spread", "first"
"""Where rows without a key are, of which there may be many: in the part of their hash, like others; in any part, by
their other columns; or in the first one, where they are counted in full."""

Keys = tuple[Expr, ...]


@dataclass(frozen=True)
class Dealing:
    """Rows are dealt by the hash of their keys. nulls: where those without a key are. heavy: how many heavy keys a run
    names, by the parameters `heavy_name`."""

    keys: Keys
    nulls: str = HASHED
    heavy: int = 0

    def over(self, keys: Keys, nulls: str | None = None) -> Self:
        """The same for the rows of a step below, whose keys are these."""
        return replace(self, keys=keys, nulls=self.nulls if nulls is None else nulls)

    def is_here(self, rows: Step) -> Expr:
        """Whether a row of a step is in the parts of a run."""
        others = _part(_columns(rows)) if self.nulls == SPREAD else Literal(0, BIGINT)
        part = self._dealt(_part(self.keys), Literal(0, BIGINT), others)
        ends = Call(">=", (part, Parameter(FROM, BIGINT)), BOOLEAN), Call("<", (part, Parameter(TO, BIGINT)), BOOLEAN)
        return Call("and", ends, BOOLEAN)

    def batch(self, rows: Step) -> Expr:
        """The batch of a row of a step."""
        first = Call("-", (_part(self.keys), Parameter(FROM, BIGINT)), BIGINT)
        batch = Call("//", (first, Parameter(WIDTH, BIGINT)), BIGINT)
        spread = Call("%", (_part(_columns(rows)), Parameter(COUNT, BIGINT)), BIGINT)
        in_full = Literal(NO_BATCH, BIGINT)
        return self._dealt(batch, in_full, spread if self.nulls == SPREAD else in_full)

    def _dealt(self, hashed: Expr, heavy: Expr, null: Expr) -> Expr:
        """What holds for the hash of the keys, for heavy keys, and for rows without a key."""
        whens: list[tuple[Expr, Expr]] = []
        if self.nulls != HASHED:
            whens += [(Call("is_null", (key,), BOOLEAN), null) for key in self.keys]
        if self.heavy:
            marks = [Parameter(heavy_name(number), BIGINT) for number in range(self.heavy)]
            alike = [Call("=", (mark_of(self.keys), one), BOOLEAN) for one in marks]
            whens.append((reduce(lambda a, b: Call("or", (a, b), BOOLEAN), alike), heavy))
        return Case(tuple(whens), hashed) if whens else hashed


def heavy_name(number: int) -> str:
    """The parameter that has the mark of a heavy key."""
    return f"#heavy {number}"


def mark_of(keys: Keys) -> Expr:
    """The mark of the keys of a row."""
    return _rest(keys, MARKS)


def is_of_parts(condition: Expr) -> bool:
    """Whether a condition is `Dealing.is_here`."""
    return any(isinstance(e, Parameter) and e.name == FROM for e in condition.walk())


def keys_in(condition: Expr) -> Keys:
    """The keys whose rows such a condition keeps."""
    part = next(e.args[0] for e in condition.walk() if isinstance(e, Call) and e.name == ">=")
    hashed = part.otherwise if isinstance(part, Case) else part
    return next(e.args[:-1] for e in hashed.walk() if isinstance(e, Call) and e.name == "hash")


def _part(keys: Keys) -> Expr:
    return _rest(keys, PARTS)


def _rest(keys: Keys, divisor: int) -> Expr:
    hashed = Call("hash", (*keys, Parameter(SEED, BIGINT)), UBIGINT)
    return Cast(Call("%", (hashed, Literal(divisor, UBIGINT)), UBIGINT), BIGINT)


def _columns(step: Step) -> Keys:
    return tuple(Column(f.name, f.type, f.nullable) for f in step.schema)
