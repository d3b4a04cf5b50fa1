"""COPY, -o and plans to /dev/stdout and other descriptors: what is written goes where the descriptor is, between all
else."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.patience import PATIENCE_SECONDS
from tsql.backends.io.descriptors import descriptor_of
from tsql.kernels.expr.errors import SourceError

TSQL = f"{shlex.quote(sys.executable)} -m tsql"
COPY = "copy (select 1 a) to '{}' (format {})"


def shell(script: str, folder: Path) -> tuple[int, bytes, str]:
    """The exit code, the output and the errors of a script, where `tsql` is ours."""
    text = f'set -e\ntsql() {{ {TSQL} "$@"; }}\n{script}'
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")])),
    }
    done = subprocess.run(
        ["bash", "-c", text],
        cwd=folder,
        capture_output=True,
        timeout=PATIENCE_SECONDS * 2,
        check=False,
        env=environment,
    )
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link"])
def test_a_redirected_output_keeps_all_in_order(path: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/stdout")
    (tmp_path / "out").write_text("old\n")
    query = f"select 0 z; {COPY.format(path, 'csv')}; select 2 b"
    assert shell(f'tsql run "{query}" -f csv >> out', tmp_path) == (0, b"", "")
    assert (tmp_path / "out").read_text() == "old\nz\n0\na\n1\nb\n2\n"
    assert sorted(os.listdir(tmp_path)) == ["link", "out"]


def test_files_are_written_from_where_they_are(tmp_path: Path) -> None:
    script = (
        f'exec 3> three; echo first >&3; tsql run "{COPY.format("/dev/fd/3", "csv")}; select 2 b" -f csv > '
        "out; echo last >&3"
    )
    assert shell(script, tmp_path) == (0, b"", "")
    assert (tmp_path / "three").read_text() == "first\na\n1\nlast\n"
    assert (tmp_path / "out").read_text() == "b\n2\n"


def test_pipes(tmp_path: Path) -> None:
    script = f"""
    tsql run "{COPY.format("/dev/stdout", "csv")}; select 2 b" -f csv | cat
    tsql run "{COPY.format("/dev/fd/3", "json")}" 3>&1 | cat
    tsql run "{COPY.format("/dev/stderr", "csv")}" 2>&1 | cat
    tsql run "select 3 c" -f csv -o /dev/stdout | cat
    """
    assert shell(script, tmp_path) == (0, b'a\n1\nb\n2\n{"a":1}\na\n1\nc\n3\n', "")


def test_plans_and_tables(tmp_path: Path) -> None:
    script = """
    echo before > out
    tsql plan "select 1 a" -o /dev/stdout >> out
    tsql run "select 3 c" -f markdown -o /dev/stdout | cat
    """
    code, out, errors = shell(script, tmp_path)
    assert (code, out.split(), errors) == (0, [b"|", b"c", b"|", b"|----:|", b"|", b"3", b"|"], "")
    assert (tmp_path / "out").read_text().startswith("before\nplan version")


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_binary_files(kind: str, tmp_path: Path) -> None:
    query = f"copy (select i a from range(5) r(i)) to '/dev/stdout' (format {kind})"
    code, piped, errors = shell(f'tsql run "{query}" | cat; tsql run "{query}" > out', tmp_path)
    assert (code, errors) == (0, "")
    for data in (piped, (tmp_path / "out").read_bytes()):
        table = pq.read_table(io.BytesIO(data)) if kind == "parquet" else pa.ipc.open_stream(data).read_all()
        assert table.column("a").to_pylist() == list(range(5))


def test_what_cannot_be_written_to_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("kept")
    with tsql.connect() as db, open(tmp_path / "f", "rb") as file:
        for path, why in (
            (f"/dev/fd/{file.fileno()}", "Bad file descriptor|not writable"),
            ("/dev/fd/987", "Bad file descriptor"),
        ):
            with pytest.raises(SourceError, match=f"cannot write {path}: ({why})"):
                db.sql(COPY.format(path, "csv"))
        with pytest.raises(SourceError, match="cannot write /dev/stdout: Not a directory"):
            db.sql("copy (select 1 a, 2 b) to '/dev/stdout' (format parquet, partition_by (a))")
    assert (tmp_path / "f").read_text() == "kept"


def test_python_writes_to_its_descriptors(tmp_path: Path) -> None:
    with tsql.connect() as db, open(tmp_path / "f", "wb") as file:
        file.write(b"first\n")
        file.flush()
        db.sql("select 1 a").write(f"/dev/fd/{file.fileno()}", "csv")
        os.write(file.fileno(), b"last\n")
    assert (tmp_path / "f").read_text() == "first\na\n1\nlast\n"


def test_which_paths_are_descriptors(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "link").symlink_to("more")
    (tmp_path / "more").symlink_to("/dev/fd/7")
    (tmp_path / "ring").symlink_to("ring")
    (tmp_path / "file").write_text("")
    ours = [
        "/dev/fd/7",
        "/proc/self/fd/7",
        f"/proc/{os.getpid()}/fd/7",
        "//dev//fd/7",
        str(tmp_path / "link"),
        tmp_path / "more",
    ]
    assert [descriptor_of(path) for path in ours] == [7] * len(ours)
    assert [descriptor_of(f"/dev/std{name}") for name in ("in", "out", "err")] == [0, 1, 2]
    others = [
        f"/proc/{os.getppid()}/fd/7",
        "/dev/null",
        "/dev/fd/x",
        "/dev/fd",
        str(tmp_path / "ring"),
        tmp_path / "file",
        "dev/fd/7",
        "",
        "a\0b",
    ]
    assert [descriptor_of(path) for path in others] == [None] * len(others)
    monkeypatch.chdir(tmp_path)
    assert descriptor_of("link") == 7
