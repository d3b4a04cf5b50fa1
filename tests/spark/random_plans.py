"""Random plans for Spark, through its tasks in this process: a plan that is accepted gives the rows of its steps on one
shard of the local backend. The plans are those of `tests/plans/random_steps.py` with movement between tasks, broadcasts
of every kind, and scans of tables in memory, of blocks and of files with small row groups.

    python -m tests.spark.random_plans CASES [SEED]      runs as many as you like, and prints what it finds
"""

from __future__ import annotations

import re
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq

import tsql
from tests.plans.random_steps import TABLES, Maker, on_one_shard, session
from tests.spark.cluster import InProcess
from tsql.kernels.expr.errors import ExecutionError, PlanError

SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"batch_rows": 1},
    {"batch_rows": 3, "equal_hashes": True},
    {"spill_after": 1},
    {"spill_after": 900},
)
CPUS = (1, 1, 1, 1, 2)
"""The threads of a task under each of the settings."""


@contextmanager
def sessions(folder: Path, number: int = 0) -> Iterator[tuple[Any, Any]]:
    """(on Spark's tasks, on one shard), with the same tables: `t`, `u`, the blocks `o`, and files of `t` and `u`."""
    for name, table in TABLES.items():
        path = folder / f"{name}.parquet"
        if not path.exists():
            pq.write_table(table, path, row_group_size=7)
            pq.write_table(table.slice(0, 0), folder / f"{name}_empty.parquet")
    settings = SETTINGS[number % len(SETTINGS)]
    cluster = InProcess(3, CPUS[number % len(SETTINGS)])
    with session(spark=cluster, threads=1, **settings) as spark, session(threads=1) as one:
        yield spark, one


def for_spark(text: str, random: Random, folder: Path) -> str:
    """A plan for the local backend as one for Spark."""
    lines = []
    for line in re.sub(r"^target local shards=\d+", f"target spark shards={random.choice((2, 3, 17))}", text,
                       flags=re.MULTILINE).split("\n"):  # fmt: skip
        if "scope=local" in line and random.random() < 0.85:
            line = line.replace("scope=local", "scope=global")
        if found := re.match(r"(\w+)\s+= broadcast (\w+) .*scope=global", line):
            how = random.choice(("read", "send", "collect", None))
            if how in ("read", "send"):
                # Only one shard can be read by everyone.
                lines.append(f"{found.group(1)}_one = gather {found.group(2)}")
                line = line.replace(f"broadcast {found.group(2)}", f"broadcast {found.group(1)}_one")
            line += "" if how is None else f" how={how}"
        if found := re.match(r"\w+\s+= scan (t|u) ", line):
            files = f"{folder}/{found.group(1)}{random.choice(('', '*', '_empty'))}.parquet"
            if random.random() < 0.5:
                line = line.replace(f"scan {found.group(1)} ", f"scan '{files}' ")
            line += random.choice(("", "", "", " shards=1"))
        lines.append(line)
    return "\n".join(lines)


def rows_of(text: str, db: Any) -> Counter[str]:
    return Counter(map(repr, tsql.load_plan_text(text).run(db).fetchall()))


def alone(text: str) -> str:
    """The same steps in one shard of the local backend."""
    text = re.sub(r" how=(read|send|collect)", "", re.sub(r" shards=\d+", "", text))
    return on_one_shard(text.replace("target spark", "target local"))


def wrong(text: str, spark: Any, one: Any) -> str | None:
    """What is wrong with the rows of a plan: "" if it was refused or has none to compare, None if nothing is."""
    shows_states = "phase=partial by" in text and "phase=final" not in text
    if shows_states or re.search(r"phase=partial by=\([^()]*\)$", text, re.MULTILINE):
        # There are as many states as there are shards.
        return ""
    try:
        given = rows_of(text, spark)
    except PlanError:
        return ""
    except ExecutionError as error:
        return None if error.message in _message(text, one) else f"only on Spark: {error}"
    try:
        expected = rows_of(alone(text), one)
    except ExecutionError:
        return ""
    if given == expected:
        return None
    return f"too many {list((given - expected).items())[:3]}, missing {list((expected - given).items())[:3]}"


def _message(text: str, one: Any) -> str:
    """The error of a plan in one shard. A left row without a partner is a NULL in time that some shards alone see."""
    try:
        rows_of(alone(text), one)
    except ExecutionError as error:
        return error.message
    return "the time f is NULL in a row" if "lifetime=" in text else ""


def plan(seed: int, one: Any, folder: Path) -> str | None:
    text = Maker(one, seed).plan()
    return None if text is None else for_spark(text, Random(f"{seed}/spark"), folder)


def main() -> None:
    cases, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(len(SETTINGS)):
            with sessions(Path(folder), number) as (spark, one):
                for case in range(seed + number, seed + cases, len(SETTINGS)):
                    text = plan(case, one, Path(folder))
                    if text is None:
                        outcomes["none"] += 1
                        continue
                    try:
                        found = wrong(text, spark, one)
                    except Exception:
                        found = traceback.format_exc()
                    outcomes["right" if found is None else "wrong" if found else "refused"] += 1
                    if found:
                        print(f"case {case}: {found}\n{text}\n", flush=True)
    print(dict(outcomes))


if __name__ == "__main__":
    main()
