"""The framework of the rewrite rules: it walks the plan, leaves out rules that have nothing to look at, times, traces
and verifies. A rule is a function over one node, and `@rule` says of which nodes and in which direction:

    @rule(BOTTOM_UP, about=(Join,))
    def simplify_join(node: Join) -> Node: ...

It returns the same object where it has nothing to say. A rule that must know more than the node takes the
`Surroundings` as well."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from enum import Enum
from functools import cached_property
from typing import Any

from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.hints.constraints import Constraints
from tsql.planner.logical.needed import needed_columns
from tsql.planner.logical.nodes import Node
from tsql.planner.logical.tree import nodes, shared, transform_down, transform_up

Trace = list[tuple[str, float, bool]]
"""(rule, milliseconds, whether it changed the plan)."""


class Direction(Enum):
    """How a rule comes to its nodes."""

    BOTTOM_UP = "inputs before their users"
    TOP_DOWN = "users before their inputs: it comes to the inputs of what it has made"
    WHOLE = "once, to the root: the rule walks by itself"


BOTTOM_UP, TOP_DOWN, WHOLE = Direction


class Surroundings:
    """The plan that a node stands in, as it was when the rule began."""

    def __init__(self, plan: Node, wanted: Constraints):
        self.plan, self.wanted = plan, wanted

    @cached_property
    def shared(self) -> set[int]:
        """The ids of nodes with several users: such a node is computed once, and not changed for one of them alone."""
        return shared(self.plan)

    @cached_property
    def needed(self) -> dict[int, set[str]]:
        """By id of the node, the columns that its users need."""
        return needed_columns(self.plan)


@dataclass(frozen=True)
class Rule:
    """A rule as it is declared. Called with a plan, it is applied to all of it."""

    name: str
    change: Callable[..., Node]
    direction: Direction
    about: tuple[type[Node], ...]
    """The nodes that it sees."""
    needs: tuple[type[Node], ...]
    """Nodes without which it leaves a plan as it is. Most queries are over one table, and half of the rules are about
    joins."""

    def applies_to(self, kinds: Iterable[type[Node]]) -> bool:
        """Whether a plan of these kinds of nodes has what the rule looks for."""
        return any(issubclass(kind, self.needs) for kind in kinds)

    def __call__(self, plan: Node, wanted: Constraints | None = None) -> Node:
        around = (Surroundings(plan, wanted or Constraints()),) if self.change.__code__.co_argcount > 1 else ()
        if self.direction is WHOLE:
            return self.change(plan, *around)

        def change(node: Node) -> Node:
            return self.change(node, *around) if isinstance(node, self.about) else node

        return transform_up(plan, change) if self.direction is BOTTOM_UP else transform_down(plan, change)


def rule(
    direction: Direction, about: tuple[type[Node], ...] = (Node,), needs: tuple[type[Node], ...] | None = None
) -> Callable[[Callable[..., Any]], Rule]:
    """Makes a rule of a function with its name. `needs` are the nodes that it is about, unless others are said."""

    def declared(change: Callable[..., Any]) -> Rule:
        return Rule(change.__name__, change, direction, about, about if needs is None else needs)

    return declared


def apply_all(
    rules: Iterable[Rule], plan: Node, disabled: frozenset[str], trace: Trace | None, wanted: Constraints | None
) -> Node:
    """The plan after the rules that are not disabled, in order. Each keeps the names and types of the columns."""
    kinds = {type(node) for node in nodes(plan)}
    for each in rules:
        if each.name in disabled:
            continue
        start = time.perf_counter()
        changed = each(plan, wanted) if each.applies_to(kinds) else plan
        if changed is not plan:
            kinds = {type(node) for node in nodes(changed)}
            before, after = [(f.name, f.type) for f in plan.schema], [(f.name, f.type) for f in changed.schema]
            if before != after:
                raise AssertionError(f"rule {each.name} changed the result's columns from {before} to {after}")
        if trace is not None:
            trace.append((each.name, (time.perf_counter() - start) * 1000, changed is not plan))
        plan = changed
    return plan
