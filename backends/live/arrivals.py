"""Rows that have arrived, as input of fragments: batches, or parts of files."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tsql.backends.io import Split
from tsql.backends.io.normalize import normalize
from tsql.backends.live.fragments import SPREAD_ROWS, ArrivedRows, Engine, PlainRows
from tsql.backends.local.run.dataset import Part, SourceData
from tsql.backends.local.run.entry import BatchData
from tsql.backends.local.run.execution import Execution
from tsql.backends.local.run.flow import Flow
from tsql.kernels.emit.batch import RecordWriter, SourceColumn
from tsql.kernels.emit.pipeline import ColumnarScan
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.types import INTERVAL, Type
from tsql.planner.physical.operators.input import Input
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.progress import DAY_US, INFINITE, INFINITE_DAY
from tsql.planner.physical.step import Step


class Batches(ArrivedRows):
    """Arrived rows as Arrow columns. Columns that the scan does not need are dropped."""

    def __init__(self, given: pa.RecordBatch | pa.Table, step: Step, engine: Engine):
        batches = given.to_batches() if isinstance(given, pa.Table) else [given]
        self.batches = [_normal(b, step, engine) for b in batches if b.num_rows]
        self.rows = sum([b.num_rows for b in self.batches])

    @property
    def bytes(self) -> int:
        return sum(b.nbytes for b in self.batches)

    def whole(self, step: Input, engine: Engine) -> Part | None:
        """The rows as one part, if they are one batch that is not cut, of a schema that has come before."""
        plain, limit = engine.plain.get(step.name), engine.run.settings.batch_rows
        if plain is None or plain.writer is None or len(self.batches) != 1 or self.rows > SPREAD_ROWS or limit:
            return None
        if plain.source is None:
            data = DealtBatches(step, [], 1, engine)
            plain.source = ColumnarScan(data._columns(self.batches[0].schema.types))
        return Part(plain.source, plain.writer.write(self.batches[0], engine.positions(self.rows)), (0, 0))

    def flow(self, step: Input, engine: Engine, execution: Execution, shards: int) -> Flow:
        dealt = DealtBatches(step, self.batches, shards if self.rows > SPREAD_ROWS else 1, engine)
        return Flow(dealt, step.schema)


class Splits(ArrivedRows):
    """Parts of a source, read when a fragment needs their rows."""

    is_small = False

    def __init__(self, step: Scan, splits: list[Split]):
        self.step, self.splits = step, splits
        self.rows = sum(s.rows if s.rows is not None else 1 for s in splits)

    def flow(self, step: Input, engine: Engine, execution: Execution, shards: int) -> Flow:
        scan = self.step
        data = SourceData(
            scan.source, scan.columns, scan.where, shards, engine.run.settings.batch_rows, execution.shared
        )
        data.splits = list(self.splits)
        data.count()
        return Flow(data, step.schema)


class DealtBatches(BatchData):
    """Batches in shards of about equal length. The first row has the position `first`."""

    def __init__(self, step: Input, batches: list[pa.RecordBatch], shards: int, engine: Engine):
        super().__init__(step.schema, {}, lambda: enumerate(batches), engine.run)
        self.shards, self.all, self.layouts = shards, batches, engine.layouts.setdefault(step.name, {})
        self.rows = sum(b.num_rows for b in batches)
        self.first = engine.positions(self.rows)

    def _columns(self, types: list[pa.DataType]) -> tuple[SourceColumn, ...]:
        key = tuple(types)
        known = self.layouts.get(key)
        if known is None:
            known = self.layouts[key] = super()._columns(types)
        return known

    def feed(self, shard: int) -> Iterator[object]:
        share = -(-self.rows // self.shards)
        before = 0
        for number, batch in enumerate(self.all):
            low, high = max(shard * share - before, 0), min((shard + 1) * share - before, batch.num_rows)
            if low < high:
                yield self.part(batch.slice(low, high - low), self.first + before + low, (number, shard))
            before += batch.num_rows


def _normal(batch: pa.RecordBatch, step: Step, engine: Engine) -> pa.RecordBatch:
    """The columns of a scan, in the engine's types. Batches of a stream have one schema: where it needs no conversion,
    none is looked for again."""
    plain, schema = engine.plain.get(step.name), batch.schema
    if plain is not None and schema.equals(plain.schema):
        return batch if plain.places is None else batch.select(plain.places)
    found = _converted(batch, step)
    if found.num_columns and all(f.nullable and f.name not in getattr(step, "filled", ()) for f in step.schema):
        places = [schema.get_field_index(f.name) for f in step.schema]
        kinds = [schema.types[at] for at in places]
        if all(f.type != INTERVAL and kind == f.type.to_arrow() for f, kind in zip(step.schema, kinds, strict=True)):
            is_all = places == list(range(len(schema)))
            engine.plain[step.name] = PlainRows(schema, None if is_all else places, RecordWriter.of(kinds))
    return found


def _converted(batch: pa.RecordBatch, step: Step) -> pa.RecordBatch:
    arrays = []
    for field in step.schema:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            raise SourceError(f"{step.name}: the rows that have come have no column {field.name}")
        try:
            arrays.append(normalize(batch.column(at), field.type)[0])
        except pa.ArrowInvalid as error:
            raise SourceError(f"{step.name}: {field.name}: {error}") from error
        if (not field.nullable or field.name in getattr(step, "filled", ())) and arrays[-1].null_count:
            # The plan may rely on it: NOT IN is a different join if a column has no NULLs.
            raise SourceError(
                f"{step.name}: {field.name}: a NULL has come, and the plan was made for a table that has none in it"
            )
    if not arrays:
        return batch.select([])
    return pa.RecordBatch.from_arrays(arrays, list(step.schema.names))


def stored_time(time_us: int, kind: Type) -> int:
    """The smallest value of a time column that is not before a time."""
    if kind.name != "DATE":
        return max(-INFINITE, min(time_us, INFINITE))
    # Dates have a wider range than times: only the infinite time maps to the infinite date.
    return -INFINITE_DAY if time_us == -INFINITE else max(-INFINITE_DAY, min(-(-time_us // DAY_US), INFINITE_DAY))
