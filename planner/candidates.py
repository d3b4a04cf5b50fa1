"""The plans that a query could have, with their costs: what `tsql plan --candidates` prints."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner import build
from tsql.planner.cost.constants import DEFAULT, Costs
from tsql.planner.hints.constraints import Hint
from tsql.planner.logical.nodes import Output
from tsql.planner.physical.estimate import Cost
from tsql.planner.physical.estimator import Estimator
from tsql.planner.physical.step import PhysicalPlan

MOST_PLANS = 64
"""At most this many plans are listed. Each choice multiplies their number."""


@dataclass(frozen=True)
class Candidate:
    """A plan that gives the answer, its estimated cost, and whether it is the one that runs."""

    plan: PhysicalPlan
    cost: Cost
    chosen: bool


def candidates(
    query: Output,
    settings: Any,
    text: str = "",
    target: str = "local",
    shards: int | None = None,
    hints: Iterable[Hint] = (),
    costs: Costs = DEFAULT,
) -> list[Candidate]:
    """Different plans, the cheapest first. Hints hold for all of them."""
    hints = tuple(hints)
    found: dict[str, Candidate] = {}
    waiting: deque[tuple[str, ...]] = deque([()])
    for _ in range(MOST_PLANS):
        if not waiting:
            break
        choices = waiting.popleft()
        plan, enumerator = build(query, settings, text, target, shards, hints, costs, choices)
        found.setdefault(
            plan.text(), Candidate(plan, Estimator(plan.shards, costs, target == "spark").total(plan.root), not choices)
        )
        taken = tuple(how for how, _ in enumerator.taken)
        for index in range(len(choices), len(taken)):
            waiting += [(*taken[:index], other) for other in enumerator.taken[index][1] if other != taken[index]]
    return sorted(found.values(), key=lambda candidate: (candidate.cost.elapsed_ns, not candidate.chosen))


def listing(found: list[Candidate], most: int = 0) -> str:
    """The best plans (all, without `most`) as plan files, each behind a comment with its number and its cost."""
    parts = []
    for number, candidate in enumerate(found[: most or None], 1):
        note = ", chosen" if candidate.chosen else ""
        parts.append(f"# candidate {number} of {len(found)}: {candidate.cost}{note}\n{candidate.plan.text()}")
    return "\n".join(parts)
