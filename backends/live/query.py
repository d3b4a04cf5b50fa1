"""`LiveQuery`: a physical plan over scans whose rows arrive over time, split into live operators that pass rows and
promises to each other.

A *node* is a step at which rows are handed over: a scan, a step that holds rows, or a step that several others read.
The steps between nodes hold nothing; they run in the fragment that feeds the next node. Scans that are not live are
read completely when the query starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import field
from typing import Any

import pyarrow as pa

from tsql.backends import Run
from tsql.backends.live.arrivals import Batches, stored_time
from tsql.backends.live.fragments import ArrivedRows, Engine, Fragment, Given, count, given, graft
from tsql.backends.live.lifetimes.regions import regions_of
from tsql.backends.live.operator import HeldRows, LiveOperator, Pass, origin
from tsql.backends.live.operators_of_steps import operator_of
from tsql.kernels.expr.errors import ExecutionError, OutOfMemoryError
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.progress import Progress
from tsql.planner.physical.step import PhysicalPlan, Step, through

METADATA = b"tsql"


@dataclass
class LiveNode:
    """A step at which rows are handed over. `feeds` has one fragment per input of the operator, from other nodes to the
    step whose rows it takes; None if that step is a node itself."""

    step: Step
    operator: LiveOperator | None
    feeds: list[tuple[Step, list[LiveNode], Fragment | None]] = field(default_factory=list)
    progress: Progress = field(default_factory=Progress)

    @property
    def name(self) -> str:
        return self.step.name


class LiveQuery:
    """One run of a plan. live: the scans (steps by name) whose rows arrive, with the column that punctuations refer to,
    or None.

    `consume` and `punctuate` return the result batches that became known. Not thread-safe."""

    def __init__(
        self,
        plan: PhysicalPlan,
        live: dict[str, str | None],
        run: Run | None = None,
        shards: int | None = None,
        interpret: bool = False,
    ):
        self.plan, self.live = plan, live
        self.engine = Engine(shards or plan.shards, run or Run(), interpret)
        self.nodes: dict[int, LiveNode] = {}
        users = _users(plan.root)
        self.regions = regions_of(plan.root)
        self.inside = {one for region in self.regions.values() for one in region.inside}
        for step in plan.root.walk():
            self._add(step, users)
        root = origin(plan.root)
        sources, cuts = self._sources(root)
        self.output = Fragment(self.engine, graft(plan.root, cuts, self.engine.shards), (plan.columns, plan.names))
        self.last = sources
        unknown = set(live) - {n.name for n in self.nodes.values() if isinstance(n.step, Scan)}
        if unknown:
            raise ExecutionError(f"the plan has no scan {min(unknown)}")
        self.begun = False

    def _add(self, step: Step, users: dict[int, int]) -> None:
        partial = isinstance(step, Aggregate) and step.exports
        region = self.regions.get(id(step))
        passes = partial or (step.is_stateless and step.inputs and users.get(id(step), 0) < 2)
        if id(step) in self.inside or (passes and region is None):
            return
        if not step.inputs:
            self.nodes[id(step)] = LiveNode(step, None)
            return
        shared = step.is_stateless and region is None
        operator: LiveOperator
        if region is not None:
            operator = region.make(self.engine)
        else:
            operator = Pass(step, self.engine) if shared else operator_of(step, self.engine)
        node = self.nodes[id(step)] = LiveNode(step, operator)
        for below in operator.below:
            sources, cuts = self._sources(below, step)
            is_known = len(sources) == 1 and sources[0].step is below and sources[0].operator is not None
            node.feeds.append(
                (below, sources, None if is_known else Fragment(self.engine, graft(below, cuts, self.engine.shards)))
            )

    def _sources(self, top: Step, node: Step | None = None) -> tuple[list[LiveNode], dict[int, Step]]:
        """The nodes that a step's rows come from, and leaves in their place. `node` itself is looked through."""
        found: dict[int, LiveNode] = {}
        stack, seen = [top], set()
        while stack:
            step = stack.pop()
            if id(step) in seen:
                continue
            seen.add(id(step))
            if id(step) in self.nodes and step is not node:
                found[id(step)] = self.nodes[id(step)]
            else:
                stack.extend(step.inputs)
        return list(found.values()), {key: given(n.name, n.step.schema) for key, n in found.items()}

    def describe(self) -> list[str]:
        """What each step holds, and until when."""
        return [
            f"{n.name}: {n.operator.why}"
            for n in self.nodes.values()
            if n.operator is not None and not isinstance(n.operator, Pass)
        ]

    def consume(self, scan: str, batch: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
        """Take rows of a live scan. They have at least its columns."""
        return self.take(scan, Batches(batch, self._scan(scan).step))

    def take(self, scan: str, rows: ArrivedRows) -> list[pa.RecordBatch]:
        """Take rows of a live scan, from any origin."""
        node = self._scan(scan)
        if node.progress.ended:
            raise ExecutionError(f"the scan {scan} has ended")
        return self._advance({id(node.step): rows})

    def punctuate(self, scan: str, time_us: int | None = None) -> list[pa.RecordBatch]:
        """Promise that no later row of a live scan has a time before this; without a time, that there are no more
        rows."""
        node = self._scan(scan)
        column = self.live[scan]
        if time_us is None:
            node.progress = Progress(ended=True)
        elif column is not None and column in node.step.schema:
            bound = stored_time(time_us, node.step.schema[column].type)
            node.progress = Progress({column: max(bound, node.progress.bounds.get(column, bound))})
        return self._advance({})

    def _scan(self, name: str) -> LiveNode:
        if name not in self.live:
            raise ExecutionError(f"{name} is no scan whose rows arrive")
        return next(n for n in self.nodes.values() if n.name == name and isinstance(n.step, Scan))

    def _advance(self, arrived: dict[int, Given]) -> list[pa.RecordBatch]:
        """Pass rows and promises through all nodes, inputs first."""
        try:
            return self._advanced(arrived)
        except OutOfMemoryError as error:
            raise (self._too_much() if self.engine.held_bytes else error) from error

    def _advanced(self, arrived: dict[int, Given]) -> list[pa.RecordBatch]:
        rows: dict[int, list[Given]] = {key: [given] for key, given in arrived.items()}
        if not self.begun:
            self.begun = True
            for node in self.nodes.values():
                if node.operator is None and node.name not in self.live:
                    rows[id(node.step)] = [Fragment(self.engine, node.step, gives_of_nothing=True).rows({})]
                    node.progress = Progress(ended=True)
        for key, node in self.nodes.items():
            if node.operator is not None:
                found = self._take(node, rows)
                promises = tuple(through(below, self._known(node)) for below, _, _ in node.feeds)
                found += node.operator.punctuate(promises)
                node.progress = node.operator.promise()
                if found:
                    rows[key] = [found]
                self._check_memory()
        return [b for part in self._parts(self.last, rows) for b in self.output.batches(part)]

    def _check_memory(self) -> None:
        """Check held rows against memory_limit: they cannot be spilled."""
        limit = self.engine.run.settings.memory_limit
        if limit is not None:
            self.engine.held_bytes = sum(a.nbytes for _, held in self.held() for c in held.rows for a in c.arrays)
            if self.engine.held_bytes > limit:
                raise self._too_much()

    def _too_much(self) -> OutOfMemoryError:
        most, _ = max(self.held(), key=lambda one: len(one[1]))
        by_choice = set(self.live) == {s.name for s in self._progressing()}
        return OutOfMemoryError(
            (
                f"the steps of the plan hold {self.engine.held_bytes:,} bytes for rows to come, of "
                f"memory_limit {self.engine.run.settings.memory_limit:,}; step {most} the most"
            ),
            hint="leave progress out of the plan's scan: its steps then spill to disk"
            if by_choice
            else "raise memory_limit",
        )

    def _progressing(self) -> list[Scan]:
        return [n.step for n in self.nodes.values() if isinstance(n.step, Scan) and n.step.progress is not None]

    def held(self) -> list[tuple[str, HeldRows]]:
        """Everything that operators hold, with the names of their steps."""
        return [
            (n.name, held)
            for n in self.nodes.values()
            if n.operator is not None
            for held in n.operator.tables().values()
        ]

    def _take(self, node: LiveNode, rows: dict[int, list[Given]]) -> list[Any]:
        """Feed a node, and return what it knows at once."""
        found = []
        for side, (_, sources, fragment) in enumerate(node.feeds):
            for part in self._parts(sources, rows):
                mine = next(iter(part.values())) if fragment is None else fragment.rows(part)
                if mine:
                    found += node.operator.consume(side, mine)
        return found

    def _parts(self, sources: list[LiveNode], rows: dict[int, list[Given]]) -> Iterator[dict[str, Given]]:
        """The rows that have come from some nodes, one node at a time: the steps in between process each row
        independently."""
        for node in sources:
            for one in rows.get(id(node.step), ()):
                if count(one):
                    yield {node.name: one}

    def _known(self, node: LiveNode) -> Any:
        return lambda step: self.nodes[id(step)].progress if id(step) in self.nodes and step is not node.step else None

    @property
    def ended(self) -> bool:
        """Whether no further row of the result will come: the inputs have ended, or a LIMIT is reached."""
        root = origin(self.plan.root)
        return through(root, lambda step: self.nodes[id(step)].progress if id(step) in self.nodes else None).ended

    def rows_held(self) -> int:
        """The number of rows, or states, that all operators hold."""
        return sum(len(held) for _, held in self.held())

    def state(self) -> dict[str, pa.Table]:
        """Everything needed to continue, with any number of shards: one table per thing held, and one named "" for the
        scans."""
        scans = {
            n.name: {"bounds": n.progress.bounds, "ended": n.progress.ended}
            for n in self.nodes.values()
            if n.operator is None
        }
        about = {
            "begun": self.begun,
            "scans": scans,
            "counts": self.engine.run.counts,
            "next_position": self.engine.next_position,
        }
        found = {"": pa.table({}).replace_schema_metadata({METADATA: json.dumps(about)})}
        for node in self.nodes.values():
            if node.operator is not None:
                tables, marks = node.operator.state()
                for name, table in tables.items():
                    found[f"{node.name} {name}"] = table
                found[node.name] = pa.table({}).replace_schema_metadata({METADATA: json.dumps(marks)})
        return found

    def restore(self, state: dict[str, pa.Table]) -> None:
        """Continue where `state` was called, in a query of the same plan that has not started."""
        if self.begun:
            raise ExecutionError("a query that has begun cannot go on from a state")
        try:
            about = _metadata(state[""])
            for node in self.nodes.values():
                if node.operator is None:
                    known = about["scans"][node.name]
                    node.progress = Progress(known["bounds"], known["ended"])
                else:
                    names = node.operator.tables()
                    node.operator.restore({n: state[f"{node.name} {n}"] for n in names}, _metadata(state[node.name]))
                    node.operator.progress = tuple(through(below, self._known(node)) for below, _, _ in node.feeds)
                    node.progress = node.operator.promise()
        except (KeyError, TypeError, ValueError) as error:
            raise ExecutionError(f"this is no state of the plan: {error}") from error
        self.begun, self.engine.next_position = about["begun"], int(about.get("next_position", 0))
        self.engine.run.counts.update(about["counts"])


def _metadata(table: pa.Table) -> dict[str, Any]:
    return json.loads(table.schema.metadata[METADATA])


def _users(root: Step) -> dict[int, int]:
    """The number of steps that read the rows of each step, not counting movement."""
    found: dict[int, int] = {}
    for step in root.walk():
        if step is origin(step):
            for child in step.inputs:
                below = origin(child)
                found[id(below)] = found.get(id(below), 0) + 1
    return found
