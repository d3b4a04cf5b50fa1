"""Late reading: what filters and joins at the head of a pipeline look at is decoded first, the rest for the rows that they leave.

`LateData` takes the place of a scan of files (`SourceData`) whose plan says `late=yes`. The operators at the head of the pipeline
become stages, small kernels that write down which rows pass; a stage begins where an operator needs a column that is not decoded
yet. The pipeline itself gets batches of the rows that are left, with the columns that it still reads. Filters are done with then; a join is only
asked, by its directory, whether a row may have a partner, and is still to be made.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tsql.backends.local.dataset import Dataset, Part, SourceData, slices
from tsql.backends.sources.parquet_late import keep
from tsql.backends.sources.parquet_pages import Selection
from tsql.kernels.batch import Morsels
from tsql.kernels.operators.choose import LAST_ROW, Admit, Choose
from tsql.kernels.operators.count import Count
from tsql.kernels.operators.filter import Filter
from tsql.kernels.operators.join import Probe
from tsql.kernels.operators.project import Project
from tsql.kernels.pipeline import ColumnarScan, Operator, Sink
from tsql.planner.step import Step

if TYPE_CHECKING:
    from tsql.backends.local.runner import Flow, PipelineRunner

MOST_STAGES = 4
"""A stage costs a call for each batch; operators beyond these share the last one."""


@dataclass
class Stage:
    """Operators that are decided together, and the columns of the scan that they read."""

    columns: tuple[str, ...]
    operators: list[Operator] = field(default_factory=list)
    reads: frozenset[str] = frozenset()


def split_operators(operators: list[Operator], columns: tuple[str, ...]) -> tuple[list[Stage], list[Operator]]:
    """The stages at the head of a pipeline, and the operators that are left for the pipeline itself."""
    origin: dict[str, frozenset[str]] = {name: frozenset((name,)) for name in columns}
    head: list[tuple[Operator, frozenset[str]]] = []
    left: list[Operator] = []
    joined = False
    for number, operator in enumerate(operators):
        match operator:
            case Filter() if not joined and operator.reads <= origin.keys():
                head.append((operator, _needs(operator.reads, origin)))
            case Probe() if operator.selects and operator.reads <= origin.keys():
                head.append((Admit(operator), _needs(operator.reads, origin)))
                left.append(operator)
                joined = True
                origin = {name: needs for name, needs in origin.items() if name not in {n for n, _ in operator.build.columns}}
            case Project():
                head.append((operator, frozenset()))
                left.append(operator)
                known = {n: frozenset(e.columns()) for n, e in operator.columns.items()}
                origin = {n: _needs(reads, origin) for n, reads in known.items() if reads <= origin.keys()}
            case Count() if not joined:
                head.append((operator, frozenset()))
            case Count():
                left.append(operator)
            case _:
                left += operators[number:]
                break
    return _stages(head, columns), left


def _needs(reads: frozenset[str], origin: dict[str, frozenset[str]]) -> frozenset[str]:
    """The columns of the scan behind some columns."""
    return frozenset().union(*(origin[name] for name in reads))


def _stages(head: list[tuple[Operator, frozenset[str]]], columns: tuple[str, ...]) -> list[Stage]:
    stages: list[Stage] = []
    known: frozenset[str] = frozenset()
    chooses = [isinstance(o, Filter | Admit) for o, _ in head]
    projects: list[Operator] = []
    for (operator, needs), is_choice in zip(head, chooses, strict=True):
        if is_choice and (not stages or (not needs <= known and len(stages) < MOST_STAGES)):
            # What a projection computes is computed again for the rows that a stage has left.
            stages.append(Stage((), list(projects)))
        if isinstance(operator, Project):
            projects.append(operator)
        if not stages:
            continue
        known |= needs
        stages[-1].operators.append(operator)
        stages[-1].reads |= needs
    for stage in stages:
        stage.columns = tuple(c for c in columns if c in stage.reads)
    return stages


class Chooser:
    """A stage of one worker: its kernel, made on the first batch, and the memory for the numbers that it writes."""

    def __init__(self, late: LateData, number: int, shard: int):
        self.late, self.number, self.shard = late, number, shard
        self.stage = late.stages[number]
        self.context: Any = None
        self.rows = np.empty(1, np.int32)

    def choose(self, arrays: dict[str, pa.Array], rows: int) -> int:
        """Decide a batch: how many rows pass. Their numbers are in `rows`."""
        runner, stage = self.late.runner, self.stage
        found = [arrays[name] for name in stage.columns]
        source = self.late.source_of(stage.columns, found)
        pipeline, code = self.late.chooser_kernel(self.number, source)
        if self.context is None or self.context.program is not code.program:
            self.close()
            self.context = runner._context(pipeline, code, None, self.shard)
        if len(self.rows) <= rows:
            self.rows = np.empty(rows + 1, np.int32)
        ctypes.c_uint64.from_address(self.context.state_address).value = self.rows.ctypes.data
        morsels = Morsels(len(found))
        morsels.add_arrays(found, 0, rows)
        self.context.counter.value = 0
        code.run(self.context, morsels)
        return ctypes.c_int64.from_address(self.context.state_address + 8).value

    def close(self) -> None:
        if self.context is not None:
            self.late.runner._close(self.context)


class LateData(Dataset):
    """The rows of a scan that the stages let pass."""

    positioned = True

    def __init__(self, runner: PipelineRunner, step: Step, role: str, flow: Flow, stages: list[Stage]):
        self.runner, self.step, self.role, self.flow, self.stages = runner, step, role, flow, stages
        self.data: SourceData = flow.data
        self.shards, self.rows = self.data.shards, self.data.rows
        self.used: tuple[str, ...] | None = None

    def empty_source(self) -> ColumnarScan:
        return ColumnarScan(tuple(self._likely(name) for name in self.data.columns))

    def _likely(self, name: str) -> Any:
        return self.data._column(name, self.data.source.arrow_type(name))

    def source_of(self, names: tuple[str, ...], arrays: list[pa.Array]) -> ColumnarScan:
        return ColumnarScan(tuple(self.data._column(n, a.type) for n, a in zip(names, arrays, strict=True)))

    def chooser_kernel(self, number: int, source: ColumnarScan) -> Any:
        flow = replace(self.flow, operators=self.stages[number].operators)
        return self.runner._kernel(self.step, f"{self.role} stage {number + 1}".strip(), flow, source, Choose)

    def prepare(self, left: Flow, make: Callable[[], Sink]) -> None:
        """Make the kernels as they will most likely be, and learn which columns the pipeline reads."""
        for number, stage in enumerate(self.stages):
            self.chooser_kernel(number, ColumnarScan(tuple(self._likely(name) for name in stage.columns)))
        pipeline, _ = self.runner._kernel(self.step, self.role, left, self.empty_source(), make)
        self.used = tuple(name for name in self.data.columns if name in pipeline.source.used)

    def feed(self, shard: int) -> Iterator[Part]:
        shared, data = self.data.shared, self.data
        choosers = [Chooser(self, number, shard) for number in range(len(self.stages))]
        while (split := data._take()) is not None:
            reader, number = data.source.open_split(split), 0
            while rows := reader.advance():
                shared.run.check()
                found = self._batch(reader, choosers, rows)
                if found is None:
                    continue
                arrays, count = found
                part = self._part(arrays, count, (split.order << 40) + reader.start, (split.order, number))
                number += 1
                bytes = sum(a.nbytes for a in arrays.values())
                shared.reserve(bytes)
                try:
                    yield part
                finally:
                    shared.release(bytes)
                del part, arrays, found
        for chooser in choosers:
            chooser.close()

    def _batch(self, reader: Any, choosers: list[Chooser], rows: int) -> tuple[dict[str, pa.Array], int] | None:
        """The rows of a batch that pass all stages, in the columns that the pipeline reads; None if there are none."""
        arrays: dict[str, pa.Array] = {}
        selection: Selection | None = None
        count = rows
        for number, chooser in enumerate(choosers):
            missing = tuple(name for name in chooser.stage.columns if name not in arrays)
            arrays |= dict(zip(missing, reader.get(missing, selection), strict=True))
            passed = chooser.choose(arrays, count)
            self.data.shared.pass_over(-passed)
            if passed == 0:
                return None
            if passed < count:
                chosen = Selection(chooser.rows[: passed + 1])
                wanted = set(self.used).union(*(stage.columns for stage in self.stages[number + 1 :]))
                arrays = keep({name: array for name, array in arrays.items() if name in wanted}, chosen)
                selection = chosen if selection is None else _composed(selection, chosen)
                count = passed
        missing = tuple(name for name in self.used if name not in arrays)
        arrays |= dict(zip(missing, reader.get(missing, selection), strict=True))
        return {name: arrays[name] for name in self.used}, count

    def _part(self, arrays: dict[str, pa.Array], rows: int, position: int, order: tuple[int, ...]) -> Part:
        columns, morsels = self.data.columns, Morsels(len(self.data.columns))
        source = ColumnarScan(tuple(self.data._column(n, arrays[n].type) if n in arrays else self._likely(n) for n in columns))
        for start, count, pieces in slices(list(arrays.values()), rows, self.data.batch_rows):
            words = dict(zip(arrays, (morsels.column(piece) for piece in pieces), strict=True))
            morsels.add(count, position + start, [words.get(name, (0, 0, 0, 0)) for name in columns])
            morsels.keep.append(pieces)
        return Part(source, morsels, order)


def _composed(first: Selection, second: Selection) -> Selection:
    """The rows that a selection of a selection names."""
    rows = np.empty(second.count + 1, np.int32)
    np.take(first.rows, second.rows[:-1], out=rows[:-1])
    rows[-1] = LAST_ROW
    return Selection(rows)


def read_late(runner: PipelineRunner, step: Step, role: str, flow: Flow, make: Callable[[], Sink]) -> Flow:
    """The flow with its scan read late, if its plan says so and there is something to decide; otherwise the flow as it is."""
    if not isinstance(flow.data, SourceData) or not flow.data.late:
        return flow
    stages, left = split_operators(flow.operators, flow.data.columns)
    if not stages:
        return flow
    data = LateData(runner, step, role, flow, stages)
    late = replace(flow, data=data, operators=left)
    data.prepare(late, make)
    return late
