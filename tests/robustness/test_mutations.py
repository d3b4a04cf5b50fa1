"""A fixed part of the mutation campaign: `python -m tests.robustness.mutations` runs as much of it as one likes."""

import pytest

from tests.robustness.mutations.campaign import run

SEED = 7
CASES = {"sql": 500, "files": 250, "databases": 80, "cache": 40, "objects": 400, "plans": 200}


@pytest.mark.parametrize("kind", CASES)
def test_mutated_input(kind: str) -> None:
    report = run(kind, SEED, CASES[kind])
    assert not report.findings, f"{report}\n" + "\n".join(report.findings)
    assert report.cases == CASES[kind], report
