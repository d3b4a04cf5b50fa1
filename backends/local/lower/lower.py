"""Physical plan → graph of pipelines. `Execution` and `explain` call `lower`."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tsql.backends.local.lower.graph import Graph, Lowering, Node, Shape
from tsql.backends.local.lower.local_step import local_step
from tsql.planner.physical.operators.recursive import Recursive, Working
from tsql.planner.physical.step import Step


def lower(
    root: Step,
    shards: int,
    spills: bool,
    given: Collection[int] = (),
    hands_out_shards: bool = False,
    repeated: Collection[int] = (),
) -> Graph:
    """The graph of a plan, or of the part of it above the `given` steps (by id). `repeated`: those of them whose rows
    are others at each run; what does not depend on them is kept."""
    steps = _within(root, given)
    users: dict[int, list[Step]] = {}
    for step in steps:
        for below in () if id(step) in given else step.inputs:
            users.setdefault(id(below), []).append(step)
    about = Lowering(spills, users)
    keeps_rows, keeps_table = _kept(step for step in steps if isinstance(step, Recursive) and id(step) not in given)
    if repeated:
        _keep(root, dependent(root, repeated), keeps_rows, keeps_table)
    nodes: dict[int, Node] = {}
    for step in steps:
        is_shared = len(users.get(id(step), ())) + (id(step) in keeps_rows) > 1
        if id(step) in given or isinstance(step, Working):
            node = Node(step, (), Shape(source=f"rows of {step.name}"), is_shared, is_given=True)
        else:
            inputs = tuple(nodes[id(i)] for i in step.inputs)
            shape = local_step(type(step)).lower(step, inputs, about)
            node = Node(step, inputs, shape, is_shared, keeps_table=id(step) in keeps_table)
            for below in inputs:
                below.users.append(node)
        nodes[id(step)] = node
    return Graph(nodes[id(root)], tuple(nodes.values()), shards, nodes, hands_out_shards)


def _within(root: Step, given: Collection[int]) -> list[Step]:
    """The steps that run for `root`, inputs before users, down to the given ones."""
    found: dict[int, Step] = {}
    stack: list[tuple[Step, bool]] = [(root, False)]
    while stack:
        step, ready = stack.pop()
        if id(step) in found:
            continue
        if ready or not step.inputs or id(step) in given:
            found[id(step)] = step
        else:
            stack.append((step, True))
            stack.extend((i, False) for i in reversed(step.inputs))
    return list(found.values())


def working_tables(step: Recursive) -> list[Working]:
    """The leaves of a recursion that read the rows of the previous round."""
    return [s for s in step.inputs[1].walk() if isinstance(s, Working) and s.table == step.table]


def dependent(body: Step, leaves: Collection[int]) -> set[int]:
    """The steps of a body that depend on one of its leaves, by id."""
    found = set(leaves)
    for step in body.walk():
        if any(id(i) in found for i in step.inputs):
            found.add(id(step))
    return found


def _kept(recursions: Iterable[Recursive]) -> tuple[set[int], set[int]]:
    """What is kept between rounds: steps whose rows do not change, and joins whose tables do not because the build side
    does not change."""
    rows: set[int] = set()
    tables: set[int] = set()
    for recursion in recursions:
        body = recursion.inputs[1]
        _keep(body, dependent(body, {id(w) for w in working_tables(recursion)}), rows, tables)
    return rows, tables


def _keep(body: Step, again: set[int], rows: set[int], tables: set[int]) -> None:
    """Add what is kept of a body whose steps `again` run in each round."""
    for step in body.walk():
        for place, child in enumerate(step.inputs):
            if id(step) not in again or id(child) in again:
                continue
            if local_step(type(step)).keeps_table_of(step, place):
                tables.add(id(step))
            else:
                rows.add(id(child))

