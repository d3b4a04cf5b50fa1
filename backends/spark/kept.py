"""What a Python worker keeps between tasks: parsed plans with their kernels, open sources, and rows that the tasks of
one run share."""

from __future__ import annotations

import gc
import json
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from typing import Any, Protocol

from tsql.backends import Settings
from tsql.backends.io import Source
from tsql.backends.io.open import from_description
from tsql.backends.local.run.arranging import shard_of
from tsql.backends.local.run.host import Chunk
from tsql.backends.local.run.kernels import Kernels
from tsql.backends.spark.arranged import decode_boundaries
from tsql.backends.spark.heavy import is_heavy
from tsql.backends.spark.part import StagePart
from tsql.backends.spark.siblings import SharedBlobs, can_share, shared_blobs
from tsql.backends.spark.wire import decode_chunks, encode_chunks, expression_nodes
from tsql.kernels.expr.nodes import Call, Column, Literal
from tsql.kernels.expr.types import BIGINT, BOOLEAN, parse_type
from tsql.kernels.process import forks
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.movement import Arrange, Gather, Multicast, Redistribute
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.limit import Limit
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.planfile import parse_plan
from tsql.planner.physical.step import PhysicalPlan, Step

Counted = tuple[list[Chunk], dict[str, Any]]
"""Rows, and what was counted while they were computed (`tally.counted`)."""

KEPT_PLANS = 64
KEPT_ENDS = 64
"""Ends of parts that are kept of a plan."""

KEPT_SOURCES = 32
KEPT_RUNS = 2
"""Rows for all tasks are kept for this many runs: the tasks of two queries may take turns."""

SETTLED_NS = 1_000_000_000
STABLE_FILES = 64
"""A source of at most this many files is used again by other runs, as long as none of them has changed."""


class PlanText(Protocol):
    """A plan as it travels."""

    @property
    def text(self) -> str: ...

    @property
    def positions(self) -> list[int | None]: ...

    @property
    def parameter_types(self) -> dict[str, str]: ...


@dataclass
class LoadedPart:
    """A parsed plan with its steps by name and its compiled kernels."""

    plan: PhysicalPlan
    steps: dict[str, Step]
    kernels: dict[tuple[Any, ...], Kernels] = field(default_factory=dict)
    ends: dict[tuple[str, Any], Any] = field(default_factory=dict)
    """Steps that were made here, behind those of the plan. Kept, since graphs of pipelines are found by the identity of
    their last step."""

    def kernels_for(self, end: tuple[Any, ...], settings: Settings) -> Kernels:
        """The kernels of the part that ends so, for these settings. The size of chunks, and whether they may be left
        open, is a part of the code: a task that spills cannot use the kernels of one that does not. A step in two parts
        may have other users in each, and another number of shards."""
        key = (
            end,
            settings.memory_limit,
            settings.spill_after,
            settings.threads,
            settings.batch_rows,
            settings.equal_hashes,
        )
        return self._ended(self.kernels, key, Kernels)

    def _ended(self, cache: dict[Any, Any], key: Any, make: Callable[[], Any]) -> Any:
        """What is kept under a key. The oldest gives way: the ranges of an ORDER BY may differ in each run."""
        if key not in cache:
            while len(cache) >= KEPT_ENDS:
                cache.pop(next(iter(cache)))
            cache[key] = make()
        return cache[key]

    def gathered(self, top: Step, most: int | None = None) -> Step:
        """The rows of a step in one shard, or the first of them."""
        if most is None:
            return self._ended(self.ends, (top.name, None), lambda: Gather((top,), name=f"{top.name} gathered"))
        below = self.gathered(top)
        count = Literal(most, BIGINT)
        return self._ended(self.ends, (top.name, most), lambda: Limit((below,), count=count, name=f"{top.name} first"))

    def keys_of(self, top: Step, names: list[str]) -> Step:
        """Some columns of a step."""
        columns = tuple(
            (f"k{number}", Column(name, top.schema[name].type, top.schema[name].nullable))
            for number, name in enumerate(names)
        )
        keys = Project((top,), columns=columns, name=f"{top.name} keys")
        return self._ended(self.ends, (top.name, json.dumps(names)), lambda: keys)

    def light_and_heavy(self, step: Redistribute, names: list[str], keys: list[list[Any]]) -> tuple[Step, Step]:
        """The rows of a step whose keys are not heavy, in their shards, and the others."""
        (below,) = step.inputs
        predicate = is_heavy(below.schema, names, decode_boundaries(keys))
        light = Filter((below,), predicate=Call("not", (predicate,), BOOLEAN), name=f"{step.name} light")
        made = (
            Redistribute((light,), scope=step.scope, shards=step.shards, name=step.name),
            Filter((below,), predicate=predicate, name=f"{step.name} heavy"),
        )
        return self._ended(self.ends, (step.name, json.dumps([names, keys])), lambda: made)

    def directed(self, step: Arrange, ranges: list[list[Any]], shards: int) -> Step:
        """The rows that a step arranges, in the shards of these ranges."""
        to = shard_of(step.keys, decode_boundaries(ranges))
        made = Multicast((step.inputs[0],), scope=step.scope, shards=shards, to=(to,), name=step.name)
        return self._ended(self.ends, (step.name, json.dumps([ranges, shards])), lambda: made)


@dataclass(frozen=True)
class OpenSource:
    """An open source, the run that used it last, and what its files looked like when it was opened. Files that are so
    new that they may change again without a new time are not `settled`."""

    source: Source
    run: str
    prints: tuple[Any, ...] | None
    settled: bool


_programs: OrderedDict[Any, LoadedPart] = OrderedDict()
_sources: OrderedDict[Any, OpenSource] = OrderedDict()
_shared: OrderedDict[str, dict[str, SharedRows]] = OrderedDict()
_lock = forks.lock()
_frozen: set[int] = set()


def settle() -> None:
    """Tell the garbage collector to leave alone what is there now. A worker looks for garbage after each task, which
    takes 30 ms over the objects of all imported modules, and blocks the next task."""
    if os.getpid() not in _frozen:
        _frozen.add(os.getpid())
        gc.collect()
        gc.freeze()


def _kept(cache: OrderedDict[Any, Any], key: Any, most: int, make: Callable[[], Any]) -> Any:
    with _lock:
        if key not in cache:
            cache[key] = make()
            while len(cache) > most:
                cache.popitem(last=False)
        cache.move_to_end(key)
        return cache[key]


def program_of(part: PlanText) -> LoadedPart:
    """The program of a part's plan; made once per worker."""
    key = (part.text, tuple(part.positions), tuple(part.parameter_types.items()))
    return _kept(_programs, key, KEPT_PLANS, lambda: _parse(part))


def _parse(part: PlanText) -> LoadedPart:
    plan = parse_plan(part.text, None, {name: parse_type(text) for name, text in part.parameter_types.items()})
    nodes = list(expression_nodes(plan.root))
    if len(nodes) == len(part.positions):
        # Positions refer to the query's text, not the plan's. Nobody else has seen these nodes yet.
        for node, position in zip(nodes, part.positions, strict=True):
            object.__setattr__(node, "position", position)
    return LoadedPart(plan, {step.name: step for step in plan.root.walk()})


def source_of(run: str, description: dict[str, Any], files: str) -> Source:
    """The source of a description. What is open already is used again by the same run, and by others if none of its
    files has changed. `files` stands for the names of the files that the driver has seen."""
    key = (json.dumps(description, sort_keys=True), files)
    with _lock:
        known = _sources.get(key)
        if known is None or known.run != run:
            _forget_changed(run)
            if known is None or key not in _sources or not known.settled:
                source = from_description(description)
                prints = _prints(source)
                known = OpenSource(source, run, prints, _settled(prints))
        _sources[key] = replace(known, run=run)
        _sources.move_to_end(key)
        while len(_sources) > KEPT_SOURCES:
            _sources.popitem(last=False)
        return known.source


def _forget_changed(run: str) -> None:
    """Close the sources of other runs whose files have changed or are gone: the disk keeps what is open."""
    for key, one in list(_sources.items()):
        if one.run != run and one.prints is not None and one.prints != _prints(one.source):
            del _sources[key]


def _prints(source: Source) -> tuple[Any, ...] | None:
    """Size and time of change of each file of a source. None for many files, and if one is not there."""
    paths = getattr(source, "paths", None)
    if not paths or len(paths) > STABLE_FILES:
        return None
    try:
        found = [os.stat(path) for path in paths]
    except (OSError, TypeError, ValueError):
        return None
    return tuple((status.st_mtime_ns, status.st_ctime_ns, status.st_size) for status in found)


def _settled(prints: tuple[Any, ...] | None) -> bool:
    """Whether all files are so old that a change would give them a new time."""
    return prints is not None and all(mtime <= time.time_ns() - SETTLED_NS for mtime, _, _ in prints)


def shared_rows(part: StagePart, name: str, columns: int, compute: Callable[[], Counted]) -> SharedRows:
    """Rows that all tasks of a run on this executor use: its first worker computes them, and each worker keeps them."""
    with _lock:
        mine = _shared.setdefault(part.run, {})
        while len(_shared) > KEPT_RUNS:
            _, old = _shared.popitem(last=False)
            for rows in old.values():
                rows.close()
    if name not in mine:
        mine[name] = SharedRows.of(part, name, columns, compute)
    return mine[name]


@dataclass(frozen=True)
class SharedRows:
    """Rows that several tasks use, what was counted for them, and where other workers get both from."""

    chunks: list[Chunk]
    told: dict[str, Any]
    blobs: SharedBlobs | None = None

    @classmethod
    def of(cls, part: StagePart, name: str, columns: int, compute: Callable[[], Counted]) -> SharedRows:
        if part.settings["tasks_per_machine"] < 2 or not can_share():
            return cls(*compute())

        def computed() -> Iterator[Any]:
            chunks, told = compute()
            # Wide, as kernels read them: nothing moves, and the others use the memory as it is.
            yield from encode_chunks(chunks, narrow=False)
            yield json.dumps(told).encode()

        found = shared_blobs(f"{part.run} {name}", computed)
        *blobs, told = found.blobs
        chunks = [chunk for place, blob in enumerate(blobs) for chunk in decode_chunks(blob, columns, place)]
        return cls(chunks, json.loads(bytes(told)), found)

    def close(self) -> None:
        if self.blobs is not None:
            self.blobs.close()
