"""merge_join: pairs of rows with equal keys, of two sides that are in the order of their keys.

One side is kept as a list sorted by its key. The rows of the other walk along it: each search starts where the previous
row was found. Rows in any other order find their partners too, but with longer searches. It needs neither a directory
nor a hash, which pays off for large sides whose keys are far apart, such as times."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Self

from tsql.kernels.expr.nodes import Column
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.predicates import call
from tsql.planner.physical.join_ranges import is_number
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext


@dataclass(frozen=True)
class MergeJoin(HashJoin):
    """A join by one equality of numbers that are columns."""

    op = "merge_join"
    label = "merged"

    @cached_property
    def hashed(self) -> HashJoin:
        """The same join with a hash table, for sides that do not fit memory."""
        return HashJoin(
            self.inputs,
            self.kind,
            self.keys,
            self.condition,
            self.build,
            position=self.position,
            rows=self.rows,
            name=self.name,
        )

    @cached_property
    def walked(self) -> HashJoin:
        """The same join as a search for a range of one value."""
        (key,) = self.keys
        built, probed = (key.left, key.right) if self.build == "left" else (key.right, key.left)
        range = (call(">=", built, probed), call("<=", built, probed))
        return HashJoin(
            self.inputs,
            self.kind,
            (),
            self.condition,
            self.build,
            range=range,
            walks=True,
            position=self.position,
            rows=self.rows,
            name=self.name,
        )

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        found = super().read(inputs, attributes, context)
        reason = refusal(found)
        if reason is not None or found.range or found.early:
            raise context.error(reason or "a merge join has no range and no early", hint="use hash_join")
        return found


def refusal(joined: HashJoin) -> str | None:
    """Why a join cannot be done by merging, or None if it can."""
    if joined.kind == "mark":
        return "a merge join does not tell false from NULL, as a subquery's mark needs it"
    if len(joined.keys) != 1 or joined.keys[0].null_safe:
        return "a merge join needs one equality of the two sides"
    key = joined.keys[0]
    if not (
        isinstance(key.left, Column)
        and isinstance(key.right, Column)
        and key.left.type == key.right.type
        and is_number(key.left.type)
    ):
        return "a merge join needs an equality of two columns that are numbers or times of one type"
    return None
