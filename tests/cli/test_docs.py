"""The examples of docs/api.md and docs/cli.md do what the pages say."""

import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from tsql.cli.command import main

DOCS = Path(__file__).parents[2] / "docs"


def test_api_examples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = re.sub(r"^```.*$", "", (DOCS / "api.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(text, {}, "docs/api.md", "docs/api.md", 0)
    report: list[str] = []
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append)
    assert results.attempted > 20
    assert results.failed == 0, "".join(report)


def examples():
    """(command, expected output) pairs of the console blocks, in order."""
    found = []
    for block in re.findall(
        r"^```console\n(.*?)^```", (DOCS / "cli.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append([line[2:], []])
            elif line.startswith("> "):
                found[-1][0] += "\n" + line[2:]
            else:
                found[-1][1].append(line)
    return found


def matches(actual, expected):
    """Whether the lines agree; a line of `...` stands for any number of lines, and `...` inside a line for any text."""
    pattern = "\n".join(
        "(?:.*\n)*?.*" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") for line in expected
    )
    return re.fullmatch(pattern.replace("\n(?:.*\n)*?.*\n", "\n(?:.*\n)*?"), "\n".join(actual)) is not None


@contextmanager
def standard_input(text):
    """A pipe that holds a short text in the place of the descriptor that programs read."""
    kept = os.dup(0)
    out, into = os.pipe()
    os.write(into, text.encode())
    os.close(into)
    os.dup2(out, 0)
    os.close(out)
    try:
        yield
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def test_cli_examples(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    pairs = examples()
    assert len(pairs) > 10
    for command, expected in pairs:
        feeder, pipe, line = command.rpartition(" | ")
        fed = subprocess.run(["sh", "-c", feeder], capture_output=True, text=True, check=True).stdout if pipe else ""
        monkeypatch.setattr(sys, "stdin", io.StringIO(fed))
        program, *arguments = shlex.split(line)
        assert program == "tsql"
        with standard_input(fed):
            code = main(arguments)
        captured = capfd.readouterr()
        actual = [*captured.out.splitlines(), *captured.err.splitlines()] + ([f"[{code}]"] if code else [])
        assert matches(actual, expected), f"$ {command}\n" + "\n".join(actual)
