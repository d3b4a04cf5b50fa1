"""Whether a job can go on from a checkpoint of an earlier, perhaps different, query.

State belongs to operators. An operator finds its state again if an operator of the earlier query held the same thing:
the same step over the same columns, whatever its name and whatever stands above and below. So a filter or a projection
may change, and rows that have been aggregated stay aggregated. What holds something that nobody held before cannot be
made up from nothing: such a query is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from tsql.backends.live.jobs.checkpoint import Epoch
from tsql.backends.live.jobs.streams import StreamSource
from tsql.backends.live.operator import Pass
from tsql.backends.live.query import LiveQuery
from tsql.kernels.expr.errors import PlanError
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.emission import Emission
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.step import PhysicalPlan


@dataclass(frozen=True)
class Identity:
    """What a job is, as far as its state depends on it. operators: what each step that is read by others holds, by its
    name. scans: the stream of each scan. streams: the statement of each. output: the columns of the result. keys: those
    that identify a row of it."""

    operators: dict[str, str]
    scans: dict[str, str]
    streams: dict[str, str]
    output: list[list[str]]
    has_changes: bool
    plan: str
    keys: tuple[str, ...] = ()

    @staticmethod
    def of(plan: PhysicalPlan, query: LiveQuery) -> Identity:
        sources = {
            step.name: step.source
            for step in plan.root.walk()
            if isinstance(step, Scan) and isinstance(step.source, StreamSource)
        }
        operators = {}
        for node in query.nodes.values():
            if node.operator is not None:
                operators[node.name] = _held_by(node.operator)
        emission = plan.emission or Emission()
        return Identity(
            operators,
            {name: source.catalog_name for name, source in sources.items()},
            {source.catalog_name: source.declaration for source in sources.values()},
            [[name, str(plan.root.schema[column].type)] for column, name in zip(plan.columns, plan.names, strict=True)],
            emission.has_changes,
            plan.text(),
            _keys(plan),
        )

    @staticmethod
    def planned(plan: PhysicalPlan, shards: int) -> Identity:
        """That of a plan that does not run."""
        live = {
            step.name: step.source.time
            for step in plan.root.walk()
            if isinstance(step, Scan) and isinstance(step.source, StreamSource)
        }
        query = LiveQuery(plan, live, shards=shards)
        try:
            return Identity.of(plan, query)
        finally:
            query.close()

    def to_json(self) -> dict[str, Any]:
        return {
            "operators": self.operators,
            "scans": self.scans,
            "streams": self.streams,
            "output": self.output,
            "has_changes": self.has_changes,
            "plan": self.plan,
        }


@dataclass
class Comparison:
    """What becomes of a checkpoint under another query. kept: operators by their new names, with the old ones. dropped:
    operators whose state nobody takes. refused: why it cannot go on."""

    kept: dict[str, str] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """For people."""
        found = [f"kept: {new}" + ("" if new == old else f" (was {old})") for new, old in sorted(self.kept.items())]
        found += [f"dropped: {name}: nothing in the query takes its state" for name in self.dropped]
        found += [f"changed: {what}" for what in self.changed]
        return found + [f"refused: {why}" for why in self.refused]


def compare(known: Mapping[str, Any], mine: Identity) -> Comparison:
    """What becomes of the state of the job `known` (the `identity` of its folder)."""
    found = Comparison()
    old: dict[str, str] = dict(known["operators"])
    free = dict(old)
    waiting = {}
    for name, holds in mine.operators.items():
        if free.get(name) == holds:
            found.kept[name] = name
            del free[name]
        else:
            waiting[name] = holds
    for name, holds in waiting.items():
        match = next((other for other, what in free.items() if what == holds), None)
        if match is not None:
            found.kept[name] = match
            del free[match]
        elif holds != NOTHING:
            found.refused.append(f"step {name} holds rows from before that no step of the earlier query held: {holds}")
    found.dropped = sorted(name for name, holds in free.items() if holds != NOTHING)
    for stream, text in mine.streams.items():
        if stream not in known["streams"]:
            found.refused.append(f"the earlier query did not read the stream {stream}")
        elif text != known["streams"][stream]:
            found.changed.append(f"the stream {stream} is declared in another way: {text}")
    if [list(one) for one in known["output"]] != mine.output:
        found.refused.append(f"the result had the columns {_shown(known['output'])}, and now has {_shown(mine.output)}")
    if known["has_changes"] != mine.has_changes:
        found.refused.append(
            f"the result was a list of {'changes' if known['has_changes'] else 'final rows'}, and now is not"
        )
    return found


def check_same(mine: Identity, last: Epoch) -> Epoch:
    """The epoch as it fits a query, or an error that says why it does not."""
    try:
        before = last.about["identity"]
        found = compare(before, mine)
        if found.refused:
            raise PlanError(
                f"the job cannot go on from its checkpoint: {found.refused[0]}",
                hint="`tsql check --checkpoint` lists all of it; another folder begins anew",
            )
        return _renamed(last, found, before, mine)
    except (KeyError, TypeError, AttributeError) as error:
        raise PlanError(f"the checkpoint cannot be read: {error}", hint="begin again with another folder") from error


def _renamed(last: Epoch, found: Comparison, before: Mapping[str, Any], mine: Identity) -> Epoch:
    """The epoch with the names of the new query."""
    marks = last.about["query"]
    operators = {new: marks["operators"][old] for new, old in found.kept.items()}
    operators |= {name: {} for name in mine.operators if name not in operators}
    tables: dict[str, Any] = {name: parts for name, parts in last.tables.items() if name.startswith("shown ")}
    for new, old in found.kept.items():
        prefix = f"held {old} "
        for name, parts in last.tables.items():
            if name.startswith(prefix):
                tables[f"held {new} {name.removeprefix(prefix)}"] = parts
    scans = {}
    streams: dict[str, Any] = {before["scans"][name]: marks["scans"][name] for name in before["scans"]}
    for name in mine.scans:
        is_same = before["scans"].get(name) == mine.scans[name]
        scans[name] = marks["scans"][name] if is_same else streams[mine.scans[name]]
    scans |= {name: known for name, known in marks["scans"].items() if name not in before["scans"]}
    about = {**last.about, "query": {**marks, "operators": operators, "scans": scans}}
    return replace(last, about=about, tables=tables)


NOTHING = "nothing"


def _held_by(operator: Any) -> str:
    """What an operator holds, as text: equal texts can take each other's state."""
    if isinstance(operator, Pass):
        return NOTHING
    step = operator.step
    words = " ".join(f"{name}={text}" if name else text for name, text in step.attributes())
    held = "; ".join(
        f"{name} ({', '.join(f'{f.name} {f.type}' for f in table.schema)})" for name, table in operator.tables().items()
    )
    return f"{step.op} {words} over {held}"


def _shown(columns: Any) -> str:
    return f"({', '.join(' '.join(column) for column in columns)})"


def _keys(plan: PhysicalPlan) -> tuple[str, ...]:
    """The names of the columns by which the result is grouped, if all of them are in the result."""
    names = dict(zip(plan.columns, plan.names, strict=True))
    step = plan.root
    while True:
        if isinstance(step, Aggregate):
            keys = [name for name, _ in step.by]
            return tuple(names[key] for key in keys) if keys and all(key in names for key in keys) else ()
        if isinstance(step, Project):
            through: dict[str, str] = {}
            for name, expr in step.columns:
                same = _same_as(expr)
                if same is not None and name in names:
                    through.setdefault(same, names[name])
            names = through
        elif not (step.is_movement or step.op in ("filter", "sort", "limit")):
            return ()
        step = step.inputs[0]


def _same_as(expr: Expr) -> str | None:
    """The column of which an expression is another spelling: both are equal in the same rows."""
    match expr:
        case Column():
            return expr.name
        case Call("pane_time", (Column() as pane, Literal(), Literal())):
            return pane.name
    return None
