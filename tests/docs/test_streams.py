"""docs/streams.md: its Python prints what the page shows, from its first block to its last."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.drawing import ROOT

PAGE = ROOT / "docs" / "streams.md"
TEXT = PAGE.read_text(encoding="utf-8")
FENCED = re.findall(r"^```(\w*)\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", TEXT, re.MULTILINE | re.DOTALL)


def test_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same names in all blocks, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    lines: list[str] = []
    names: dict[str, Any] = {"print": lambda *what: lines.extend(" ".join(map(str, what)).splitlines())}
    shown = 0
    try:
        for language, code, expected in FENCED:
            if language == "python":
                exec(compile(code.replace("tsql.connect()", "tsql.connect(threads=2)"), str(PAGE), "exec"), names)
                assert lines == expected.splitlines()
                shown += bool(expected)
                lines.clear()
            elif language == "sql":
                for statement in code.split(";\n"):
                    if statement.strip():
                        names["db"].sql(statement)
    finally:
        names["db"].close()
    assert shown > 6
