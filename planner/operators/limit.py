"""limit: at most so many rows after skipping some, in the order of the input, on one shard."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tsql.kernels.expr import Expr
from tsql.planner.properties import SINGLE, Properties, Requirement
from tsql.planner.step import Step


@dataclass(frozen=True)
class Limit(Step):
    """Both are constants or parameters of BIGINT; a count of None means all."""

    count: Expr | None = None
    offset: Expr | None = None

    op = "limit"
    label = "limited"

    def requires(self) -> tuple[Requirement, ...]:
        return (SINGLE,)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return replace(given[0], shards=1)

    def attributes(self) -> list[tuple[str, str]]:
        pairs = (("count", self.count), ("offset", self.offset))
        return [(name, f"({e})") for name, e in pairs if e is not None]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Any, context: Any) -> Step:
        count, offset = attributes.optional("count"), attributes.optional("offset")
        return cls(inputs, count=None if count is None else context.constant(count), offset=None if offset is None else context.constant(offset))
