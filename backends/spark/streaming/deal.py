"""`dealt`: the states of shards for another number of them. Held rows go where rows of their key go from now on; what
all shards know stays with each of them.

The driver does this once, when a job goes on with another number of shards. It reads all states and writes them
again."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from tsql.backends import Run
from tsql.backends.live.fragments import from_table
from tsql.backends.live.operator import HeldRows, LiveOperator
from tsql.backends.local.run.host import Chunk
from tsql.backends.spark.streaming.batch import Cluster, States
from tsql.backends.spark.streaming.part_query import Outlet, PartQuery
from tsql.backends.spark.streaming.parts import Part
from tsql.backends.spark.streaming.states import table_of, write_rows
from tsql.kernels.expr.errors import PlanError
from tsql.planner.physical.movement import Redistribute, Rekey
from tsql.planner.physical.operators.input import Input
from tsql.planner.physical.properties import Properties

State = dict[str, Any]
SHARED = ("begun", "scans", "operators")
"""Marks that all shards of a part have alike."""


def dealt(states: States, cluster: Cluster, run: Run) -> States:
    """The states of all parts for the shards that they have now."""
    return {part.name: _dealt(part, states[part.name], cluster, run) for part in cluster.parts.live}


def _dealt(part: Part, old: dict[str, State], cluster: Cluster, run: Run) -> dict[str, State]:
    if len(old) == part.shards:
        return old
    assert part.movement is not None
    query = PartQuery(part.top, part.entries, run, outlet=(part.movement, cluster.parts.targets(part)))
    ordered = [old[name] for name in sorted(old, key=int)]
    tables: list[dict[str, list[str]]] = [{} for _ in range(part.shards)]
    for node in query.nodes.values():
        if node.operator is None:
            continue
        for name, held in node.operator.tables().items():
            title = f"{node.name} {name}"
            lists = _rows(title, node.operator, held, ordered, part, cluster, query)
            for shard, chunks in enumerate(lists):
                files: list[Path] = []
                if chunks:
                    write_rows(cluster.folder, chunks, held.schema, files)
                tables[shard][title] = [path.name for path in files]
    return {
        str(shard): {"token": uuid.uuid4().hex, "marks": _marks(part, ordered, shard), "tables": tables[shard]}
        for shard in range(part.shards)
    }


def _rows(
    title: str,
    operator: LiveOperator,
    held: HeldRows,
    old: list[State],
    part: Part,
    cluster: Cluster,
    query: PartQuery,
) -> list[list[Chunk]]:
    """The rows of a table in the shards that they belong to now."""
    place = _place(operator, title, cluster)
    if place.replicated:
        chunks = _read(old[0], title, held, cluster)
        return [chunks for _ in range(part.shards)]
    chunks = [chunk for state in old for chunk in _read(state, title, held, cluster)]
    found: list[list[Chunk]] = [[] for _ in range(part.shards)]
    if not chunks:
        return found
    if place.placed is None:
        for number, chunk in enumerate(chunks):
            found[number % part.shards].append(chunk)
        return found
    names = held.schema.names
    key = tuple(next((n for n in (name, f"open_{name}", f"of_{name}") if n in names), "") for name in place.placed)
    if not all(key):
        raise PlanError(
            f"step {operator.step.name}: its state cannot be dealt to {part.shards} shards: it does not hold the key "
            f"({', '.join(place.placed)})",
            hint=f"SET shards = {len(old)}",
        )
    leaf = Input((), fields=held.schema, name="held")
    movement = Redistribute((leaf,), scope="global", shards=part.shards)
    for shard, chunk in Outlet(query.engine, Rekey((leaf,), key=key), movement, part.shards).sent({"held": chunks}):
        found[shard].append(chunk)
    return found


def _place(operator: LiveOperator, title: str, cluster: Cluster) -> Properties:
    """How the rows are placed that a table has."""
    step = next(step for step in cluster.parts.plan.root.walk() if step.name == operator.step.name)
    side = title.rpartition(" ")[2]
    return cluster.parts.properties[id(step.inputs[int(side) if side.isdigit() else 0])]


def _read(state: State, title: str, held: HeldRows, cluster: Cluster) -> list[Chunk]:
    return from_table(table_of(cluster.folder, state["tables"][title]), held.schema)


def _marks(part: Part, old: list[State], shard: int) -> dict[str, Any]:
    """Marks of a shard: the shards of a part have had the same promises. What they count is counted once."""
    first = old[0]["marks"]
    for state in old[1:]:
        if any(state["marks"][name] != first[name] for name in SHARED):
            raise PlanError(
                f"part {part.name}: its shards have come to different places, so their state cannot be dealt again",
                hint=f"SET shards = {len(old)}",
            )
    counts: dict[str, int] = {}
    for state in old if shard == 0 else ():
        for name, count in state["marks"]["counts"].items():
            counts[name] = counts.get(name, 0) + count
    return {**first, "counts": counts, "next_position": max(state["marks"]["next_position"] for state in old)}
