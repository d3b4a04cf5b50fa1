"""Random joins of lifetimes, against the plain reference. `python -m tests.temporal.random_joins` runs more of them."""

from __future__ import annotations

import pytest

from tests.temporal.random_joins import case

FIRST, COUNT = 20_261_201, 120
SEEDS = [
    pytest.param(seed, marks=() if (seed - FIRST) % 20 == 0 else pytest.mark.all_configurations)
    for seed in range(FIRST, FIRST + COUNT, 10)
]
"""Each is the first of ten; by default every second of these groups runs."""


@pytest.mark.parametrize("seed", SEEDS)
def test_random_joins(seed: int) -> None:
    for number in range(seed, seed + 10):
        asked = case(number)
        print(f"seed {number}: {asked.settings} {asked.sql}")
        assert asked.differs is None
