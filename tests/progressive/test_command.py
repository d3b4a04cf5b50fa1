"""Snapshots on the command line: a line of JSON each in a pipe, a table with errors on a terminal."""

from __future__ import annotations

import io
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.cli.test_shell import Terminal
from tests.progressive.scripted import SQL as ANY
from tests.progressive.scripted import Scripted, arrays
from tsql.cli.snapshots import headline, print_snapshots, show_snapshots, table_lines
from tsql.cli.terminal import cell_len

SQL = "SELECT g, count(*) AS n, 'x' AS s FROM t GROUP BY g ORDER BY g PROGRESSIVE EVERY 25 PERCENT SEED 2"


def session() -> tsql.Session:
    db = tsql.connect(threads=1)
    db.register("t", pa.table({"g": [i % 3 for i in range(9_000)]}))
    return db


def test_lines_of_json() -> None:
    with session() as db:
        found = io.StringIO()
        assert print_snapshots(db.sql(SQL), found) == 3
    told = [json.loads(line) for line in found.getvalue().splitlines()]
    assert [one["is_final"] for one in told] == [False, False, False, True]
    assert [round(one["progress"], 2) for one in told] == [0.25, 0.5, 0.75, 1.0]
    assert told[-1]["rows"] == [{"g": g, "n": 3000, "s": "x"} for g in range(3)]
    assert told[-1]["bounds"] == {"n": [[3000.0, 3000.0]] * 3}
    assert all(low <= 3000 <= high for low, high in told[0]["bounds"]["n"])
    assert told[0]["row_status"] is None and told[0]["notes"] == {}


def test_lines_of_json_have_all_that_is_known() -> None:
    """Infinite bounds are null: JSON has no other word for them."""
    change: dict[str, Any] = {
        "bounds": {2: (arrays(-math.inf, 1.0, None), arrays(1.0, math.inf, None))},
        "notes": {1: "observed so far"},
        "status": pa.chunked_array([["certain", "possible", None]]),
    }
    with tsql.connect(backend=Scripted(count=2, **change)) as db:
        found = io.StringIO()
        print_snapshots(db.sql(ANY), found)
    first = json.loads(found.getvalue().splitlines()[0])
    assert first["bounds"] == {"m": [[None, 1.0], [1.0, None], [None, None]]}
    assert first["notes"] == {"n": "observed so far"} and first["row_status"] == ["certain", "possible", None]


def test_stopping() -> None:
    """A run that is stopped has its last snapshot, and gives no more."""
    with session() as db:
        with db.sql(SQL).snapshots() as found:
            first = next(found)
        assert not first.is_final and list(found) == [] and found.last is first
        assert db.sql(SQL).snapshots().finish().is_final


def test_until_and_within() -> None:
    """Queries may ask to stop; then the snapshot at which they stop is their result."""
    with session() as db:
        plain = SQL.replace("SEED 2", "")
        *_, last = db.sql(f"{plain} UNTIL ERROR <= 0.5").snapshots()
        assert not last.is_final and last.progress < 1
        assert db.sql(f"{plain} UNTIL ERROR <= 0.5").arrow().equals(last.table)
        *_, last = db.sql(f"{plain} UNTIL ERROR <= 0.0000001").snapshots()
        assert last.is_final
        (only,) = db.sql(f"{plain} WITHIN INTERVAL '1 microsecond'").snapshots()
        assert not only.is_final and 0 < only.progress < 0.25
        every = list(db.sql(SQL.replace("25 PERCENT", "4000 ROWS")).snapshots())
        assert len(every) == 3 and abs(every[0].rows_read - 4000) <= 64
        assert list(db.sql(SQL.replace("25 PERCENT", "INTERVAL '1 microsecond'")).snapshots())[-1].is_final


# On a terminal

CHILD = """
import sys
import pyarrow as pa
import tsql.query_runner
from tests.progressive.scripted import Scripted
tsql.query_runner.make_backend = lambda name, spark: Scripted(held=2)
from tsql.cli.command import main
sys.exit(main(sys.argv[1:]))
"""
CLEARED = r"\x1b\[2K"


@pytest.fixture
def rows(tmp_path: Path) -> str:
    """A query that makes progress. What it shows is what the backend of the child says."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"g": ["a", "b"] * 50, "x": [1.0] * 100}), path)
    return f"SELECT g, count(*) AS n, avg(x) AS m FROM '{path}' GROUP BY g PROGRESSIVE EVERY 10 PERCENT"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened = []

    def start(*command: str, columns: int = 80) -> Terminal:
        environment = os.environ | {
            "TERM": "xterm-256color",
            "COLUMNS": str(columns),
            "LINES": "24",
            "XDG_STATE_HOME": str(tmp_path),
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        environment.pop("NO_COLOR", None)
        opened.append(Terminal(sys.executable, "-c", CHILD, *command, env=environment))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def test_enter_accepts(terminal: Callable[..., Terminal], rows: str) -> None:
    """The table is drawn again and again in its place; what stays is the answer as it stood."""
    child = terminal("run", rows)
    child.wait_for("40% of the input, 20 rows")
    child.wait_for("Enter accepts, Ctrl-C stops")
    child.wait_for(r"100\.0 ± 3\.0")
    child.wait_for(CLEARED)
    child.wait_for(r"100\.0 ± 3\.0")
    child.send("typed ahead\n")
    child.wait_for(r"\(accepted\)")
    child.wait_for(r"100\.0 ± 3\.0")
    assert "typed" not in child.text and child.exit_code() == 0


def test_ctrl_c_stops(terminal: Callable[..., Terminal], rows: str) -> None:
    child = terminal("run", rows, columns=36)
    child.wait_for("40%, 20 rows|40% of the input")
    child.wait_for("Ctrl-C stops")
    child.send("\x03")
    child.wait_for(r"\(stopped\)")
    child.wait_for("interrupted")
    assert child.exit_code() == 130


def test_the_shell_reads_on(terminal: Callable[..., Terminal], rows: str) -> None:
    """Nobody else reads what is typed at the prompt, after Enter or Ctrl-C, and the terminal echoes again."""
    child = terminal("shell")
    child.wait_for("tsql>")
    child.send(f"{rows};\r")
    child.wait_for("40% of the input")
    child.send("\n")
    child.wait_for(r"\(accepted\)")
    child.wait_for("tsql>")
    child.send(f"{rows};\r")
    child.wait_for("40% of the input")
    child.send("\x03")
    child.wait_for("cancelled")
    child.wait_for("tsql>")
    child.send(".mode\r")
    child.wait_for("the mode is table")
    child.wait_for("tsql>")
    child.send(".quit\r")
    assert child.exit_code() == 0


# Tables


def of(snapshots: int = 2, **change: Any) -> list[Any]:
    with tsql.connect(backend=Scripted(count=snapshots, **change)) as db:
        return list(db.sql(ANY).snapshots())


def plain(lines: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def wide(db: tsql.Session) -> Any:
    sums = ", ".join(f"sum(x + {i}) AS sum_{i}" for i in range(30))
    sql = f"SELECT '日本語の長い名前 🦆 ' || k AS label, {sums} FROM t GROUP BY k PROGRESSIVE EVERY 20 PERCENT"
    return next(db.sql(sql).snapshots())


@pytest.fixture(scope="module")
def large() -> Iterator[tsql.Session]:
    with tsql.connect(threads=1) as db:
        db.register("t", pa.table({"k": [i % 500 for i in range(20_000)], "x": [float(i) for i in range(20_000)]}))
        yield db


@pytest.mark.parametrize("width", [20, 37, 80, 200])
def test_tables_fit_the_terminal(large: tsql.Session, width: int) -> None:
    """Of 500 rows and 31 columns the first and the last are shown, with characters of any width."""
    found = plain(table_lines(wide(large), width, 10))
    assert max(map(cell_len, found[:-1])) <= width
    assert len(found) == 4 + 10 + 3 + 2 and "31 columns" in found[-1] and "500 rows (10 shown)" in found[-1]


def test_tables_with_all_rows(large: tsql.Session) -> None:
    found = plain(table_lines(wide(large), None, 0))
    assert len(found) == 4 + 500 + 2 and sum("±" in line or "🦆" in line for line in found) == 500


def test_values_stand_below_each_other() -> None:
    bounds = {2: (arrays(88.0, 19.96, None), arrays(112.0, 20.04, None))}
    found = plain(table_lines(of(bounds=bounds)[0], 80, 10))
    assert found[4:7] == [
        "│ a       │      0 │    100 ± 12    │",
        "│ b       │      0 │ 20.000 ± 0.040 │",
        "│ c       │      0 │           NULL │",
    ]


def test_rows_that_may_leave_are_marked() -> None:
    status = pa.chunked_array([["certain", "possible", "possible"]])
    first = of(status=status)[0]
    found = plain(table_lines(first, 80, 2))
    assert [line.endswith(" ?") for line in found] == [False] * 8 + [True, False, False, False]
    assert [line.endswith(" ?") for line in plain(table_lines(first, 80, 0))[4:7]] == [False, True, True]


def test_terminals_without_unicode() -> None:
    lines = plain(table_lines(of()[0], 80, 10, ascii_only=True))
    head = plain([headline(0.5, 10, 0.1, read=0.55, ascii_only=True)])
    assert all(line.isascii() for line in lines + head)
    assert "+/-" in "".join(lines) and head[0].startswith("###########--------- 50%")


@pytest.mark.parametrize(("width", "expected"), [(80, "━"), (40, "25% of"), (30, "25%, 1,000 rows")])
def test_heads_of_narrow_terminals(width: int, expected: str) -> None:
    text = plain([headline(0.25, 1000, 1.5, read=0.25, width=width)])[0]
    assert text.startswith(expected) and cell_len(text) <= width


def test_where_nothing_can_be_redrawn(capsys: pytest.CaptureFixture[str]) -> None:
    """The answer alone, as plain text."""
    with tsql.connect(backend=Scripted()) as db:
        assert show_snapshots(db.sql(ANY).snapshots()) == 3
    text = capsys.readouterr().out
    assert "\x1b" not in text and text.count("rows, ") == 1
    assert re.match(r"100% of the input, 50 rows, \d+\.\d\d s \(exact\)\n┌", text)
