"""What each step claims of its output (`provides()`) against the rows that the backends put into each shard.

Every step runs over inputs of every kind: copies, rows placed by a key, gathered, sorted, directed by a multicast. A
plan that the check refuses has claimed nothing; of all others the claims are looked at shard by shard, and the rows are
DuckDB's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tsql
from tests.planner import step_cases
from tests.planner.shards import assert_claims, shards_of
from tests.planner.step_cases import BASES, JOINS, OTHERS, STEPS, TABLES, bound, expected_rows


@pytest.fixture(scope="module")
def oracle() -> Iterator[Any]:
    with step_cases.oracle() as found:
        yield found


def session(**settings: Any) -> Any:
    db = tsql.connect(**{"threads": 2, "small_rows": 0, **settings})
    for name, table in TABLES.items():
        db.register(name, table)
    db.execute("CREATE TABLE o AS SELECT a, b, s, ts, te FROM t WHERE a IS NOT NULL ORDER BY a, ts")
    return db


def look(db: Any, oracle: Any, steps: str, base: str, sql: str | None, interpret: bool) -> bool:
    """Whether a plan was accepted; its claims hold then."""
    plan = bound(db, steps)
    if plan is None:
        return False
    claims = plan.properties()[id(plan.root)]
    names = plan.root.schema.names
    try:
        assert_claims(
            claims, shards_of(plan, plan.root, db.settings, interpret), names, expected_rows(oracle, base, sql, names)
        )
    except AssertionError as error:
        raise AssertionError(f"{error}\nclaimed: {claims}\n{steps}") from None
    return True


EVERY = 6
"""Of the joins one plan in six runs where it is slow; `--all-configurations` runs all."""

SETTINGS = [{"backend": "local"}, {"backend": "interp"}, {"backend": "local", "spill_after": 1}]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: " ".join(map(str, s.values())))
@pytest.mark.parametrize("name", STEPS)
def test_steps(name: str, settings: dict[str, Any], oracle: Any) -> None:
    step, sql = STEPS[name]
    with session(**settings) as db:
        accepted = [
            base
            for base, (steps, base_sql) in BASES.items()
            if look(db, oracle, f"{steps}\n{step}", base_sql, sql, settings["backend"] == "interp")
        ]
    assert accepted or name == "snapshot"


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: " ".join(map(str, s.values())))
@pytest.mark.parametrize("name", JOINS)
def test_joins(name: str, settings: dict[str, Any], oracle: Any, request: pytest.FixtureRequest) -> None:
    step, sql = JOINS[name]
    accepted, number = 0, list(JOINS).index(name)
    every = 1 if settings == SETTINGS[0] or request.config.getoption("--all-configurations") else EVERY
    with session(**settings) as db:
        for base, (steps, base_sql) in BASES.items():
            for other, other_steps in OTHERS.items():
                if (base, other) == ("directed twice", "directed"):
                    continue  # they meet in several shards, as the plan says
                number += 1
                if number % every:
                    continue
                accepted += look(
                    db, oracle, f"{steps}\n{other_steps}\n{step}", base_sql, sql, settings["backend"] == "interp"
                )
    assert accepted
