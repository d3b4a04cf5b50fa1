"""Tables and JSON of measured times, with the facts about the machine that are needed to read them."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class Row:
    """One line of a report: what was measured, the times of each engine, and the target."""

    case: str
    measured: dict[str, str] = field(default_factory=dict)
    value: float | None = None
    aim: str = ""
    met: bool | None = None
    runs_ms: dict[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass
class Section:
    """A table of rows. `columns` are the keys of `Row.measured`; `value` is the heading of the main number."""

    title: str
    columns: Sequence[str]
    value: str
    rows: list[Row] = field(default_factory=list)

    def markdown(self) -> str:
        lines = [
            f"### {self.title}",
            "",
            f"| case | {' | '.join(self.columns)} | {self.value} | aim | |",
            "|---" * (len(self.columns) + 4) + "|",
        ]
        for row in self.rows:
            shown = "" if row.value is None else f"{row.value:.2f}"
            verdict = {None: "", True: "met", False: "short"}[row.met]
            lines.append(
                f"| {row.case} | "
                f"{' | '.join(row.measured.get(c, '').replace('|', '&#124;') for c in self.columns)} | "
                f"{shown} | {row.aim} | {verdict} |"
            )
        return "\n".join(lines)


def counted(queries: int) -> str:
    """A number of queries in words."""
    return f"{queries} quer{'y' if queries == 1 else 'ies'}"


def machine() -> dict[str, str]:
    """Processor, cores, memory, system and the load at the start: a loaded machine makes a bad table."""
    processor = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
                break
        memory = f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (OSError, ValueError):
        memory = "unknown"
    return {
        "processor": processor,
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": memory,
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "load before": f"{os.getloadavg()[0]:.2f}",
    }


def write(sections: list[Section], facts: dict[str, str], markdown: Path | None, data: Path | None) -> str:
    """The report as markdown. Also written to the named files."""
    head = "; ".join(f"{name}: {value}" for name, value in facts.items())
    text = "\n\n".join([head, *(section.markdown() for section in sections)]) + "\n"
    if markdown is not None:
        markdown.write_text(text, encoding="utf-8")
    if data is not None:
        data.write_text(
            json.dumps({"facts": facts, "sections": [asdict(section) for section in sections]}, indent=2) + "\n",
            encoding="utf-8",
        )
    return text
