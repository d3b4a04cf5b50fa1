"""The interface of a live operator, and two that work for any step: `Pass` holds nothing, `Hold` holds everything until
its input has ended."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import field
from typing import Any

import pyarrow as pa

from tsql.backends.live.fragments import (
    Engine,
    Fragment,
    Rows,
    count,
    from_table,
    given,
    graft,
    joined,
    value_name,
)
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal, Parameter
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BOOLEAN, Type
from tsql.kernels.process.arrow_compute import pc
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.operators.aggregate import Aggregate, partial_of
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.progress import Progress
from tsql.planner.physical.step import Step


def origin(step: Step) -> Step:
    """The step whose rows a step passes on, below movement."""
    while step.is_movement:
        step = step.inputs[0]
    return step


def held_step(step: Step, side: int) -> Step:
    """The step whose rows an operator holds for an input of a step: below movement, and a step of states if the step
    takes states."""
    takes_states = (isinstance(step, Aggregate) and step.absorbs) or (
        isinstance(step, Combine) and step.windows.over == "states"
    )
    found = partial_of(step.inputs[side]) if takes_states else None
    return origin(step.inputs[side]) if found is None else found


@dataclass
class HeldRows:
    """Rows that an operator holds, with the columns of a step."""

    schema: Schema
    rows: Rows = field(default_factory=list)

    def add(self, more: Rows) -> None:
        self.rows = joined([*self.rows, *more])

    def take(self) -> Rows:
        """Return all rows, and hold them no longer."""
        rows, self.rows = self.rows, []
        return rows

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for chunk in self.rows for array in chunk.arrays)

    def freeze(self) -> Any:
        """What is held, for `thaw`: whatever happens until then is undone."""
        return list(self.rows)

    def thaw(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return count(self.rows)


class LiveOperator:
    """A step that runs live. `side` numbers the inputs of the step; `why` says what it holds, and until when."""

    why = ""
    takes_groups = False
    """Whether it holds partial groups, and asks for nothing as long as rows come."""
    resident: Any = None
    """What it holds (`HeldGroups`), if the groups are in tables that stay."""

    def __init__(self, step: Step, engine: Engine):
        self.step, self.engine = step, engine
        self.below = tuple(held_step(step, side) for side in range(len(step.inputs)))
        self.held: tuple[HeldRows, ...] = tuple(HeldRows(below.schema) for below in self.below)
        self.progress = tuple(Progress() for _ in self.below)
        self.marks: dict[str, Any] = {}
        """Other state: plain values by name."""

    def hold(self, resident: HeldRows) -> None:
        """Hold side 0 in this."""
        self.resident = resident
        self.held = (resident, *self.held[1:])

    def consume(self, side: int, rows: Rows) -> Rows:
        """Take rows of an input, and return the rows that are known at once."""
        self.held[side].add(rows)
        return []

    def punctuate(self, progress: tuple[Progress, ...]) -> Rows:
        """Take the promises of the inputs, and return the rows that are now final. What is held is looked through only
        when a promise is new."""
        is_new = progress != self.progress
        self.progress = progress
        return self.advance() if is_new or self.decides_at_once else []

    @property
    def decides_at_once(self) -> bool:
        """Whether rows may be final when they come, without a new promise."""
        return False

    def advance(self) -> Rows:
        """The rows that have become final."""
        raise NotImplementedError

    def promise(self) -> Progress:
        """What holds for the rows that this operator will still output."""
        raise NotImplementedError

    def endless(self) -> str | None:
        """Why it could never answer, or never free its state, if the bounds that it has been told advance for ever;
        None if it can. A query that has no rows is asked."""
        raise NotImplementedError

    @property
    def ended(self) -> bool:
        return all(p.ended for p in self.progress)

    def tables(self) -> dict[str, HeldRows]:
        """Everything that is held, by name."""
        return {str(side): held for side, held in enumerate(self.held)}

    def restore(self, tables: dict[str, Any], marks: dict[str, Any]) -> None:
        """Continue from a state, whatever the number of shards was."""
        mine = self.tables()
        if set(mine) != set(tables):
            raise ExecutionError(f"step {self.step.name}: this is the state of another plan")
        for name, held in mine.items():
            if tables[name].num_rows and len(held.schema) and tuple(tables[name].column_names) != held.schema.names:
                raise ExecutionError(
                    f"step {self.step.name}: this is the state of another plan: its columns are "
                    f"{', '.join(tables[name].column_names)}"
                )
            held.rows = from_table(tables[name], held.schema)
        self.marks = dict(marks)

    def save(self) -> Any:
        """What is held now, without a copy: chunks never change. `put_back` makes the operator hold it again. Plain
        attributes belong to it: up to where something was looked through, say."""
        plain = {name: copy(value) for name, value in vars(self).items() if name != "held" and _is_plain(value)}
        return [(held, held.freeze()) for held in self.tables().values()], plain

    def put_back(self, saved: Any) -> None:
        """Hold what was held when `save` was called."""
        tables, plain = saved
        for held, kept in tables:
            held.thaw(kept)
        vars(self).update(plain)

    def part(self, side: int, passed: Fragment, stays: Fragment, **values: Any) -> Rows:
        """The held rows of a side that one fragment chooses. They are no longer held: the other fragment chooses the
        rest, and does not run where nothing is left."""
        rows = self.held[side].rows
        given = {f"side_{side}": rows}
        found = passed.rows(given, **values) if rows else []
        if found:
            self.held[side].rows = stays.rows(given, **values) if count(found) < count(rows) else []
        return found

    def over(self, *replacements: Step | None, step: Step | None = None, gives_of_nothing: bool = False) -> Fragment:
        """The step over held rows, or over a replacement for them: a step over `self.leaf(side)`."""
        cuts = {
            id(b): r if r is not None else self.leaf(side)
            for side, (b, r) in enumerate(zip(self.below, replacements or [None] * len(self.below), strict=True))
        }
        return Fragment(
            self.engine, graft(step or self.step, cuts, self.engine.shards), gives_of_nothing=gives_of_nothing
        )

    def leaf(self, side: int) -> Step:
        """The held rows of a side, as the leaf of a fragment; its name is the number of the side."""
        return given(f"side_{side}", self.below[side].schema)

    def filtered(self, side: int, predicate: Expr) -> Fragment:
        """The held rows of a side for which a predicate is true."""
        return Fragment(self.engine, Filter((self.leaf(side),), predicate=predicate))


class Pass(LiveOperator):
    """Passes rows on as they come."""

    why = "holds nothing"

    def __init__(self, step: Step, engine: Engine):
        self.step, self.engine, self.held, self.marks = step, engine, (), {}
        self.below, self.progress = (step,), (Progress(),)

    def consume(self, side: int, rows: Rows) -> Rows:
        return rows

    def advance(self) -> Rows:
        return []

    def promise(self) -> Progress:
        return self.progress[0]

    def endless(self) -> str | None:
        return None


class Hold(LiveOperator):
    """Runs any step over all rows, when its input has ended."""

    why = "holds its rows until its input has ended"

    def __init__(self, step: Step, engine: Engine, reason: str = ""):
        """reason: why it cannot answer earlier."""
        super().__init__(step, engine)
        self.reason = reason
        if reason:
            self.why = f"{type(self).why}: {reason}"
        self.whole = self.over(gives_of_nothing=True)

    def advance(self) -> Rows:
        if not self.ended or self.marks.get("given"):
            return []
        self.marks["given"] = True
        return self.whole.rows({f"side_{side}": held.take() for side, held in enumerate(self.held)})

    def promise(self) -> Progress:
        return Progress(ended=self.ended)

    def endless(self) -> str | None:
        return None if self.ended else self.reason or "it can only answer when all of its rows are known"


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    return (
        value is None
        or isinstance(value, int | float | str | Progress)
        or (isinstance(value, tuple | frozenset) and all(map(_is_plain, value)))
    )


def parameter(name: str, kind: Type) -> Parameter:
    """A value that is passed to a fragment when it runs."""
    return Parameter(value_name(name), kind)


def compare(left: Expr, op: str, right: Expr) -> Call:
    return Call(op, (left, right), BOOLEAN)


def unless_null(condition: Expr) -> Call:
    """The condition, or true if it is NULL."""
    return Call("coalesce", (condition, Literal(True, BOOLEAN)), BOOLEAN)


def negated(condition: Expr) -> Call:
    return Call("not", (condition,), BOOLEAN)


def any_of(conditions: Sequence[Expr]) -> Expr:
    return _folded("or", conditions)


def all_of(conditions: Sequence[Expr]) -> Expr:
    return _folded("and", conditions)


def _folded(op: str, conditions: Sequence[Expr]) -> Expr:
    found = conditions[0]
    for condition in conditions[1:]:
        found = Call(op, (found, condition), BOOLEAN)
    return found


def held_bounds(progress: Progress, rows: Rows, schema: Schema) -> dict[str, int]:
    """What holds for rows to come and for held ones: the bounds of `progress`, lowered to the least held values."""
    names = schema.names
    return {
        name: min([bound, *(least for c in rows if (least := _least(c.arrays[names.index(name)])) is not None)])
        for name, bound in progress.bounds.items()
        if name in schema and _is_word(schema[name].type)
    }


def _is_word(kind: Type) -> bool:
    return kind.name in ("TIMESTAMP", "TIMESTAMPTZ", "DATE") or (kind.is_integer and kind.bits <= 64)


def _least(values: pa.Array) -> int | None:
    """The least value of a column of times or whole numbers, as it is stored."""
    if pa.types.is_timestamp(values.type):
        values = values.view(pa.int64())
    elif pa.types.is_date32(values.type):
        values = values.view(pa.int32())
    found: int | None = pc.min(values).as_py()
    return found


def same_columns(schema: Schema) -> tuple[tuple[str, Expr], ...]:
    """The columns of a step, unchanged, for a projection."""
    return tuple((f.name, Column(f.name, f.type, f.nullable)) for f in schema)


def restricted(step: Step, like: Step) -> Step:
    """Only the columns of another step."""
    return Project((step,), columns=same_columns(like.schema))
