"""`StagePart`: a part of a plan as plain data, on its way from the driver to the tasks of a stage. Entries say where
rows enter the part."""

from __future__ import annotations

import json
from dataclasses import asdict, field
from typing import Any

from tsql.kernels.process.quick_dataclass import dataclass


@dataclass(frozen=True)
class Entry:
    """Where rows enter a part. kind:

    "chunks": blobs of rows that a kernel has collected
    "table": blobs of a table in memory
    "frame": batches of a DataFrame, one partition of Spark each
    "kept": blobs of a dataset, whose `columns` the description names
    "splits": lists of splits of the source that `description` describes
    "read": rows that each worker computes by itself, from the entries `below` down to whole sources

    `facts` are (nullable, bounds) of each column. `late`: columns may be decoded after the first filters. `files`
    stands for the names of the files of the source. `some`: `description` is of one file, to which a task adds those of
    its splits. `is_one`: the plan has its rows in one shard, so the threads of a task do not divide them."""

    name: str
    kind: str
    description: dict[str, Any] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    late: bool = False
    files: str = ""
    some: bool = False
    is_one: bool = False
    splits: list[Any] | None = None
    """The splits of a whole source, for an entry below a "read"."""
    below: list[Entry] = field(default_factory=list)


@dataclass(frozen=True)
class StagePart:
    """One part of a plan, as it goes to the tasks."""

    text: str
    stage: int
    top: str
    movement: str | None
    """The step that says where the rows of `top` go. None: they go to the driver, or stay in their shard."""

    targets: int
    """The number of shards that the rows go to; 0 if they leave as columns of a DataFrame."""

    entries: list[Entry]
    run: str
    """Identifies the run: what a worker keeps for one run is not used by another."""

    positions: list[int | None]
    parameters: dict[str, Any]
    parameter_types: dict[str, str]
    settings: dict[str, Any]
    wall_clock: float
    several: bool = False
    """A task has whichever shards its rows say, and not the one of its own number."""

    one_copy: bool = False
    """The rows are the same on every shard: only those of shard 0 are sent."""

    output: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    """(columns, names) of the result, if rows are sent as columns of the result and not as the kernels' own."""

    sink: dict[str, Any] | None = None
    """The folder that tasks write the result to (`FolderTarget.describe`), in place of sending it."""

    most: int | None = None
    """No task sends more rows than this: a LIMIT above needs no more."""

    sample: int | None = None
    """Instead of rows, the keys of this many rows are sent."""

    keys: list[str] | None = None
    """The key columns of a sample, or of heavy rows."""

    heavy: list[list[Any]] | None = None
    """The keys whose rows are split or copied (`heavy.py`)."""

    ranges: list[list[Any]] | None = None
    """The boundaries between the shards that rows are arranged in."""

    sampled: dict[str, Any] | None = None
    """The rows come in units of a sample, and groups leave with what was noted of them (`progressive/task.py`)."""

    profile: bool = False
    """Count the rows of each step (`explain analyze`)."""

    @property
    def title(self) -> str:
        """What the stage is called where people see it."""
        return f"stage {self.stage} (step {self.top})"

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def decode(text: str) -> StagePart:
        data = json.loads(text)
        entries = [_entry(entry) for entry in data.pop("entries")]
        output = data.pop("output")
        return StagePart(
            entries=entries, output=None if output is None else (tuple(output[0]), tuple(output[1])), **data
        )


def whole(name: str) -> str:
    """The name under which the rows of a whole table travel, for an entry below a "read". The same table may be an
    entry of the part itself, where each task has its own rows of it."""
    return f"\0{name}"


def _entry(data: dict[str, Any]) -> Entry:
    return Entry(**{**data, "below": [_entry(one) for one in data["below"]]})
