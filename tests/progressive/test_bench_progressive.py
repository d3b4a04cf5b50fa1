"""The benchmarks of progressive queries: small runs, their arithmetic, and that they see wrong answers."""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tsql
from bench import coverage, progressive
from bench.progressive import Measured, Shown, Source, section
from bench.snapshots.cases import EVENTS, NUMBERS, UNTIL, Asked
from bench.snapshots.counts import Cell, holds
from bench.snapshots.memory import Peak, peaks
from tsql.tpch.data import tables
from tsql.tpch.measure import Times

pytestmark = pytest.mark.usefixtures("settled")

OPTIONS = argparse.Namespace(threads=1, runs=1, peaks=False)


def times(*runs_ms: float) -> Times:
    return Times(runs_ms)


def measured(plain: Times, whole: Times, first: Times, snapshots: int = 20, rows: int = 10 << 16) -> Measured:
    return Measured(plain, whole, first, Shown(0, 0, snapshots, rows, pa.table({}), []))


def source(wrong: Any, *asked: Asked) -> Source:
    return Source("some", "memory", tables(0.001), asked, wrong)


def test_arithmetic() -> None:
    """Rounds are compared with themselves; a morsel takes its share of the time of all threads."""
    one = measured(times(100, 200, 50), times(110, 230, 50), times(10, 10, 5))
    assert one.first_share == pytest.approx(10) and one.over == pytest.approx(10)
    assert one.over_morsel(threads=2) == pytest.approx(10 - 100 * 2 / 10)
    assert one.times_memory is None
    one.memory = Peak(10 << 20, 4 << 20), Peak(10 << 20, 6 << 20)
    assert one.times_memory == pytest.approx(1.5)
    one.memory = Peak(10 << 20, 5), Peak(10 << 20, 3 << 20)
    assert one.times_memory == pytest.approx(3), "less than a mebibyte is slack"


def test_aims() -> None:
    """A verdict over all queries; those that progress are shown beside it."""
    given = source(None)
    given.measured = [
        measured(times(100), times(105), times(6)),
        measured(times(100), times(108), times(6.5)),
        measured(times(100), times(101), times(101), snapshots=1),
    ]
    rows = {row.case: row for row in progressive._medians(given, threads=1)}
    first = rows["first snapshot, % of plain, 3 queries"]
    assert first.value == pytest.approx(6.5) and first.met is True and first.aim == "<= 7"
    latest = rows["the latest first snapshot, ms over a morsel, 3 queries"]
    assert latest.value == pytest.approx(91) and latest.met is False
    assert rows["snapshots, % over plain, 3 queries"].value == pytest.approx(5)
    some = rows["snapshots, % over plain, the 2 that progress"]
    assert some.value == pytest.approx(6.5) and some.met is None
    assert not any("memory" in name for name in rows)


def test_wrong_answers_and_failures() -> None:
    one = Asked("one", "SELECT count(*) AS n FROM orders", ("orders",))
    many = Asked("many", "SELECT row_number() OVER (ORDER BY o_totalprice) AS m FROM orders", ("orders",))
    lost = Asked("lost", "SELECT x FROM orders", ())
    given = source(lambda asked, answer: "no" if asked is one else None, one, many, lost)
    rows = {row.case: row for row in section(given, OPTIONS).rows}
    assert rows["one"].measured == {"note": "wrong answer, plain: no"} and not rows["one"].runs_ms
    assert rows["lost"].measured["note"].startswith("fails: ") and given.failures == 2
    assert rows["many"].measured["snapshots"] == "1"
    assert rows["many"].measured["note"].startswith("final only: ") and len(rows["many"].measured["note"]) > 20
    assert set(rows["many"].runs_ms) == {"plain", "snapshots", "first"}


@pytest.mark.parametrize("kind", ["memory", "cut"])
def test_tpch(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--json", str(tmp_path / "p.json"), "--markdown", str(tmp_path / "p.md")]
    small = ["--scale", "0.001", "--runs", "2", "--queries", "Q6", "--no-peaks", "--only", kind]
    assert progressive.main([*small, *files]) == 0
    assert (tmp_path / "p.md").read_text() == capsys.readouterr().out
    (found,) = json.loads((tmp_path / "p.json").read_text())["sections"]
    query = found["rows"][0]
    assert query["case"] == "Q6" and all(len(runs) == 2 for runs in query["runs_ms"].values())
    assert (kind == "memory") == ("ms over a morsel" in found["columns"])
    assert all(first <= whole for first, whole in zip(query["runs_ms"]["first"], query["runs_ms"]["snapshots"]))


def test_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One query is compared with DuckDB over a sample, and its last snapshot with the plain result over all rows."""
    monkeypatch.setenv("TSQL_DATA", str(tmp_path))
    monkeypatch.setattr(progressive, "SAMPLE_ROWS", 1_500)
    small = ["--rows", "3000", "--runs", "1", "--no-peaks", "--only", "events", "--queries", "sum by ad_type"]
    assert progressive.main(small) == 0
    shown = capsys.readouterr().out
    assert "### Windows over 3,000 events in memory" in shown and "| tumble 1 s, sum by ad_type | " in shown
    assert sorted(path.name for path in (tmp_path / "temporal").iterdir()) == ["1500", "3000"]
    assert all(case.duckdb for case in EVENTS) and len({case.name for case in EVENTS}) == len(EVENTS)


def test_until(capsys: pytest.CaptureFixture[str]) -> None:
    assert progressive.main(["--until-rows", "20000", "--runs", "1", "--only", "until", "--queries", "even"]) == 0
    assert "| avg(u), even | " in capsys.readouterr().out


def test_numbers() -> None:
    """The table of averages has the distributions that it says."""
    with tsql.connect() as db:
        db.execute(NUMBERS.format(rows=200_000))
        u, v, groups = db.sql("SELECT avg(u), avg(v), count(DISTINCT g) FROM numbers").fetchall()[0]
        assert u == pytest.approx(0.5, rel=0.01) and v == pytest.approx(np.exp(0.5), rel=0.02) and groups == 10
        assert all(db.sql(sql).arrow().num_rows for sql in UNTIL.values())


@pytest.mark.all_configurations
def test_peaks() -> None:
    """Each in a process of its own."""
    asked = Asked("Q", "SELECT o_orderkey, count(*) AS n FROM orders GROUP BY o_orderkey", ("orders",))
    for peak in peaks(asked, progressive.CLAUSE, {"orders": tables(0.001)["orders"]}, "memory", 1):
        assert peak.before > 10 << 20 and 0 <= peak.beyond < 1 << 30


def test_bounds_that_hold() -> None:
    assert holds(1, 1, 1) and holds(0.5, 1, 2) and holds(1 + 1e-12, 1, 2)
    assert not holds(1.001, 1, 2) and not holds(0, 1, 0.999) and not holds(-0.5, -1, 0)


def test_the_table_of_coverage() -> None:
    cell = Cell(runs=10, runs_held=9, asked=20, stopped=10, stopped_held=10, stopped_close=5, errors=[0.03, 0.01, 0.02])
    cell.shown[1:4] = 1_000
    cell.bounded[2:4] = 500
    cell.held[2:4] = 475, 460
    cell.progress = [0.25, 0.5]
    none = Cell(note="final only")
    cells = {("uniform", "sum"): cell, ("uniform", "median"): none}
    _, _, first, second = lines = coverage.table(cells).splitlines()
    assert all(len(line) <= 120 for line in lines), "pages have no longer ones"
    whole = "| uniform | sum | 33 % | **93.5** | **92.0** | **90.0** | 100.0 | **50.0** | 50 % | 37.5 % | 2 % |"
    assert first == whole and second.startswith("| uniform | median | final only |  |")
    assert coverage.summary(cells) == "Cells below 94 %: looks 1 of 1, worst 1 of 1, run 1 of 1, stop 0 of 1."
    twice = Cell()
    for _ in range(2):
        twice.add(cell)
    assert twice.bounded.sum() == 2_000 and twice.runs == 20 and twice.errors == cell.errors * 2


def test_the_command_of_coverage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(coverage, "ProcessPoolExecutor", lambda processes, mp_context: ThreadPoolExecutor(processes))
    files = ["--json", str(tmp_path / "c.json"), "--markdown", str(tmp_path / "c.md")]
    small = ["--seeds", "2", "--rows", "32000", "--only", "uniform", "--processes", "1"]
    assert coverage.main([*small, *files]) == 0
    shown = capsys.readouterr().out
    assert (tmp_path / "c.md").read_text() == shown and "| uniform | avg | " in shown
    cells = {one["value"]: one for one in json.loads((tmp_path / "c.json").read_text())["cells"]}
    assert sum(cells["avg"]["shown"]) == 2 * 8 * 19 and cells["avg"]["asked"] == 16


@pytest.mark.parametrize(
    ("main", "wrong"),
    [(progressive.main, ["--only", "disk"]), (progressive.main, ["--runs", "0"]), (coverage.main, ["--rows", "9"])],
)
def test_command_lines(main: Any, wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(wrong)
    assert ended.value.code == 2 and "error:" in capsys.readouterr().err
