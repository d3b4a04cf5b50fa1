"""`tsql run` over streams and `tsql jobs`: rows in a pipe and in folders, checkpoints, replays, signals, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import tsql
from tests.patience import PATIENCE_SECONDS, wait_until
from tsql.cli.command import main

START = datetime(2024, 1, 1)
ROWS = 100
WINDOWS = "SELECT window_start, count(*) AS n FROM TUMBLE(events, ts, INTERVAL '10 seconds') GROUP BY window_start"
COLUMNS = "id BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts"


def write_rows(folder: Path, first: int = 0, rows: int = ROWS) -> None:
    """A file of a row a second; under another name until it is whole."""
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"id": n, "ts": str(START + timedelta(seconds=n))}) for n in range(first, first + rows)]
    (folder / "staged.tmp").write_text("\n".join(lines) + "\n")
    os.rename(folder / "staged.tmp", folder / f"{first:04}.ndjson")


def stream(folder: Path) -> str:
    return (
        f"CREATE STREAM events ({COLUMNS}) WITH (connector = 'json', path = '{folder}/*.ndjson', follow = true, "
        "settle = '0 seconds', poll_interval = '20 ms');\n"
    )


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    write_rows(tmp_path / "in")
    (tmp_path / "q.sql").write_text(stream(tmp_path / "in") + WINDOWS)
    return tmp_path / "q.sql"


def start(*arguments: str | Path, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tsql", "run", *map(str, arguments)]
    return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """The exit code, the output and the errors of a command, in this process."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = main(["run", *map(str, arguments)])
        said = capfd.readouterr()
        return code, said.out, said.err

    return run


def windows(out: str) -> dict[str, int]:
    rows = [json.loads(line) for line in out.splitlines()]
    return {row["window_start"]: row["n"] for row in rows}


ALL = {str(START + timedelta(seconds=10 * n)): 10 for n in range(ROWS // 10)}


@pytest.mark.parametrize("speed", ["0x", "200x"])
def test_replay(script: Path, run: Run, speed: str) -> None:
    code, out, err = run(script, "--replay", speed)
    assert (code, windows(out)) == (0, ALL)
    assert f"in {ROWS} rows" in err and "watermark" in err


def test_csv_in_a_pipe(script: Path, run: Run) -> None:
    """The names once, whatever comes after them."""
    code, out, _ = run(script, "--replay", "0x", "-f", "csv")
    first, *rows = out.splitlines()
    assert (code, first) == (0, "window_start,n")
    assert {line.split(",")[0].partition(".")[0]: int(line.split(",")[1]) for line in rows} == ALL


def test_as_of(script: Path, run: Run) -> None:
    code, out, _ = run(script, "--replay", "0x", "--as-of", "2024-01-01 00:00:35")
    assert (code, sum(windows(out).values()), len(windows(out))) == (0, 35, 4)
    code, _, err = run(script, "--replay", "0x", "--as-of", "soon")
    assert code == 1 and "until is a time such as" in err


def test_a_folder_and_a_checkpoint(script: Path, run: Run, tmp_path: Path) -> None:
    """The same command goes on, and gives nothing twice."""
    for _ in range(2):
        code, out, err = run(script, "--replay", "0x", "-o", tmp_path / "out", "--checkpoint", tmp_path / "state")
        assert (code, out) == (0, ""), err
    assert sorted(pq.read_table(tmp_path / "out")["n"].to_pylist()) == [10] * 10


def epochs(state: Path) -> int:
    return max((int(path.stem) for path in (state / "epochs").glob("*.json")), default=0)


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
def test_a_signal_ends_the_epoch(script: Path, tmp_path: Path, which: signal.Signals) -> None:
    """Exit code 0: the rows are there, the checkpoint is behind them, and the same command goes on."""
    state, out = tmp_path / "state", tmp_path / "out.ndjson"
    arguments = (script, "-o", out, "--checkpoint", state, "--interval", "0.02")
    process = start(*arguments)
    assert wait_until(lambda: out.exists() and len(out.read_text().splitlines()) == 9)
    process.send_signal(which)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, "stopped" in err, "Traceback" in err) == (0, True, False), err
    write_rows(tmp_path / "in", ROWS)
    process = start(*arguments)
    assert wait_until(lambda: len(out.read_text().splitlines()) == 19)
    process.send_signal(which)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["n"] for row in found] == [10] * 19 and len({row["window_start"] for row in found}) == 19


def test_a_second_signal(script: Path, tmp_path: Path) -> None:
    """A sink that does not come to an end is left by the second Ctrl-C."""
    out, into = os.pipe()
    write_rows(tmp_path / "in", ROWS, 50_000)
    process = subprocess.Popen(
        [sys.executable, "-m", "tsql", "run", stream(tmp_path / "in") + "SELECT id, ts FROM events", "-f", "json"],
        stdin=subprocess.DEVNULL, stdout=into, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(into)
    assert os.read(out, 1)  # it writes, and then the pipe is full
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    os.close(out)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode in (0, 130) and "Traceback" not in err


def test_standard_input(tmp_path: Path) -> None:
    """Rows leave while the pipe is open, the rest when it ends."""
    sql = f"CREATE STREAM events ({COLUMNS}) WITH (connector = 'stdin', format = 'json'); {WINDOWS}"
    process = start(sql, "-f", "json", "--checkpoint", tmp_path / "state", stdin=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    for number in range(ROWS):
        process.stdin.write(json.dumps({"id": number, "ts": str(START + timedelta(seconds=number))}) + "\n")
    process.stdin.flush()
    first = process.stdout.readline()
    assert json.loads(first)["n"] == 10
    process.stdin.close()
    out = process.stdout.read()
    assert (process.wait(PATIENCE_SECONDS), windows(first + out)) == (0, ALL)
    assert process.stderr is not None
    err = process.stderr.read()
    assert "note: the stream events cannot be read again" in err


def test_errors(script: Path, run: Run, tmp_path: Path) -> None:
    sql = stream(tmp_path / "in") + "SELECT CAST(ts || 'x' AS BIGINT) AS bad FROM events"
    code, _, err = run(sql)
    assert code == 1 and "error: line 2, column 8" in err and "Traceback" not in err
    assert run(script, "-o", tmp_path / "out.csv")[0] == 1
    assert run("SELECT 1", "--checkpoint", tmp_path / "state")[0] == 2
    assert run(script, "--replay", "fast")[0] == 2
    assert run(script, "--interval", "0")[0] == 2


def test_jobs(script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tsql.connect() as session:
        job = session.sql(script.read_text()).start(name="clicks")
        assert wait_until(lambda: job.progress().rows_in == ROWS)
        assert wait_until(lambda: _jobs(capsys)[0] == 0 and "clicks" in _jobs(capsys)[1])
        code, out, _ = _jobs(capsys)
        assert code == 0 and str(os.getpid()) in out and "held_rows" in out
        assert wait_until(lambda: f"in {ROWS} rows" in _jobs(capsys, "clicks")[1])
        _, out, _ = _jobs(capsys, "clicks")
        assert "events" in out and "step " in out and "waits for events" in out
        _, out, _ = _jobs(capsys, "--metrics")
        assert f'tsql_stream_rows_total{{job="clicks",stream="events"}} {ROWS}' in out
        assert out.count("# TYPE tsql_job_up gauge") == 1 and 'tsql_job_up{job="clicks"} 1' in out
        code, _, err = _jobs(capsys, "others")
        assert (code, err) == (2, "tsql: no job others runs\n")
    assert wait_until(lambda: "clicks" not in _jobs(capsys)[1])


def _jobs(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["jobs", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err
