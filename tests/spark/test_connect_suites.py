"""The corpus, TPC-H, the temporal suite and the queries of `queries.py` over Spark Connect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tsql
from tests.spark.queries import QUERIES, bag, files, fill, oracle
from tests.spark.suites import corpus, temporal
from tests.spark.suites.temporal import CONSTRUCTS, WORKLOADS, Workloads
from tests.spark.suites.tpch import ARRANGEMENTS, Tpch
from tests.temporal.constructs import Construct
from tsql.tpch.queries import NUMBERS

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]

EVERY, TURN = 200, 50
"""One record of the corpus in so many runs by default; others than on the cluster."""
SCALES = {False: 0.01, True: 0.1}
"""The scale of TPC-H without and with `--all-configurations`."""
TPCH = (4, 15, 18, 22)
DEFAULT = ("recursion with a join", "windows", "cte used twice")
WORKED = ("nexmark q5", "oop_q2", "bots")
"""What runs without `--all-configurations`; the same runs on a cluster and in this process."""


def some(names: Any, chosen: Any) -> list[Any]:
    """Parameters of which the chosen ones run by default."""
    return [pytest.param(name, marks=() if name in chosen else pytest.mark.all_configurations) for name in names]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("temporal")


@corpus.files(EVERY, TURN)
def test_corpus(remote: Any, path: Path, request: pytest.FixtureRequest) -> None:
    corpus.check(remote, path, "connect", corpus.every_of(request, EVERY), TURN)


@pytest.fixture(scope="module")
def tpch(remote: Any, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Tpch]:
    scale = SCALES[request.config.getoption("--all-configurations")]
    made = Tpch(remote, scale, tmp_path_factory.mktemp("tpch"))
    yield made
    made.close()


@pytest.mark.parametrize("number", some(NUMBERS, TPCH))
def test_tpch(tpch: Tpch, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each query in one of the arrangements."""
    arrangement = list(ARRANGEMENTS.values())[number % len(ARRANGEMENTS)]
    if arrangement.moved:
        monkeypatch.setattr("tsql.planner.cost.constants.BROADCAST_BYTES", -1)
    tpch.check(number, arrangement)


@pytest.mark.parametrize("name", some(QUERIES, DEFAULT))
def test_queries(remote: Any, name: str, tmp_path: Path) -> None:
    path = files(tmp_path)
    with tsql.connect(spark=remote) as session, oracle(path) as duck:
        fill(session, path)
        assert bag(session.sql(QUERIES[name]).fetchall()) == bag(duck.sql(QUERIES[name]).fetchall())


def constructs() -> Iterator[Any]:
    """Each construct in one of the arrangements; by default every seventh, with all arrangements in turn."""
    names = list(temporal.ARRANGEMENTS)
    for place, construct in enumerate(CONSTRUCTS):
        arrangement = names[(place + place // 7) % len(names)]
        marks = () if place % 7 == 0 else pytest.mark.all_configurations
        yield pytest.param(construct, arrangement, marks=marks, id=f"{construct.name}-{arrangement}")


@pytest.mark.parametrize(("construct", "arrangement"), list(constructs()))
def test_construct(remote: Any, construct: Construct, arrangement: str, folder: Path) -> None:
    temporal.check_construct(remote, construct, temporal.ARRANGEMENTS[arrangement], folder)


@pytest.fixture(scope="module")
def workloads(remote: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workloads]:
    made = Workloads(remote, tmp_path_factory.mktemp("workloads"))
    yield made
    made.close()


@pytest.mark.parametrize("name", some(WORKLOADS, WORKED))
def test_workload(workloads: Workloads, name: str) -> None:
    workloads.check(WORKLOADS[name])
