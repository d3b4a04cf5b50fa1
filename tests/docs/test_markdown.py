"""Documents: lines that an editor shows in full, and links that lead somewhere."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST = 120
MEASURED = "docs/benchmarks.md"
"""Its tables are written by the benchmarks."""

LINK = re.compile(r"\]\(([^()\s]+)\)")


@cache
def pages() -> tuple[Path, ...]:
    done = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True
    )
    found = [ROOT / name for name in done.stdout.splitlines()] if done.returncode == 0 else [*ROOT.glob("*.md")]
    return tuple(path for path in found if path.is_file())


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """(number, line) of a page without its fenced blocks: these hold what programs print."""
    is_fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_fenced = not is_fenced
        elif not is_fenced:
            yield number, line


def anchors(path: Path) -> set[str]:
    """The names that headings have in links."""
    titles = (line.lstrip("#").strip().lower() for _, line in prose(path) if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def test_lines() -> None:
    wrong = []
    for path in pages():
        name = path.relative_to(ROOT).as_posix()
        for number, line in prose(path):
            if len(line) > MOST and not (name == MEASURED and line.startswith("|")):
                wrong.append(f"{name}:{number}: {len(line)} characters")
    assert not wrong, f"lines of more than {MOST} characters:\n" + "\n".join(wrong)


def test_links() -> None:
    wrong = []
    for path in pages():
        for number, line in prose(path):
            for target in LINK.findall(line):
                if re.match(r"\w+:", target):
                    continue
                file, _, anchor = target.partition("#")
                there = (path.parent / file).resolve() if file else path
                if not there.exists() or (anchor and anchor not in anchors(there)):
                    wrong.append(f"{path.relative_to(ROOT)}:{number}: {target}")
    assert not wrong, "links that lead nowhere:\n" + "\n".join(wrong)
