"""Which alive row ends first, in a walk over lifetimes in the order of their starts (kernels/operators/snapshot.py).

There are three ways, by what is known of the ends: a heap for any ends; a queue if rows end in the order of their
starts, as lifetimes of one length do; nothing if no row ever ends. Open rows are never removed."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.windows.base import SortedRows
from tsql.kernels.windows.heap import Heap

INFINITY = 2**63 - 1
OUT_OF_ORDER = "rows do not end in the order in which they start, as ends=in_order says"


class Ends:
    """Base, for rows that never end."""

    def __init__(self, k: PipelineKernel, rows: SortedRows, end: Expr):
        self.rows, self.end = rows, end

    def clear(self, k: PipelineKernel, row: Val) -> None:
        """A group begins with this row; no row is alive."""

    def next(self, k: PipelineKernel, row: Val) -> Val:
        """The first end of the rows before `row` that are still alive; infinity if there is none."""
        return k.i64(INFINITY)

    def push(self, k: PipelineKernel, row: Val) -> None:
        """A row starts."""

    def pop(self, k: PipelineKernel) -> Val:
        """Remove the row that ends first and give its number; there must be one."""
        return k.i64(0)

    def first(self, k: PipelineKernel, row: Val) -> Val | None:
        """If alive rows are contiguous: the first of those before `row`. None if they need not be."""
        return None

    def free(self, k: PipelineKernel) -> None:
        """Free the memory."""

    def value(self, k: PipelineKernel, row: Val) -> Val:
        return self.rows.value(k, self.end, row).wide().value


class NoEnds(Ends):
    """Rows that never end; all rows of the group so far are alive."""

    def __init__(self, k: PipelineKernel, rows: SortedRows, end: Expr):
        super().__init__(k, rows, end)
        self.head = k.var(k.i64(0))

    def clear(self, k: PipelineKernel, row: Val) -> None:
        self.head.set(row)

    def first(self, k: PipelineKernel, row: Val) -> Val | None:
        return self.head.value


class EndsInOrder(NoEnds):
    """A queue: the rows themselves."""

    def next(self, k: PipelineKernel, row: Val) -> Val:
        found = k.var(k.i64(INFINITY))
        with k.when(self.head.value < row):
            found.set(self.value(k, self.head.value))
        return found.value

    def push(self, k: PipelineKernel, row: Val) -> None:
        with k.when(self.head.value < row):
            with k.guarded(None, None):
                k.fail(self.value(k, row) < self.value(k, row - 1), OUT_OF_ORDER)

    def pop(self, k: PipelineKernel) -> Val:
        row = self.head.value
        self.head.set(row + 1)
        return row


class AnyEnds(Ends):
    """A heap of the ends."""

    def __init__(self, k: PipelineKernel, rows: SortedRows, end: Expr):
        super().__init__(k, rows, end)
        self.heap = Heap(k, rows.count)

    def clear(self, k: PipelineKernel, row: Val) -> None:
        self.heap.clear(k)

    def next(self, k: PipelineKernel, row: Val) -> Val:
        found = k.var(k.i64(INFINITY))
        with k.when(self.heap.size.value > 0):
            found.set(self.heap.top_key(k))
        return found.value

    def push(self, k: PipelineKernel, row: Val) -> None:
        end = self.value(k, row)
        with k.when(end != INFINITY):
            self.heap.push(k, end, row)

    def pop(self, k: PipelineKernel) -> Val:
        row = k.var(self.heap.top_tag(k))
        self.heap.pop(k)
        return row.value

    def free(self, k: PipelineKernel) -> None:
        self.heap.free(k)


ENDS = {"any": AnyEnds, "in_order": EndsInOrder, "none": NoEnds}
