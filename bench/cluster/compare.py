"""Runs one case on several contenders, checks that their answers agree, then times them in turns: one line of a table.

The ratio that counts is the fastest peer over tsql. A wrong answer is shown, is not timed, and makes the benchmark
fail."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from bench.cluster.processes import Seconds, processor_seconds
from bench.temporal import comparable
from tsql.tpch.measure import Times, difference, geometric_mean, short, taking_turns
from tsql.tpch.peers import reason
from tsql.tpch.report import Row, Section

OURS = "tsql"
SLOW_MS = 30_000.0
"""A contender whose warm-up takes longer is not run again. The first run does not count: JVMs start slowly, and a cold
time of a peer would flatter us."""
HOPELESS = 2.0
"""A variant of a peer that takes so many times longer than another one in the warm-up is not run again."""

SETTLE_S = 0.5

Wrong = Callable[[str, pa.Table], str | None]
"""Says what is wrong with a contender's answer, or None."""


@dataclass(frozen=True)
class Contender:
    """One way to compute the answer. `prepare` runs before each run and is not timed. `peer`: it counts for the
    ratio; `default`: it is the peer as it comes."""

    name: str
    run: Callable[[], pa.Table]
    prepare: Callable[[], None] = lambda: None
    peer: bool = False
    default: bool = False


@dataclass
class Measured:
    """What became of a case: the milliseconds of each contender's first run, its times, why it has none, and its
    processor time."""

    first_ms: dict[str, float] = field(default_factory=dict)
    times: dict[str, Times] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    wrong: bool = False
    processor: dict[str, Seconds] = field(default_factory=dict)


class Agreement:
    """All answers must be that of the first contender that has one."""

    def __init__(self, ordered: bool = False):
        self.ordered = ordered
        self.first: tuple[str, pa.Table] | None = None

    def __call__(self, name: str, answer: pa.Table) -> str | None:
        found = comparable(answer)
        if self.first is None:
            self.first = (name, found)
            return None
        why = difference(self.first[1], found, self.ordered)
        return None if why is None else f"not the answer of {self.first[0]}: {why}"


def check(contenders: Iterable[Contender], wrong: Wrong) -> Measured:
    """Run each contender once and look at its answer."""
    found = Measured()
    for contender in contenders:
        contender.prepare()
        start = time.perf_counter()
        try:
            answer = contender.run()
        except Exception as error:
            # Whatever it is, it is shown in the table, and the others go on.
            found.failed[contender.name] = f"failed: {reason(error)}"
            continue
        found.first_ms[contender.name] = (time.perf_counter() - start) * 1000
        if (why := wrong(contender.name, answer)) is not None:
            found.failed[contender.name] = f"wrong answer: {why}"
            found.wrong = True
    return found


def measure(found: Measured, contenders: Iterable[Contender], runs: int, warmup: int, processor: bool) -> None:
    """Warm up and time the contenders of a checked case in turns, unless an answer was wrong."""
    if found.wrong:
        return
    running = [contender for contender in contenders if contender.name in found.first_ms]
    warm_ms = {c.name: min(_timed(c) for _ in range(_warmups(found.first_ms[c.name], warmup))) for c in running}
    best_ms = min((warm_ms[contender.name] for contender in running if contender.peer), default=0.0)
    for contender in list(running):
        ms = warm_ms[contender.name]
        if ms > SLOW_MS or (contender.peer and not contender.default and ms > HOPELESS * best_ms):
            found.times[contender.name] = Times((ms,))
            running.remove(contender)
    spent: dict[str, list[Seconds]] = {contender.name: [] for contender in running}
    found.times |= taking_turns(
        {c.name: partial(_timed, c, spent[c.name] if processor else None) for c in running}, runs, warmup=0
    )
    found.processor = {name: Seconds.mean(seconds) for name, seconds in spent.items() if seconds}


def _warmups(first_ms: float, warmup: int) -> int:
    return 1 if first_ms > SLOW_MS else warmup


def _timed(contender: Contender, spent: list[Seconds] | None = None) -> float:
    contender.prepare()
    before = None if spent is None else processor_seconds()
    start = time.perf_counter()
    answer = contender.run()
    ms = (time.perf_counter() - start) * 1000
    del answer
    if spent is not None and before is not None:
        # What goes on in the background after the answer belongs to this run, not to the next one.
        time.sleep(SETTLE_S)
        spent.append(processor_seconds() - before)
    return ms


@dataclass(frozen=True)
class Case:
    """A line of the table whose answers have been compared."""

    name: str
    contenders: Sequence[Contender]
    found: Measured


class Comparison:
    """A table of cases on tsql and on the variants of SparkSQL. All are checked before the first is timed, so that the
    JVMs have compiled what they run often."""

    def __init__(self, title: str, runs: int, *, warmup: int = 1, processor: bool = False):
        self.section = Section(title, [], "fastest SparkSQL / tsql")
        self.runs, self.warmup, self.processor = runs, warmup, processor
        self.cases: list[Case] = []
        self.failures = 0
        self.ratios: dict[str, float] = {}
        self.default_ratios: dict[str, float] = {}

    def add(self, name: str, contenders: Sequence[Contender], wrong: Wrong) -> None:
        """Check a case."""
        found = check(contenders, wrong)
        self.failures += found.wrong or any(c.name in found.failed for c in contenders if not c.peer)
        self.cases.append(Case(name, contenders, found))
        said = "; ".join(f"{name} {why}" for name, why in found.failed.items()) or "answers agree"
        print(f"{self.section.title}, {name}: {said}", file=sys.stderr, flush=True)

    def time(self, aim: float | None = 1.0) -> Section:
        """Time all cases, with a line for each. `aim` is for the ratio of each."""
        for case in self.cases:
            measure(case.found, case.contenders, self.runs, self.warmup, self.processor)
            row = self._row(case, aim)
            self.section.rows.append(row)
            said = "; ".join(f"{name} {text}" for name, text in row.measured.items() if text)
            print(f"{self.section.title}, {case.name}: {said}", file=sys.stderr, flush=True)
        names = dict.fromkeys(contender.name for case in self.cases for contender in case.contenders)
        self.section.columns = [f"{name}, ms" for name in names] + ["default / tsql"] * bool(self.default_ratios)
        if self.processor:
            self.section.columns += [f"{name}, processor s" for name in names]
        return self.section

    def _row(self, case: Case, aim: float | None) -> Row:
        found = case.found
        row = Row(case.name, aim="" if aim is None else f">= {aim:g}")
        for contender in case.contenders:
            name = contender.name
            times = found.times.get(name)
            row.measured[f"{name}, ms"] = found.failed.get(name, "") if times is None else shown(times)
            if (seconds := found.processor.get(name)) is not None:
                row.measured[f"{name}, processor s"] = str(seconds)
        row.runs_ms = {name: times.runs_ms for name, times in found.times.items()}
        peers = {c: found.times[c.name].median for c in case.contenders if c.peer and c.name in found.times}
        ours = found.times.get(OURS)
        if ours is None:
            row.met = None if aim is None else False
        elif peers:
            row.value = self.ratios[case.name] = min(peers.values()) / ours.median
            row.met = None if aim is None else row.value >= aim
            if defaults := [ms for peer, ms in peers.items() if peer.default]:
                self.default_ratios[case.name] = min(defaults) / ours.median
                row.measured["default / tsql"] = f"{self.default_ratios[case.name]:.2f}"
        return row

    def conclude(self, aim: float | None = None) -> Section:
        """Time all cases; the last lines are the geometric means of the ratios, and the case with the lowest ratio."""
        self.time()
        if len(self.ratios) > 1:
            mean = geometric_mean(self.ratios.values())
            last = Row(f"geometric mean of {len(self.ratios)}", value=mean, aim="" if aim is None else f">= {aim:g}")
            last.met = None if aim is None else mean >= aim
            if self.default_ratios:
                last.measured["default / tsql"] = f"{geometric_mean(self.default_ratios.values()):.2f}"
            slowest = min(self.ratios, key=lambda case: self.ratios[case])
            lowest = self.ratios[slowest]
            self.section.rows += [last, Row(f"lowest: {slowest}", value=lowest, aim=">= 1", met=lowest >= 1)]
        return self.section


def shown(times: Times) -> str:
    """The median and the range of the runs."""
    if len(times.runs_ms) == 1:
        return f"{short(times.median)} (1 run)"
    return f"{short(times.median)} ({short(min(times.runs_ms))}..{short(max(times.runs_ms))})"
