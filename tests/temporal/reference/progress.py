"""The band join of seed 004 (figure 4): takes rows in any order and forgets them as punctuations allow. Slow, and right
about when a row may be dropped.

`ranges` are as in the paper's Q2 and its figure: a left row joins right rows with `left - ranges[1] <= right <= left +
ranges[0]`. (The sentence before the figure swaps the two ranges; the figure's purge rule would then lose rows of a band
that is not symmetric.)"""

from __future__ import annotations

from tests.temporal.reference.rows import On, Row, Rows

Bound = float
"""A time, or infinity."""


class OutOfOrderBandJoin:
    """`consume` gives the pairs that a row completes, `punctuate` purges; `bounds` is what both inputs have
    promised."""

    def __init__(self, on: On, times: tuple[str, str], ranges: tuple[int, int]):
        self.on, self.times, self.ranges = on, times, ranges
        self.rows: tuple[Rows, Rows] = ([], [])
        self.bounds: list[Bound] = [float("-inf"), float("-inf")]

    def consume(self, side: int, row: Row) -> Rows:
        """Join a row of input `side` with what is kept of the other, and keep it if a partner may still come."""
        moment = row[self.times[side]]
        if moment is None:
            return []
        found = []
        for other in self.rows[1 - side]:
            left, right = (row, other) if side == 0 else (other, row)
            if self._close(left, right) and self.on(left, right):
                found.append(left | right)
        if moment >= self.bounds[1 - side] - self.ranges[side]:
            self.rows[side].append(row)
        return found

    def punctuate(self, side: int, time: Bound) -> tuple[Bound, Bound]:
        """Input `side` will send no row before `time`. Returns what holds for the times of later results: of their left
        row, of their right row."""
        self.bounds[side] = time
        other = 1 - side
        self.rows[other][:] = [row for row in self.rows[other] if row[self.times[other]] >= time - self.ranges[other]]
        return (
            min(self.bounds[1] - self.ranges[0], self.bounds[0]),
            min(self.bounds[0] - self.ranges[1], self.bounds[1]),
        )

    def _close(self, left: Row, right: Row) -> bool:
        start, moment = left[self.times[0]], right[self.times[1]]
        return start - self.ranges[1] <= moment <= start + self.ranges[0]
