"""scan: the columns of a table or file that the query needs; `where` lets the source skip what cannot match."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Schema
from tsql.planner.physical.properties import Properties, Requirement
from tsql.planner.physical.step import Step


@dataclass(frozen=True)
class Scan(Step):
    """Reads a source. Its rows are in any shard; a filter here only skips: the rows are still filtered after it."""

    table: str = ""
    source: Any = field(default=None, compare=False)
    columns: tuple[str, ...] = ()
    where: Expr | None = None
    ranges: str | None = None
    """The column of a sorted table whose rows are dealt to shards by ranges of its values."""
    shards: int | None = None
    progress: str | None = None
    """A time column: parts of the source are read in its order as far as their bounds tell, and steps above hear how
    far it has come."""
    filled: tuple[str, ...] = ()
    """Columns that the plan relies on to hold no NULL (planner/physical/null_assumptions.py)."""
    late: bool = False
    """Whether columns that filters and joins above do not look at are read for the rows that these leave."""

    op = "scan"

    def suggested_name(self) -> str:
        return re.sub(r"\W+", "_", self.table.split("/")[-1].split(".")[0].strip("'\"(")).strip("_").lower() or "rows"

    @cached_property
    def schema(self) -> Schema:
        return Schema(tuple(self.source.schema[c] for c in self.columns))

    def requires(self) -> tuple[Requirement, ...]:
        return ()

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return (
            Properties(shards)
            if self.ranges is None
            else Properties(self.shards or shards, placed=(self.ranges,), by_ranges=True)
        )

    def attributes(self) -> list[tuple[str, str]]:
        from tsql.planner.physical.planfile import identifier, identifiers, table_text

        text = [("", table_text(self.table, self.source)), ("columns", identifiers(self.columns))]
        text += [] if self.ranges is None else [("ranges", identifier(self.ranges))]
        text += [] if self.shards is None else [("shards", str(self.shards))]
        text += [] if self.progress is None else [("progress", identifier(self.progress))]
        text += [("filled", identifiers(self.filled))] if self.filled else []
        text += [("late", "yes")] if self.late else []
        return text + ([("where", f"({self.where})")] if self.where is not None else [])

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Any, context: Any) -> Step:
        table, source = context.table(attributes.bare())
        columns = attributes.columns("columns", source.schema, f"table {table}")
        for c in columns:
            if not source.schema[c].type.is_readable:
                raise attributes.error(
                    "columns", f"column {c} of table {table} is {source.schema[c].type}, which cannot be read"
                )
        step = cls((), table=table, source=source, columns=columns)
        ranges = attributes.column("ranges", step.schema, "the scan")
        if ranges is not None and not is_sorted(source, ranges):
            raise attributes.error("ranges", f"table {table} is not sorted by {ranges}", hint="leave ranges out")
        shards = attributes.shards() if ranges is not None else None
        progress = attributes.column("progress", step.schema, "the scan")
        if progress is not None:
            if ranges is not None or not has_progress(source, progress, columns):
                raise attributes.error(
                    "progress",
                    (
                        f"progress={progress}: it is a TIMESTAMP or DATE among the columns, of files that tell "
                        "its bounds for each of their parts, and there is no ranges"
                    ),
                    hint="leave progress out",
                )
        filled = (
            attributes.columns("filled", step.schema, "the scan") if attributes.optional("filled") is not None else ()
        )
        for c in filled:
            if not is_filled(source, c):
                raise attributes.error(
                    "filled",
                    f"the plan relies on {c} of {table} to hold no NULL, and it has some, or may have",
                    hint="plan the query again",
                )
        where, late = attributes.condition("where", step.schema), attributes.flag("late")
        if late and progress is not None:
            raise attributes.error("late", "a scan with progress is not read late", hint="leave one of the two out")
        if late and not reads_late(source):
            raise attributes.error(
                "late", f"table {table} cannot be read late", hint="leave late out: Parquet files can be"
            )
        return cls(
            (),
            table=table,
            source=source,
            columns=columns,
            where=where,
            ranges=ranges,
            shards=shards,
            progress=progress,
            filled=filled,
            late=late,
        )


def is_sorted(source: Any, column: str) -> bool:
    """Whether a source can deal out its rows by ranges of a column."""
    known = getattr(source, "is_sorted", None)
    return known is not None and known(column)


def is_filled(source: Any, column: str) -> bool:
    """Whether a column of a source holds no NULL, as far as it can be told without reading it."""
    if not source.schema[column].nullable:
        return True
    known = source.statistics().columns.get(column) if hasattr(source, "statistics") else None
    return known is not None and known.nulls == 0


def has_progress(source: Any, column: str, columns: tuple[str, ...]) -> bool:
    """Whether a scan can say, part by part, how far a time column has come."""
    if getattr(source, "split_bounds", None) is None or column not in columns:
        return False
    return source.schema[column].type.name in ("TIMESTAMP", "TIMESTAMPTZ", "DATE")


def reads_late(source: Any) -> bool:
    """Whether a source can read some of its columns for some of its rows."""
    return hasattr(source, "open_lanes")
