"""Jobs in processes of their own, killed 50 times over all kinds of targets."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.live.kills.campaign import campaign
from tests.live.kills.cases import CASES

KILLS = 50


@pytest.mark.parametrize("name", CASES)
def test_kills(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    wrong = campaign(
        KILLS // len(CASES), seed, tmp_path, lambda: str(request.getfixturevalue("postgres")), names=[name]
    )
    assert not wrong, f"seed {seed}: {wrong}"
