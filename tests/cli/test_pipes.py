"""`cat file | tsql run ..`: the standard input and other descriptors as tables."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.patience import PATIENCE_SECONDS

CSV = b"a,b\n1,x\n2,y\n"


def run(query: str, stdin: bytes | Path, *arguments: str) -> tuple[int, str, str]:
    """The exit code, the output as CSV and the errors of a query whose standard input is a pipe, or a file."""
    command = [sys.executable, "-m", "tsql", "run", query, "-f", "csv", *arguments]
    if isinstance(stdin, bytes):
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=PATIENCE_SECONDS * 2, check=False)
    else:
        with stdin.open("rb") as file:
            done = subprocess.run(command, stdin=file, capture_output=True, timeout=PATIENCE_SECONDS * 2, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_standard_input(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(CSV)
    assert run("SELECT * FROM '/dev/stdin'", tmp_path / "t.csv") == (0, "a,b\n1,x\n2,y\n", "")
    twice = (
        "SELECT l.a, r.b FROM '/dev/stdin' l JOIN '/dev/stdin' r ON l.a = r.a ORDER BY 1; SELECT count(*) AS "
        "n FROM read_csv('/dev/fd/0'); SELECT sum(a) AS s FROM t"
    )
    assert run(twice, CSV, "-t", "t=/dev/stdin") == (0, "a,b\n1,x\n2,y\nn\n2\ns\n3\n", "")


def test_binary_files_and_errors(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "t.parquet")
    query = (
        "SELECT sum(a) AS s FROM '/dev/stdin'; SELECT a FROM read_parquet('/dev/fd/0') WHERE a > 2; SELECT b "
        "FROM '/dev/stdin'"
    )
    code, out, err = run(query, (tmp_path / "t.parquet").read_bytes())
    assert (code, out) == (1, "s\n6\na\n3\n")
    assert "b" in err and "Traceback" not in err


def test_ctrl_c_while_nothing_comes() -> None:
    out, into = os.pipe()
    query = "SELECT 1 AS one; SELECT * FROM '/dev/stdin'"
    child = subprocess.Popen(
        [sys.executable, "-m", "tsql", "run", query, "-f", "csv"],
        stdin=out,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert child.stdout.readline() == b"one\n"
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        assert child.wait(PATIENCE_SECONDS) == 130
        assert child.stderr.read() == b"interrupted\n"
    finally:
        child.kill()
        child.communicate()
        os.close(out)
        os.close(into)
