"""Runs many cases of a kind in worker processes, so that a crash or a case without end is a finding like any other."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
SECONDS_PER_CASE = 60.0
"""A case that takes longer counts as endless. The first one of a process includes the setup of the kind."""


@dataclass
class Report:
    """What came of all cases of a kind."""

    kind: str
    seed: int
    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes.most_common())
        return f"{self.kind}, seed {self.seed}: {self.cases} cases, {len(self.findings)} findings ({counts})"


def run(
    kind: str, seed: int, cases: int, *, first: int = 0, until: float | None = None, report: Report | None = None
) -> Report:
    """Run cases `first` up to `cases`, or until the clock (`time.monotonic`) says `until`."""
    report = report or Report(kind, seed)
    at = first
    while at < first + cases and (until is None or time.monotonic() < until):
        at = _run_worker(report, at, first + cases, until)
    return report


def _run_worker(report: Report, first: int, end: int, until: float | None) -> int:
    """One process; returns the number of the next case."""
    command = [
        sys.executable,
        "-m",
        "tests.robustness.mutations.worker",
        report.kind,
        str(report.seed),
        str(first),
        str(end - first),
    ]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONFAULTHANDLER": "1"}
    )
    running: int | None = None
    try:
        for line in _lines(process):
            if line is None:
                report.cases += 1
                report.outcomes["no end"] += 1
                report.findings.append(f"case {running}: no end after {SECONDS_PER_CASE:.0f} s")
                return (first if running is None else running) + 1
            if line.get("done"):
                return end
            if "starts" in line:
                running = line["starts"]
                continue
            report.cases += 1
            report.outcomes[line.get("outcome", "finding")] += 1
            if "finding" in line:
                report.findings.append(f"case {line['ends']}: {line['finding']}\n{line['case']}\n{line['trace']}")
            if until is not None and time.monotonic() > until:
                return end
        process.wait()
        report.cases += 1
        report.outcomes["crash"] += 1
        tail = process.stderr.read().decode(errors="replace")[-2000:]
        report.findings.append(f"case {running}: the process ended with {process.returncode}\n{tail}")
        return end if running is None else running + 1
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.communicate()


def _lines(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any] | None]:
    """The worker's lines; None if the next one does not come in time."""
    waiting = b""
    while True:
        ready, _, _ = select.select([process.stdout], [], [], SECONDS_PER_CASE)
        if not ready:
            yield None
            return
        read = os.read(process.stdout.fileno(), 1 << 16)
        if not read:
            return
        *lines, waiting = (waiting + read).split(b"\n")
        for line in lines:
            yield json.loads(line)
