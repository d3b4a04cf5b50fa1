"""Rows of a temporal relation, repeated for each span between two neighbouring starts or ends of their group. Within a
span the same rows are alive at every instant, so what plain SQL says of its rows holds for all of it.

Aggregates that cannot follow rows as they come and go (`snapshot.py`), QUALIFY and LIMIT (`qualify.py`) are computed
this way. The work is the number of live rows, summed over all spans of their group."""

from __future__ import annotations

from collections.abc import Sequence

from tsql.analyze.scope import Life, Names
from tsql.analyze.time.lifetimes import bound, columns_of, equal, every, kept
from tsql.kernels.expr.nodes import Call, Column, Literal, SortKey
from tsql.kernels.expr.types import BIGINT, BOOLEAN, TIMESTAMP
from tsql.kernels.windows.call import WindowCall
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.generating import Series


class Spans:
    """The spans of the groups of some rows; `keys` are columns of these. The edges of a group are numbered in time
    order. A row finds the numbers of its start and its end, and is repeated for each number between them, so all joins
    are by equality."""

    def __init__(self, rows: logical.Node, keys: Sequence[str], life: Life, names: Names):
        self.keys, self.life, self.names = keys, life, names
        self.time, self.until, self.number, self.span = (names.unique(n) for n in ("at", "until", "edge", "span"))
        sides = [logical.Project(rows, (*kept(rows, keys), (self.time, bound(side)))) for side in life.columns]
        edges = logical.Distinct(logical.SetOperation("union", True, *sides))
        numbering = (
            (self.until, WindowCall("lead", (bound(self.time),), TIMESTAMP)),
            (self.number, WindowCall("row_number", (), BIGINT)),
        )
        self.edges = logical.Window(edges, tuple(columns_of(edges, keys)), (SortKey(bound(self.time)),), numbering)

    def repeated(self, rows: logical.Node) -> logical.Node:
        """The rows once for each of their spans, with its number in the column `span`."""
        placed, (first,) = self._met(rows, bound(self.life.start), self.time, (self.number,))
        placed, (last,) = self._met(placed, bound(self.life.end), self.time, (self.number,))
        return Series(placed, self.span, first, last, Literal(1, BIGINT))

    def timed(self, plan: logical.Node) -> tuple[logical.Node, Column, Column]:
        """A plan of rows with `keys` and `span`, with the start and the end of the span."""
        found, (begins, ends) = self._met(plan, Column(self.span, BIGINT), self.number, (self.time, self.until))
        return found, begins, ends

    def _met(
        self, plan: logical.Node, column: Column, at: str, wanted: Sequence[str]
    ) -> tuple[logical.Node, list[Column]]:
        """The plan with the wanted columns of the edge of its group whose `at` is equal to a column of it."""
        shown = (*self.keys, at, *wanted)
        fresh = {name: self.names.unique(f"{name}_of") for name in shown}
        side = logical.Project(self.edges, tuple((fresh[name], found) for name, found in kept(self.edges, shown)))
        own = columns_of(side, [fresh[key] for key in self.keys])
        found = Call("=", (column, columns_of(side, [fresh[at]])[0]), BOOLEAN)
        joined = logical.Join("inner", plan, side, every([*equal(columns_of(plan, self.keys), own), found]))
        return joined, columns_of(side, [fresh[name] for name in wanted])
