"""The examples of docs/plans.md do what the page says, and its table of steps is complete."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from tsql.planner.hints.constraints import HINTS
from tsql.planner.physical.planfile import STEPS

PAGE = (Path(__file__).parents[2] / "docs" / "plans.md").read_text(encoding="utf-8")


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = re.sub(r"^```.*$", "", PAGE, flags=re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(text, {}, "docs/plans.md", "docs/plans.md", 0)
    report: list[str] = []
    results = doctest.DocTestRunner().run(test, out=report.append)
    assert results.attempted > 8
    assert results.failed == 0, "".join(report)


def test_every_step_and_hint_is_described() -> None:
    described = set(re.findall(r"^- `(\w+)", PAGE, re.MULTILINE))
    assert set(STEPS) - {"input"} <= described
    assert all(name in PAGE for name in HINTS)
