"""`Choice`: the state of choosing steps for one query. The functions that make the steps of each kind of node take it.
They ask it for the steps of inputs (`step`) and for the cheapest of several plans (`cheapest`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tsql.kernels.process import stopping
from tsql.planner.cost import constants as cost
from tsql.planner.cost.constants import Costs
from tsql.planner.hints.constraints import Constraints
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.generating import Recursive, Sample, Series, Working
from tsql.planner.logical.needed import needed_columns
from tsql.planner.logical.sources import is_in_cluster
from tsql.planner.physical.enforce import enforce
from tsql.planner.physical.estimator import Estimator
from tsql.planner.physical.properties import Properties
from tsql.planner.physical.prune_moved import prune_moved
from tsql.planner.physical.step import Step

StepOf = Callable[["Choice", Any], Step]
"""Makes the step of a node."""


def _is_anywhere(node: logical.Node) -> bool:
    """Whether every machine can compute a node from its inputs. It has no rows of a DataFrame or of a recursion, and a
    sample without a seed would differ."""
    if isinstance(node, logical.Scan):
        return not is_in_cluster(node.source)
    return not isinstance(node, Recursive | Working | Series | Sample)


class Choice:
    """Turns the nodes of one query into steps. A node with several users becomes one step.

    makers: a function for each kind of node. choices: the options to take, in the order in which choices come up; the
    rest is chosen by cost. taken: records each decision and its options."""

    makers: Mapping[type[logical.Node], StepOf] = {}

    def __init__(
        self,
        shards: int,
        wanted: Constraints | None = None,
        scope: str = "local",
        costs: Costs = cost.DEFAULT,
        choices: tuple[str, ...] = (),
    ):
        self.shards, self.wanted, self.scope, self.choices = shards, wanted or Constraints(), scope, choices
        self.estimator = Estimator(shards, costs, scope == "global")
        self.taken: list[tuple[str, tuple[str, ...]]] = []
        self.done: dict[int, tuple[logical.Node, Step]] = {}
        """By id, with the node. The reference keeps the node alive, so its id cannot be reused."""
        self.chains: dict[int, float] = {}
        """For scans, by id: the fraction of rows that passes all filters above."""
        self.recursions: dict[int, str] = {}
        self.gathers = False
        self.whole = False
        """Whether each scan reads its whole source into one shard."""
        self.shared: set[int] = set()
        """Steps with several users, by id."""
        self.several: set[int] = set()
        """Nodes with several users, by id."""
        self.needed: dict[int, set[str]] = {}
        """The columns that something above needs of each node, by its id."""
        self.node: logical.Node | None = None
        """The node whose steps are made now."""
        self.progressive = False
        """Whether snapshots are wanted: groups are made in two phases, whose states a snapshot can read."""
        self.live = False
        """Whether rows arrive while the plan runs: groups are held as states, and what does not change is built."""

    def step(self, node: logical.Node) -> Step:
        found = self.done.get(id(node))
        if found is None:
            stopping.check()
            found = self.done[id(node)] = (node, self._make(node))
            if id(node) in self.several:
                self.shared.add(id(found[1]))
        return found[1]

    def plan(self, node: logical.Node) -> Step:
        """The steps of a whole plan."""
        users: dict[int, set[int]] = {}
        for user in node.walk():
            for child in user.inputs:
                users.setdefault(id(child), set()).add(id(user))
        self.several = {child for child, found in users.items() if len(found) > 1}
        self.needed = needed_columns(node)
        return self.step(node)

    def _make(self, node: logical.Node) -> Step:
        for kind in type(node).__mro__:
            if kind in self.makers:
                above, self.node = self.node, node
                try:
                    return self.makers[kind](self, node)
                finally:
                    self.node = above
        raise TypeError(f"no step for {node.describe()}")

    def alone(self, node: logical.Node) -> Step | None:
        """The steps of a node in one shard, for a machine that computes it by itself. None if the node has parts that
        a machine does not have, or that hints place."""
        if not self.wanted.leaves_open(node) or not all(_is_anywhere(part) for part in node.walk()):
            return None
        nested = type(self)(1, self.wanted, self.scope, self.estimator.machine.costs)
        nested.whole = True
        return nested.plan(node)

    def properties(self, root: Step) -> Properties:
        """The properties of a step's rows."""
        found: dict[int, Properties] = {}
        for step in root.walk():
            found[id(step)] = step.provides(tuple(found[id(i)] for i in step.inputs), self.shards)
        return found[id(root)]

    def cheapest(self, options: dict[str, Step]) -> Step:
        """The option that `choices` asks for, otherwise the cheapest one; of equal costs the first."""
        if len(self.taken) < len(self.choices):
            asked = self.choices[len(self.taken)]
        else:
            costs = {name: self.estimator.total(self._moving(step)).elapsed_ns for name, step in options.items()}
            asked = min(costs, key=lambda name: costs[name])
        self.taken.append((asked, tuple(options)))
        return options[asked]

    def _moving(self, step: Step) -> Step:
        """A step of the current node with all of its movement."""
        found = enforce(step, self.shards, self.scope)
        if self.scope == "local" or self.node is None:
            return found
        return prune_moved(found, self.needed.get(id(self.node), set(step.schema.names)))
