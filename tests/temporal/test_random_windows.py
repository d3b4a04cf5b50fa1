"""Random queries over windows, against DuckDB. `python -m tests.temporal.random_windows` runs more of them."""

from __future__ import annotations

import pytest

from tests.temporal.random_windows import case, differs

FIRST, COUNT = 20_261_116, 48
SEEDS = [
    pytest.param(seed, marks=() if (seed - FIRST) % 12 == 0 else pytest.mark.all_configurations)
    for seed in range(FIRST, FIRST + COUNT, 6)
]
"""Each is the first of six; by default every second of these groups runs."""


@pytest.mark.parametrize("seed", SEEDS)
def test_random_windows(seed: int) -> None:
    for number in range(seed, seed + 6):
        asked = case(number)
        print(f"seed {number}: {asked.settings} {asked.sql}")
        assert differs(asked) is None
