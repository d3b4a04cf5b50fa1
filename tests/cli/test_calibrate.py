"""`tsql calibrate` and the file that it writes: what it says is planned with, and a damaged one is a clear error."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tsql.cli.calibrate import measure
from tsql.cli.command import main
from tsql.costs import calibrated, cost_file, load, save
from tsql.kernels.expr.errors import PlanError
from tsql.planner.cost.constants import DEFAULT, LOCAL_NAMES


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def test_no_file_no_change(home: Path) -> None:
    assert cost_file() == home / "tsql" / "cost.toml"
    assert calibrated() is DEFAULT


def test_a_relative_folder_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cost_file() == tmp_path / ".config" / "tsql" / "cost.toml"


def test_what_is_written_is_read(home: Path) -> None:
    costs = replace(DEFAULT, group_ns=3.25, pipeline_us=1.5)
    save(costs, cost_file(), "by hand")
    assert calibrated() == costs
    save(DEFAULT, cost_file(), "again")
    assert calibrated() == DEFAULT, "a changed file is read again"
    assert [path.name for path in cost_file().parent.iterdir()] == ["cost.toml"]


def test_plans_follow_the_file(home: Path) -> None:
    """A machine on which a further pipeline costs nothing and merging costs much places its groups by key."""
    rows = pa.table({"k": [i % 100 for i in range(5000)]})

    def plan() -> str:
        with tsql.connect(threads=4) as db:
            db.register("t", rows)
            return db.sql("SELECT k, count(*) AS n FROM t GROUP BY k").plan()

    assert "redistribute" not in plan()
    save(replace(DEFAULT, pipeline_us=0.001, merge_ns=1e6), cost_file(), "odd")
    assert "redistribute" in plan()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version = 1\n[costs\n", "is damaged: Expected ']' at the end of a table declaration (at line 2, column 7)"),
        ("\x00", "is damaged"),
        ("", "is not of version 1"),
        ("version = 2\n", "is not of version 1"),
        ("version = 1\ncosts = 3\n", "costs is no table"),
        ("version = 1\n[costs]\nspeed = 1\n", "there is no cost speed"),
        ("version = 1\nspark = 3\n", "spark is no table"),
        ("version = 1\n[spark]\nspeed = 1\n", "there is no cost speed in [spark]"),
        ("version = 1\n[spark]\ngroup_ns = 1\n", "there is no cost group_ns in [spark]"),
        ("version = 1\n[costs]\nbroadcast_bytes = 1\n", "there is no cost broadcast_bytes"),
        ("version = 1\n[spark]\ntask_us = -1\n", "task_us is a number above 0, not -1"),
        ("version = 1\n[costs]\ngroup_ns = 0\n", "group_ns is a number above 0, not 0"),
        ("version = 1\n[costs]\ngroup_ns = nan\n", "group_ns is a number above 0, not nan"),
        ("version = 1\n[costs]\ngroup_ns = 'much'\n", "group_ns is a number above 0, not much"),
        ("version = 1\n[costs]\ngroup_ns = true\n", "group_ns is a number above 0, not True"),
    ],
)  # fmt: skip
def test_a_damaged_file(home: Path, capfd: Any, text: str, message: str) -> None:
    cost_file().parent.mkdir(parents=True)
    cost_file().write_text(text)
    with pytest.raises(PlanError) as caught:
        tsql.connect().sql("SELECT 1 AS x").arrow()
    assert message in str(caught.value) and str(cost_file()) in str(caught.value) and caught.value.hint
    assert main(["run", "SELECT 1 AS x"]) == 1
    error = capfd.readouterr().err
    assert error.startswith(f"error: {cost_file()}") and "hint: " in error and "Traceback" not in error


def test_bytes_that_are_no_text(home: Path) -> None:
    cost_file().parent.mkdir(parents=True)
    cost_file().write_bytes(b"version = 1\n# \xff\n")
    with pytest.raises(PlanError, match="is damaged"):
        calibrated()


def test_a_file_may_name_some_costs_only(home: Path) -> None:
    cost_file().parent.mkdir(parents=True)
    cost_file().write_text("version = 1\n[costs]\ngroup_ns = 2\n")
    assert calibrated() == replace(DEFAULT, group_ns=2.0)


def test_the_costs_of_a_cluster_are_a_part_of_their_own(home: Path) -> None:
    costs = replace(DEFAULT, stage_us=1234.5, broadcast_byte_ns=7.0)
    save(costs, cost_file(), "a cluster")
    text = cost_file().read_text()
    assert "[spark]" in text and "[costs]" not in text, "what nobody has measured is not written"
    assert calibrated() == costs
    save(replace(costs, group_ns=3.0), cost_file(), "both")
    text = cost_file().read_text()
    assert text.index("[costs]") < text.index("group_ns = 3") < text.index("[spark]") < text.index("stage_us = 1234.5")
    assert calibrated() == replace(costs, group_ns=3.0)


def test_a_file_of_an_earlier_version_has_all_costs_in_one_part(home: Path) -> None:
    cost_file().parent.mkdir(parents=True)
    cost_file().write_text("version = 1\n[costs]\ngroup_ns = 2\nglobal_byte_ns = 3\n")
    assert calibrated() == replace(DEFAULT, group_ns=2.0, global_byte_ns=3.0)


def test_what_is_not_measured_keeps_its_values(home: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    save(replace(DEFAULT, stage_us=1234.5), cost_file(), "a cluster")
    monkeypatch.setattr("tsql.cli.calibrate.measure", lambda rows, report: report("group_ns", 3.0))
    assert main(["calibrate"]) == 0
    assert calibrated() == replace(DEFAULT, stage_us=1234.5, group_ns=3.0)

    def cluster(session: Any, rows: int, report: Any) -> None:
        report("task_us", 5.0)

    monkeypatch.setattr("tsql.cli.calibrate_spark.measure", cluster)
    assert main(["calibrate", "--backend", "spark=local[1]"]) == 0
    assert calibrated() == replace(DEFAULT, stage_us=1234.5, group_ns=3.0, task_us=5.0)
    assert main(["calibrate", "--backend", "interp"]) == 2
    assert "costs are measured on local or spark[=MASTER], not on interp" in capfd.readouterr().err


def test_every_cost_is_measured() -> None:
    seen: dict[str, float] = {}
    found = measure(rows=20_000, runs=1, report=seen.__setitem__)
    assert set(seen) == set(LOCAL_NAMES), "what moves between machines is not measured on one"
    assert all(0 < value < 1e9 for name, value in asdict(found).items() if name != "broadcast_bytes")
    assert {name: value for name, value in asdict(found).items() if name in seen} == seen


def test_the_command(home: Path, capfd: Any) -> None:
    assert main(["calibrate", "--rows", "10"]) == 2
    cost_file().parent.mkdir(parents=True)
    cost_file().write_text("damaged")
    assert main(["calibrate", "--rows", "100000", "--dry-run"]) == 0, "a damaged file does not keep it from measuring"
    assert cost_file().read_text() == "damaged"
    assert main(["calibrate", "--rows", "100000"]) == 0
    assert capfd.readouterr().out.endswith(f"written to {cost_file()}\n")
    assert load(cost_file()) == calibrated() != DEFAULT
