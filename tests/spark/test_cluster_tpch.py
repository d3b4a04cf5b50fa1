"""The 22 queries of TPC-H on a real cluster, however rows are dealt to tasks: the answers are DuckDB's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.spark.suites.tpch import ARRANGEMENTS, Tpch
from tsql.tpch.queries import NUMBERS

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]

SCALE = 0.1


@pytest.fixture(scope="module")
def tpch(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tpch]:
    made = Tpch(spark, SCALE, tmp_path_factory.mktemp("tpch"))
    yield made
    made.close()


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.in_turn(8)
def test_answers(tpch: Tpch, number: int, arrangement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if ARRANGEMENTS[arrangement].moved:
        monkeypatch.setattr("tsql.planner.cost.constants.BROADCAST_BYTES", -1)
    tpch.check(number, ARRANGEMENTS[arrangement])
