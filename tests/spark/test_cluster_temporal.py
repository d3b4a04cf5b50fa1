"""The temporal suite on a real cluster: windows, joins in time, lifetimes, periods, patterns, and whole queries."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tsql
from tests.spark.suites import temporal
from tests.spark.suites.temporal import ARRANGEMENTS, CONSTRUCTS, WORKLOADS, Workloads
from tests.temporal import match_random, random_windows, test_asof, test_match, test_range_frames, test_window_order
from tests.temporal.asking import ask_duckdb
from tests.temporal.constructs import Construct
from tests.temporal.data import EVENTS, assert_same_rows, events, to_rows, to_table
from tests.temporal.reference.rows import SECOND, group_by
from tsql.tpch.measure import difference

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("temporal")


@pytest.fixture(scope="module")
def db(spark: Any) -> Iterator[Any]:
    with tsql.connect(spark=spark) as session:
        yield session


@pytest.mark.parametrize("construct", CONSTRUCTS, ids=lambda construct: construct.name)
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.in_turn(7)
def test_construct(spark: Any, construct: Construct, arrangement: str, folder: Path) -> None:
    temporal.check_construct(spark, construct, ARRANGEMENTS[arrangement], folder)


@pytest.fixture(scope="module")
def workloads(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workloads]:
    made = Workloads(spark, tmp_path_factory.mktemp("workloads"))
    yield made
    made.close()


DEFAULT = ("nexmark q5", "nexmark q9", "nexmark q18", "nexmark q20", "oop_q2", "oop_q6", "bots", "yahoo")
"""What runs without `--all-configurations`: windows of windows, a band join with a first row per key, row numbers, a
join of many columns, a band join, a union of windows, an anti join of lifetimes, and a join before a window."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in DEFAULT else pytest.mark.all_configurations) for name in WORKLOADS]
)
def test_workload(workloads: Workloads, name: str) -> None:
    workloads.check(WORKLOADS[name])


SEEDS = [pytest.param(seed, marks=() if seed == 0 else pytest.mark.all_configurations) for seed in range(0, 120, 6)]
"""Each is the first of six."""


@pytest.mark.parametrize("seed", SEEDS)
def test_random_windows(spark: Any, seed: int) -> None:
    for number in range(seed, seed + 6):
        asked = random_windows.case(number)
        print(f"seed {number}: {asked.settings} {asked.sql}")
        assert random_windows.differs(asked, spark=spark) is None


@pytest.mark.parametrize("history", [False, True], ids=["rows decide", "the match decides"])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_patterns(db: Any, seed: int, history: bool) -> None:
    for number in range(seed, seed + (6 if seed else 3)):
        test_match.check(match_random.Case(number + 10_000 * history, history), db)


@pytest.mark.parametrize("shape", ["few_times", "null_times", "skewed"])
@pytest.mark.parametrize("key", test_asof.KEYS)
@pytest.mark.parametrize("placed", [False, True], ids=["broadcast", "placed"])
@pytest.mark.in_turn(4)
def test_asof_joins(db: Any, shape: str, key: str, placed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right side is sent to all tasks, or rows meet by their keys."""
    if placed:
        monkeypatch.setattr("tsql.planner.cost.constants.BROADCAST_BYTES", -1)
    left, right = events(shape, 1), events(shape, 2, rows=80)
    db.register("l", left)
    db.register("r", right)
    turn = random.Random(f"{shape} {key} {placed}")
    inequality, tolerance = turn.choice((">=", ">", "<=", "<")), turn.choice((None, 5 * SECOND))
    test_asof.check(db, left, right, key, inequality, turn.random() < 0.5, tolerance)


@pytest.mark.parametrize("window", test_window_order.WINDOWS)
@pytest.mark.parametrize("panes", [True, False])
def test_order_of_rows(db: Any, window: str, panes: bool) -> None:
    """Aggregates that depend on the order of rows see the order of the input, in panes (which no string_agg has) and
    without."""
    rows = test_window_order.disordered(window)
    text, placed_in = test_window_order.WINDOWS[window]
    calls = {f"c{n}": call for n, call in enumerate(test_window_order.ORDERED) if not panes or "_agg" not in call}
    db.register("events", to_table(rows, EVENTS))
    shown = ", ".join(f"{call} AS {name}" for name, call in calls.items())
    found = db.sql(f"SELECT k, window_start, window_end, {shown} FROM {text} GROUP BY ALL").arrow()
    expected = {name: test_window_order.ORDERED[call] for name, call in calls.items()}
    assert_same_rows(to_rows(found), group_by(placed_in(rows), ("k", "window_start", "window_end"), **expected))


@pytest.mark.parametrize("shape", ["few_times", "null_times"])
def test_frames_in_time(db: Any, shape: str) -> None:
    """RANGE frames by intervals, several of them in one query, are DuckDB's."""
    table = events(shape, 4)
    table = table.filter(table["k"].is_valid())
    frames = test_range_frames.FRAMES
    calls = ", ".join(
        f"count(*) OVER (PARTITION BY k {frame}) AS n{n}, sum(v) OVER (PARTITION BY k {frame}) AS s{n}"
        for n, frame in enumerate(frames)
    )
    db.register("events", table)
    sql = f"SELECT id, {calls} FROM events"
    why = difference(ask_duckdb(sql, {"events": table}), db.sql(sql).arrow(), ordered=False)
    assert why is None, why
