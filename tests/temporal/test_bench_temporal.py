"""The temporal benchmark and its data: a small run with every query, and that it sees a wrong answer and tells of a
refused query."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench import ads
from bench.temporal import Bench, check, comparable, compare, main
from bench.temporal_cases import BAND, JOINS, KEYS, LONG_WINDOW, ORDER, WINDOWS, Case
from bench.temporal_data import TABLES, tables
from tests.temporal.data import assert_same_rows

pytestmark = pytest.mark.usefixtures("settled")

ROOT = Path(__file__).resolve().parents[2]
ALL = [*WINDOWS, *JOINS, *KEYS, *LONG_WINDOW, *(case for pair in ORDER for case in pair)]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TSQL_DATA", str(tmp_path))
    opened = Bench(["tsql", "duckdb"], 2_000)
    yield opened
    opened.close()


def test_ad_events() -> None:
    """In order of time, no time twice, the same for the same seed, and the first rows do not depend on how many there
    are."""
    table = ads.events(2_000, ads=10, users=50)
    times = table["event_time"].cast(pa.int64()).to_pylist()
    assert table.schema == ads.SCHEMA and times == sorted(set(times))
    assert set(table["event_type"].to_pylist()) == set(ads.EVENT_TYPES) and set(table["ad_id"].to_pylist()) == set(
        range(10)
    )
    assert table.equals(ads.events(2_000, ads=10, users=50)) and table.slice(0, 500).equals(
        ads.events(500, ads=10, users=50)
    )
    assert not table.equals(ads.events(2_000, ads=10, users=50, seed=8))
    assert table.nbytes / table.num_rows < 100
    mixed = ads.events(2_000, ads=10, users=50, shuffled=True)
    assert not mixed.equals(table)
    assert_same_rows(mixed, table)


def test_ad_events_over_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ads, "CHUNK_ROWS", 300)
    table = ads.events(1_000)
    times = table["event_time"].cast(pa.int64()).to_pylist()
    assert table.num_rows == 1_000 and times == sorted(set(times))
    assert ads.events(0).num_rows == 0


def test_ads_command(tmp_path: Path) -> None:
    assert ads.main(["--rows", "300", "--ads", "20", "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"ads.parquet", "ads_shuffled.parquet", "campaigns.parquet"}
    assert_same_rows(pq.read_table(tmp_path / "ads_shuffled.parquet"), pq.read_table(tmp_path / "ads.parquet"))
    assert pq.read_table(tmp_path / "campaigns.parquet").num_rows == 20
    with pytest.raises(SystemExit):
        ads.main(["--rows", "-1", "--out", str(tmp_path)])


def test_tables_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSQL_DATA", str(tmp_path))
    paths = tables(1_000)
    assert set(paths) == set(TABLES) and [path.name for path in (tmp_path / "temporal").iterdir()] == ["1000"]
    before = paths["quotes"].stat().st_mtime_ns
    assert tables(1_000)["quotes"].stat().st_mtime_ns == before
    for name in ("trades", "quotes"):
        times = pq.read_table(paths[name])["ts"].cast(pa.int64()).to_pylist()
        assert len(times) == 500 and times == sorted(set(times))


def test_wrong_answers_end_it(bench: Bench) -> None:
    assert set(check(bench, BAND).work) == {"tsql", "duckdb"}
    with pytest.raises(SystemExit, match="tsql and duckdb give different answers: column more differs"):
        check(bench, replace(BAND, duckdb=BAND.duckdb.replace("c.amount - v.amount", "c.amount")))


def test_refusals_are_told(bench: Bench) -> None:
    refused = Case(
        "refused", ("ads",), "SELECT * FROM NO_SUCH_WINDOW(ads)", "SELECT count(*) AS n FROM ads", aims={"duckdb": 2}
    )
    checked = check(bench, refused)
    assert set(checked.work) == {"duckdb"} and "no_such_window" in checked.refusal
    (first, second) = compare("t", bench, [refused, BAND], runs=1).rows
    assert first.measured["tsql"].startswith("refused: ") and first.met is None and first.value is None
    assert second.value == pytest.approx(
        second.runs_ms["duckdb"][0] / second.runs_ms["tsql"][0] / 2
    ) and second.met == (second.value >= 1)


def test_errors_of_the_engine_are_not_refusals(bench: Bench) -> None:
    failing = Case("fails", ("ads",), "SELECT CAST(ad_type AS BIGINT) AS n FROM ads")
    with pytest.raises(Exception, match="banner|modal|search|mail|mobile"):
        check(bench, failing)


def test_comparable() -> None:
    some = pa.table(
        {
            "d": pa.array([1], pa.decimal128(38, 0)),
            "i": pa.array([2], pa.int32()),
            "t": pa.array([3], pa.timestamp("us", "UTC")),
            "f": [0.5],
        }
    )
    assert comparable(some).schema.types == [pa.int64(), pa.int64(), pa.timestamp("us"), pa.float64()]
    assert comparable(some).to_pylist()[0]["d"] == 1


def test_peers_agree(tmp_path: Path) -> None:
    """Every query of the benchmark over a few rows on DuckDB and Polars. In a process of its own: Polars fixes its
    threads once."""
    command = [sys.executable, "-m", "bench.temporal", "--rows", "3000", "--runs", "1", "--engines", "duckdb,polars"]
    files = ["--json", str(tmp_path / "t.json"), "--markdown", str(tmp_path / "t.md")]
    done = subprocess.run(
        [*command, *files], cwd=ROOT, env=os.environ | {"TSQL_DATA": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "t.json").read_text())
    titles = [
        "Windows and lifetimes",
        "Joins in time",
        "From 1 to 10 M keys",
        "Rows in the order of time, and shuffled",
        "The longest window against a tumbling one",
    ]
    assert [section["title"] for section in report["sections"]] == titles
    timed = {row["case"]: row["runs_ms"] for section in report["sections"][:3] for row in section["rows"]}
    assert set(timed) == {case.name for case in (*WINDOWS, *JOINS, *KEYS)}
    for case in (*WINDOWS, *JOINS, *KEYS):
        assert set(timed[case.name]) == {name for name in ("duckdb", "polars") if getattr(case, name) is not None}
    assert (tmp_path / "t.md").read_text().strip() == done.stdout.strip()


def test_cases() -> None:
    """Every case has a text of ours and can be checked against DuckDB, and an aim only where the peer takes part."""
    for case in ALL:
        assert case.tsql and case.duckdb and set(case.tables) <= set(TABLES)
        assert all(getattr(case, peer) is not None for peer in case.aims)
    assert len({case.name for case in (*WINDOWS, *JOINS, *KEYS)}) == len((*WINDOWS, *JOINS, *KEYS))


@pytest.mark.parametrize("wrong", [["--engines", "oracle"], ["--rows", "3"], ["--runs", "0"]])
def test_command_line(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(wrong)
    assert ended.value.code == 2 and "error:" in capsys.readouterr().err
