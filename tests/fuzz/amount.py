"""How many random examples a test takes: half of them by default, all of them under --all-configurations."""

from __future__ import annotations

import pytest

_chosen = {"all": False}


def pytest_configure(config: pytest.Config) -> None:
    """The `conftest.py` of a folder whose tests ask for `examples` imports this: it runs before they are imported."""
    _chosen["all"] = config.getoption("--all-configurations")


def examples(count: int) -> int:
    """The number of examples to run, out of the `count` of a thorough run."""
    return count if _chosen["all"] else (count + 1) // 2


def step() -> int:
    """The step through a range of seeds or numbers."""
    return 1 if _chosen["all"] else 2
