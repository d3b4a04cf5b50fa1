"""`LiveQuery`: a physical plan over scans whose rows arrive over time, split into live operators that pass rows and
promises to each other.

A *node* is a step at which rows are handed over: a scan, a step that holds rows, or a step that several others read.
The steps between nodes hold nothing; they run in the fragment that feeds the next node. Scans that are not live are
read completely when the query starts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from operator import is_
from typing import Any

import pyarrow as pa

from tsql.backends import Run
from tsql.backends.live.adapted import adapted
from tsql.backends.live.arrivals import Batches, stored_time
from tsql.backends.live.fragments import ArrivedRows, Engine, Fragment, Given, count, given, graft, to_table
from tsql.backends.live.lifetimes.regions import regions_of
from tsql.backends.live.operator import HeldRows, LiveOperator, Pass, origin
from tsql.backends.live.operators_of_steps import operator_of
from tsql.backends.live.resident import HeldGroups, ResidentGroups
from tsql.backends.local.lower.lower import dependent
from tsql.kernels.expr.errors import ExecutionError, OutOfMemoryError
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.input import Input
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.progress import Progress
from tsql.planner.physical.step import PhysicalPlan, Step

METADATA = b"tsql"


@dataclass
class LiveNode:
    """A step at which rows are handed over. `feeds` has one fragment per input of the operator, from other nodes to the
    step whose rows it takes; None if that step is a node itself."""

    step: Step
    operator: LiveOperator | None
    feeds: list[tuple[Step, list[LiveNode], Fragment | None]] = field(default_factory=list)
    progress: Progress = field(default_factory=Progress)
    seen: list[tuple[tuple[Progress, ...], Progress] | None] = field(default_factory=list)
    """For each feed, the progress of its sources when it was last asked for, and its own."""

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
        self.root = self._adapted(plan.root)
        users = _users(self.root)
        self.inside = {one for region in self.regions.values() for one in region.inside}
        for step in self.root.walk():
            self._add(step, users)
        self.scans = {n.name: n for n in self.nodes.values() if _arrives(n.step, live)}
        root = origin(self.root)
        sources, cuts = self._sources(root)
        whole = graft(self.root, cuts, self.engine.shards)
        self.output = Fragment(self.engine, whole, (plan.columns, plan.names), gives_of_nothing=not sources)
        self.last = sources
        unknown = set(live) - {n.name for n in self.nodes.values() if _arrives(n.step, live)}
        if unknown:
            raise ExecutionError(f"the plan has no scan {min(unknown)}")
        self.begun = False

    def _adapted(self, root: Step) -> Step:
        """The steps of the plan, adapted to rows that arrive. Sets what arrives, and the regions that one operator
        runs."""
        for is_adapted in (False, True):
            scans = {id(s) for s in root.walk() if _arrives(s, self.live)}
            self.moving, self.regions = dependent(root, scans), regions_of(root)
            if not is_adapted:
                whole = {*self.regions, *(one for region in self.regions.values() for one in region.inside)}
                root = adapted(root, self.moving, whole)
        return root

    def _add(self, step: Step, users: dict[int, int]) -> None:
        if id(step) not in self.moving:
            return  # computed in the fragment of who needs it, once
        region = self.regions.get(id(step))
        passes = region is None and (step.is_stateless or self._probe(step) is not None)
        partial = region is None and isinstance(step, Aggregate) and step.exports
        if id(step) in self.inside or partial or (passes and step.inputs and users.get(id(step), 0) < 2):
            return
        if not step.inputs:
            self.nodes[id(step)] = LiveNode(step, None)
            return
        operator: LiveOperator
        if region is not None:
            operator = region.make(self.engine)
        else:
            operator = Pass(step, self.engine) if passes else operator_of(step, self.engine)
        node = self.nodes[id(step)] = LiveNode(step, operator)
        for below in operator.below:
            sources, cuts = self._sources(below, step)
            is_known = len(sources) == 1 and sources[0].step is below and sources[0].operator is not None
            fragment = None if is_known else self._feed(below, cuts)
            node.feeds.append((below, sources, fragment))
            if fragment is not None and operator.takes_groups and fragment.stays and ResidentGroups.fits(fragment):
                operator.hold(HeldGroups(operator.held[0].schema, ResidentGroups(fragment)))

    def _feed(self, below: Step, cuts: dict[int, Step]) -> Fragment:
        stays = self.engine.run.settings.memory_limit is None and bool(cuts)
        return Fragment(self.engine, graft(below, cuts, self.engine.shards), gives_of_nothing=not cuts, stays=stays)

    def _probe(self, step: Step) -> int | None:
        """The side of a join whose rows pass one by one: the other one is built of rows that do not change."""
        if type(step) is not HashJoin or step.marks:
            return None
        built = 0 if step.build == "left" else 1
        return None if id(step.inputs[built]) in self.moving else 1 - built

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
            elif id(step) in self.moving:
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
        return self.advance({scan: self.arrived(scan, batch)}, {})

    def take(self, scan: str, rows: ArrivedRows) -> list[pa.RecordBatch]:
        """Take rows of a live scan, from any origin."""
        return self.advance({scan: rows}, {})

    def punctuate(self, scan: str, time_us: int | None = None) -> list[pa.RecordBatch]:
        """Promise that no later row of a live scan has a time before this; without a time, that there are no more
        rows."""
        return self.advance({}, {scan: time_us})

    def arrived(self, scan: str, batch: pa.RecordBatch | pa.Table) -> ArrivedRows:
        """Rows of a live scan, for `advance`."""
        return Batches(batch, self._scan(scan).step, self.engine)

    def advance(self, rows: dict[str, ArrivedRows], promises: dict[str, int | None]) -> list[pa.RecordBatch]:
        """Take rows of live scans, and then a promise of each of some scans: that no later row has a time before this,
        or (None) that there are no more rows. Rows pass through each step before the promises do."""
        arrived: dict[int, Given] = {}
        for scan, come in rows.items():
            node = self._scan(scan)
            if node.progress.ended:
                raise ExecutionError(f"the scan {scan} has ended")
            arrived[id(node.step)] = come
        for scan, time_us in promises.items():
            self._promise(self._scan(scan), time_us)
        return self._advance(arrived)

    def _promise(self, node: LiveNode, time_us: int | None) -> None:
        column = self.live[node.name]
        if time_us is None:
            node.progress = Progress(ended=True)
        elif column is not None and column in node.step.schema and not node.progress.ended:
            bound = stored_time(time_us, node.step.schema[column].type)
            if bound > node.progress.bounds.get(column, bound - 1):
                node.progress = Progress({column: bound})

    def peek(self, promises: dict[str, int | None]) -> list[pa.RecordBatch]:
        """The further rows of the result if these promises held now. Nothing changes: what is held stays held, and is
        not copied, since chunks never change."""
        before = self._save()
        try:
            return self.advance({}, promises)
        finally:
            self._put_back(before)

    def _tell(self) -> None:
        """Count what kernels that stay have counted."""
        for node in self.nodes.values():
            if node.operator is not None and node.operator.resident is not None:
                node.operator.resident.tell()

    def _save(self) -> list[Any]:
        self._tell()
        counts, engine = dict(self.engine.run.counts), self.engine
        nodes = []
        for node in self.nodes.values():
            operator = node.operator
            inside = None if operator is None else (operator.progress, operator.save())
            nodes.append((node, node.progress, inside))
        return [counts, self.begun, (engine.next_position, engine.held_bytes), nodes]

    def _put_back(self, saved: list[Any]) -> None:
        counts, self.begun, (self.engine.next_position, self.engine.held_bytes), nodes = saved
        self.engine.run.counts.clear()
        self.engine.run.counts.update(counts)
        for node, node.progress, inside in nodes:
            if inside is not None:
                node.operator.progress, kept = inside
                node.operator.put_back(kept)

    def _scan(self, name: str) -> LiveNode:
        if name not in self.live:
            raise ExecutionError(f"{name} is no scan whose rows arrive")
        return self.scans[name]

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
            if not self.last:
                return list(self.output.batches({}))  # no scan of the plan is live
            for node in self.nodes.values():
                for side, (_, sources, fragment) in enumerate(node.feeds):
                    if not sources and fragment is not None and (unchanging := fragment.rows({})):
                        found = node.operator.consume(side, unchanging)
                        if found:
                            rows.setdefault(id(node.step), []).append(found)
        for key, node in self.nodes.items():
            if node.operator is not None:
                found = self._take(node, rows)
                found += node.operator.punctuate(self._promises(node))
                promise = node.operator.promise()
                if promise != node.progress:
                    node.progress = promise
                if found:
                    rows.setdefault(key, []).append(found)
                self._check_memory()
        return [b for part in self._parts(self.last, rows) for b in self.output.batches(part)]

    def _check_memory(self) -> None:
        """Check held rows against memory_limit. They may take half of it; what is more goes into files."""
        settings = self.engine.run.settings
        limit = settings.memory_limit
        if limit is None:
            return
        for _, held in sorted(self.held(), key=lambda one: one[1].bytes, reverse=True):
            self.engine.held_bytes = sum(one.bytes for _, one in self.held())
            if self.engine.held_bytes <= limit // 2:
                return
            held.to_files(settings)
        self.engine.held_bytes = sum(held.bytes for _, held in self.held())
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
                if node.operator.resident is not None:
                    node.operator.resident.feed(part)
                    continue
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

    def _promises(self, node: LiveNode) -> tuple[Progress, ...]:
        """The progress of the inputs of a node. Nothing is computed again unless a source of one has moved: progress is
        the same object until then."""
        if not node.seen:
            node.seen = [None] * len(node.feeds)
        found = []
        for side, (below, sources, _) in enumerate(node.feeds):
            now, before = tuple([source.progress for source in sources]), node.seen[side]
            if before is None or not all(map(is_, before[0], now)):
                progress = self._through(below, node)
                before = node.seen[side] = now, progress if before is None or progress != before[1] else before[1]
            found.append(before[1])
        return tuple(found)

    def _through(self, step: Step, user: LiveNode | None = None) -> Progress:
        """The progress of a step's rows, as it passes through steps that hold nothing. `user` is looked through."""
        if id(step) not in self.moving:
            return Progress(ended=True)
        if id(step) in self.nodes and (user is None or step is not user.step):
            return self.nodes[id(step)].progress
        probe = self._probe(step)
        if probe is None:
            return step.promised([self._through(below, user) for below in step.inputs])
        found = self._through(step.inputs[probe], user)
        return Progress({name: bound for name, bound in found.bounds.items() if name in step.schema}, found.ended)

    def close(self) -> None:
        """Free what stays between batches."""
        for node in getattr(self, "nodes", {}).values():
            if node.operator is not None and node.operator.resident is not None:
                node.operator.resident.close()
            for _, _, fragment in node.feeds:
                if fragment is not None:
                    fragment.close()

    def __del__(self) -> None:
        self.close()

    @property
    def ended(self) -> bool:
        """Whether no further row of the result will come: the inputs have ended, or a LIMIT is reached."""
        return self._through(origin(self.root)).ended

    def rows_held(self) -> int:
        """The number of rows, or states, that all operators hold."""
        return sum(len(held) for _, held in self.held())

    def marks(self) -> dict[str, Any]:
        """Everything needed to continue but the held rows, as JSON."""
        self._tell()
        operators = [n for n in self.nodes.values() if n.operator is not None]
        return {
            "begun": self.begun,
            "scans": {
                n.name: {"bounds": n.progress.bounds, "ended": n.progress.ended}
                for n in self.nodes.values()
                if n.operator is None
            },
            "counts": dict(self.engine.run.counts),
            "next_position": self.engine.next_position,
            "operators": {n.name: dict(n.operator.marks) for n in operators if n.operator is not None},
        }

    def tables(self) -> dict[str, HeldRows]:
        """The held rows, by "step name"."""
        return {
            f"{n.name} {name}": held
            for n in self.nodes.values()
            if n.operator is not None
            for name, held in n.operator.tables().items()
        }

    def state(self) -> dict[str, pa.Table]:
        """Everything needed to continue, with any number of shards: one table per thing held, and one named "" for the
        rest."""
        found = {"": pa.table({}).replace_schema_metadata({METADATA: json.dumps(self.marks())})}
        return found | {name: to_table(held.rows, held.schema) for name, held in self.tables().items()}

    def restore(self, state: dict[str, pa.Table]) -> None:
        """Continue where `state` was called, in a query of the same plan that has not started."""
        try:
            marks = json.loads(state[""].schema.metadata[METADATA])
        except (KeyError, TypeError, ValueError) as error:
            raise ExecutionError(f"this is no state of the plan: {error}") from error
        self.go_on(marks, state)

    def go_on(self, marks: dict[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Continue from `marks` and `tables` of a query of the same plan, in one that has not started."""
        if self.begun:
            raise ExecutionError("a query that has begun cannot go on from a state")
        try:
            for node in self.nodes.values():
                if node.operator is None:
                    known = marks["scans"][node.name]
                    node.progress = Progress(known["bounds"], known["ended"])
                else:
                    names = node.operator.tables()
                    node.operator.restore({n: tables[f"{node.name} {n}"] for n in names}, marks["operators"][node.name])
                    node.operator.progress = tuple(self._through(below, node) for below, _, _ in node.feeds)
                    node.progress = node.operator.promise()
            self.begun, self.engine.next_position = marks["begun"], int(marks["next_position"])
            self.engine.run.counts.update(marks["counts"])
        except (KeyError, TypeError, ValueError) as error:
            raise ExecutionError(f"this is no state of the plan: {error}") from error


def _arrives(step: Step, live: dict[str, str | None]) -> bool:
    """Whether the rows of a step come over time: of a scan, or of a leaf that stands for another part of a plan."""
    return isinstance(step, Scan | Input) and step.name in live


def _users(root: Step) -> dict[int, int]:
    """The number of steps that read the rows of each step, not counting movement."""
    found: dict[int, int] = {}
    for step in root.walk():
        if step is origin(step):
            for child in step.inputs:
                below = origin(child)
                found[id(below)] = found.get(id(below), 0) + 1
    return found
