"""`tsql studio`: what it opens, what it prints, how it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from websockets.sync.client import connect

import tsql
from tests.patience import PATIENCE_SECONDS
from tests.studio.page import Page
from tsql.cli import studio as command
from tsql.cli.command import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    pq.write_table(pa.table({"a": [1, 2, 3]}), "clicks.parquet")
    Path("my sales.2024.csv").write_text("k;v\n1;10\n2;20\n")
    Path("log.json").write_text('{"x": 1}\n')
    with tsql.connect("shop") as db:
        db.sql("CREATE TABLE items AS SELECT 1 AS id")
    return tmp_path


@contextmanager
def running(*arguments: str) -> Iterator[tuple[Page, subprocess.Popen[str]]]:
    """The command in a process of its own, and its page."""
    code = [sys.executable, "-m", "tsql", "studio", "--no-browser", "--threads", "1", *arguments]
    with subprocess.Popen(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://(127\.0\.0\.1:\d+)/\?token=\S{20,}", line)
            assert found is not None, process.communicate(timeout=PATIENCE_SECONDS)
            with connect(found.group().replace("http", "ws"), origin=f"http://{found.group(1)}") as sock:
                yield Page(sock), process
        finally:
            process.kill()


def test_files_and_a_database(folder: Path) -> None:
    with running("clicks.parquet", "my sales.2024.csv", "log.json", "shop", "--read-only") as (page, process):
        hello = page.answer("hello")
        assert hello["read_only"] is True and hello["database"] == "shop"
        shown = {one["name"]: (one["kind"], [c["name"] for c in one["columns"]]) for one in hello["tables"]}
        assert shown == {
            "clicks": ("view", ["a"]),
            "items": ("table", ["id"]),
            "log": ("view", ["x"]),
            "my sales": ("view", ["k", "v"]),
        }
        assert page.run('SELECT sum(v) FROM "my sales"').rows == [("30",)]
        assert "read-only" in page.run("DROP TABLE items").last["message"]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, out, err) == (130, "", "interrupted\n")
    assert (folder / "state" / "tsql" / "studio-history.jsonl").is_file()
    with tsql.connect("shop") as db:
        assert db.tables() == ["items"], "views of files are not kept"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.parquet"], "there is no file or folder nothing.parquet"),
        (["clicks.parquet", "state/../clicks.csv"], "there is no file or folder state/../clicks.csv"),
        (["shop", "-d", "other"], "a studio opens one database"),
        (["clicks.parquet", "clicks.json"], "clicks.parquet and clicks.json would both be the view clicks"),
        (["shop", "items.json"], "items.json would be the view items, and the database has that name already"),
        (["bad.parquet"], "bad.parquet: "),
        (["--port", "70000"], "cannot be served on 127.0.0.1:70000"),
    ],
)
def test_wrong_arguments(folder: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("clicks.json", "items.json"):
        Path(name).write_text('{"x": 1}\n')
    Path("bad.parquet").write_text("no")
    assert main(["studio", "--no-browser", *arguments]) == 2
    found = capsys.readouterr()
    assert said in found.err and found.err.count("\n") == 1 and found.out == ""


def test_port_in_use(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["studio", "--port", str(port), "--no-browser"]) == 2
    found = capsys.readouterr().err
    assert f"127.0.0.1:{port}" in found and "in use" in found and found.count("\n") == 1


def test_browser(db: tsql.Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    """It is opened if there is a display, and unless told not to."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    opened: list[str] = []
    monkeypatch.setattr(command.webbrowser, "open", opened.append)
    monkeypatch.setattr("tsql.studio.server.Studio.wait", lambda studio: None)
    command.run(db, 0, "127.0.0.1", False, True)
    if sys.platform not in ("darwin", "win32"):
        assert opened == []
    monkeypatch.setenv("DISPLAY", ":0")
    command.run(db, 0, "127.0.0.1", False, False)
    assert opened == []
    command.run(db, 0, "127.0.0.1", False, True)
    (address,) = opened
    assert address in capsys.readouterr().out and os.environ["DISPLAY"] == ":0"
