"""Random plans over rows that arrive, against the plain run. `python -m tests.temporal.random_live` runs more of them."""

from __future__ import annotations

import pytest

from tests.temporal.random_live import case, differs

FIRST, COUNT = 20_261_116, 24


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT, 6))
def test_random_live(seed: int) -> None:
    for number in range(seed, seed + 6):
        asked = case(number)
        print(f"seed {number}: {asked.settings} {asked.how} {asked.restores} {asked.sql}")
        assert differs(asked) is None
