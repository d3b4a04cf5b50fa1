"""Plans with mistakes, and plans of random steps: refused with their line, or right on any number of shards.
`mutants.py` and `random_steps.py` say how they are made, and run more of them by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans.mutants import Judge
from tests.plans.random_steps import Maker, compare, session

SEED = 4000
MUTANTS, PER_TEST = 160, 40
PLANS = 100


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


@pytest.mark.parametrize("first", range(SEED, SEED + MUTANTS, PER_TEST))
def test_mutants(first: int, judge: Judge) -> None:
    outcomes = []
    for seed in range(first, first + PER_TEST):
        outcome, text = judge.case(seed)
        assert not outcome.startswith("!"), f"seed {seed}: {outcome}\n{text}"
        outcomes.append(outcome)
    assert len(set(outcomes)) > 1, "some are refused, and some run"


def test_what_a_judge_sees(judge: Judge) -> None:
    """A plan that ends badly is no mutant that passes."""
    text = judge.texts[0]
    assert judge.outcome(text) == "right"
    assert judge.outcome(text.replace("columns=(", "columns=(nothing, ")) == "refused"


@pytest.mark.parametrize("settings", [{}, {"threads": 1, "batch_rows": 3}, {"spill_after": 1}], ids=str)
def test_random_steps(settings: dict[str, Any]) -> None:
    ran = 0
    with session(**settings) as db, session(threads=1) as one:
        for seed in range(SEED, SEED + (PLANS if not settings else PLANS // 4)):
            text = Maker(db, seed).plan()
            wrong = None if text is None else compare(text, db, one)
            assert wrong is None, f"seed {seed}: {wrong}\n{text}"
            ran += text is not None
    assert ran > 5
