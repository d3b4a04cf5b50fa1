"""scan: the columns of a table or file that the query needs; `where` lets the source skip what cannot match."""

from __future__ import annotations

import re
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.cost import constants as cost
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.sources import has_progress, is_filled, is_sorted, reads_late
from tsql.planner.physical.estimate import Cost, Estimate, Machine, width
from tsql.planner.physical.properties import Properties, Requirement
from tsql.planner.physical.step import Step, rebuild
from tsql.planner.physical.text import identifier, identifiers, table_text

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext


@dataclass(frozen=True)
class Scan(Step):
    """Reads a source. Its rows are in any shard. The filter only skips parts of the source: the rows are still filtered
    above."""

    table: str = ""
    source: Any = field(default=None, compare=False)
    columns: tuple[str, ...] = ()
    where: Expr | None = None
    ranges: str | None = None
    """The sort column of a table whose rows are dealt to shards by ranges of it."""
    shards: int | None = None
    """The number of ranges; without ranges, 1 if one shard reads everything."""
    progress: str | None = None
    """A time column. Parts of the source are read in its order as far as their bounds tell, and steps above learn how
    far the time has come."""
    filled: tuple[str, ...] = ()
    """Columns that the plan relies on to hold no NULL (planner/logical/null_assumptions.py)."""
    late: bool = False
    """Whether columns that filters and joins above do not use are decoded only for the rows that pass them."""

    op = "scan"
    arity = (0, 0)
    names_table = True

    def suggested_name(self) -> str:
        return re.sub(r"\W+", "_", self.table.split("/")[-1].split(".")[0].strip("'\"(")).strip("_").lower() or "rows"

    @cached_property
    def schema(self) -> Schema:
        return Schema(tuple(self.source.schema[c] for c in self.columns))

    def requires(self) -> tuple[Requirement, ...]:
        return ()

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return (
            Properties(self.shards or shards)
            if self.ranges is None
            else Properties(self.shards or shards, placed=(self.ranges,), by_ranges=True)
        )

    def expected_rows(self, given: tuple[Estimate, ...], machine: Machine) -> float:
        known = self.source.statistics().rows if hasattr(self.source, "statistics") else None
        return cost.UNKNOWN_ROWS if known is None else float(known)

    def expected_cost(self, given: tuple[Estimate, ...], rows: float, properties: Properties, machine: Machine) -> Cost:
        bytes = width(self.schema)
        if machine.is_cluster:
            texts = sum(field.type.name == "VARCHAR" for field in self.schema) * cost.VARCHAR_BYTES
            bytes = bytes * cost.DECODING + texts * (cost.TEXT_DECODING - cost.DECODING)
        return machine.work(rows * bytes * machine.costs.scan_byte_ns, properties.shards)

    def shadow(self, given: tuple[Estimate, ...]) -> logical.Node:
        return logical.Scan(self.table, self.source, self.columns)

    def refusal(self, target: str) -> tuple[str, str] | None:
        if target == "local":
            return None
        if self.ranges is not None:
            return (
                f"a scan deals out the ranges of a table in the memory of one process, and the target is {target}",
                "leave ranges out",
            )
        if self.progress is not None:
            return (
                f"a scan in the order of a time runs in one process, and the target is {target}",
                "leave progress out",
            )
        return None

    def attributes(self) -> list[tuple[str, str]]:
        text = [("", table_text(self.table, self.source)), ("columns", identifiers(self.columns))]
        text += [] if self.ranges is None else [("ranges", identifier(self.ranges))]
        text += [] if self.shards is None else [("shards", str(self.shards))]
        text += [] if self.progress is None else [("progress", identifier(self.progress))]
        text += [("filled", identifiers(self.filled))] if self.filled else []
        text += [("late", "yes")] if self.late else []
        return text + ([("where", f"({self.where})")] if self.where is not None else [])

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
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
        shards = attributes.shards()
        if ranges is None and shards not in (None, 1):
            raise attributes.error(
                "shards",
                f"shards={shards}: without ranges, a scan is in as many shards as the plan has, or in one",
                hint="leave shards out, or put reshard behind the scan",
            )
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


def with_filled(root: Step) -> Step:
    """The plan whose scans name their columns without NULLs (see `logical/null_assumptions.py`)."""

    def name_filled(_: Step, step: Step) -> Step:
        if not isinstance(step, Scan):
            return step
        return replace(step, filled=tuple(c for c in step.columns if is_filled(step.source, c)))

    return rebuild(root, name_filled)


def source_notes(root: Step) -> tuple[str, ...]:
    """What sources tell about the way in which they are read, each once."""
    sources = [step.source for step in root.walk() if isinstance(step, Scan)]
    return tuple(dict.fromkeys(source.note for source in sources if getattr(source, "note", None)))
