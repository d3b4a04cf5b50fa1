"""The benchmarks on Spark, without Spark: what is timed, what is shown, and that a wrong answer ends a case."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from bench import bigdata, spark
from bench.cluster import compare, data, visits
from bench.cluster.compare import OURS, Agreement, Comparison, Contender
from bench.cluster.processes import Seconds, processor_seconds
from bench.cluster.session import variants
from bench.cluster.strategies import Line, Panel, draw, fastest

ANSWER = pa.table({"k": [1, 2], "x": [0.5, 1.5]})


class Engine:
    """A contender that counts its runs. Its clock is the test's: a run takes `ms`."""

    def __init__(self, clock: Clock, name: str, ms: float, answer: pa.Table = ANSWER, **options: bool):
        self.clock, self.ms, self.answer = clock, ms, answer
        self.runs = self.prepared = 0
        self.contender = Contender(name, self.run, self.prepare, **options)

    def prepare(self) -> None:
        self.prepared += 1
        self.clock.now += 1_000

    def run(self) -> pa.Table:
        self.runs += 1
        self.clock.now += self.ms / 1000
        return self.answer


class Clock:
    """Stands in for the module `time`."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(compare, "time", made)
    return made


def test_the_fastest_peer_counts(clock: Clock) -> None:
    ours = Engine(clock, OURS, 200)
    default, fast = Engine(clock, "SparkSQL", 800, peer=True, default=True), Engine(clock, "static", 500, peer=True)
    hopeless = Engine(clock, "hopeless", 1001, peer=True)
    slow = Engine(clock, "slow", compare.SLOW_MS + 1, peer=True)
    engines = [ours, default, fast, hopeless, slow]
    table = Comparison("t", runs=3)
    table.add("a case", [engine.contender for engine in engines], Agreement())
    assert [engine.runs for engine in engines] == [1] * 5, "all are checked before one is timed"
    (row, *_) = table.conclude().rows
    assert [engine.runs for engine in engines] == [5, 5, 5, 2, 2]
    assert ours.prepared == ours.runs
    assert row.value == pytest.approx(2.5) and row.met is True and row.measured["default / tsql"] == "4.00"
    assert row.measured["tsql, ms"] == "200 (200..200)" and row.measured["hopeless, ms"] == "1001 (1 run)"
    assert table.failures == 0


def test_a_default_is_timed_however_slow(clock: Clock) -> None:
    default, fast = Engine(clock, "SparkSQL", 900, peer=True, default=True), Engine(clock, "static", 250, peer=True)
    table = Comparison("t", runs=2)
    table.add("a case", [Engine(clock, OURS, 500).contender, default.contender, fast.contender], Agreement())
    (row,) = table.time().rows
    assert default.runs == 4 and row.value == pytest.approx(0.5) and row.met is False
    assert table.failures == 0, "slower is not wrong"


def test_a_cold_run_is_not_a_time(clock: Clock) -> None:
    theirs = Engine(clock, "SparkSQL", compare.SLOW_MS + 1, peer=True, default=True)
    table = Comparison("t", runs=2, warmup=3)
    table.add("a case", [Engine(clock, OURS, 500).contender, theirs.contender], Agreement())
    theirs.ms = 1_000
    (row,) = table.time().rows
    assert row.value == pytest.approx(2.0) and theirs.runs == 1 + 1 + 2


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ANSWER.set_column(1, "x", pa.array([0.5, 1.6])), "column x differs"),
        (ANSWER.slice(1), "2 and 1 rows"),
        (ANSWER.rename_columns(["k", "y"]), "columns ['k', 'x'] and ['k', 'y']"),
    ],
)
def test_a_wrong_answer_is_not_timed(clock: Clock, answer: pa.Table, why: str) -> None:
    ours, theirs = Engine(clock, OURS, 1), Engine(clock, "SparkSQL", 1, answer, peer=True)
    table = Comparison("t", runs=3)
    table.add("a case", [ours.contender, theirs.contender], Agreement())
    (row,) = table.conclude().rows
    assert table.failures == 1 and row.value is None and row.met is False and not row.runs_ms
    assert row.measured["SparkSQL, ms"] == f"wrong answer: not the answer of tsql: {why}"
    assert ours.runs == theirs.runs == 1


def test_order_counts_where_it_is_asked_for(clock: Clock) -> None:
    for ordered, failures in ((False, 0), (True, 1)):
        table = Comparison("t", runs=1)
        engines = [Engine(clock, OURS, 1), Engine(clock, "SparkSQL", 1, ANSWER.take([1, 0]), peer=True)]
        table.add("a case", [engine.contender for engine in engines], Agreement(ordered))
        assert table.failures == failures


def test_an_error_is_shown(clock: Clock) -> None:
    def fail() -> pa.Table:
        raise ValueError("no such table\nand more")

    for name, failures in ((OURS, 1), ("tsql, by a strategy", 1), ("SparkSQL", 0)):
        table = Comparison("t", runs=1)
        others = [Engine(clock, other, 1, peer=other != OURS) for other in (OURS, "static") if other != name]
        failing = Contender(name, fail, peer=name == "SparkSQL")
        table.add("a case", [failing, *(engine.contender for engine in others)], Agreement())
        (row,) = table.time().rows
        assert row.measured[f"{name}, ms"] == "failed: no such table" and table.failures == failures
        assert (row.value is None) == (name == OURS)


def test_means(clock: Clock) -> None:
    table = Comparison("t", runs=1)
    for name, ms in (("a", 100), ("b", 400)):
        engines = [Engine(clock, OURS, 200), Engine(clock, "SparkSQL", ms, peer=True, default=True)]
        table.add(name, [engine.contender for engine in engines], Agreement())
    *_, mean, lowest = table.conclude(aim=1.0).rows
    assert mean.case == "geometric mean of 2" and mean.value == pytest.approx(1.0)
    assert lowest.case == "lowest: a" and lowest.value == pytest.approx(0.5) and lowest.met is False


def test_processor_time_of_children() -> None:
    before = processor_seconds()
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    child = subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        spent = processor_seconds() - before
    finally:
        child.communicate(b"\n")
    # A JVM of other tests in this process may be at rest here, which takes a moment now and then.
    assert spent.workers >= 0.25 and spent.executors + spent.driver_jvm < spent.workers and spent.driver >= 0
    assert Seconds.mean([Seconds(1, 2, 3, 4), Seconds(3, 2, 1, 0)]) == Seconds(2, 2, 2, 2)
    assert Seconds(1, 2, 3, 4).total == 10


def test_variants() -> None:
    (default,) = variants(2, adaptive_only=True)
    assert not default.settings
    assert [variant.name for variant in variants(4, adaptive_only=False)] == [
        "SparkSQL",
        "static",
        "static, 4 partitions",
    ]


def test_data_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSQL_DATA", str(tmp_path))
    monkeypatch.setattr(data, "FILE_ROWS", 1_000)
    folder = data.pairs(2_500)
    files = sorted(folder.glob("*.parquet"))
    assert [pq.read_metadata(file).num_rows for file in files] == [1_000, 1_000, 500]
    assert all(pq.read_metadata(file).num_row_groups >= data.GROUPS for file in files)
    written = files[0].stat().st_mtime_ns
    assert data.pairs(2_500) == folder and files[0].stat().st_mtime_ns == written
    assert pq.read_metadata(data.ad_events(1_000)).num_row_groups >= data.GROUPS
    assert not list(tmp_path.glob("spark/.*")), "nothing is left behind"
    with pytest.raises(ZeroDivisionError):
        data.made_once("broken", lambda folder: 1 / 0)
    assert not (tmp_path / "spark" / "broken").exists() and not list(tmp_path.glob("spark/.*"))


def test_visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bound keeps the share of rows that it is named after, each prefix has as many groups, and each visit has its
    page."""
    monkeypatch.setenv("TSQL_DATA", str(tmp_path))
    found = {name: pq.read_table(path) for name, path in visits.tables(40_000, 5_000).items()}
    ranks = found["rankings"]["pageRank"]
    for percent in bigdata.SELECTIVITIES:
        bound = visits.RANKS * (100 - percent) // 100
        assert pc.mean(pc.greater_equal(ranks, bound)).as_py() == pytest.approx(percent / 100, abs=0.03)
    addresses = found["uservisits"]["sourceIP"]
    groups = [len(pc.unique(pc.utf8_slice_codeunits(addresses, 0, prefix))) for prefix in visits.PREFIX_GROUPS]
    assert groups[0] == 256 and groups[1] == pytest.approx(6_656, rel=0.1)
    assert groups == sorted(groups) and groups[-1] > 39_000
    assert set(found["uservisits"]["destURL"].to_pylist()) <= set(found["rankings"]["pageURL"].to_pylist())


def test_strategies_chart() -> None:
    panel = Panel(
        "tsql", [Line("redistribute <both>", [(10, 50), (1_000, 60)]), Line("broadcast", [(10, 5), (1_000, 90)])]
    )
    assert fastest(panel) == [(10, 1), (1_000, 0)]
    text = draw([panel, Panel("SparkSQL", [])], "rows")
    root = ElementTree.fromstring(text)
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "redistribute <both>" in words and "SparkSQL" in words and "10" in words
    tips = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "10: broadcast is the fastest" in tips and "1,000: redistribute <both> is the fastest" in tips
    assert draw([panel], "rows") == draw([panel], "rows")
    ElementTree.fromstring(draw([], "rows"))


@pytest.mark.parametrize(
    ("main", "arguments"),
    [
        (spark.main, ["--queries", "23"]),
        (spark.main, ["--queries", "one"]),
        (spark.main, ["--only", "nothing"]),
        (spark.main, ["--runs", "0"]),
        (bigdata.main, ["--visits", "0"]),
        (bigdata.main, ["--only", "scan", "--chart", "joins.svg"]),
    ],
)
def test_bad_options(main: object, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2 and "error: " in capsys.readouterr().err
