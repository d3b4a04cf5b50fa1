"""Every file and folder that a document, a docstring, a comment or a setting names is there.

A path that begins with a folder of the repository (`planner/rules/`) is one from its root; the name of a Python file
alone (`kir.py`) may be in any folder. In a path, `<name>` and `*` stand for any name, and `{a,b}` for each of two.
"""

from __future__ import annotations

import fnmatch
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("tsql", "planner", "kernels", "backends", "tpch", "tests", "bench", "docs", "examples")
FROM_ROOT = re.compile(rf"(?<![\w/.<>$-])(?:{'|'.join(FOLDERS)})/[\w./*<>{{}},-]*")
PYTHON_FILE = re.compile(r"(?<![\w/.<>$*{}-])[\w./*<>{},-]*\w\.py\b")


@cache
def files() -> frozenset[str]:
    """The files of the repository, as git knows them; outside of git, those on disk."""
    done = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        return frozenset(done.stdout.splitlines())
    return frozenset(
        path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()
    )


@cache
def endings() -> frozenset[str]:
    """What a path to a file may be cut down to: `codegen/kir.py` and `kir.py` for `kernels/codegen/kir.py`."""
    return frozenset("/".join(parts[i:]) for parts in (path.split("/") for path in files()) for i in range(len(parts)))


@cache
def folders() -> frozenset[str]:
    return frozenset(parent.as_posix() for path in files() for parent in Path(path).parents)


def spelled_out(path: str) -> Iterator[str]:
    """The patterns that a path with `<name>` and `{a,b}` stands for."""
    path = re.sub(r"<\w+>", "*", path)
    if (choice := re.search(r"\{([^{}]*)\}", path)) is None:
        yield path
    else:
        for one in choice[1].split(","):
            yield from spelled_out(path[: choice.start()] + one + path[choice.end() :])


def exists(path: str, known: frozenset[str]) -> bool:
    return all(
        pattern in known or ("*" in pattern and any(fnmatch.fnmatchcase(name, pattern) for name in known))
        for pattern in spelled_out(path)
    )


def missing(text: str) -> list[str]:
    """The paths in a text that lead nowhere."""
    wrong = []
    for found in FROM_ROOT.finditer(text):
        path = found[0].rstrip(".,/-")
        if path not in FOLDERS and not exists(path, files() | folders()):
            wrong.append(path)
    for found in PYTHON_FILE.finditer(text):
        path = re.sub(r"^(\.{1,2}/)+", "", found[0])
        if not FROM_ROOT.match(path) and not exists(path, endings()):
            wrong.append(path)
    return wrong


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of what is written for people: all of a document, docstrings and comments of Python."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith('"""')):
            yield from enumerate(token.string.splitlines(), token.start[0])


def checked() -> list[str]:
    return sorted(path for path in files() if path.endswith((".py", ".md", ".toml")) or path == "Makefile")


def test_paths() -> None:
    wrong = [
        f"{name}:{line}: {path}"
        for name in checked()
        if name != Path(__file__).relative_to(ROOT).as_posix() and (ROOT / name).is_file()
        for line, text in prose(ROOT / name)
        for path in missing(text)
    ]
    assert not wrong, "there is no such file:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`planner/rules/` and kernels/codegen/kir.py, with `kir.py`.", []),
        ("kernels/codegen/{kir,spec}.py, planner/rules/<rule>.py, docs/*.md", []),
        ("see kernels/udf.py", ["kernels/udf.py"]),
        ("see `parser_changes.py` and codegen/kir.py", ["parser_changes.py"]),
        ("kernels/codegen/{kir,gone}.py and planner/late/*.py", ["kernels/codegen/{kir,gone}.py", "planner/late/*.py"]),
    ],
)
def test_what_is_missing(text: str, expected: list[str]) -> None:
    assert missing(text) == expected
