"""`Sharded`: plans written in Python. `Session.sharded` starts one; `.plan()` prints its plan file.

A dataset is rows in shards. Its methods move rows and set keys. The work on each shard is in `.query(..)`, whose
function gets a `Shard`. Each call is one step of the plan, read by the plan file reader: the same names, the same SQL
expressions, the same errors. Nothing is added except a last `gather`. A scan reads the columns that later steps use,
unless columns are given."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tsql.arguments import checked_count, checked_path
from tsql.kernels.expr.errors import PlanError
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.types import Type
from tsql.kernels.process.cores import CORES
from tsql.kernels.process.recursion import deep_recursion
from tsql.loaded import LoadedPlan
from tsql.parameters import Parameters, convert_all
from tsql.planner.physical.attributes import Attributes
from tsql.planner.physical.line import LineContext
from tsql.planner.physical.movement import Gather, Movement, Multicast, Rekey
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.limit import Limit
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.operators.sort import Sort
from tsql.planner.physical.planfile import parse_step
from tsql.planner.physical.properties import MAX_SHARDS, Properties
from tsql.planner.physical.step import MOST_DEEP, PhysicalPlan, Step, depth_of, named
from tsql.planner.physical.text import identifier, identifiers
from tsql.relation import Relation

if TYPE_CHECKING:
    from tsql.session import Session

ORIGIN = "sharded plan"

_SORT_KEY = re.compile(
    r"(?P<expr>.*?\S)(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*", re.IGNORECASE | re.DOTALL
)

Columns = str | Mapping[str, str]
"""The name of a column, or names with the expressions that compute them."""


class _Builder:
    """Shared by datasets and shards: the step so far, and how to add the next one."""

    def __init__(self, session: Session, step: Step, shards: int, params: Parameters = None) -> None:
        self._session, self._step, self._shards, self._params = session, step, shards, params

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._step.schema.names)

    def _kinds(self) -> dict[str, Type]:
        return convert_all(self._params)[0]

    def _then(self, op: str, attributes: Sequence[tuple[str, str | None]] = (), others: Sequence[_Builder] = ()) -> Any:
        """The builder after another step, which is read like a line of a plan file; None omits an attribute."""
        steps = (self._step, *(other._step for other in others))
        for other in others:
            if other._session is not self._session or other._shards != self._shards:
                raise PlanError("the datasets of one plan belong to one session and have the same number of shards")
        if any(depth_of(step) >= MOST_DEEP for step in steps):
            raise PlanError(f"the plan is more than {MOST_DEEP} steps deep")
        with deep_recursion():
            return self._with(self._made(op, steps, attributes))

    def _made(self, op: str, steps: tuple[Step, ...], attributes: Sequence[tuple[str, str | None]]) -> Step:
        shown = tuple(named(step) for step in steps)
        words = [f"{name}={text}" if name else text for name, text in attributes if text is not None]
        line = " ".join([op, *(identifier(step.name) for step in shown), *words])
        context = LineContext(self._session.catalog, self._kinds(), line, ORIGIN)
        return parse_step(op, shown, Attributes(words, context), context).with_inputs(steps)

    def _with(self, step: Step) -> Any:
        return type(self)(self._session, step, self._shards, self._params)

    def name(self, name: str) -> Any:
        """Name the last step in the plan file. Steps without a name get one from what they do."""
        if name in {step.name for step in self._step.walk()} - {self._step.name}:
            raise PlanError(f"the name {name} is taken by another step")
        return self._with(replace(self._step, name=name))

    def step(self, op: str, *others: Any, **attributes: str) -> Any:
        """Any step of the plan file by its name, with further inputs and attributes as the file writes them."""
        return self._then(op, list(attributes.items()), others)


class Shard(_Builder):
    """The rows of one shard in the function of `query`. Its methods move no rows."""

    def filter(self, where: str) -> Shard:
        """Keep the rows for which a condition is true."""
        return self._then("filter", [("where", f"({where})")])

    def project(self, *columns: Columns, **computed: str) -> Shard:
        """Compute columns: names that are kept, and `name="expression"`."""
        return self._then("project", [(identifier(name), f"({text})") for name, text in _named((*columns, computed))])

    def aggregate(self, *by: Columns, phase: str | None = None, **calls: str) -> Shard:
        """Group by columns (or `{"name": "expression"}`) and compute `name="aggregate(..)"`. `phase` is "partial" (rows
        to states), "merge" (states to fewer) or "final" (states to results); without one the rows of a group are in one
        shard."""
        keys = ", ".join(
            identifier(name) if text == identifier(name) else f"{identifier(name)}=({text})"
            for name, text in _named(by)
        )
        return self._then(
            "aggregate",
            [("phase", phase), ("by", f"({keys})"), *((identifier(name), f"({text})") for name, text in calls.items())],
        )

    def sort(self, *by: str, limit: int | str | None = None, phase: str | None = None) -> Shard:
        """Order by `"expression [asc|desc] [nulls first|last]"`; with `limit` only the first rows are kept, and
        `phase="partial"` keeps those of each shard."""
        return self._then(
            "sort", [("phase", phase), ("by", f"({', '.join(map(_sort_key, by))})"), ("limit", _count(limit))]
        )

    def limit(self, count: int | str | None = None, offset: int | str | None = None) -> Shard:
        """Cut: at most `count` rows behind the first `offset`."""
        return self._then("limit", [("count", _count(count)), ("offset", _count(offset))])

    def union(self, *others: Shard) -> Shard:
        """All rows of these shards, the columns matched by position."""
        return self._then("union", (), others)


class Sharded(_Builder):
    """Rows in shards, and the plan that makes them. Every method gives a new dataset; a dataset that is used twice is
    one step."""

    def rekey(self, *key: str) -> Sharded:
        """Set the key of each row; moves nothing."""
        return self._then("rekey", [("key", identifiers(key))])

    def redistribute(self, *, scope: str = "local", shards: int | None = None) -> Sharded:
        """Rows of one key to one shard."""
        return self._move("redistribute", scope, shards)

    def reshard(self, *, scope: str = "local", shards: int | None = None) -> Sharded:
        """Whole batches round robin, to even sizes."""
        return self._move("reshard", scope, shards)

    def broadcast(self, *, scope: str = "local", shards: int | None = None) -> Sharded:
        """Everything to every shard."""
        return self._move("broadcast", scope, shards)

    def multicast(self, *to: str, scope: str = "local", shards: int | None = None) -> Sharded:
        """Each row to the shards whose numbers these expressions give; NULL is none."""
        return self._move("multicast", scope, shards, [("to", f"({', '.join(to)})")])

    def gather(self) -> Sharded:
        """Everything to one shard."""
        return self._then("gather")

    def _move(self, op: str, scope: str, shards: int | None, attributes: Sequence[tuple[str, str]] = ()) -> Sharded:
        return self._then(op, [*attributes, ("scope", scope), ("shards", None if shards is None else str(shards))])

    def query(self, function: Callable[..., Shard], *others: Sharded) -> Sharded:
        """What each shard computes: `function` gets this dataset's rows of a shard, and those of the others, and
        returns rows."""
        shards = [Shard(each._session, each._step, each._shards, each._params) for each in (self, *others)]
        made = function(*shards)
        if not isinstance(made, Shard):
            raise PlanError(f"the function of query returns what it makes of its shard, not {type(made).__name__}")
        return self._with(made._step)

    @property
    def properties(self) -> Properties:
        """How many shards there are, how rows are placed, and their order."""
        found: dict[int, Properties] = {}
        for step in self._step.walk():
            found[id(step)] = step.provides(tuple(found[id(i)] for i in step.inputs), self._shards)
        return found[id(self._step)]

    def plan(self) -> str:
        """The plan file. A plan that could give a wrong answer is refused with the line and the step that would fix
        it."""
        return self._loaded().text

    def run(self) -> Relation:
        """The lazy result."""
        return self._loaded().run(self._session, self._params)

    def _loaded(self) -> LoadedPlan:
        step = self._step if self.properties.shards == 1 else Gather((self._step,))
        columns = step.schema.names
        with deep_recursion():
            plan = PhysicalPlan(named(read_what_is_used(step)), columns, columns, self._shards, self._session.target)
            loaded = LoadedPlan(plan.text(), ORIGIN)
        loaded.bind(self._session, self._kinds())
        return loaded

    def __repr__(self) -> str:
        return f"<sharded {self._step.schema}: {self.properties}>"


def start(
    session: Session,
    table: str | os.PathLike[str] | Relation,
    columns: Sequence[str] | None,
    shards: int | None,
    params: Parameters,
) -> Sharded:
    """The dataset of a table, a file, or a relation over one of them. Without `columns`, those that later steps use are
    read."""
    if shards is not None:
        checked_count(shards, "the number of shards", 1)
    if columns is not None and not (
        isinstance(columns, list | tuple) and all(isinstance(column, str) for column in columns)
    ):
        raise PlanError(f"columns are a list of names, not {columns!r}")
    count = shards or session.settings.shards or session.settings.threads or CORES
    if not 1 <= count <= MAX_SHARDS:
        raise PlanError(f"a dataset has 1 to {MAX_SHARDS} shards, not {count}")
    if isinstance(table, Relation):
        if table.source is None:
            raise PlanError(
                "a dataset starts at a table or a file, not at a query",
                hint="give the query's result a name with db.register",
            )
        label, source = getattr(table.source, "path", None) or "rows", table.source
    else:
        label = checked_path(table, "a table or a file")
        source = session.catalog.lookup(label)
        if source is None and (os.path.exists(label) or re.search(r"[./*?]", label)):
            source = session.catalog.open_file(label)
        source = source or session.catalog.require(label)
    if not hasattr(source, "schema"):
        raise PlanError(
            f"{label} is a view, and a plan starts at tables and files",
            hint="take the plan of its query: db.sql(..).plan()",
        )
    for column in columns or ():
        if column not in source.schema:
            raise PlanError(f"{label} has no column {column}", hint=f"its columns are {', '.join(source.schema.names)}")
        if not source.schema[column].type.is_readable:
            raise PlanError(f"column {column} of {label} is {source.schema[column].type}, which cannot be read")
    if columns is None and len(source.schema.readable) != len(source.schema):
        unread = ", ".join(f"{f.name} ({f.type})" for f in source.schema if not f.type.is_readable)
        raise PlanError(
            f"{label} has columns that cannot be read: {unread}",
            hint=f"name the others: {list(source.schema.readable)}",
        )
    scan = Scan((), table=str(label), source=source, columns=tuple(columns or source.schema.names))
    return Sharded(
        session,
        scan if columns is not None else _Unread((), table=scan.table, source=source, columns=scan.columns),
        count,
        params,
    )


class _Unread(Scan):
    """A scan whose columns are not chosen yet."""


def read_what_is_used(root: Step) -> Step:
    """The plan with each open scan reading the columns that its users need."""
    steps = list(root.walk())
    wanted: dict[int, set[str]] = {id(step): set() for step in steps}
    wanted[id(root)] = set(root.schema.names)
    for step in reversed(steps):
        for child in step.inputs:
            wanted[id(child)] |= _needs(step, wanted[id(step)]) & set(child.schema.names)
    done: dict[int, Step] = {}
    for step in steps:
        if isinstance(step, _Unread):
            used = tuple(c for c in step.columns if c in wanted[id(step)])
            done[id(step)] = Scan(
                (), table=step.table, source=step.source, columns=used or step.columns[:1], name=step.name
            )
        else:
            done[id(step)] = step.with_inputs(tuple(done[id(i)] for i in step.inputs))
    return done[id(root)]


def _needs(step: Step, wanted: set[str]) -> set[str]:
    """The columns that a step must find in its input for its output to have `wanted`; all where the step is not known
    here."""
    match step:
        case Filter():
            return wanted | _columns(step.predicate)
        case Project():
            return _columns(*(e for _, e in step.columns))
        case Aggregate() if not step.absorbs:
            return _columns(*(e for _, e in step.by), *(e for _, call in step.calls for e in call.expressions()))
        case Sort():
            return wanted | _columns(*(key.expr for key in step.keys))
        case Rekey():
            return wanted | set(step.key)
        case Multicast():
            return wanted | _columns(*step.to)
        case Gather() | Movement() | Limit():
            return wanted
    return {name for child in step.inputs for name in child.schema.names}


def _columns(*expressions: Expr | None) -> set[str]:
    return {name for e in expressions if e is not None for name in e.columns()}


def _named(columns: Sequence[Columns]) -> list[tuple[str, str]]:
    """(name, expression) pairs of columns that are kept and columns that are computed."""
    found = []
    for column in columns:
        found += [(column, identifier(column))] if isinstance(column, str) else list(column.items())
    return found


def _sort_key(text: str) -> str:
    match = _SORT_KEY.fullmatch(text)
    if match is None:
        raise PlanError(f"{text!r} is nothing to sort by", hint='write "expression [asc|desc] [nulls first|last]"')
    return f"{match['expr']} {(match['direction'] or 'asc').lower()} nulls {(match['nulls'] or 'last').lower()}"


def _count(rows: int | str | None) -> str | None:
    """A number of rows, or an expression for it such as `$n`, as plan files have it."""
    return None if rows is None else f"(CAST({rows} AS BIGINT))"
