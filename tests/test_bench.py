"""The benchmarks' own machinery: a benchmark that compares answers must see a difference."""

from __future__ import annotations

import importlib
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tsql.cli.benchmarks import benchmarks
from tsql.tpch.measure import difference, interleaved
from tsql.tpch.report import Row, Section, write

TABLE = pa.table(
    {
        "k": ["a", "b", None],
        "d": pa.array([Decimal("1.10"), None, Decimal("2.00")], pa.decimal128(15, 2)),
        "f": [0.5, None, 1e12],
    }
)


def test_equal_answers() -> None:
    assert difference(TABLE, TABLE, ordered=True) is None
    assert difference(TABLE, TABLE.take([2, 0, 1]), ordered=False) is None
    assert difference(TABLE, TABLE.set_column(0, "k", TABLE["k"].dictionary_encode()), ordered=True) is None
    assert difference(TABLE, TABLE.set_column(2, "f", pa.array([0.5 + 1e-13, None, 1e12])), ordered=True) is None


def test_different_answers() -> None:
    assert difference(TABLE, TABLE.take([2, 0, 1]), ordered=True) == "column k differs"
    assert difference(TABLE, TABLE.slice(0, 2), ordered=True) == "3 and 2 rows"
    assert (
        difference(TABLE, TABLE.rename_columns(["k", "d", "g"]), ordered=True)
        == "columns ['k', 'd', 'f'] and ['k', 'd', 'g']"
    )
    assert (
        difference(TABLE, TABLE.set_column(2, "f", pa.array([0.5, None, 1e12 + 1e4])), ordered=True)
        == "column f differs"
    )
    assert difference(TABLE, TABLE.set_column(2, "f", pa.array([0.5, 0.0, 1e12])), ordered=True) == "column f differs"
    assert difference(TABLE, TABLE.set_column(1, "d", TABLE["d"].cast(pa.decimal128(16, 2))), ordered=True).startswith(
        "types"
    )


def test_turns() -> None:
    calls: list[str] = []
    times = interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, runs=3, warmup=1)
    assert "".join(calls) == "ab" + "ab" + "ba" + "ab"
    assert {name: len(t.runs_ms) for name, t in times.items()} == {"a": 3, "b": 3}
    assert min(times["a"].runs_ms) <= times["a"].median <= max(times["a"].runs_ms)


def test_report(tmp_path: Path) -> None:
    section = Section(
        "Title",
        ["x, ms"],
        "times faster",
        [Row("Q1", {"x, ms": "1.00"}, 5.5, ">= 5", True), Row("Q6", {"x, ms": "2.00"}, 1.0, ">= 2", False)],
    )
    text = write([section], {"cores": "2"}, tmp_path / "report.md", tmp_path / "report.json")
    assert "| Q1 | 1.00 | 5.50 | >= 5 | met |" in text and "| Q6 | 2.00 | 1.00 | >= 2 | short |" in text
    assert (tmp_path / "report.md").read_text() == text
    assert json.loads((tmp_path / "report.json").read_text())["sections"][0]["rows"][1]["met"] is False


@pytest.mark.parametrize("name", benchmarks())
def test_every_benchmark_loads(name: str) -> None:
    """Each that `tsql bench` lists can be loaded and has its entry."""
    module = importlib.import_module(f"bench.{name}")
    assert module.__doc__ and callable(module.main)
