"""scan: the columns of a table or file that the query needs; `where` lets the source skip what cannot match."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tsql.kernels.expr import Expr
from tsql.kernels.schema import Schema
from tsql.planner.properties import Properties, Requirement
from tsql.planner.step import Step


@dataclass(frozen=True)
class Scan(Step):
    """Reads a source. Its rows are in any shard; a filter here only skips: the rows are still filtered after it."""

    table: str = ""
    source: Any = field(default=None, compare=False)
    columns: tuple[str, ...] = ()
    where: Expr | None = None

    op = "scan"

    def suggested_name(self) -> str:
        return re.sub(r"\W+", "_", self.table.split("/")[-1].split(".")[0].strip("'\"(")).strip("_").lower() or "rows"

    @cached_property
    def schema(self) -> Schema:
        return Schema(tuple(self.source.schema[c] for c in self.columns))

    def requires(self) -> tuple[Requirement, ...]:
        return ()

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return Properties(shards)

    def attributes(self) -> list[tuple[str, str]]:
        from tsql.planner.planfile import identifiers, table_text

        text = [("", table_text(self.table, self.source)), ("columns", identifiers(self.columns))]
        return text + ([("where", f"({self.where})")] if self.where is not None else [])

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Any, context: Any) -> Step:
        table, source = context.table(attributes.bare())
        columns = attributes.names("columns")
        for c in columns:
            if c not in source.schema:
                raise context.error(f"table {table} has no column {c}")
        step = cls((), table=table, source=source, columns=columns)
        where = attributes.optional("where")
        return cls((), table=table, source=source, columns=columns, where=None if where is None else context.expression(where, step.schema))
