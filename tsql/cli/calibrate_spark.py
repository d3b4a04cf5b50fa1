"""`tsql calibrate --backend spark`: measures what a cluster charges for stages, tasks, jobs and bytes, by timing small
plans on it.

As in `calibrate.py`, each constant is what a plan takes beyond another one that lacks something, and the shortest of
several runs counts. Rows come from a DataFrame, so nothing is read from files that executors might not have."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tsql.cli.calibrate import LEAST_NS
from tsql.loaded import LoadedPlan
from tsql.planner.cost.constants import DEFAULT, Costs
from tsql.session import Session

ROWS = 4_000_000
"""Rows of 16 bytes that are moved. An eighth is broadcast: the driver and each worker hold all of these."""
FEW_ROWS = 1000
RUNS = 7
WARM_RUNS = 2
STAGES = 4
"""Further stages that are timed together."""
WAVES = 8
"""Further tasks of each core that are timed together."""

_COUNTED = (
    "parts = aggregate {last} phase=partial by=() n=count(*) s=sum(v)\nall = gather parts\n"
    "total = aggregate all phase=final by=() n=count(*) s=sum(v)\noutput total (n, s)"
)


def measure(
    session: Session,
    rows: int = ROWS,
    runs: int = RUNS,
    report: Callable[[str, float], None] = lambda name, value: None,
) -> Costs:
    """The default costs with those of a session's cluster; `report` is called with each as it is known."""
    found = replace(DEFAULT)
    for name, value in _Bench(session, rows, runs).costs():
        found = replace(found, **{name: max(value, LEAST_NS)})
        report(name, getattr(found, name))
    return found


class _Bench:
    """The DataFrames and the plans that are timed."""

    def __init__(self, session: Session, rows: int, runs: int) -> None:
        backend: Any = session.backend
        self.session, self.rows, self.runs = session, rows, runs
        self.cores: int = backend.shards
        self.sent = max(FEW_ROWS, rows // 8)
        for name, count in (("big", rows), ("sent", self.sent), ("small", FEW_ROWS)):
            session.register(name, backend.spark.range(0, count, 1, self.cores).selectExpr("id AS k", "id AS v"))

    def costs(self) -> Iterator[tuple[str, float]]:
        """(name, value) of each cost."""
        ns = self.times(
            {
                "counted": self.counted("small"),
                "one stage": self.moved("small", 1),
                "stages": self.moved("small", 1 + STAGES),
                "tasks": self.moved("small", 1, (1 + WAVES) * self.cores),
                "job": self.joined("small"),
                "counted big": self.counted("big"),
                "moved big": self.moved("big", 1),
                "counted sent": self.counted("sent"),
                "sent": self.joined("sent"),
            }
        )
        stage_ns = (ns["stages"] - ns["one stage"]) / STAGES
        yield "stage_us", stage_ns / 1000
        yield "task_us", (ns["tasks"] - ns["one stage"]) / WAVES / 1000
        yield "job_us", (ns["job"] - ns["counted"] - stage_ns) / 1000
        moved = ns["moved big"] - ns["counted big"] - (ns["one stage"] - ns["counted"])
        yield "global_byte_ns", moved * self.cores / (16 * self.rows)
        sent = ns["sent"] - ns["counted sent"] - (ns["job"] - ns["counted"])
        yield "broadcast_byte_ns", sent / (16 * self.sent)

    def counted(self, table: str) -> str:
        """One job of one stage."""
        return f"rows = scan {table} columns=(k, v)\n" + _COUNTED.format(last="rows")

    def moved(self, table: str, stages: int, shards: int | None = None) -> str:
        """The same with further stages, the last with so many tasks."""
        lines, last = [f"rows = scan {table} columns=(k, v)"], "rows"
        for number in range(stages):
            count = shards if shards is not None and number == stages - 1 else self.cores
            lines.append(f"keyed{number} = rekey {last} key=({'vk'[number % 2]})")
            lines.append(f"placed{number} = redistribute keyed{number} scope=global shards={count}")
            last = f"placed{number}"
        return "\n".join(lines) + "\n" + _COUNTED.format(last=last)

    def joined(self, table: str) -> str:
        """A few rows joined with a few of a table that the driver collects and sends to all."""
        return (
            f"rows = scan small columns=(k, v)\nside = scan {table} columns=(k, v)\nnamed = project side k2=k v2=v\n"
            f"everywhere = broadcast named scope=global shards={self.cores} how=collect\n"
            f"few = filter everywhere where=(k2 + v2 < {FEW_ROWS})\n"
            "pairs = hash_join rows few kind=inner on=(k = k2) build=right\n" + _COUNTED.format(last="pairs")
        )

    def times(self, plans: dict[str, str]) -> dict[str, float]:
        """The shortest run of each plan, in nanoseconds. They take turns, so that a busy moment hits all of
        them. The first runs start workers and compile, and do not count."""
        head = f"plan version 1\ntarget spark shards={self.cores}\n"
        relations = {
            name: LoadedPlan(f"{head}{steps}\n", "calibrate").run(self.session) for name, steps in plans.items()
        }
        best = dict.fromkeys(plans, math.inf)
        for number in range(self.runs + WARM_RUNS):
            for name, relation in relations.items():
                begun = time.perf_counter_ns()
                relation.arrow()
                if number >= WARM_RUNS:
                    best[name] = min(best[name], time.perf_counter_ns() - begun)
        return best
