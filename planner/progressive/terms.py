"""What is known of a sample only while it is read, as expressions in the plan of a snapshot.

It is the same for all groups, and then a parameter of the run; or the units that may hold a group are known, and then
it is a hidden column of the groups. So the plan and its kernels serve all snapshots."""

from __future__ import annotations

from tsql.kernels.expr.nodes import Column, Expr, Parameter
from tsql.kernels.expr.types import DOUBLE

SCALE = "#scale"
"""Units in all for one that was sampled."""
SPREAD = "#spread"
"""From the sum of squares of a measure over batches to the variance of its estimated total."""
PER_UNIT = "#per unit"
"""One over the number of units that were sampled."""
WIDTH = "#width"
"""How many standard errors the bounds are away from a value."""
LEAST = "#least"
"""The batches that a group must occur in before its values have bounds."""

LEAST_COUNTED = "#least counted"
"""The same for counts. Where most units are known to belong to a group with all their rows, few others differ from
them, and a sample that misses these finds no difference: then only what is proven bounds a count."""

SAMPLE = (SCALE, SPREAD, PER_UNIT, WIDTH, LEAST, LEAST_COUNTED)

SEEN = "#seen"
"""The measure that counts the batches in which a group has got rows."""


class Terms:
    """`by_group`: whether they are columns. `proven`: the measures whose rest has bounds."""

    def __init__(self, by_group: bool, proven: frozenset[str]):
        self.by_group, self.proven = by_group, proven

    def of(self, name: str) -> Expr:
        """A term, by its name: one of SAMPLE, or what the rest of a measure adds at least or at most."""
        return Column(name, DOUBLE, False) if self.by_group else Parameter(name, DOUBLE)

    def rest(self, measure: str) -> tuple[Expr, Expr]:
        """What the units that were not read add to a measure."""
        return self.of(rest_low(measure)), self.of(rest_high(measure))

    def ends(self, measure: str) -> tuple[Expr, Expr]:
        """Between which bounds each of the values to come is, of all groups."""
        return Parameter(least_end(measure), DOUBLE), Parameter(most_end(measure), DOUBLE)

    def columns(self, summed: list[str]) -> list[str]:
        """The names of the hidden columns, where the terms are some. `summed`: the measures that are summed up."""
        if not self.by_group:
            return []
        rests = [name for one in summed if one in self.proven for name in (rest_low(one), rest_high(one))]
        return [*SAMPLE, *rests]


def rest_low(measure: str) -> str:
    return f"#rest low {measure}"


def rest_high(measure: str) -> str:
    return f"#rest high {measure}"


def least_end(measure: str) -> str:
    return f"#least end {measure}"


def most_end(measure: str) -> str:
    return f"#most end {measure}"
