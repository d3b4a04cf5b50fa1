"""`Step` and `PhysicalPlan`: the sharded algebra. Each operator is a subclass in `planner/physical/operators/` or in
`movement.py` and describes itself: passes ask the step and know no operator."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa

from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.process.recursion import deep_recursion
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.emission import Emission
from tsql.planner.physical.estimate import Cost, Estimate, Machine
from tsql.planner.physical.expressions import expressions_in, map_in
from tsql.planner.physical.progress import Progress
from tsql.planner.physical.properties import ANY, Properties, Requirement
from tsql.planner.physical.text import VERSION, identifier

if TYPE_CHECKING:
    # Needed only to read a plan file: a plan that runs needs no parser.
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext

MOST_DEEP = 1000
"""The maximum depth of a plan, in steps."""

SHALLOW = 50
"""Plans up to this depth need no more than Python's default recursion limit."""

STEPS: dict[str, type[Step]] = {}
"""By `op`, the steps whose files are loaded; `operators.all_steps` loads all of them."""


@dataclass(frozen=True)
class Step:
    """One line of a plan. Frozen; `name` and `line` are ignored by equality.

    A subclass with an `op` is an operator; its other attributes are fields with defaults. It prints and reads them
    (`attributes`, `read`), and overrides the defaults below that do not hold for it. The defaults describe a step that
    needs all columns of its input and keeps the rows where they are."""

    inputs: tuple[Step, ...]
    name: str = field(default="", compare=False, kw_only=True)
    line: int | None = field(default=None, compare=False, kw_only=True)

    op: ClassVar[str] = ""
    label: ClassVar[str] = ""
    """How the planner names steps of this kind."""
    arity: ClassVar[tuple[int, int]] = (1, 1)
    """The minimum and maximum number of inputs."""
    names_table: ClassVar[bool] = False
    """Whether its attributes include a bare word, the table."""
    is_planned: ClassVar[bool] = True
    """Whether the planner produces it and plan files may contain it."""
    is_movement: ClassVar[bool] = False
    """Whether it only places rows and changes none."""
    is_stateless: ClassVar[bool] = False
    """Whether it processes each row independently, without state."""
    may_stop: ClassVar[bool] = False
    """Whether it may end a run before all of its input has been read."""

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if "op" in vars(cls) and STEPS.setdefault(cls.op, cls) is not cls:
            raise TypeError(f"two steps are called {cls.op}: {STEPS[cls.op]} and {cls}")

    @cached_property
    def schema(self) -> Schema:
        return self.inputs[0].schema

    def suggested_name(self) -> str:
        return self.label or self.op

    def attributes(self) -> list[tuple[str, str]]:
        """(name, text) pairs as the plan file prints them; a name of "" prints the text alone."""
        return []

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        """The step from its plan-file line."""
        return cls(inputs)

    def refusal(self, target: str) -> tuple[str, str] | None:
        """Why the step cannot run on a target, and what would fix it."""
        return None

    def expressions(self) -> tuple[Expr, ...]:
        """All expressions among its attributes, in order."""
        return tuple(e for name in self._described() for e in expressions_in(getattr(self, name)))

    def map_expressions(self, change: Callable[[Expr], Expr]) -> Step:
        """The step over changed expressions; itself if none changed."""
        new = {name: map_in(getattr(self, name), change) for name in self._described()}
        new = {name: value for name, value in new.items() if value is not getattr(self, name)}
        return replace(self, **new) if new else self

    def _described(self) -> Iterator[str]:
        """The names of the fields that are part of the plan."""
        return (f.name for f in fields(self) if f.compare and f.name != "inputs")

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        """The columns that it needs of each input to compute the wanted output columns. The default is all."""
        return tuple(frozenset(i.schema.names) for i in self.inputs)

    def used(self, *passed: str) -> tuple[frozenset[str]]:
        """`needs` of a step with one input: the columns passed on, and those that its expressions name."""
        names = {c for e in self.expressions() for c in e.columns()}.union(passed)
        return (frozenset(names.intersection(self.inputs[0].schema.names)),)

    def carries(self, column: str) -> list[tuple[Step, str]]:
        """The input columns whose values an output column has unchanged; none if it is computed here."""
        return [(i, column) for i in self.inputs if column in i.schema]

    def requires(self) -> tuple[Requirement, ...]:
        return tuple(ANY for _ in self.inputs)

    def requires_of(self, given: tuple[Properties, ...]) -> tuple[Requirement, ...]:
        """The requirements on inputs with these properties. A join asks one side for what the other does not have."""
        return self.requires()

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        """The properties of the output, from those of the inputs and the plan's number of shards."""
        return given[0]

    @property
    def streamed(self) -> int | None:
        """The input whose rows pass through one by one, as in a filter or on the probed side of a join; None if there
        is none."""
        return None

    def follows(self, column: str) -> tuple[int, str] | None:
        """The streamed input and its column with the values of this one, if rows keep their order and their shard."""
        return None

    def equated(self, column: str) -> tuple[int, str] | None:
        """The same for a column that is not taken from the streamed input but equals one of its columns."""
        return None

    @property
    def depends_on_order(self) -> bool:
        """Whether the result depends on the order of the input: the first row of a group, ties, the first n rows."""
        return False

    def promised(self, below: list[Progress]) -> Progress:
        """The progress of the output, from the progress of the inputs."""
        return Progress(ended=all(p.ended for p in below))

    def closes(self, below: Callable[[], Progress]) -> bool:
        """Whether its groups or windows can be closed once the bounded times of its input have passed them."""
        return False

    @property
    def held(self) -> Step:
        """The step whose rows this one holds in memory while it runs."""
        return self

    def estimate(self, given: tuple[Estimate, ...], machine: Machine) -> Estimate:
        """The estimate of the step, from the estimates of its inputs."""
        properties = self.provides(tuple(g.properties for g in given), machine.shards)
        rows = self.expected_rows(given, machine)
        return Estimate(rows, properties, self.expected_cost(given, rows, properties, machine), self.shadow(given))

    def expected_rows(self, given: tuple[Estimate, ...], machine: Machine) -> float:
        return given[0].rows if given else 1.0

    def expected_cost(self, given: tuple[Estimate, ...], rows: float, properties: Properties, machine: Machine) -> Cost:
        """The cost of the step itself."""
        entering = sum(g.rows for g in given)
        return machine.work(max(entering, rows) * machine.costs.row_ns, properties.shards)

    def shadow(self, given: tuple[Estimate, ...]) -> logical.Node:
        """A logical node whose columns have the statistics of the step's."""
        # The columns of a match are its own: those of its input may have the names of others beside it.
        kept = len(given) == 1 and all(name in self.schema for name in given[0].shadow.schema.names)
        return given[0].shadow if kept else self.unknown

    @property
    def unknown(self) -> logical.Node:
        """The shadow of columns of which nothing is known."""
        return logical.Values((), self.schema)

    def spares(self, left: float, rows: float) -> bool:
        """Whether columns that it does not use are better decoded after it, if it leaves `left` of the `rows` streamed
        rows."""
        return False

    def with_inputs(self, inputs: tuple[Step, ...]) -> Step:
        return self if all(a is b for a, b in zip(self.inputs, inputs, strict=True)) else replace(self, inputs=inputs)

    def walk(self) -> Iterator[Step]:
        """Every step once, inputs before users."""
        seen: set[int] = set()
        stack: list[tuple[Step, bool]] = [(self, False)]
        while stack:
            step, ready = stack.pop()
            if id(step) in seen:
                continue
            if ready or not step.inputs:
                seen.add(id(step))
                yield step
            else:
                stack.append((step, True))
                stack.extend((i, False) for i in reversed(step.inputs))


@dataclass(frozen=True)
class PhysicalPlan:
    """A plan that can run: the last step, the columns of the result and the names that users see."""

    root: Step
    columns: tuple[str, ...]
    names: tuple[str, ...]
    shards: int = 1
    target: str = "local"
    query: str = ""
    notes: tuple[str, ...] = field(default=(), compare=False)
    emission: Emission | None = None
    """When the rows of a live run leave; a bounded run does not look at it."""

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        fields = self.root.schema
        return pa.schema(
            [pa.field(n, fields[c].type.to_arrow()) for c, n in zip(self.columns, self.names, strict=True)]
        )

    def text(self, comments: dict[str, str] | None = None) -> str:
        """The plan file; `comments` are printed behind the steps of these names. `planfile.parse_plan` reads it."""
        lines = [f"plan version {VERSION}"]
        if self.query:
            lines.append(f"query {json.dumps(self.query, ensure_ascii=False)}")
        lines.append(f"target {self.target} shards={self.shards}")
        if self.emission is not None:
            lines.append(f"emit {self.emission.text()}")
        lines.append("")
        steps = list(self.root.walk())
        width = max(len(identifier(s.name)) for s in steps)
        for step in steps:
            words = [step.op, *(identifier(i.name) for i in step.inputs)]
            words += [f"{n}={t}" if n else t for n, t in step.attributes()]
            text = f"{identifier(step.name):<{width}} = {' '.join(words)}"
            comment = (comments or {}).get(step.name)
            lines.append(f"{text:<70} # {comment}" if comment else text)
        shown = ", ".join(
            identifier(c) if c == n else f"{identifier(c)} as {identifier(n)}"
            for c, n in zip(self.columns, self.names, strict=True)
        )
        lines.append(f"output {identifier(self.root.name)} ({shown})")
        return "\n".join(lines) + "\n"

    @cached_property
    def depth(self) -> int:
        return depth_of(self.root)

    @cached_property
    def is_progressive(self) -> bool:
        """Whether it has snapshots before the result is known."""
        return any(step.op == "progressive" for step in self.root.walk())

    @cached_property
    def may_stop(self) -> bool:
        """Whether a run may end before all of the input has been read, with a snapshot as its result."""
        return any(step.may_stop for step in self.root.walk())

    def deep(self) -> AbstractContextManager[None]:
        """Raises the recursion limit for passes over a deep plan; most plans do not need it."""
        return deep_recursion() if self.depth > SHALLOW else nullcontext()

    def properties(self) -> dict[int, Properties]:
        """The properties of each step's output, by id of the step."""
        found: dict[int, Properties] = {}
        for step in self.root.walk():
            found[id(step)] = step.provides(tuple(found[id(i)] for i in step.inputs), self.shards)
        return found


def through(top: Step, known: Callable[[Step], Progress | None]) -> Progress:
    """The progress of a step's rows. `known` gives that of the steps below, or None for a step to look through."""
    found = known(top)
    return top.promised([through(i, known) for i in top.inputs]) if found is None else found


def rebuild(root: Step, change: Callable[[Step, Step], Step]) -> Step:
    """The plan with every step changed, inputs first. `change` gets the original step and the step over its changed
    inputs."""
    done: dict[int, Step] = {}
    for step in root.walk():
        done[id(step)] = change(step, step.with_inputs(tuple(done[id(i)] for i in step.inputs)))
    return done[id(root)]


def depth_of(root: Step) -> int:
    """The depth of a plan: the steps on the longest path from a step without inputs to the last one."""
    found: dict[int, int] = {}
    for step in root.walk():
        found[id(step)] = 1 + max((found[id(i)] for i in step.inputs), default=0)
    return found[id(root)]


def named(root: Step) -> Step:
    """The same plan with a unique name on every step; given names are kept."""
    taken = {s.name for s in root.walk() if s.name}
    done: dict[int, Step] = {}
    for step in root.walk():
        rebuilt = step.with_inputs(tuple(done[id(i)] for i in step.inputs))
        if not rebuilt.name:
            base = rebuilt.suggested_name()
            name, number = base, 2
            while name in taken:
                name, number = f"{base}{number}", number + 1
            taken.add(name)
            rebuilt = replace(rebuilt, name=name)
        done[id(step)] = rebuilt
    return done[id(root)]
