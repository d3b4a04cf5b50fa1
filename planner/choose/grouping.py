"""How groups are made: phases, placement of rows, ranges.

An aggregate has three alternatives: two phases merged on one shard (few groups), two phases placed by key (many
groups), or one phase over placed rows (nearly as many groups as rows, or an aggregate whose state cannot be exported).
On a cluster, aggregates over distinct values have another one (`distinct.py`).
Hints take precedence over cost."""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Column, Expr, SortKey, substitute
from tsql.planner.choose.choice import Choice
from tsql.planner.choose.distinct import by_values
from tsql.planner.choose.few_keys import few_values
from tsql.planner.choose.ranges import dealt_by_ranges
from tsql.planner.choose.union_parts import by_parts
from tsql.planner.cost import constants as cost
from tsql.planner.logical.aggregate_states import can_split
from tsql.planner.physical.movement import Gather, Redistribute, Rekey
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.properties import Requirement
from tsql.planner.physical.step import Step
from tsql.planner.progressive.sampled_calls import needs_rows

GROUPINGS = ("two_phase_gather", "two_phase", "one_phase")


def group(
    choice: Choice,
    source: Step,
    keys: tuple[tuple[str, Expr], ...],
    calls: tuple[tuple[str, AggregateCall], ...],
    groups: float,
) -> Step:
    """The plan that a hint asks for, otherwise the cheapest plan for a grouping."""
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
    # Each batch of a sample has its groups. Where these are many, a sample of rows tells more for its cost.
    sampled = choice.progressive and choice.scope == "local" and groups > cost.GROUPS_OF_SAMPLES
    from_rows = sampled and any(needs_rows(n, c) for n, c in calls)
    phased = (choice.progressive or choice.live) and not whole and not from_rows
    if choice.shards > 1 and not phased and _is_placed(choice, source, keys):
        return plain
    if phased:
        ways = GROUPINGS[:2] if keys and choice.shards > 1 else GROUPINGS[:1]
        return choice.cheapest({one: _grouped(choice, one, source, keys, calls, groups) for one in ways})
    distinct = by_parts_of_values(choice, source, keys, calls, groups) if choice.progressive and whole else None
    if distinct is not None:
        return distinct
    # Rows that are dealt by ranges are read in order, and not as a sample.
    ranged = None if choice.progressive else _by_ranges(choice, plain)
    options: dict[str, Step] = {} if ranged is None else {"ranges": ranged}
    if choice.shards == 1:
        options["one_shard"] = plain
    elif whole or from_rows:
        options["one_phase"] = _one_phase(choice, source, keys, calls, groups)
        if choice.scope == "global" and not choice.progressive:
            values = by_values(choice, source, keys, calls, groups, group)
            options |= {} if values is None else {"by_values": values}
    else:
        options |= {
            how: _grouped(choice, how, source, keys, calls, groups) for how in (GROUPINGS if keys else GROUPINGS[:1])
        }
    return choice.cheapest(options) if len(options) > 1 else next(iter(options.values()))


def by_parts_of_values(
    choice: Choice,
    source: Step,
    keys: tuple[tuple[str, Expr], ...],
    calls: tuple[tuple[str, AggregateCall], ...],
    groups: float,
) -> Step | None:
    """Aggregates over the distinct values of one argument, as groups of groups: a part of the values says how many
    there are (`planner/progressive/driven_keys.py`), and a part of the rows does not, unless these are few."""
    arguments = {call.args for _, call in calls if call.distinct}
    if choice.scope != "local" or len(arguments) != 1:
        return None
    given = choice.estimator.of(source)
    if all(few_values(one, groups, given) for (one, *_) in arguments):
        return None
    return by_values(choice, source, keys, calls, groups, group)


def _by_ranges(choice: Choice, grouped: Aggregate) -> Step | None:
    """A grouping by the sort column of a table in memory, over rows that are dealt to shards by ranges of that
    column."""
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
    parts = by_parts(partial) if choice.progressive else partial
    merged: Step = Gather((parts,)) if how == "two_phase_gather" else parts
    return Aggregate(
        (merged,), by=tuple((n, Column(n, e.type)) for n, e in keys), calls=calls, phase="final", groups=int(groups)
    )


def _is_placed(choice: Choice, source: Step, keys: tuple[tuple[str, Expr], ...]) -> bool:
    """Whether the rows of each group are in one shard already: below is a sort or a limit, or a hint has placed
    them."""
    given = choice.properties(source)
    names = tuple(e.name for _, e in keys if isinstance(e, Column))
    return given.shards == 1 or (len(names) == len(keys) and Requirement("placed", names).met_by(given))


def _one_phase(
    choice: Choice,
    source: Step,
    keys: tuple[tuple[str, Expr], ...],
    calls: tuple[tuple[str, AggregateCall], ...],
    groups: float,
) -> Step:
    """One phase over rows placed by their keys. Computed keys become columns first; only the columns that the aggregate
    needs are moved."""
    needed = tuple(dict.fromkeys(c for _, call in calls for e in call.expressions() for c in e.columns()))
    if not all(isinstance(e, Column) for _, e in keys):
        renamed = {c: f"{c}__input" for c in needed}
        columns = [(renamed[c], Column(c, source.schema[c].type, source.schema[c].nullable)) for c in needed] + list(
            keys
        )
        source = Project((source,), columns=tuple(columns))
        keys = tuple((n, Column(n, e.type)) for n, e in keys)
        calls = tuple((n, rename_call(c, renamed)) for n, c in calls)
    # An aggregate without phases keeps its values: its table holds the rows of a shard, not only the groups. A shard
    # should have several groups.
    kept = (
        groups
        if all(can_split(c) for _, c in calls)
        else max(groups, min(choice.estimator.of(source).rows, groups * cost.GROUPS_PER_SHARD / 4))
    )
    placed = _in_cache(choice, source, tuple(e.name for _, e in keys if isinstance(e, Column)), kept)
    return Aggregate((placed,), by=keys, calls=calls, groups=int(groups))


def _in_cache(choice: Choice, source: Step, key: tuple[str, ...], groups: float) -> Step:
    """With very many groups, rows are placed in more shards than cores, so that each table fits a core's cache."""
    if choice.scope != "local" or groups <= cost.CACHED_GROUPS or not key:
        return source
    return Redistribute((Rekey((source,), key=key),), scope="local", shards=_shards_in_cache(choice, groups))


def _shards_in_cache(choice: Choice, groups: float) -> int:
    """The number of shards with which each table fits a core's cache."""
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
