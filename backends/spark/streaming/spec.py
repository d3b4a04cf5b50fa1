"""What tasks of a micro-batch are told, as plain data: the plan's text, which parts they run, and how far the streams
have come. The text and the parameters are the same in all batches, so a worker parses and compiles them once."""

from __future__ import annotations

import json
from dataclasses import asdict, field
from typing import Any

from tsql.backends import Run
from tsql.backends.spark.wire import encode_value, expression_nodes
from tsql.kernels.expr.nodes import Parameter
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.step import PhysicalPlan

INTAKE, LIVE = "intake", "live"

MARKS, LATE, PROGRESS, AHEAD = "\0marks", "\0late ", "\0progress", "\0ahead"
"""Names of rows of the wire beside those of movements: watermarks that intake tasks have seen; late rows of a stream;
behind the name of a movement, the promise of one of its senders, and rows that are shown before they are final."""


@dataclass(frozen=True)
class Program:
    """A plan on its way to tasks, and everything that its parts have in common. job: identifies the run of the job."""

    job: str
    text: str
    positions: list[int | None]
    parameters: dict[str, Any]
    parameter_types: dict[str, str]
    settings: dict[str, Any]
    wall_clock: float

    @staticmethod
    def of(job: str, plan: PhysicalPlan, run: Run, tasks_per_machine: int) -> Program:
        nodes = list(expression_nodes(plan.root))
        kinds = {node.name: str(node.type) for node in nodes if isinstance(node, Parameter)}
        return Program(
            job,
            plan.text(),
            [node.position for node in nodes],
            {name: encode_value(run.parameters[name]) for name in kinds},
            kinds,
            {
                "shards": 1,
                "memory_limit": run.settings.memory_limit,
                "batch_rows": run.settings.batch_rows,
                "equal_hashes": run.settings.equal_hashes,
                "temp_directory": run.settings.temp_directory,
            },
            run.wall_clock,
        )


@dataclass(frozen=True)
class StreamSpec:
    """A stream for intake tasks. kind: "frame" (columns of a DataFrame), "files" (names of files) or "messages".
    columns: names and types of what the scans need. schema: of all columns, for the watermark. number: what marks its
    rows among those of other streams. options: of the reader of its files, or of the format of its messages."""

    name: str
    number: int
    kind: str
    scans: list[str]
    columns: list[list[str]]
    schema: list[list[str]]
    watermark: list[Any] | None
    file_kind: str = ""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class IntakeSpec:
    """What the tasks of an intake do. parts: (name, shards that its rows go to) of each part that they run. users: the
    most shards of them. tables: entries of tables, by the names of their scans."""

    program: Program
    batch: int
    parts: list[tuple[str, int]]
    users: int
    streams: list[StreamSpec]
    marks: dict[str, dict[str, Any]]
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    frame_of: str | None = None
    """The table whose rows the DataFrame has, if it is not one of streams."""

    def encode(self) -> str:
        return json.dumps({"kind": INTAKE, **asdict(self)})

    @staticmethod
    def decode(data: dict[str, Any]) -> IntakeSpec:
        program, streams = Program(**data.pop("program")), [StreamSpec(**one) for one in data.pop("streams")]
        parts = [(name, targets) for name, targets in data.pop("parts")]
        return IntakeSpec(program=program, streams=streams, parts=parts, **data)


@dataclass(frozen=True)
class LiveSpec:
    """What the tasks of a part that holds rows do. targets: the shards that its rows go to. intakes: the streams of
    each entry that comes from an intake, by scan. senders: how many shards each other entry comes from. marks: the
    streams before the batch. states: of each shard, by number; none for one that has none. look: whether rows are shown
    that are not final, and how far ahead ("watermark" or "now"). folder: where states are kept. sync: whether they must
    survive a crash of the machine."""

    program: Program
    batch: int
    part: str
    targets: int
    intakes: dict[str, dict[str, str]]
    senders: dict[str, int]
    marks: dict[str, dict[str, Any]]
    states: dict[str, dict[str, Any]]
    look: str | None
    folder: str
    sync: bool
    one_copy: bool = False

    def encode(self) -> str:
        return json.dumps({"kind": LIVE, **asdict(self)})

    @staticmethod
    def decode(data: dict[str, Any]) -> LiveSpec:
        return LiveSpec(program=Program(**data.pop("program")), **data)


def decoded(text: str) -> IntakeSpec | LiveSpec:
    """The work of a task."""
    data = json.loads(text)
    return IntakeSpec.decode(data) if data.pop("kind") == INTAKE else LiveSpec.decode(data)
