"""The TPC-H benchmark's own machinery, with DuckDB and stand-ins: other engines are not needed to test it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from tsql.kernels.codegen import memory
from tsql.tpch import fresh, peers
from tsql.tpch import join_sizes as joins
from tsql.tpch.__main__ import main
from tsql.tpch.bench import table
from tsql.tpch.chart import Panel, draw
from tsql.tpch.data import data_folder, tables
from tsql.tpch.engines import DuckDB, Tsql
from tsql.tpch.measure import Spread, Times, geometric_mean, ratios, short, taking_turns
from tsql.tpch.queries import query
from tsql.tpch.worker import Worker, WorkerError, serve

pytestmark = pytest.mark.usefixtures("settled")

SCALE = 0.001


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for what benchmarks write. The data stays where it is, also where tests or the processes that they start
    use another cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TSQL_DATA", str(data_folder()))
        yield tmp_path_factory.mktemp("tpch")


class Wrong(DuckDB):
    """An engine that is wrong about query 6, and refuses query 1."""

    def tpch(self, number: int, sql: str, scale: float) -> Callable[[], pa.Table]:
        if number == 1:
            raise RuntimeError("no | such thing\nin many lines")
        return lambda: self.run(sql.replace("0.06", "0.05"))


def absent(threads: int) -> Any:
    raise ImportError("No module named 'datafusion'")


def test_spread() -> None:
    spread = Spread.of([5.0, 1.0, 2.0, 4.0, 3.0])
    assert (spread.low, spread.median, spread.high) == (2.0, 3.0, 4.0)
    assert str(spread) == "3.00 (2.00..4.00)" and str(Spread.of([7.0])) == "7.00 (7.00..7.00)"
    mean = Spread.mean([Spread(1, 2, 4), Spread(4, 8, 16)])
    assert (mean.low, mean.median, mean.high) == pytest.approx((2, 4, 8))
    assert geometric_mean([1, 100]) == pytest.approx(10)
    assert [short(v) for v in (0.123, 9.99, 12.34, 1234.5)] == ["0.12", "9.99", "12.3", "1234"]


def test_ratios_compare_the_runs_of_a_round() -> None:
    """A slow second round slows both and does not widen the spread."""
    assert ratios(Times((2.0, 20.0, 2.0)), Times((1.0, 10.0, 1.0))) == Spread(2.0, 2.0, 2.0)
    with pytest.raises(ValueError):
        ratios(Times((1.0,)), Times((1.0, 2.0)))


def test_taking_turns() -> None:
    order: list[str] = []

    def work(name: str, ms: float) -> Callable[[], float]:
        return lambda: order.append(name) or ms

    times = taking_turns({"a": work("a", 1.0), "b": work("b", 3.0)}, runs=2, warmup=1, least_ms=4)
    assert "".join(order) == "ab" + "abba" + "abba", "the shorter one decides how many rounds there are"
    assert times["a"].runs_ms == (1.0,) * 4 and times["b"].median == 3.0


def test_table_of_ratios() -> None:
    times = {
        1: {"tsql": Times((1.0, 2.0, 1.0)), "duckdb": Times((4.0, 8.0, 4.0)), "hyper": Times((2.0, 2.0, 2.0))},
        3: {"duckdb": Times((5.0, 5.0, 5.0)), "hyper": Times((5.0, 6.0, 7.0))},
    }
    section = table("T", ["tsql", "duckdb", "hyper"], times, {("tsql", 3): "not run: no joins"}, {"duckdb": 1.5}, 0.67)
    one, three, mean, *against = section.rows
    assert one.measured == {
        "tsql, ms": "1.00 (1.00..1.50)",
        "duckdb, ms and ratio": "4.00, 4.00 (4.00..4.00)",
        "hyper, ms and ratio": "2.00, 2.00 (1.50..2.00)",
    }
    assert (one.value, one.aim, one.met) == (4.0, ">= 0.67", True)
    assert (
        three.measured["tsql, ms"] == "not run: no joins"
        and three.measured["duckdb, ms and ratio"] == "5.00 (5.00..5.00)"
    )
    assert (three.value, three.met) == (None, None)
    assert mean.case == "geometric mean of 1 query" and mean.measured["hyper, ms and ratio"] == "2.00 (2.00..2.00)"
    assert [row.case for row in against] == [
        "geometric mean against duckdb, 1 query",
        "geometric mean against hyper, 1 query",
    ]
    assert (against[0].value, against[0].aim, against[0].met) == (pytest.approx(4.0), ">= 1.5", None), (
        "one query of 22 proves nothing"
    )


def test_mean_of_all_queries_meets_its_aim() -> None:
    times = {number: {"tsql": Times((2.0,)), "duckdb": Times((4.0 if number % 2 else 2.0,))} for number in range(1, 23)}
    assert [
        (row.aim, row.met) for row in table("T", ["tsql", "duckdb"], times, {}, {"duckdb": 1.4}, None).rows[-1:]
    ] == [(">= 1.4", True)]
    assert table("T", ["tsql", "duckdb"], times, {}, {"duckdb": 1.5}, None).rows[-1].met is False


def test_benchmark(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One engine that is missing, one that refuses and errs: both are told, and the others are timed."""
    monkeypatch.setitem(peers.ALL, "hyper", Wrong)
    monkeypatch.setitem(peers.ALL, "datafusion", absent)
    files = {kind: folder / f"report.{kind}" for kind in ("json", "markdown", "chart")}
    arguments = [
        "bench",
        "--scale",
        f"{SCALE:g}",
        "--queries",
        "1,6",
        "--runs",
        "2",
        "--modes",
        "memory,parquet",
        "--engines",
        "tsql,duckdb,hyper,datafusion",
    ]
    assert main([*arguments, *(f"--{kind}={path}" for kind, path in files.items())]) == 1
    captured = capsys.readouterr()
    assert "hyper, query 6: wrong answer: row 1, column revenue: " in captured.err
    assert captured.out.strip() == files["markdown"].read_text().strip()
    report = json.loads(files["json"].read_text())
    assert report["facts"]["datafusion"] == "not installed (No module named 'datafusion'): pip install 'tsql[bench]'"
    assert [section["title"] for section in report["sections"]] == ["Tables in memory, warm", "From Parquet, warm"]
    for section in report["sections"]:
        first, sixth = section["rows"][:2]
        assert first["measured"]["hyper, ms and ratio"] == "not run: no | such thing"
        assert sixth["measured"]["hyper, ms and ratio"].startswith("wrong answer: row 1, column revenue: ")
        assert set(first["runs_ms"]) == set(sixth["runs_ms"]) == {"tsql", "duckdb"}
        assert len(first["runs_ms"]["tsql"]) == len(first["runs_ms"]["duckdb"]) >= 2
        assert first["value"] > 0
    assert "not run: no &#124; such thing" in captured.out, "a bar would end the cell"
    ElementTree.fromstring(files["chart"].read_text())


def test_worker(folder: Path) -> None:
    sql = query(6, SCALE)
    with Worker("duckdb", threads=1) as worker:
        with pytest.raises(WorkerError, match="lineitem"):
            worker.run(6, sql, SCALE)
        worker.load({"lineitem": tables(SCALE)["lineitem"]})
        before = worker.memory()
        assert worker.run(6, sql, SCALE) > 0
        assert worker.peak() >= before > 10 * 2**20
    assert worker.process.returncode == 0


def test_worker_that_cannot_start() -> None:
    with pytest.raises(WorkerError, match="abacus"):
        Worker("abacus", threads=1)


def test_worker_that_ends(folder: Path) -> None:
    with Worker("duckdb", threads=1) as worker:
        worker.process.kill()
        with pytest.raises(WorkerError, match="the process ended with exit code -9"):
            worker.memory()


def test_cold_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each repetition starts with an empty folder; the second process of this project finds what the first has left."""
    times = iter([100.0, 10.0, 4.0])
    seen: list[tuple[str, list[str]]] = []

    def before(name: str, number: int, threads: int, cache: Path) -> float:
        seen.append((name, [path.name for path in cache.iterdir()]))
        (cache / "kernel").touch()
        return next(times)

    monkeypatch.setattr(fresh, "_before", before)
    empty, disk = fresh.cold(["tsql"], [6], threads=1, repeats=1, tell=lambda line: None)
    assert seen == [("tsql", []), ("tsql", ["kernel"])]
    assert (empty.rows[0].value, disk.rows[0].value) == (100.0, 10.0) and empty.rows[0].met is True
    assert empty.rows[-1].value == pytest.approx(100.0) and empty.rows[-1].aim == "< 120" and empty.rows[-1].met is None
    (alone,) = fresh.cold(["duckdb"], [6], threads=1, repeats=1, tell=lambda line: None)
    assert (
        seen[2:] == [("duckdb", [])]
        and alone.rows[0].measured == {"duckdb, ms": "4.00 (4.00..4.00)"}
        and alone.rows[0].value is None
    )


def test_peaks_of_filled_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """This project runs once before it is measured, with the same folder; the others keep nothing there."""
    values = iter([40.0, 9.0, 8.0, 4.0, 4.0])
    seen: list[tuple[str, list[str]]] = []

    def peak(name: str, number: int, scale: float, threads: int, cache: Path) -> float:
        seen.append((name, [path.name for path in cache.iterdir()]))
        (cache / "kernel").touch()
        return next(values)

    monkeypatch.setattr(fresh, "_peak", peak)
    (row,) = fresh.peaks(["tsql", "duckdb"], [6], SCALE, threads=1, repeats=2, tell=lambda line: None).rows
    assert seen[:3] == [("tsql", []), ("tsql", ["kernel"]), ("tsql", ["kernel"])] and seen[3] == ("duckdb", [])
    assert row.runs_ms == {"tsql": (9.0, 8.0), "duckdb": (4.0, 4.0)} and row.value == 8.5 / 4 and row.met is False


def test_engines_at_rest() -> None:
    """Idle memory is given back, and a query runs as before."""
    ours, theirs = Tsql(1), DuckDB(3)
    ours.execute("CREATE TABLE t AS SELECT range AS x FROM range(200000)")
    ours.run("SELECT x FROM t ORDER BY x % 1000")
    ours.rest()
    assert memory.usage().idle == 0 and ours.run("SELECT count(*) FROM t").column(0).to_pylist() == [200000]
    theirs.rest()
    assert theirs.run("SELECT current_setting('threads')").column(0).to_pylist() == [3]
    for engine in (ours, theirs):
        engine.close()


def test_worker_rests_before_memory_is_measured() -> None:
    class Resting(DuckDB):
        rests = 0

        def rest(self) -> None:
            self.rests += 1

    engine, answers = Resting(1), []
    serve(engine, io.StringIO('{"do": "memory"}\n{"do": "peak"}\n'), answers.append)
    assert engine.rests == 1 and [list(answer) for answer in answers] == [["bytes"], ["bytes"]]
    engine.close()


def test_fresh_processes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh, "COLD_SCALE", SCALE)
    told: list[str] = []
    (empty,) = fresh.cold(["duckdb"], [6], threads=1, repeats=1, tell=told.append)
    assert len(empty.rows[0].runs_ms["duckdb"]) == 1 and told[0].startswith("query 6: duckdb, ms ")
    peak = fresh.peaks(["duckdb", "abacus"], [6], SCALE, threads=1, repeats=1, tell=told.append).rows[0]
    assert (
        peak.runs_ms["duckdb"][0] >= 0 and peak.measured["abacus, MiB"].startswith("not run: ") and peak.value is None
    )
    one, mean = fresh.threads(["duckdb"], [6], SCALE, most=2, runs=2, tell=told.append).rows
    assert (
        len(one.runs_ms["duckdb, 1"]) == len(one.runs_ms["duckdb, 2"]) == 2
        and "(1 query)" in mean.measured["duckdb, 1 thread ms, 2 threads ms, ratio"]
    )


@pytest.mark.parametrize("kind", joins.KINDS)
def test_sides_of_a_join(kind: str) -> None:
    probe, build, total = joins.sides(kind, 4000)
    assert probe.num_rows == 4000 and build.num_rows == len(set(build["k"].to_pylist())) == 1000
    joined = probe.join(build, "k", join_type="inner")
    assert joined.num_rows == 4000
    assert sum(joined["v"].to_pylist()) + sum(joined["w"].to_pylist()) == total
    assert (max(build["k"].to_pylist()) > 2**50) is (kind == "sparse")


def test_growth_of_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    class Half(DuckDB):
        def run(self, sql: str) -> pa.Table:
            return super().run(sql.replace("p.v +", ""))

    monkeypatch.setitem(peers.ALL, "hyper", Half)
    told: list[str] = []
    dense, sparse = joins.growth(["duckdb", "hyper"], 400, threads=1, runs=1, tell=told.append)
    assert [row.case.partition(" rows")[0] for row in dense.rows] == ["400", "800", "1,600", "3,200"] and len(
        sparse.rows
    ) == 4
    for row in dense.rows + sparse.rows:
        assert float(row.measured["duckdb, ns per row"]) > 0 and row.value is None
        assert row.measured["hyper, ns per row"].startswith("wrong answer: ")


def test_chart() -> None:
    text = draw(
        [
            Panel("In <memory>", {"tsql": {"Q1": 1.0, "Q6": 10.0}, "duckdb": {"Q1": 100.0}}),
            Panel("Nothing", {"tsql": {}}),
        ]
    )
    root = ElementTree.fromstring(text)
    name = "{http://www.w3.org/2000/svg}"
    bars = {
        bar.find(f"{name}title").text: bar for bar in root.iter(f"{name}rect") if bar.find(f"{name}title") is not None
    }
    assert set(bars) == {
        "tsql, Q1: 1.00 ms",
        "tsql, Q6: 10.0 ms",
        "duckdb, Q1: 100 ms",
        "tsql, mean: 1.00 ms",
        "duckdb, mean: 100 ms",
    }
    heights = {label: float(bar.get("height")) for label, bar in bars.items()}
    step = heights["tsql, Q6: 10.0 ms"] - heights["tsql, Q1: 1.00 ms"]
    assert step > 0 and heights["duckdb, Q1: 100 ms"] - heights["tsql, Q6: 10.0 ms"] == pytest.approx(step, abs=0.2), (
        "equal ratios are equal steps"
    )
    assert all(0 <= float(bar.get("x")) + float(bar.get("width")) <= float(root.get("width")) for bar in bars.values())
    assert "nothing was measured" in text and "In &lt;memory&gt;" in text


def test_engines_that_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(threads: int) -> Any:
        raise RuntimeError("it will not\nstart")

    monkeypatch.setitem(peers.ALL, "hyper", broken)
    monkeypatch.setitem(peers.ALL, "datafusion", absent)
    opened, missing = peers.open_engines(["duckdb", "hyper", "datafusion"], threads=1)
    assert list(opened) == ["duckdb"]
    assert missing == {
        "hyper": "not started: it will not",
        "datafusion": "not installed (No module named 'datafusion'): pip install 'tsql[bench]'",
    }
    opened["duckdb"].close()
