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
from tsql.kernels.expr.nodes import Column
from tsql.planner.physical.movement import Redistribute, Rekey
from tsql.planner.physical.operators.input import Input
from tsql.planner.physical.properties import Properties

State = dict[str, Any]
SHARED = ("begun", "scans")
"""Marks that all shards of a part have alike."""

OF_ROWS = ("tried",)
"""Marks about the rows of one shard: they begin again."""

PREFIXES = ("", "open_", "of_", "of ")
"""What operators put before the names of key columns in tables of their own."""


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
    places = _places(operator, title, cluster)
    if all(place.replicated for place in places):
        chunks = _read(old[0], title, held, cluster)
        return [chunks for _ in range(part.shards)]
    chunks = [chunk for state in old for chunk in _read(state, title, held, cluster)]
    found: list[list[Chunk]] = [[] for _ in range(part.shards)]
    if not chunks:
        return found
    if all(place.placed is None for place in places):
        for number, chunk in enumerate(chunks):
            found[number % part.shards].append(chunk)
        return found
    key = next((key for place in places if (key := _key(place, operator, held))), None)
    if key is None:
        raise PlanError(
            f"step {operator.step.name}: its state cannot be dealt to {part.shards} shards: it does not hold the key",
            hint=f"SET shards = {len(old)}",
        )
    leaf = Input((), fields=held.schema, name="held")
    movement = Redistribute((leaf,), scope="global", shards=part.shards)
    for shard, chunk in Outlet(query.engine, Rekey((leaf,), key=key), movement, part.shards).sent({"held": chunks}):
        found[shard].append(chunk)
    return found


def _places(operator: LiveOperator, title: str, cluster: Cluster) -> list[Properties]:
    """How the rows of a table may be placed: as those of one side, or, if it is of no side, as those of any."""
    step = next(step for step in cluster.parts.plan.root.walk() if step.name == operator.step.name)
    side = title.rpartition(" ")[2]
    inputs = [step.inputs[int(side)]] if side.isdigit() else step.inputs
    return [cluster.parts.properties[id(below)] for below in inputs]


def _key(place: Properties, operator: LiveOperator, held: HeldRows) -> tuple[str, ...]:
    """The columns of a table that the rows are placed by; () if it does not have them all."""
    names, by = held.schema.names, list(getattr(operator.step, "by", ()))
    keys = {one.name: f"live key {number}" for number, one in enumerate(by) if isinstance(one, Column)}
    wanted = [[*(prefix + name for prefix in PREFIXES), keys.get(name, "")] for name in place.placed or ()]
    key = tuple(next((name for name in mine if name in names), "") for mine in wanted)
    return key if all(key) else ()


def _read(state: State, title: str, held: HeldRows, cluster: Cluster) -> list[Chunk]:
    return from_table(table_of(cluster.folder, state["tables"][title]), held.schema)


def _marks(part: Part, old: list[State], shard: int) -> dict[str, Any]:
    """Marks of a shard: all shards of a part have had the same promises. What they count is counted once."""
    marks = [state["marks"] for state in old]
    first = marks[0]
    if any(one[name] != first[name] for one in marks for name in SHARED):
        raise _apart(part, old)
    operators = {
        step: {name: _together([one["operators"][step][name] for one in marks], name, part, old) for name in known}
        for step, known in first["operators"].items()
    }
    counts: dict[str, int] = {}
    for one in marks if shard == 0 else ():
        for name, count in one["counts"].items():
            counts[name] = counts.get(name, 0) + count
    position = max(one["next_position"] for one in marks)
    return {**first, "operators": operators, "counts": counts, "next_position": position}


def _together(values: list[Any], name: str, part: Part, old: list[State]) -> Any:
    """One mark for all shards. A shard that had no rows yet may know less than the others."""
    if name in OF_ROWS:
        return 0
    known = [value for value in values if value != ""] or values
    if all(value == known[0] for value in known):
        return known[0]
    if all(type(value) is int for value in known):
        return min(known)
    raise _apart(part, old)


def _apart(part: Part, old: list[State]) -> PlanError:
    return PlanError(
        f"part {part.name}: its shards have come to different places, so their state cannot be dealt again",
        hint=f"SET shards = {len(old)}",
    )
