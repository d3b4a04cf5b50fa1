"""How groups are made: phases, where rows are placed, ranges.

Alternatives for an aggregate: two phases merged on one shard (few groups), two phases placed by key (many groups), one
phase over placed rows (nearly as many groups as rows, or an aggregate whose state cannot be handed on). Hints come
before cost."""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Column, Expr, SortKey, substitute
from tsql.planner.choose.choice import Choice
from tsql.planner.choose.ranges import dealt_by_ranges
from tsql.planner.cost import constants as cost
from tsql.planner.logical.aggregate_states import can_split
from tsql.planner.physical.movement import Gather, Redistribute, Rekey
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.properties import Properties, Requirement
from tsql.planner.physical.step import Step

GROUPINGS = ("two_phase_gather", "two_phase", "one_phase")


def group(
    choice: Choice,
    source: Step,
    keys: tuple[tuple[str, Expr], ...],
    calls: tuple[tuple[str, AggregateCall], ...],
    groups: float,
) -> Step:
    """What a hint asks for, or the cheapest plan for a grouping."""
    how = None
    whole = [f"{n}={c}" for n, c in calls if not can_split(c)]
    if choice.wanted.aggregation is not None:
        how = choice.wanted.aggregation.how
        choice.wanted.apply(
            choice.wanted.aggregation.hint,
            f"at aggregate by=({', '.join(n for n, _ in keys)}) {' '.join(f'{n}={c}' for n, c in calls)}".rstrip(),
        )
        if whole and how != "one_phase":
            raise choice.wanted.aggregation.refuse(f"{whole[0]} has no state that a second phase could merge")
        return _grouped(choice, how, source, keys, calls, groups)
    plain = Aggregate((source,), by=keys, calls=calls, groups=int(groups))
    if choice.shards > 1 and _is_placed(choice, source, keys):
        return plain
    ranged = _by_ranges(choice, plain)
    options: dict[str, Step] = {} if ranged is None else {"ranges": ranged}
    if choice.shards == 1:
        options["one_shard"] = plain
    elif whole:
        options["one_phase"] = _one_phase(choice, source, keys, calls, groups)
    else:
        options |= {
            how: _grouped(choice, how, source, keys, calls, groups) for how in (GROUPINGS if keys else GROUPINGS[:1])
        }
    return choice.cheapest(options) if len(options) > 1 else next(iter(options.values()))


def _by_ranges(choice: Choice, grouped: Aggregate) -> Step | None:
    """A grouping by the column that a table in memory is sorted by, of rows that are dealt out by ranges of it."""
    names = [e.name for _, e in grouped.by if isinstance(e, Column)]
    if choice.scope != "local" or not names or len(names) < len(grouped.by):
        return None
    shards = _shards_in_cache(choice, float(grouped.groups or 0))
    found = (
        None
        if shards == 1
        else next(
            (f for f in (dealt_by_ranges(grouped.inputs[0], n, shards, choice.shared) for n in names) if f is not None),
            None,
        )
    )
    return None if found is None else replace(grouped, inputs=(found,))


def _grouped(
    choice: Choice,
    how: str,
    source: Step,
    keys: tuple[tuple[str, Expr], ...],
    calls: tuple[tuple[str, AggregateCall], ...],
    groups: float,
) -> Step:
    if how == "one_phase":
        return _one_phase(choice, source, keys, calls, groups)
    partial = Aggregate((source,), by=keys, calls=calls, phase="partial", groups=int(groups))
    merged: Step = Gather((partial,)) if how == "two_phase_gather" else partial
    return Aggregate(
        (merged,), by=tuple((n, Column(n, e.type)) for n, e in keys), calls=calls, phase="final", groups=int(groups)
    )


def _is_placed(choice: Choice, source: Step, keys: tuple[tuple[str, Expr], ...]) -> bool:
    """Whether the rows of each group are in one shard anyway: below is a sort or a limit, or a hint has placed
    them."""
    found: dict[int, Properties] = {}
    for step in source.walk():
        found[id(step)] = step.provides(tuple(found[id(i)] for i in step.inputs), choice.shards)
    given = found[id(source)]
    names = tuple(e.name for _, e in keys if isinstance(e, Column))
    return given.shards == 1 or (len(names) == len(keys) and Requirement("placed", names).met_by(given))


def _one_phase(
    choice: Choice,
    source: Step,
    keys: tuple[tuple[str, Expr], ...],
    calls: tuple[tuple[str, AggregateCall], ...],
    groups: float,
) -> Step:
    """Rows are placed by their keys, which must be columns for that; only what the aggregate needs is moved."""
    needed = tuple(dict.fromkeys(c for _, call in calls for e in call.expressions() for c in e.columns()))
    if not all(isinstance(e, Column) for _, e in keys):
        renamed = {c: f"{c}__input" for c in needed}
        columns = [(renamed[c], Column(c, source.schema[c].type, source.schema[c].nullable)) for c in needed] + list(
            keys
        )
        source = Project((source,), columns=tuple(columns))
        keys = tuple((n, Column(n, e.type)) for n, e in keys)
        calls = tuple((n, rename_call(c, renamed)) for n, c in calls)
    # An aggregate without phases keeps its values: a table has room for the rows of its shard, not only for their
    # groups. A shard should have several groups.
    kept = (
        groups
        if all(can_split(c) for _, c in calls)
        else max(groups, min(choice.estimator.of(source).rows, groups * cost.GROUPS_PER_SHARD / 4))
    )
    placed = _in_cache(choice, source, tuple(e.name for _, e in keys if isinstance(e, Column)), kept)
    return Aggregate((placed,), by=keys, calls=calls, groups=int(groups))


def _in_cache(choice: Choice, source: Step, key: tuple[str, ...], groups: float) -> Step:
    """With very many groups: more shards than cores, so that the table of each fits a core's cache."""
    if choice.scope != "local" or groups <= cost.CACHED_GROUPS or not key:
        return source
    return Redistribute((Rekey((source,), key=key),), scope="local", shards=_shards_in_cache(choice, groups))


def _shards_in_cache(choice: Choice, groups: float) -> int:
    """So many shards that the table of each fits a core's cache."""
    shards = choice.shards
    while groups > cost.CACHED_GROUPS and shards * cost.GROUPS_PER_SHARD < groups and shards < cost.MOST_SHARDS:
        shards *= 2
    return shards


def rename_call(call: AggregateCall, renamed: dict[str, str]) -> AggregateCall:
    def move(e: Expr) -> Expr:
        columns: dict[str, Expr] = {
            c.name: Column(renamed[c.name], c.dtype, c.nullable) for c in e.walk() if isinstance(c, Column)
        }
        return substitute(e, columns)

    return replace(
        call,
        args=tuple(move(a) for a in call.args),
        filter=None if call.filter is None else move(call.filter),
        order=tuple(SortKey(move(k.expr), k.descending, k.nulls_first) for k in call.order),
    )
