"""QUALIFY over a temporal relation, and LIMIT in a subquery over one: at each instant they keep rows of those that are
alive then. A row stays for the maximal parts of its lifetime in which it is kept.

`select.py` and `query.py` call it. Window functions are computed for each span in which the same rows are alive
(`spans.py`), of all rows that share the PARTITION BY of all calls. Rows that are equal in ORDER BY follow the input,
where a function tells them apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tsql.analyze.scope import AnalyzedRelation, Life, Names
from tsql.analyze.time.cut import coalesced
from tsql.analyze.time.lifetimes import columns_of, kept
from tsql.analyze.time.spans import Spans
from tsql.analyze.windows import Window
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal, SortKey
from tsql.kernels.expr.types import BIGINT, BOOLEAN
from tsql.kernels.windows.call import WindowCall
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.predicates import all_of

BY_PLACE, OF_EQUALS = ("row_number", "ntile", "lag", "lead"), ("rank", "dense_rank", "percent_rank", "cume_dist")
"""Functions that tell rows apart which are equal in ORDER BY, and those that give them the same value."""


class Instants:
    """The rows of a relation at each instant: `plan` has them once per span, with other columns beside their own. Spans
    are made of a copy of the lifetime: live queries cut it to slices of time, and calls may name the lifetime."""

    def __init__(self, rows: logical.Node, by: Sequence[Expr], life: Life, taken: Iterable[str]):
        self.rows, self.life = rows, life
        self.taken = (*taken, *rows.schema.names)
        self.names = Names(self.taken)
        self.place = self.names.unique("place")
        keys = [self.names.unique("part") for _ in by]
        numbered = logical.Window(rows, (), (), ((self.place, WindowCall("row_number", (), BIGINT)),))
        copy = Life(self.names.unique("since"), self.names.unique("till"))
        copied = zip(copy.columns, columns_of(rows, life.columns), strict=True)
        keyed = logical.Project(numbered, (*kept(numbered), *zip(keys, by, strict=True), *copied))
        self.spans = Spans(keyed, keys, copy, self.names)
        self.plan = self.spans.repeated(keyed)

    def window(self, partition: tuple[Expr, ...], order: tuple[SortKey, ...], call: WindowCall) -> Window:
        """A call over the rows of an instant."""
        span = Column(self.spans.span, BIGINT)
        is_by_place = call.name in BY_PLACE or (call.frame.mode == "rows" and call.name not in OF_EQUALS)
        ties = (SortKey(Column(self.place, BIGINT)),) if is_by_place else ()
        return (*partition, *columns_of(self.plan, self.spans.keys), span), (*order, *ties), call

    def merged(self, kept_rows: logical.Node) -> logical.Node:
        """Of some of the rows of `plan`: the rows, alive in the maximal parts of what is kept of them."""
        found, begins, ends = self.spans.timed(kept_rows)
        own = [name for name in self.rows.schema.names if name not in self.life.columns]
        life = Life(self.names.unique("kept_from"), self.names.unique("kept_to"))
        columns = (*kept(found, (self.place, *own)), (life.start, begins), (life.end, ends))
        pieces = coalesced(logical.Project(found, columns), (self.place,), life, self.taken, carried=own)
        ends_of = zip(self.life.columns, columns_of(pieces, life.columns), strict=True)
        values = {**dict(kept(pieces, own)), **dict(ends_of)}
        return logical.Project(pieces, tuple((name, values[name]) for name in self.rows.schema.names))


def common(windows: Sequence[Window]) -> list[Expr]:
    """What all calls partition by."""
    first, *others = (partition for partition, _, _ in windows)
    return [expr for expr in first if all(expr in partition for partition in others)]


def first_rows(relation: AnalyzedRelation, limit: logical.Limit, taken: Iterable[str]) -> AnalyzedRelation | None:
    """The rows of a relation that LIMIT and OFFSET keep at each instant; None where they are no constant numbers."""
    sorted_rows = limit.input
    order = sorted_rows.keys if isinstance(sorted_rows, logical.Sort) else ()
    rows = sorted_rows.input if isinstance(sorted_rows, logical.Sort) else sorted_rows
    bounds = (limit.count, limit.offset)
    is_constant = all(value is None or (value.type == BIGINT and not value.columns()) for value in bounds)
    if not is_constant or relation.life is None:
        return None
    instants = Instants(rows, (), relation.life, taken)
    number = instants.names.unique("number")
    partition, keys, call = instants.window((), order, WindowCall("row_number", (), BIGINT))
    numbered = logical.Window(instants.plan, partition, keys, ((number, call),))
    column, skipped = Column(number, BIGINT), limit.offset or Literal(0, BIGINT)
    conditions: list[Expr] = [] if limit.offset is None else [Call(">", (column, skipped), BOOLEAN)]
    if limit.count is not None:
        last = limit.count if limit.offset is None else Call("+", (limit.count, skipped), BIGINT)
        conditions.append(Call("<=", (column, last), BOOLEAN))
    plan = instants.merged(logical.Filter(numbered, all_of(conditions)))
    plan = logical.Sort(plan, order) if order else plan
    return AnalyzedRelation(plan, relation.fields, relation.life)
