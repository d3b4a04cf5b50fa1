"""Tells of a live query what could never answer, or hold more and more rows, however long it runs: `problems`.

A copy of the query that has no rows is told that the time of each scan has come far. Each step passes on what it can
promise then, and says what it lacks (`LiveOperator.endless`). So the steps know no more than they do in a run, and what
is found is a property of the plan. Not told: a state that grows with the number of different keys (a row per partition
of a running sum), and lifetimes that do not end."""

from __future__ import annotations

from tsql.backends import Run
from tsql.backends.live.asof import AsofJoins
from tsql.backends.live.groups import Groups
from tsql.backends.live.held_joins import Joins
from tsql.backends.live.limits import Limits
from tsql.backends.live.operator import Hold, LiveOperator
from tsql.backends.live.query import LiveNode, LiveQuery
from tsql.backends.live.sorts import Sorts
from tsql.backends.live.windows import Windows
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.progress import Progress

FAR_DAYS, FAR_US = 20_000, 1_728_000_000_000_000
"""A time of this century, as a date and as a time."""

WATERMARK = "declare the time of each stream that is read: WATERMARK FOR column AS .."
WAYS: tuple[tuple[type[LiveOperator], tuple[str, ...]], ...] = (
    (
        Groups,
        (
            "group by a window of time: FROM TUMBLE(stream, time, INTERVAL '1 hour') GROUP BY window_start, ..",
            "follow the groups in time: FROM SLIDE(stream, time, INTERVAL '1 hour') GROUP BY ..",
        ),
    ),
    (
        Joins,
        (
            "say how far apart the times of two rows may be: AND b.time BETWEEN a.time AND a.time + INTERVAL '1 hour'",
            "join windows: ON .. AND a.window_start = b.window_start",
        ),
    ),
    (AsofJoins, ("say how far back a row may be: TOLERANCE INTERVAL '1 hour'",)),
    (
        Windows,
        (
            "PARTITION BY a window of time: FROM TUMBLE(stream, time, INTERVAL '1 hour') and PARTITION BY window_start",
            "ORDER BY the time of the stream, ascending, with a frame that looks back only so far",
        ),
    ),
    (
        Sorts,
        (
            "ORDER BY the time of the stream first, ascending",
            "leave ORDER BY out, or apply it to what is read later",
            "in place of LIMIT in a subquery over lifetimes: QUALIFY row_number() OVER (ORDER BY ..) <= n",
        ),
    ),
    (Hold, ("apply it to a window of time, or to what the query gives",)),
)


@dataclass(frozen=True)
class Problem:
    """Why a step (by name) could never answer, or never free its state; ways: what would help."""

    step: str
    text: str
    ways: tuple[str, ...]
    has_changes: bool = False
    """Whether the step has an answer at any time, which later rows change: EMIT CHANGES shows it. It holds a row for
    each group, or those that are shown."""


def problems(query: LiveQuery) -> list[Problem]:
    """What could never end in a query, inputs first. The query itself is not changed."""
    run = Run(settings=query.engine.run.settings, parameters=query.engine.run.parameters)
    copy = LiveQuery(query.plan, query.live, run, query.engine.shards, query.engine.interpret)
    found = []
    for node in copy.nodes.values():
        if node.operator is None:
            node.progress = _far(copy, node)
            continue
        node.operator.punctuate(tuple(copy._through(below, node) for below, _, _ in node.feeds))
        node.progress = node.operator.promise()
        text = node.operator.endless()
        if text is not None:
            found.append(Problem(node.name, text, _ways(copy, node.operator), _changes(node.operator)))
    return found


def _changes(operator: LiveOperator) -> bool:
    """Whether the result so far is of use, and what is held for it is bounded by what is shown."""
    return isinstance(operator, Groups | Limits) or (isinstance(operator, Sorts) and operator.limit is not None)


def _far(query: LiveQuery, node: LiveNode) -> Progress:
    if node.name not in query.live:
        return Progress(ended=True)
    column = query.live[node.name]
    if column is None or column not in node.step.schema:
        return Progress()
    return Progress({column: FAR_DAYS if node.step.schema[column].type.name == "DATE" else FAR_US})


def _ways(query: LiveQuery, operator: LiveOperator) -> tuple[str, ...]:
    ways = next((ways for kind, ways in WAYS if isinstance(operator, kind)), ())
    return ways if ways and all(query.live.values()) else (*ways, WATERMARK)
