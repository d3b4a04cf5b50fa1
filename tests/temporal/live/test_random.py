"""Random plans over rows that arrive, against the plain run. `python -m tests.temporal.live.random_live` runs more of
them."""

from __future__ import annotations

import pytest

from tests.temporal.live.random_live import case, differs

FIRST, COUNT = 20_261_116, 24
SEEDS = [
    pytest.param(seed, marks=() if (seed - FIRST) % 12 == 0 else pytest.mark.all_configurations)
    for seed in range(FIRST, FIRST + COUNT, 6)
]
"""Each is the first of six; by default every second of these groups runs."""


@pytest.mark.parametrize("seed", SEEDS)
def test_random_live(seed: int) -> None:
    for number in range(seed, seed + 6):
        asked = case(number)
        print(f"seed {number}: {asked.settings} {asked.how} {asked.restores} {asked.sql}")
        assert differs(asked) is None
