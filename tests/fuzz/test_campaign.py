"""A fixed part of the campaign (`tests/fuzz/campaign.py`): queries over several tables give what DuckDB gives."""

from __future__ import annotations

from random import Random

import pytest

from tests.fuzz.amount import step
from tests.fuzz.campaign import KINDS, differences, query_text
from tests.fuzz.schemas import random_tables, script

SEED = 7


@pytest.mark.parametrize("start", range(0, 45, 15))
def test_queries_over_several_tables(start: int) -> None:
    found = list(differences(SEED, range(start, start + 15, step())))
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize(
    "config", ["no_optimizer", "shards_3", "plan_text", "blocks", "spill", "parquet", "spark", "spark_parquet"]
)
def test_queries_under(config: str) -> None:
    found = list(differences(SEED, range(100, 105, step()), config))
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("kind", ["limits", "wide", "changes"])
def test_queries_of(kind: str) -> None:
    found = list(differences(SEED, range(0, 15, step()), kind=kind))
    assert not found, "\n".join(map(str, found))


def test_a_seed_is_a_query() -> None:
    """What a report names can be made again, and other numbers are other queries."""
    tables = random_tables(Random("1/schema/0"))
    assert script(tables) == script(random_tables(Random("1/schema/0")))
    for kind in KINDS:
        texts = [query_text(1, number, tables, kind) for number in range(50)]
        assert texts == [query_text(1, number, tables, kind) for number in range(50)]
        assert len(set(texts)) == 50
