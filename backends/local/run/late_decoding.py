"""Late decoding: columns that filters and joins at the head of a pipeline read are decoded first, the others only for
the rows that pass.

`LateData` replaces a scan of files (`SourceData`) whose source has lanes. A lane is memory for one batch of a column
that is reused for the next batch, so a batch costs only a few kernel calls. With `late=yes` in the plan, the operators
at the head of the pipeline become stages: small kernels that write down which rows pass. A new stage starts where an
operator needs a column that is not decoded yet. The pipeline itself gets batches of the remaining rows, with the
columns it still reads. Filters are finished by then. A join only checks its directory for a possible match, and still
runs in the pipeline."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tsql.backends.io import tell_lost
from tsql.backends.io.parquet.pages import Selection
from tsql.backends.local.run.dataset import Dataset, Part, SourceData
from tsql.backends.local.run.positions import check_rows, first_position
from tsql.kernels.emit.batch import Morsels, SourceColumn, all_ones
from tsql.kernels.emit.pipeline import ColumnarScan, Operator, Sink
from tsql.kernels.operators.choose_rows import LAST_ROW, Admit, Choose
from tsql.kernels.operators.count import Count
from tsql.kernels.operators.filter import Filter
from tsql.kernels.operators.join.hash_join import Probe
from tsql.kernels.operators.project import Project
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.backends.local.run.flow import Flow
    from tsql.backends.local.run.pipelines import Pipelines

MOST_STAGES = 1
"""Operators beyond this share the last stage. More stages decode fewer values, but each stage costs calls per batch:
TPC-H Q6, Q12 and Q18 took 5 to 20 % more CPU with four stages than with one."""


NOT_READ = (0, 0, 0, 0)
"""The words of a column that the pipeline does not read."""


@dataclass
class DecodingStage:
    """Operators that are evaluated together, and the columns of the scan that they read."""

    columns: tuple[str, ...]
    operators: list[Operator] = field(default_factory=list)
    reads: frozenset[str] = frozenset()


def split_operators(operators: list[Operator], columns: tuple[str, ...]) -> tuple[list[DecodingStage], list[Operator]]:
    """The stages at the head of a pipeline, and the operators that remain in the pipeline itself."""
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
                origin = {
                    name: needs for name, needs in origin.items() if name not in {n for n, _ in operator.build.columns}
                }
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
    """The scan columns that these columns are computed from."""
    return frozenset().union(*(origin[name] for name in reads))


def _stages(head: list[tuple[Operator, frozenset[str]]], columns: tuple[str, ...]) -> list[DecodingStage]:
    stages: list[DecodingStage] = []
    known: frozenset[str] = frozenset()
    chooses = [isinstance(o, Filter | Admit) for o, _ in head]
    projects: list[Operator] = []
    for (operator, needs), is_choice in zip(head, chooses, strict=True):
        if is_choice and (not stages or (not needs <= known and len(stages) < MOST_STAGES)):
            # The results of a projection are computed again for the rows that pass a stage.
            stages.append(DecodingStage((), list(projects)))
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
    """A stage in one worker: its kernel, and the memory for the row numbers that it writes."""

    def __init__(self, late: LateData, number: int, shard: int):
        self.late, self.number, self.shard = late, number, shard
        self.stage = late.stages[number]
        self.source: ColumnarScan | None = None
        self.context: Any = None
        self.rows = np.empty(1, np.int32)

    def choose(self, reader: Any, rows: int) -> int:
        """Evaluate a batch, and return how many rows pass. Their numbers are in `rows`."""
        stage, pipelines = self.stage, self.late.pipelines
        source = self.late.source_of(stage.columns, reader, stage.columns)
        if source is not self.source:
            pipeline, self.code = self.late.chooser_kernel(self.number, source)
            self.source = source
            if self.context is None or self.context.program is not self.code.program:
                self.close()
                self.context = pipelines.states.context(pipeline, self.code, None, self.shard)
        if len(self.rows) <= rows:
            self.rows = np.empty(rows + 1, np.int32)
        ctypes.c_uint64.from_address(self.context.state_address).value = self.rows.ctypes.data
        morsels, ones = Morsels(len(stage.columns)), all_ones(rows).address
        morsels.add(rows, 0, [reader.column(name, morsels, ones) for name in stage.columns])
        self.context.counter.value = 0
        self.code.run(self.context, morsels)
        return ctypes.c_int64.from_address(self.context.state_address + 8).value

    def close(self) -> None:
        if self.context is not None:
            self.late.pipelines.states.close(self.context)


class LateData(Dataset):
    """The rows of a scan that pass the stages; all rows if there are no stages."""

    positioned = True

    def __init__(self, pipelines: Pipelines, step: Step, role: str, flow: Flow, stages: list[DecodingStage]):
        self.pipelines, self.step, self.role, self.flow, self.stages = pipelines, step, role, flow, stages
        self.data: SourceData = flow.data
        self.shards, self.rows, self.expected = self.data.shards, self.data.rows, self.data.expected
        self.used: tuple[str, ...] = ()
        self._sources: dict[tuple[int, ...], ColumnarScan] = {}

    def empty_source(self) -> ColumnarScan:
        return self._source(tuple(self._likely(name) for name in self.data.columns))

    def _likely(self, name: str) -> SourceColumn:
        return self.data._column(name, self.data.source.arrow_type(name))

    def _source(self, columns: tuple[SourceColumn, ...]) -> ColumnarScan:
        """The scan of these columns: the same object for the same columns, so that kernels are found quickly."""
        key = tuple(map(id, columns))
        return self._sources.get(key) or self._sources.setdefault(key, ColumnarScan(columns))

    def source_of(self, names: tuple[str, ...], reader: Any, there: tuple[str, ...]) -> ColumnarScan:
        """The scan of the columns that a reader has. The others are not read."""
        return self._source(
            tuple(self.data._column(n, reader.type_of(n)) if n in there else self._likely(n) for n in names)
        )

    def chooser_kernel(self, number: int, source: ColumnarScan) -> Any:
        flow = replace(self.flow, operators=self.stages[number].operators)
        return self.pipelines.finder.find(self.step, f"{self.role} stage {number + 1}".strip(), flow, source, Choose)

    def prepare(self, left: Flow, make: Callable[[], Sink]) -> None:
        """Make the most likely kernels, and find out which columns the pipeline reads."""
        for number, stage in enumerate(self.stages):
            self.chooser_kernel(number, self._source(tuple(self._likely(name) for name in stage.columns)))
        pipeline, _ = self.pipelines.finder.find(self.step, self.role, left, self.empty_source(), make)
        self.used = tuple(name for name in self.data.columns if name in pipeline.source.used)

    def feed(self, shard: int) -> Iterator[Part]:
        data, shared, reserved = self.data, self.data.shared, 0
        choosers, reader = (
            [Chooser(self, number, shard) for number in range(len(self.stages))],
            data.source.open_lanes(),
        )
        try:
            while (split := data._take()) is not None:
                reader.open(split)
                check_rows(split, first_position(split) + split.rows)
                number = 0
                while rows := reader.advance():
                    shared.run.check()
                    count = self._batch(reader, choosers, rows)
                    if count:
                        if number == 0:
                            bytes = reader.bytes
                            shared.reserve(bytes - reserved)
                            reserved = bytes
                        position = first_position(split) + reader.late.start
                        yield self._part(reader, count, position, (split.order, split.first + number))
                        number += 1
        finally:
            shared.release(reserved)
        tell_lost(data.source, data.columns, shared.run)
        for chooser in choosers:
            chooser.close()

    def _batch(self, reader: Any, choosers: list[Chooser], rows: int) -> int:
        """Decode a batch: the rows that pass all stages, in the columns that the pipeline reads. Returns how many rows
        there are."""
        there: list[str] = []
        selection: Selection | None = None
        count = rows
        for number, chooser in enumerate(choosers):
            missing = tuple(name for name in chooser.stage.columns if name not in there)
            reader.get(missing, selection)
            there += missing
            passed = chooser.choose(reader, count)
            # The next kernel counts these rows again.
            self.data.shared.pass_over(-passed)
            if passed == 0:
                return 0
            if passed < count:
                chosen = Selection(chooser.rows[: passed + 1])
                wanted = set(self.used).union(*(stage.columns for stage in self.stages[number + 1 :]))
                there = [name for name in there if name in wanted]
                reader.keep(there, chosen)
                selection = chosen if selection is None else _composed(selection, chosen)
                count = passed
        reader.get(tuple(name for name in self.used if name not in there), selection)
        return count

    def _part(self, reader: Any, rows: int, position: int, order: tuple[int, ...]) -> Part:
        columns, morsels = self.data.columns, Morsels(len(self.data.columns))
        ones = all_ones(rows).address
        words = {name: reader.column(name, morsels, ones) for name in self.used}
        morsels.add(rows, position, [words.get(name, NOT_READ) for name in columns])
        return Part(self.source_of(columns, reader, self.used), morsels, order)


def _composed(first: Selection, second: Selection) -> Selection:
    """The rows selected by a selection over a selection."""
    rows = np.empty(second.count + 1, np.int32)
    np.take(first.rows, second.rows[:-1], out=rows[:-1])
    rows[-1] = LAST_ROW
    return Selection(rows)


def read_late(pipelines: Pipelines, step: Step, role: str, flow: Flow, make: Callable[[], Sink]) -> Flow:
    """The flow with its scan read by lanes, and decoded late if the plan says so. If the source has no lanes, the flow
    itself."""
    data = flow.data
    if not isinstance(data, SourceData) or not hasattr(getattr(data, "source", None), "open_lanes") or data.batch_rows:
        return flow
    stages, left = split_operators(flow.operators, data.columns) if data.late else ([], flow.operators)
    late = LateData(pipelines, step, role, flow, stages)
    found = replace(flow, data=late, operators=left)
    late.prepare(found, make)
    return found
