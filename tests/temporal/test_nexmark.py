"""The Nexmark generator, and its queries: references against DuckDB's texts, DuckDB against our engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.nexmark import FOLDER, NUMBERS, Query, main, queries, tables
from tests.temporal.asking import ask_duckdb, check_engine
from tests.temporal.data import assert_same_rows, selected, to_rows
from tests.temporal.reference.rows import SECOND, Rows, count, greatest, group_by
from tests.temporal.reference.windows import hop, session, tumble

QUERIES = {query.name: query for query in queries()}
WINDOW = ("window_start", "window_end")


@pytest.fixture(scope="module")
def data() -> dict[str, pa.Table]:
    """6,000 events over a minute."""
    return tables(6_000, per_second=100)


def test_generator(data: dict[str, pa.Table]) -> None:
    """1 : 3 : 46, ids without gaps, times in order, and everybody is there before they sell or bid."""
    assert {name: table.num_rows for name, table in data.items()} == {
        "person": 120,
        "auction": 360,
        "bid": 5_520,
        "side_input": 10_000,
    }
    assert data["person"]["id"].to_pylist() == list(range(1_000, 1_120)) and data["auction"]["id"].to_pylist() == list(
        range(1_000, 1_360)
    )
    for name in ("person", "auction", "bid"):
        times = data[name]["date_time"].cast(pa.int64()).to_numpy()
        assert (np.diff(times) > 0).all()
    arrived = {row["id"]: row["date_time"] for row in to_rows(data["person"])}
    opened = {row["id"]: row["date_time"] for row in to_rows(data["auction"])}
    assert all(arrived[row["seller"]] <= row["date_time"] < row["expires"] for row in to_rows(data["auction"]))
    assert all(
        arrived[row["bidder"]] <= row["date_time"] and opened[row["auction"]] <= row["date_time"]
        for row in to_rows(data["bid"])
    )
    hot = sum(row["auction"] % 100 == 0 for row in to_rows(data["bid"])) / data["bid"].num_rows
    assert 0.45 < hot < 0.6
    assert not any(column.null_count for table in data.values() for column in table.columns)


def test_generator_repeats(data: dict[str, pa.Table]) -> None:
    again, other = tables(6_000, per_second=100), tables(6_000, per_second=100, seed=1)
    assert all(again[name].equals(data[name]) for name in data)
    assert not other["bid"].equals(data["bid"])


def test_few_events() -> None:
    for events in (0, 1, 3, 51):
        assert sum(table.num_rows for name, table in tables(events).items() if name != "side_input") == events


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--events", "500", "--out", str(tmp_path / "nexmark")]) == 0
    assert "bid.parquet" in capsys.readouterr().out
    assert pq.read_table(tmp_path / "nexmark" / "bid.parquet").equals(tables(500)["bid"])
    with pytest.raises(SystemExit) as wrong:
        main(["--events", "0", "--out", str(tmp_path)])
    assert wrong.value.code == 2


def test_texts() -> None:
    """Every file is a query that is run, and what is not plain SQL has a text for DuckDB."""
    assert {path.name.split(".")[0] for path in FOLDER.iterdir()} == {f"q{number}" for number in NUMBERS}
    assert {query.name for query in queries() if not query.plain} == {"q5", "q7", "q8", "q11", "q12"}


def q5(data: dict[str, Rows]) -> Rows:
    counts = group_by(hop(data["bid"], "date_time", 2 * SECOND, 10 * SECOND), ("auction", *WINDOW), num=count)
    most = {row["window_start"]: row["most"] for row in group_by(counts, ("window_start",), most=greatest("num"))}
    return selected([row for row in counts if row["num"] == most[row["window_start"]]], "auction", "num", *WINDOW)


def q7(data: dict[str, Rows]) -> Rows:
    windows = group_by(tumble(data["bid"], "date_time", 10 * SECOND), WINDOW, highest=greatest("price"))
    found = [
        bid
        for bid in data["bid"]
        for w in windows
        if bid["price"] == w["highest"] and w["window_start"] <= bid["date_time"] <= w["window_end"]
    ]
    return selected(found, "auction", "price", "bidder", "date_time", "extra")


def q8(data: dict[str, Rows]) -> Rows:
    people = group_by(tumble(data["person"], "date_time", 10 * SECOND), ("id", "name", "window_start"))
    sellers = {(row["seller"], row["window_start"]) for row in tumble(data["auction"], "date_time", 10 * SECOND)}
    return [row for row in people if (row["id"], row["window_start"]) in sellers]


def q11(data: dict[str, Rows]) -> Rows:
    sessions = group_by(
        session(data["bid"], "date_time", 10 * SECOND, ("bidder",)), ("bidder", *WINDOW), bid_count=count
    )
    return selected(sessions, "bidder", "bid_count", starttime="window_start", endtime="window_end")


def q12(data: dict[str, Rows]) -> Rows:
    windows = group_by(tumble(data["bid"], "date_time", 10 * SECOND), ("bidder", *WINDOW), bid_count=count)
    return selected(windows, "bidder", "bid_count", starttime="window_start", endtime="window_end")


@pytest.mark.parametrize("reference", [q5, q7, q8, q11, q12], ids=lambda function: function.__name__)
def test_texts_for_duckdb_mean_the_same(reference, data: dict[str, pa.Table]) -> None:
    expected = reference({name: to_rows(table) for name, table in data.items()})
    assert expected
    assert_same_rows(ask_duckdb(QUERIES[reference.__name__].oracle, data), expected)


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_engine(query: Query, data: dict[str, pa.Table]) -> None:
    check_engine(query.sql, query.oracle, data)
