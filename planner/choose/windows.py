"""Steps of windows: window functions, windows in time from panes, lifetimes, matches."""

from __future__ import annotations

from tsql.kernels.expr.nodes import Column, Expr
from tsql.planner.choose.choice import Choice
from tsql.planner.cost import constants as cost
from tsql.planner.cost import stats
from tsql.planner.logical import match as matching
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.panes import PANE, Paned
from tsql.planner.logical.snapshot import SnapshotAggregate
from tsql.planner.physical.movement import Redistribute, Rekey
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.match import Match
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.snapshot import Snapshot
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.step import Step


def window_step(choice: Choice, node: logical.Window) -> Step:
    """Rows are placed by the PARTITION BY columns. A computed key becomes a column first and is dropped again."""
    source = choice.step(node.input)
    computed = tuple(dict.fromkeys(e for e in node.keys if not isinstance(e, Column)))
    if not computed or choice.shards == 1:
        return Window((source,), by=node.keys, order=node.order, calls=node.calls)
    columns = tuple((f.name, Column(f.name, f.type, f.nullable)) for f in node.input.schema)
    names = {e: f"partition_key_{i}" for i, e in enumerate(computed)}
    source = Project((source,), columns=(*columns, *((n, e) for e, n in names.items())))
    by = tuple(Column(names[e], e.type) if e in names else e for e in node.keys)
    result = Window((source,), by=by, order=node.order, calls=node.calls)
    return Project((result,), columns=tuple((f.name, Column(f.name, f.type, f.nullable)) for f in node.schema))


def snapshot_step(choice: Choice, node: SnapshotAggregate) -> Step:
    """Many rows are placed in more shards than cores. Each shard is sorted by itself: sorting is much faster within the
    cache and in memory that was used before."""
    source = choice.step(node.input)
    shards = min(
        cost.MOST_SORTED_SHARDS, choice.shards * round(stats.rows(node.input) / choice.shards / cost.SORTED_ROWS)
    )
    if node.keys and choice.scope == "local" and shards > choice.shards:
        source = Redistribute((Rekey((source,), key=node.keys),), scope=choice.scope, shards=shards)
    lifetime = (node.start, node.end)
    return Snapshot(
        (source,), by=node.keys, lifetime=lifetime, span=node.span, aggregates=node.aggregates, ends=node.ends
    )


def match_step(choice: Choice, node: matching.Match) -> Step:
    return Match((choice.step(node.input),), spec=node.spec)


def paned_step(choice: Choice, windows: Paned) -> Step:
    """Windows from panes. The states of panes move to the shards of their keys. Where there are nearly as many panes as
    rows, the rows move instead; where there are hardly fewer panes, each row is a pane."""
    source = choice.step(windows.rows)
    # The pane comes first: rows mostly arrive in time order, so groups in an array are then close to each other.
    keys, by = ((PANE, windows.pane), *windows.keys), tuple(n for n, _ in windows.keys)
    calls = (*windows.calls, *windows.extra)
    groups = stats.groups([e for _, e in keys], windows.rows)
    if windows.windows.over == "rows" or groups > cost.PANES_WORTH * max(1.0, stats.rows(windows.rows)):
        columns, calls, over = windows.from_rows()
        rows = Project((source,), columns=columns)
        # Where ties are decided by the order of the input, rows in many shards would be in very small chunks.
        placed = rows if over.kind == "rows" else _walked(choice, rows, by, groups, stats.rows(windows.rows))
        return _shown(Combine((placed,), by=by, calls=calls, windows=over), windows)

    def combined(rows: Step, keys: tuple[tuple[str, Expr], ...]) -> Step:
        partial = Aggregate((rows,), by=keys, calls=calls, phase="partial", groups=int(groups))
        return Combine((partial,), by=by, calls=windows.calls, windows=windows.windows)

    options = {"panes_move": combined(source, keys)}
    if choice.shards > 1 and windows.keys:
        needed = dict.fromkeys(
            c for e in (windows.pane, *(e for _, call in calls for e in call.expressions())) for c in e.columns()
        )
        named = {n for n, _ in windows.keys}
        if not named & set(needed):
            moved = Project(
                (source,),
                columns=(
                    *((c, Column(c, source.schema[c].type, source.schema[c].nullable)) for c in needed),
                    *windows.keys,
                ),
            )
            placed = Redistribute((Rekey((moved,), key=by),), scope=choice.scope, shards=choice.shards)
            options["rows_move"] = combined(
                placed, ((PANE, windows.pane), *((n, Column(n, e.type)) for n, e in windows.keys))
            )
    found = choice.cheapest(options) if len(options) > 1 else options["panes_move"]
    return _shown(found, windows)


def _shown(found: Step, windows: Paned) -> Step:
    as_they_are = [(n, n) for n in found.schema.names] == [
        (n, e.name if isinstance(e, Column) else None) for n, e in windows.shown
    ]
    return found if as_they_are else Project((found,), columns=windows.shown)


def _walked(choice: Choice, source: Step, key: tuple[str, ...], groups: float, rows: float) -> Step:
    """With very many groups, rows are placed in more shards than cores; each shard is sorted and walked at once."""
    if choice.scope != "local" or groups <= cost.CACHED_GROUPS or not key:
        return source
    shards = choice.shards
    while shards * cost.WALKED_ROWS < rows and shards < cost.MOST_SORTED_SHARDS:
        shards *= 2
    return Redistribute((Rekey((source,), key=key),), scope="local", shards=shards)
