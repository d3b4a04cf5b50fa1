"""`parts_of`: cuts a placed plan into parts. A part is what lies between two movements: from its `top` down to its
`entries`, the movements whose rows it takes, or the scans. The part of the last step runs on the driver.

A part with scans holds nothing (`place.py` sees to that): it runs wherever its rows are. Any other part has shards,
each with a state of its own."""

from __future__ import annotations

from dataclasses import field, replace

from tsql.backends.live.jobs.streams import StreamSource
from tsql.backends.spark.streaming.place import Border
from tsql.kernels.expr.errors import PlanError
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.movement import Arrange, Broadcast, Movement, Multicast, Redistribute, Reshard
from tsql.planner.physical.operators.input import Input
from tsql.planner.physical.operators.recursive import loose_tables
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.properties import Properties
from tsql.planner.physical.step import PhysicalPlan, Step, rebuild

DRIVER = "driver"
"""The name of the part of the last step."""


@dataclass
class Part:
    """A part of a plan. name: of the movement that its rows leave by, or `DRIVER`. shards: 0 if it holds nothing."""

    name: str
    top: Step
    movement: Border | None
    entries: list[Border]
    scans: list[Scan]
    shards: int = 0
    users: list[str] = field(default_factory=list)
    """The parts that take its rows."""

    one_copy: bool = False
    """Whether all shards have the same rows, so that those of one are sent."""

    @property
    def is_intake(self) -> bool:
        """Whether it takes rows as they come, and holds none."""
        return bool(self.scans)

    @property
    def streams(self) -> list[Scan]:
        """The scans of streams."""
        return [scan for scan in self.scans if isinstance(scan.source, StreamSource)]


class Parts:
    """The parts of a placed plan, senders first."""

    def __init__(self, plan: PhysicalPlan):
        self.plan = plan
        self.properties = _properties(plan)
        _check(plan)
        self.all: list[Part] = []
        self._by_name: dict[str, Part] = {}
        for step in plan.root.walk():
            if isinstance(step, Border):
                self._add(step.name, step.inputs[0], step)
        self._add(DRIVER, plan.root, None)
        for part in self.all:
            for entry in part.entries:
                self._by_name[entry.name].users.append(part.name)

    def __getitem__(self, name: str) -> Part:
        return self._by_name[name]

    @property
    def driver(self) -> Part:
        return self._by_name[DRIVER]

    @property
    def live(self) -> list[Part]:
        """The parts that hold state in tasks."""
        return [part for part in self.all if not part.is_intake and part.name != DRIVER]

    def targets(self, part: Part) -> int:
        """The number of shards that the rows of a part go to."""
        return max((self._by_name[user].shards for user in part.users), default=1) if part.movement is not None else 1

    def _add(self, name: str, top: Step, movement: Border | None) -> None:
        entries: dict[int, Border] = {}
        scans: dict[int, Scan] = {}
        inside: list[Step] = []
        stack, seen = [top], set()
        while stack:
            step = stack.pop()
            if id(step) in seen:
                continue
            seen.add(id(step))
            if isinstance(step, Border):
                entries[id(step)] = step
            elif isinstance(step, Scan):
                scans[id(step)] = step
            else:
                inside.append(step)
                stack.extend(reversed(step.inputs))
        assert not (scans and entries), "rows that come are behind a movement where they meet others"
        shards = 0
        if not scans:
            of = inside or [*entries.values()]
            shards = 1 if name == DRIVER else max((self.properties[id(step)].shards for step in of), default=1)
        one_copy = bool(self.properties[id(top)].replicated)
        part = Part(name, top, movement, list(entries.values()), list(scans.values()), shards, one_copy=one_copy)
        self.all.append(part)
        self._by_name[name] = part

    def travelling(self) -> PhysicalPlan:
        """The plan as it goes to tasks: scans are inputs, so it is parsed without a catalog."""

        def change(_: Step, step: Step) -> Step:
            return Input((), fields=step.schema, name=step.name) if isinstance(step, Scan) else step

        return replace(self.plan, root=rebuild(self.plan.root, change), query="", emission=None)


def _properties(plan: PhysicalPlan) -> dict[int, Properties]:
    found: dict[int, Properties] = {}
    for step in plan.root.walk():
        found[id(step)] = step.provides(tuple(found[id(i)] for i in step.inputs), plan.shards)
    return found


def _check(plan: PhysicalPlan) -> None:
    """Refuse what has no shards that stay."""
    rounds = loose_tables(plan.root)
    for step in plan.root.walk():
        if isinstance(step, Arrange | Multicast):
            raise PlanError(f"step {step.name}: {step.op} is for tables, and a job on Spark has streams")
        if rounds[id(step)]:
            raise PlanError("a recursive query does not run as a job on Spark", hint="tsql.connect() without backend=")
        assert not isinstance(step, Movement) or isinstance(step, Redistribute | Reshard | Broadcast)
