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
TRUE, FALSE = Literal(True, BOOLEAN), Literal(False, BOOLEAN)


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
        here = _is_between(_part(self.keys))
        if self.heavy:
            # Rows are compared with heavy keys only where it matters: it costs more than all else.
            is_first = Call("=", (Parameter(FROM, BIGINT), Literal(0, BIGINT)), BOOLEAN)
            stays = Case(((is_first, TRUE),), Call("not", (self._is_heavy,), BOOLEAN))
            here = Case(((here, stays),), Case(((is_first, self._is_heavy),), FALSE))
        if self.nulls == HASHED:
            return here
        part = _part(_columns(rows)) if self.nulls == SPREAD else Literal(0, BIGINT)
        return Case(self._nulls(_is_between(part)), here)

    def batch(self, rows: Step) -> Expr:
        """The batch of a row of a step."""
        first = Call("-", (_part(self.keys), Parameter(FROM, BIGINT)), BIGINT)
        batch = Call("//", (first, Parameter(WIDTH, BIGINT)), BIGINT)
        spread = Call("%", (_part(_columns(rows)), Parameter(COUNT, BIGINT)), BIGINT)
        in_full = Literal(NO_BATCH, BIGINT)
        whens = () if self.nulls == HASHED else self._nulls(spread if self.nulls == SPREAD else in_full)
        whens += ((self._is_heavy, in_full),) if self.heavy else ()
        return Case(whens, batch) if whens else batch

    def _nulls(self, then: Expr) -> tuple[tuple[Expr, Expr], ...]:
        return tuple((Call("is_null", (key,), BOOLEAN), then) for key in self.keys)

    @property
    def _is_heavy(self) -> Expr:
        marks = (Parameter(heavy_name(number), BIGINT) for number in range(self.heavy))
        alike = [Call("=", (mark_of(self.keys), one), BOOLEAN) for one in marks]
        return reduce(lambda a, b: Call("or", (a, b), BOOLEAN), alike)


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
    """The keys whose rows such a condition keeps, without heavy ones."""
    here = condition.otherwise if isinstance(condition, Case) else condition
    return next(e.args[:-1] for e in here.walk() if isinstance(e, Call) and e.name == "hash")


def _is_between(part: Expr) -> Expr:
    ends = Call(">=", (part, Parameter(FROM, BIGINT)), BOOLEAN), Call("<", (part, Parameter(TO, BIGINT)), BOOLEAN)
    return Call("and", ends, BOOLEAN)


def _part(keys: Keys) -> Expr:
    return _rest(keys, PARTS)


def _rest(keys: Keys, divisor: int) -> Expr:
    hashed = Call("hash", (*keys, Parameter(SEED, BIGINT)), UBIGINT)
    return Cast(Call("%", (hashed, Literal(divisor, UBIGINT)), UBIGINT), BIGINT)


def _columns(step: Step) -> Keys:
    return tuple(Column(f.name, f.type, f.nullable) for f in step.schema)
