"""Runs mypy over the package, for `make lint` and tests/test_project.py.

mypy does not follow the import hook of an editable install. It reads `build/types` instead, where links lay the folders
out as the wheel does. Errors are shown with the paths of the repository.

Modules under an override with `ignore_errors` in pyproject.toml are lax: their errors are not shown. mypy checks them
all the same, because a lax module without an error must leave the list. `python -m tests.typecheck planner/bind` also
shows the errors of the lax modules in that folder, and `--count` the number of errors of each lax module.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LINKS = ROOT / "build" / "types"
FOLDERS = ("planner", "kernels", "backends", "tpch")
"""Folders at the root that install inside of tsql."""


@dataclass
class Found:
    """What mypy said: its lines by file, as a path of the repository, and the modules that may have errors."""

    lines: dict[str, list[str]]
    lax: frozenset[str]

    def wrong(self) -> list[str]:
        """Errors outside of the lax modules, and lax modules that have none and must leave the list."""
        told = [line for path, lines in self.lines.items() if module_of(path) not in self.lax for line in lines]
        passing = self.lax - {module_of(path) for path in self.lines}
        for name in sorted(passing):
            reason = "passes now" if path_of(name).exists() else "does not exist"
            told.append(f"pyproject.toml: error: {name} {reason}: take it off the list of lax modules")
        return told

    def count(self, path: str) -> int:
        return sum(": error: " in line for line in self.lines[path])


def check() -> Found:
    """Run mypy with the settings of pyproject.toml, the lax modules checked as if they were not."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    overrides = settings.pop("overrides")
    lax = frozenset(name for part in overrides if part.get("ignore_errors") for name in part["module"])
    _lay_links()
    config = LINKS / "mypy.ini"
    sections = [_section("mypy", settings)]
    for part in overrides:
        if not part.get("ignore_errors"):
            names = ",".join(f"mypy-{name}" if i == 0 else name for i, name in enumerate(part["module"]))
            sections.append(_section(names, {key: value for key, value in part.items() if key != "module"}))
    config.write_text("\n".join(sections))
    command = [sys.executable, "-m", "mypy", "--config-file", str(config), "--no-pretty", "--no-error-summary"]
    done = subprocess.run([*command, str(LINKS / "tsql")], cwd=ROOT, capture_output=True, text=True)
    # Without mypy, Python ends with 1 and prints no finding: that is no check at all.
    if done.returncode not in (0, 1) or (done.returncode == 1 and not done.stdout.strip()):
        raise RuntimeError(f"mypy: {done.stdout}{done.stderr}")
    return Found(_by_file(done.stdout), lax)


def module_of(path: str) -> str:
    """planner/bind/__init__.py -> tsql.planner.bind"""
    parts = Path(path).with_suffix("").parts
    parts = parts if parts[0] == "tsql" else ("tsql", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def path_of(module: str) -> Path:
    """tsql.planner.bind -> planner/bind/__init__.py, as a full path."""
    parts = module.split(".")
    place = ROOT.joinpath(*(parts[1:] if len(parts) > 1 and parts[1] in FOLDERS else parts))
    package = place / "__init__.py"
    return package if package.exists() else place.with_suffix(".py")


def _lay_links() -> None:
    """Make `build/types/tsql`, a folder of links to the entries of `tsql/` and to the folders that install beside
    them."""
    package = LINKS / "tsql"
    package.mkdir(parents=True, exist_ok=True)
    wanted = {path.name: path for path in (ROOT / "tsql").iterdir() if path.name != "__pycache__"}
    wanted |= {name: ROOT / name for name in FOLDERS}
    for link in package.iterdir():
        if link.name not in wanted:
            link.unlink()
    for name, path in wanted.items():
        link, target = package / name, os.path.relpath(path, package)
        if not link.is_symlink() or os.readlink(link) != target:
            link.unlink(missing_ok=True)
            link.symlink_to(target)


def _section(name: str, settings: dict[str, Any]) -> str:
    lines = [f"{key} = {', '.join(v) if isinstance(v, list) else v}\n" for key, v in settings.items()]
    return f"[{name}]\n{''.join(lines)}"


def _by_file(text: str) -> dict[str, list[str]]:
    """mypy's lines by the file that they name, under its path in the repository."""
    prefix = LINKS.relative_to(ROOT).as_posix()
    inside = re.compile(rf"{re.escape(prefix)}/tsql/(?=(?:{'|'.join(FOLDERS)})/)|{re.escape(prefix)}/")
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        line = inside.sub("", line)
        found.setdefault(line.split(":", 1)[0], []).append(line)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.typecheck", description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="*", help="folders or files whose lax modules are shown too")
    parser.add_argument("--count", action="store_true", help="show how many errors each lax module has")
    given = parser.parse_args()
    found = check()
    wrong = found.wrong()
    lax = sorted(path for path in found.lines if module_of(path) in found.lax)
    for path in lax:
        if any(Path(folder) in (Path(path), *Path(path).parents) for folder in given.folders):
            print(*found.lines[path], sep="\n")
        if given.count:
            print(f"{found.count(path):5}  {path}")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    total = sum(found.count(path) for path in lax)
    print(f"types: {sum(': error: ' in line for line in wrong)} errors; {len(lax)} lax modules have {total} more")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
