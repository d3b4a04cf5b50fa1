"""`LocalStep`: how one kind of step is lowered and run. There is one class for each, in `backends/local/steps/<op>.py`.

A step finds its class by its `op`: the module of that name is imported at the first use, and registers it with `runs`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from tsql.backends.local.lower.graph import Lowering, Node, Pipe, Shape
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.functions.host import innermost
from tsql.planner.physical.movement import Gather, Movement, Rekey
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.backends.local.run.execution import Execution
    from tsql.backends.local.run.flow import Flow

S = TypeVar("S", bound=Step)
L = TypeVar("L", bound="LocalStep[Any]")


class LocalStep(Generic[S]):
    """A kind of step in one execution `x`. An object lives as long as the execution, and may remember things for it."""

    counts_rows: ClassVar[bool] = True
    """Whether `explain analyze` counts the rows that leave it. Movement does not change the count."""

    def __init__(self, x: Execution):
        self.x = x

    @classmethod
    def lower(cls, step: S, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        """What the step adds to the graph of pipelines."""
        raise NotImplementedError

    @classmethod
    def keeps_table_of(cls, step: S, place: int) -> bool:
        """Whether the step builds a table over the input at `place` that can serve all rounds of a recursion."""
        return False

    def drop_table(self, node: Node) -> None:
        """Drop the table of a node: the recursion is over."""

    def flow(self, node: Node) -> Flow:
        """Run the pipelines that end in this step, and return the flow of its rows."""
        raise NotImplementedError


_KINDS: dict[type[Step], type[LocalStep[Any]]] = {}
PACKAGE = "tsql.backends.local.steps"


def runs(*kinds: type[Step]) -> Callable[[type[L]], type[L]]:
    """Register a class as the one that runs steps of these kinds."""

    def register(found: type[L]) -> type[L]:
        for kind in kinds:
            _KINDS[kind] = found
        return found

    return register


def local_step(kind: type[Step]) -> type[LocalStep[Any]]:
    """The class that runs a kind of step."""
    found = _KINDS.get(kind)
    if found is None:
        room = "movement" if issubclass(kind, Movement | Rekey | Gather) else kind.op
        importlib.import_module(f"{PACKAGE}.{room}")
        found = _KINDS[kind]
    return found


def described(step: Step, *words: str) -> str:
    """A step as in its line of a plan file, without its name and inputs. `words` replace its op."""
    parts = [f"{name}={text}" if name else text for name, text in step.attributes()]
    return " ".join((*(words or (step.op,)), *parts))


def host_pipes(*expressions: Expr) -> tuple[Pipe, ...]:
    """The pipeline that collects the arguments of functions computed by a library."""
    calls = innermost(expressions)
    return (Pipe("arguments *", f"collect arguments of {', '.join(c.name for c in calls)}"),) if calls else ()
