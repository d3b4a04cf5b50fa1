"""The values of a watermark's expression for the rows of a batch, for `Lateness`.

A column, or a column plus or minus a length of time, is a subtraction over an array. Any other expression runs as a
plan over the batch; its machine code is cached by its text."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from tsql.backends import Run, Settings
from tsql.backends.io.arrow import ArrowSource
from tsql.backends.io.watermark import DAY_US, Watermark, micros
from tsql.backends.local import LocalBackend
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.nodes import Call, Cast, Column, Expr, Literal
from tsql.kernels.process.arrow_compute import pc
from tsql.planner import make_plan
from tsql.planner.logical import nodes as logical

Marks = Callable[[pa.RecordBatch], pa.Array]


def marks_of(watermark: Watermark) -> Marks:
    """A function from a batch of the stream to the watermark after each of its rows, as times."""
    simple = _delayed(watermark.expression)
    if simple is None:
        return lambda batch: _computed(watermark.expression, batch)
    column, length = simple
    return lambda batch: _shifted(batch, column, length)


def _delayed(expression: Expr) -> tuple[str, int] | None:
    """(column, microseconds to add) if the expression is no more than that."""
    match expression:
        case Column():
            return expression.name, 0
        case Cast(arg=Column() as column) if column.type.name == "DATE" and expression.type.name == "TIMESTAMP":
            return column.name, 0
        case Call(name="-" | "+", args=(first, Literal(value=(0, days, us)))) if (inner := _delayed(first)) is not None:
            length = days * DAY_US + us
            return inner[0], inner[1] + (length if expression.name == "+" else -length)
    return None


def _shifted(batch: pa.RecordBatch, column: str, length: int) -> pa.Array:
    values = batch.column(batch.schema.get_field_index(column))
    if not length and values.type == pa.timestamp("us"):
        return values
    times, present = micros(values)
    known = times[present]
    if length and len(known) and not -(2**63) <= int(known.min() if length < 0 else known.max()) + length < 2**63:
        raise SourceError(f"the watermark over {column} is out of the range of TIMESTAMP")
    return pa.array(times + np.int64(length), pa.int64(), mask=~present).view(pa.timestamp("us"))


def _computed(expression: Expr, batch: pa.RecordBatch) -> pa.Array:
    if not batch.num_rows:
        return pa.nulls(0, pa.timestamp("us"))
    source = ArrowSource(batch)
    scan = logical.Scan("rows", source, source.schema.names)
    plan = logical.Output(logical.Project(scan, (("mark", expression),)), ("mark",), ("mark",))
    settings = Settings(threads=1, shards=1)
    found = pa.Table.from_batches(list(LocalBackend().run(make_plan(plan, settings), Run(settings=settings)))).column(0)
    return pc.cast(
        found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found,
        pa.timestamp("us", found.type.tz if pa.types.is_timestamp(found.type) else None),
    )
