"""What README.md shows works as it is shown: its Python, its command lines and its plan file."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EVENTS = pa.table(
    {
        "ad_id": pa.array([1, 2, 1, 3, 1, 2], pa.int64()),
        "price": pa.array([5, 7, 1, 2, 4, 8], pa.int64()),
        "country": ["DE", "DE", "FR", "DE", "DE", "NZ"],
        "ts": pa.array([1, 2, 3, 4, 5, 6], pa.timestamp("s")).cast(pa.timestamp("us")),
    }
)


def blocks(language: str) -> list[str]:
    """The fenced blocks of the README in a language."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for name, text in fenced if name == language]


def write_events(folder: Path) -> None:
    """The files that the examples read."""
    (folder / "events").mkdir()
    pq.write_table(EVENTS.slice(0, 3), folder / "events" / "0.parquet")
    pq.write_table(EVENTS.slice(3), folder / "events" / "1.parquet")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_events(tmp_path)
    (tmp_path / "query.sql").write_text(
        "SELECT ad_id, sum(price) AS spend FROM 'events/*.parquet' GROUP BY ad_id ORDER BY ad_id"
    )
    return tmp_path


def run(command: list[str], folder: Path) -> str:
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "100"}
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_python(folder: Path) -> None:
    code, *_ = blocks("python")  # the last one: tests/spark/test_readme.py
    shown = run([sys.executable, "-c", code + "\nprint(clicks.fetchall())"], folder)
    assert shown.splitlines()[-1] == "[(1, 2, 9), (2, 1, 7), (3, 1, 2)]"
    assert "plan version 1" in shown


def test_live(folder: Path) -> None:
    """Two clicks of one minute, in a file that is there when the job begins."""
    _, live, _ = blocks("python")
    (folder / "clicks").mkdir()
    rows = [{"ad_id": 1, "ts": f"2026-03-01 12:00:{second}"} for second in (10, 20)]
    (folder / "clicks" / "1.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    wait = "while job.progress().rows_in < 2:\n    time.sleep(0.01)\njob.stop(drain=True)\n"
    code = (
        f"import time, tsql\ndb = tsql.connect()\n{live}\n{wait}print(db.sql(\"FROM 'windows/*.parquet'\").fetchall())"
    )
    shown = run([sys.executable, "-c", code], folder)
    assert shown.splitlines()[-1] == "[(datetime.datetime(2026, 3, 1, 12, 0), 1, 2)]"


def test_time(folder: Path) -> None:
    (query,) = blocks("sql")
    shown = run([sys.executable, "-m", "tsql", "run", query, "-f", "csv"], folder).splitlines()
    assert shown[0] == "window_start,ad_id,clicks"
    assert len(shown) > 60


def test_command_lines(folder: Path) -> None:
    lines = [line.partition("#")[0] for block in blocks("") for line in block.splitlines() if line.startswith("tsql ")]
    assert len(lines) == 4
    for line in lines:
        run([sys.executable, "-m", "tsql", *shlex.split(line)[1:]], folder)
    assert pq.read_table(folder / "result.parquet").to_pylist() == [
        {"ad_id": 1, "spend": 10},
        {"ad_id": 2, "spend": 15},
        {"ad_id": 3, "spend": 2},
    ]


def test_plan() -> None:
    (plan,) = [block for block in blocks("") if block.startswith("plan version")]
    db = tsql.connect()
    db.register("clicks", EVENTS)
    assert sorted(tsql.load_plan_text(plan).run(db).fetchall()) == [(1, 3), (2, 2), (3, 1)]


def test_paths() -> None:
    """Every file and folder that the README names is there."""
    named = set(re.findall(r"\]\(([\w./]+)\)", README)) | set(re.findall(r"^\| `(\w+/)` \|", README, re.MULTILINE))
    assert {path for path in named if not (ROOT / path).exists()} == set()
