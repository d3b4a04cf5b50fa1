"""Live queries that a Python worker keeps between micro-batches.

A query that holds the very state that a shard has now goes on. Otherwise a new one is given that state; its kernels are
compiled already. So a shard may move to another worker at any time, at the cost of reading its state."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from tsql.backends.spark.streaming.part_query import PartQuery
from tsql.backends.spark.streaming.states import Written, restored
from tsql.kernels.process.quick_dataclass import dataclass

MOST = 64
"""Queries that a worker keeps."""


@dataclass
class Warm:
    """A query, the state that it holds, and the files that have it."""

    query: PartQuery
    token: str | None
    written: Written


_kept: OrderedDict[tuple[str, str, int], Warm] = OrderedDict()


def taken(
    job: str, part: str, shard: int, state: dict[str, Any] | None, folder: str, make: Callable[[], PartQuery]
) -> tuple[Warm, bool]:
    """The query of a shard with its state, and whether it had it already. It is not kept until `put` gives it back: one
    that has failed half-way is of no use."""
    token = None if state is None else state["token"]
    found = _kept.pop((job, part, shard), None)
    if found is not None and token is not None and found.token == token:
        return found, True
    if found is not None:
        found.query.close()
    query = make()
    if state is None:
        return Warm(query, None, Written()), False
    return Warm(query, token, restored(query, state, folder)), False


def put(job: str, part: str, shard: int, warm: Warm) -> None:
    """Keep a query for the next batch. Those of other jobs are the first to go."""
    _kept[(job, part, shard)] = warm
    while len(_kept) > MOST:
        _, old = _kept.popitem(last=False)
        old.query.close()
