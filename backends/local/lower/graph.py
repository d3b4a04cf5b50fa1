"""The graph of pipelines: one node per step, with the pipelines that end in it and the operators it adds to others.

A pipeline starts at a source (a scan, or the output of another pipeline), passes the operators of the nodes on its way,
and ends in the sink of a node. A graph is made once per plan and is the same in every run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import StrEnum

from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.movement import Broadcast, Gather, Movement
from tsql.planner.physical.step import Step


@dataclass(frozen=True)
class Way:
    """One alternative, and the condition under which it is taken. The last of several has no condition."""

    name: str
    condition: str = ""

    def __str__(self) -> str:
        return f"{self.name}, if {self.condition}" if self.condition else self.name


@dataclass(frozen=True)
class Pipe:
    """A pipeline that ends in a node.

    role: what tells it from others of the node; a * stands for a number that a run fills in.
    sink: where its rows end, as text.
    input: which input of the node it reads; None where `source` says what it reads instead.
    ways: among which the run chooses when it knows the data.
    when: the condition on which it runs at all; "" for always.
    """

    role: str
    sink: str
    input: int | None = 0
    source: str = ""
    ways: tuple[Way, ...] = ()
    when: str = ""

    def covers(self, role: str) -> bool:
        """Whether a run may use this name for one of its pipelines."""
        mine, given = self.role.split(), role.split()
        return len(mine) == len(given) and all(a in ("*", b) for a, b in zip(mine, given, strict=True))


class Lies(StrEnum):
    """Where the rows of a node are when a pipeline over them starts."""

    SCAN = "scan"
    COLUMNS = "columns"
    GROUPS = "groups"
    OTHER = "other"


@dataclass(frozen=True)
class Shape:
    """How a step is run: what its `LocalStep` says of it.

    operators: what it adds to the pipeline that its rows pass on their way.
    over: the number of the input whose rows the operators go over.
    source: what a pipeline over its rows begins with; "" where they are still on their way, or lie where they lay.
    lies: where its rows are then.
    pipes: the pipelines that end in it, in the order in which they run.
    """

    operators: tuple[str, ...] = ()
    over: int = 0
    source: str = ""
    lies: Lies = Lies.COLUMNS
    pipes: tuple[Pipe, ...] = ()


@dataclass(frozen=True)
class Lowering:
    """The context of lowering a step. spills: whether rows may have to leave memory. users: for each step, by id, the
    steps that read it, once per input."""

    spills: bool = False
    users: Mapping[int, list[Step]] = field(default_factory=dict)

    def users_of(self, step: Step) -> list[Step]:
        return self.users.get(id(step), [])


@dataclass(eq=False)
class Node:
    """A step in the graph.

    is_shared: its rows are read more than once, so they are collected.
    is_given: its rows are handed in: they were computed elsewhere.
    keeps_table: its table serves all rounds of a recursion.
    users: once for each input that it is.
    """

    step: Step
    inputs: tuple[Node, ...]
    shape: Shape
    is_shared: bool = False
    is_given: bool = False
    keeps_table: bool = False
    users: list[Node] = field(default_factory=list)

    @property
    def path(self) -> Node | None:
        """The input whose rows are still in the pipeline here; None if the rows of the node are stored."""
        return None if self.is_shared or self.shape.source else self.inputs[self.shape.over]

    @property
    def lies(self) -> Lies:
        """Where its rows are stored."""
        if self.is_shared:
            return Lies.COLUMNS
        return self.shape.lies if self.path is None else self.path.lies

    @property
    def has_operators(self) -> bool:
        """Whether its rows pass operators on their way from there."""
        return self.path is not None and (bool(self.shape.operators) or self.path.has_operators)

    @property
    def is_replicated(self) -> bool:
        """Whether every shard has all of its rows."""
        return isinstance(self.step, Broadcast) or (self.path is not None and self.path.is_replicated)

    @property
    def is_in_columns(self) -> bool:
        """Whether its rows are stored in columns, unchanged."""
        return self.lies is Lies.COLUMNS and not self.has_operators


@dataclass
class Graph:
    """A lowered plan (or part of one). `nodes` has inputs before users; `root` is the last."""

    root: Node
    nodes: tuple[Node, ...]
    shards: int
    by_step: dict[int, Node]
    hands_out_shards: bool = False
    """Whether others read the shards of the last step, and expect rows in the shards given by their hashes."""

    def node(self, step: Step) -> Node:
        return self.by_step[id(step)]

    def declares(self, pipeline: str) -> bool:
        """Whether a pipeline that a run has called so, by step and role, is one of the graph."""
        for node in self.nodes:
            name = node.step.name
            if pipeline == name or pipeline.startswith(f"{name} "):
                role = pipeline[len(name) + 1 :]
                if any(pipe.covers(role) for pipe in pipes_of(node, node is self.root)):
                    return True
        return False


def pipes_of(node: Node, is_last: bool) -> Iterator[Pipe]:
    """The pipelines that end in a node: those of its step, and those of what becomes of its rows."""
    yield from node.shape.pipes
    if node.is_shared and not node.is_given and not _is_collected(node):
        yield Pipe("collect", "collect, since its rows are read more than once", None)
    if is_last and not node.is_in_columns:
        yield Pipe("output", "collect the result", None)


def _is_collected(node: Node) -> bool:
    """Whether the rows of a shared node lie in columns by themselves."""
    if node.shape.source:
        return node.shape.lies is Lies.COLUMNS
    return not node.shape.operators and node.inputs[node.shape.over].is_in_columns


def relies_on_hashes(node: Node, outside: bool) -> bool:
    """Whether a node that uses the rows of `node`, up to the next movement, may need them where their hashes say.
    `outside`: whether those do who use the rows of the last node."""
    waiting, seen = [node], {id(node)}
    while waiting:
        mine = waiting.pop().users
        if not mine and outside:
            return True
        for user in mine:
            if isinstance(user.step, Movement | Gather) or id(user) in seen:
                continue
            if len(user.inputs) > 1:
                return True
            seen.add(id(user))
            waiting.append(user)
    return False
