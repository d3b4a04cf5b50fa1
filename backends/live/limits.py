"""Live LIMIT and OFFSET: rows leave as they come until there are enough; then the step has ended, whatever comes.

State: two numbers. Where the rows come from a sort they come in its order. A percentage of all rows is `Hold`'s."""

from __future__ import annotations

from tsql.backends.live.fragments import Engine, Rows, count
from tsql.backends.live.operator import LiveOperator
from tsql.backends.local.run.constants import row_count
from tsql.backends.local.run.host import Chunk
from tsql.planner.physical.operators.limit import Limit
from tsql.planner.physical.progress import Progress


class Limits(LiveOperator):
    """A limit step with a number of rows."""

    why = "holds how many rows have come"

    def __init__(self, step: Limit, engine: Engine):
        super().__init__(step, engine)
        self.count = None if step.count is None else row_count(step.count, engine.run.parameters)
        self.marks = {"given": 0, "skip": row_count(step.offset, engine.run.parameters) or 0}

    @property
    def left(self) -> int | None:
        return None if self.count is None else max(self.count - self.marks["given"], 0)

    def consume(self, side: int, rows: Rows) -> Rows:
        found: Rows = []
        left = self.left
        for chunk in rows:
            skipped = min(self.marks["skip"], chunk.rows)
            size = chunk.rows - skipped if left is None else min(chunk.rows - skipped, left)
            self.marks["skip"] -= skipped
            if size > 0:
                found.append(Chunk(chunk.order, size, [a.slice(skipped, size) for a in chunk.arrays]))
                left = None if left is None else left - size
        self.marks["given"] += count(found)
        return found

    def advance(self) -> Rows:
        return []

    def promise(self) -> Progress:
        return Progress(ended=True) if self.left == 0 else self.progress[0]

    def endless(self) -> str | None:
        return None
