"""The programs in examples/: each runs, and its answers are DuckDB's (the text of our generator, or one written for
it), or those of the definition.

A query with a construct that has no plan yet is skipped.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from tests.duck import empty_duckdb
from tests.temporal.asking import oracle_of
from tsql.grammar.generator import to_duckdb
from tsql.tpch.measure import difference

FOLDER = Path(__file__).resolve().parents[2] / "examples"
PROGRAMS = ("ad_clicks", "bot_elimination", "sensor_sessions", "trades_and_quotes")
TABLES = {
    "ad_clicks": ("clicks",),
    "bot_elimination": ("clicks",),
    "sensor_sessions": ("readings",),
    "trades_and_quotes": ("trades", "quotes", "fees"),
}
ROWS = {"ad_clicks": 3000, "bot_elimination": 800, "sensor_sessions": 2000, "trades_and_quotes": 4000}
PERIODS = {"fees": ("vs", "ve")}


@pytest.fixture
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module(request.param)
    for name in (request.param, "present"):
        sys.modules.pop(name, None)


def connected(program: ModuleType, folder: Path) -> Any:
    rows = ROWS[program.__name__]
    return program.connected(rows, folder) if program.__name__ == "ad_clicks" else program.connected(rows)


def oracle(db: Any, program: ModuleType, query: str) -> pa.Table:
    """What DuckDB says over the same rows."""
    with empty_duckdb() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name in TABLES[program.__name__]:
            connection.register(name, db.table(name).arrow())
        return connection.sql(to_duckdb(query.strip(), PERIODS)).to_arrow_table()


CASES = [
    (name, place)
    for name, count in (("ad_clicks", 3), ("sensor_sessions", 3), ("trades_and_quotes", 3))
    for place in range(count)
]


@pytest.mark.parametrize(("program", "place"), CASES, indirect=["program"])
def test_answers(program: ModuleType, place: int, tmp_path: Path) -> None:
    query = list(program.QUERIES.values())[place]
    with connected(program, tmp_path) as db:
        expected = oracle(db, program, query)
        assert expected.num_rows > 0
        why = difference(expected, db.sql(query).arrow(), ordered=True)
        assert why is None, why


@pytest.mark.parametrize("program", ["bot_elimination"], indirect=True)
def test_bots(program: ModuleType, tmp_path: Path) -> None:
    """Without the bursts of five users; as the query of the paper's test says it in plain SQL."""
    with connected(program, tmp_path) as db, empty_duckdb() as connection:
        connection.register("clicks", db.table("clicks").arrow())
        expected = connection.sql(oracle_of("bots")).to_arrow_table()
        bots = db.sql(program.BOTS).fetchall()
        found = db.sql(program.WITHOUT_BOTS).arrow()
        assert {row[0] for row in bots} <= set(range(5)) and all(row[1] > 3 for row in bots) and len(bots) == 5
        why = difference(expected, found, ordered=False)
        assert why is None, why
        assert sum(found["n"].to_pylist()) < ROWS["bot_elimination"]


@pytest.mark.parametrize("program", PROGRAMS, indirect=True)
def test_programs_run(program: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [program.__name__, str(ROWS[program.__name__])])
    program.main()
    shown = capsys.readouterr().out
    assert all(f"=== {title}\n" in shown for title in program.QUERIES)


def test_live_clicks(tmp_path: Path) -> None:
    """Killed twice, and each window once: the program compares with the query over the finished files."""
    done = subprocess.run(
        [sys.executable, str(FOLDER / "live_clicks.py")], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Killed.") == 2 and "244 windows, each once" in done.stdout
