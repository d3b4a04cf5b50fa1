"""Queries over one table against DuckDB: TPC-H in memory and from Parquet, thread scaling, and what a query costs
before it runs.

    python -m bench.single_table [--scale 1] [--runs 9] [--json FILE] [--markdown FILE] [--engines tsql,duckdb]

Both engines hold the same tables in this one process, return their whole answer as an Arrow table, and take turns. A
different answer ends the benchmark before anything is timed. `docs/benchmarks.md` holds a table made by it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import pbkdf2_hmac
from pathlib import Path
from typing import Any

import numpy as np

from bench import cold
from tsql.tpch.data import tables
from tsql.tpch.engines import ENGINES, Engine, quoted
from tsql.tpch.measure import Times, difference, interleaved, ratios, taking_turns
from tsql.tpch.queries import query
from tsql.tpch.report import Row, Section, machine, write
from tsql.tpch.worker import Worker

THREADS = 2
ONE_AND_TWO = ("1 thread, ms", "2 threads, ms")
MEMORY_BYTES = 64 << 20
"""About what Q6 reads of lineitem at scale 1."""


@dataclass(frozen=True)
class Case:
    """A query, whether its rows are ordered, and its target speedup over DuckDB."""

    name: str
    sql: str
    aim: float
    ordered: bool = False


def memory_cases(comment: str) -> list[Case]:
    """The queries over tables in memory; `comment` is a value of l_comment."""
    return [
        Case("Q1", query(1), 5.0, ordered=True),
        Case("Q6", query(6), 2.0),
        Case("count(*) where l_shipmode = 'AIR'", "SELECT count(*) AS n FROM lineitem WHERE l_shipmode = 'AIR'", 2.0),
        Case("count(*) where l_comment = ..", f"SELECT count(*) AS n FROM lineitem WHERE l_comment = '{comment}'", 2.0),
        Case(
            "group by l_orderkey (1.5 M groups at scale 1)",
            "SELECT l_orderkey, sum(l_quantity) AS quantity, count(*) AS n FROM lineitem GROUP BY l_orderkey",
            1.0,
        ),
        Case(
            "group by l_comment (4.6 M groups), top 10",
            "SELECT l_comment, count(*) AS n FROM lineitem GROUP BY l_comment ORDER BY n DESC, l_comment LIMIT 10",
            1.0,
            ordered=True,
        ),
        Case(
            "group by o_comment (1.5 M groups)", "SELECT o_comment, count(*) AS n FROM orders GROUP BY o_comment", 1.0
        ),
        Case(
            "top 100 (of 6 M rows)",
            (
                "SELECT l_extendedprice, l_orderkey, l_linenumber FROM lineitem ORDER BY l_extendedprice DESC, "
                "l_orderkey, l_linenumber LIMIT 100"
            ),
            1.0,
            ordered=True,
        ),
    ]


def file_cases(path: Path) -> list[Case]:
    """The queries that read Parquet each time."""
    return [
        Case(
            f"Q{number} from Parquet",
            query(number).replace("FROM lineitem", f"FROM {quoted(path)}"),
            1.0,
            ordered=number == 1,
        )
        for number in (1, 6)
    ]


def check(engines: dict[str, Engine], cases: list[Case]) -> None:
    """Check that every engine gives the same answer to every case. SystemExit names one that does not."""
    for case in cases:
        first, *others = engines.items()
        expected = first[1].run(case.sql)
        for name, engine in others:
            why = difference(expected, engine.run(case.sql), case.ordered)
            if why is not None:
                sys.exit(f"{case.name}: {first[0]} and {name} give different answers: {why}")


def compare(title: str, engines: dict[str, Engine], cases: list[Case], runs: int) -> Section:
    """Time the cases on all engines; the ratio is DuckDB's median over tsql's."""
    section = Section(title, [f"{name}, ms" for name in engines], "times faster")
    for case in cases:
        times = interleaved(
            {name: partial(engine.run, case.sql) for name, engine in engines.items()}, runs, least_ms=200
        )
        row = Row(
            case.name,
            {f"{name}, ms": str(t) for name, t in times.items()},
            aim=f">= {case.aim:g}",
            runs_ms={name: t.runs_ms for name, t in times.items()},
        )
        if {"tsql", "duckdb"} <= times.keys():
            row.value = times["duckdb"].median / times["tsql"].median
            row.met = row.value >= case.aim
        section.rows.append(row)
        print(f"{case.name}: {row.measured} {'' if row.value is None else f'{row.value:.2f}x'}", file=sys.stderr)
    return section


def scaling(names: list[str], path: Path, scale: float, runs: int) -> Section:
    """One thread against two, for each engine by itself. Each number of threads has its own process, in which the table
    is loaded once."""
    section = Section("Two threads against one, in memory", list(ONE_AND_TWO), "times faster")
    for name in names:
        with Worker(name, 1) as one, Worker(name, 2) as two:
            for worker in (one, two):
                worker.load({"lineitem": path})
            for number in (1, 6):
                work = {
                    shown: partial(worker.run, number, query(number), scale)
                    for shown, worker in zip(ONE_AND_TWO, (one, two))
                }
                section.rows.append(
                    _speedup(
                        f"Q{number}, {name}", taking_turns(work, runs, least_ms=500), 1.8 if name == "tsql" else None
                    )
                )
    section.rows.extend((reading_memory(runs), computing(runs)))
    return section


def _speedup(name: str, times: dict[str, Times], aim: float | None = None) -> Row:
    """How many times faster two threads are, by the median of rounds."""
    one, two = times.values()
    ratio = ratios(one, two).median
    shown, all_runs = {name: str(t) for name, t in times.items()}, {name: t.runs_ms for name, t in times.items()}
    return Row(
        name, shown, ratio, "" if aim is None else f">= {aim:g}", None if aim is None else ratio >= aim, all_runs
    )


def reading_memory(runs: int) -> Row:
    """The current memory bandwidth available to a query that reads its columns and does little else: a sum over
    memory."""
    halves = np.array_split(np.ones(MEMORY_BYTES // 8, np.int64), 2)
    return _speedup(f"a sum over {MEMORY_BYTES >> 20} MiB, numpy", _at_once(np.sum, halves, runs))


def computing(runs: int) -> Row:
    """The current speed of work that reads almost no memory: digests of digests."""
    return _speedup(
        "PBKDF2 with SHA-256, twice 20,000 rounds, hashlib",
        _at_once(partial(pbkdf2_hmac, "sha256", b"", iterations=20_000), [b"1", b"2"], runs),
    )


def _at_once(work: Callable[[Any], object], parts: Sequence[Any], runs: int) -> dict[str, Times]:
    """Work on two parts, one after the other and both at once. The work must release the GIL."""
    with ThreadPoolExecutor(2) as pool:
        calls = (lambda: list(map(work, parts)), lambda: list(pool.map(work, parts)))
        return interleaved(dict(zip(ONE_AND_TWO, calls)), runs, least_ms=500)


def before_running(names: list[str], repeats: int) -> Section:
    """The cost of Q1 before it runs, cold and from the disk cache, and the dispatch time of a cached query."""
    section = Section("Before the first row: parse, plan, compile", names, "tsql, ms")
    path = tables(cold.SCALE)["lineitem"]
    found = {name: cold.measure(name, path, query(1), repeats) for name in names}
    for case, kind, part, limit in (
        ("Q1, empty caches", "cold", "before", 80.0),
        ("Q1, second process, disk cache", "disk", "before", 15.0),
        ("a cached query over one row, whole call", "disk", "dispatch", 1.0),
    ):
        values = {name: [one[part] for one in found[name][kind]] for name in names}
        row = Row(
            case,
            {name: f"{statistics.median(v):.2f} ({min(v):.2f}..{max(v):.2f})" for name, v in values.items()},
            aim=f"< {limit:g} ms",
        )
        if "tsql" in values:
            row.value = statistics.median(values["tsql"])
            row.met = row.value < limit
        row.runs_ms = {name: tuple(v) for name, v in values.items()}
        section.rows.append(row)
    return section


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark. The exit code is 0 even if a target is missed, since a slow machine is not a failure."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.single_table", description="Queries over one table against DuckDB"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="TPC-H scale factor (default: 1, for which the aims are stated)"
    )
    parser.add_argument("--runs", type=int, default=9, help="timed runs of each query on each engine (default: 9)")
    parser.add_argument("--engines", default="tsql,duckdb", help="comma-separated, of: " + ", ".join(ENGINES))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measured times as JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables as markdown")
    options = parser.parse_args(arguments)
    names = options.engines.split(",")
    if unknown := set(names) - ENGINES.keys():
        parser.error(f"unknown engines: {', '.join(sorted(unknown))}")
    facts = machine()
    paths = tables(options.scale)
    engines: dict[str, Engine] = {name: ENGINES[name](threads=THREADS) for name in names}
    for engine in engines.values():
        for table in ("lineitem", "orders"):
            engine.load(table, paths[table])
    facts |= {
        "data": f"TPC-H scale {options.scale:g}",
        "threads": str(THREADS),
        **{name: engine.version for name, engine in engines.items()},
    }

    in_memory, from_files = memory_cases(_some_comment(paths["lineitem"])), file_cases(paths["lineitem"])
    check(engines, in_memory + from_files)
    sections = [
        compare("In memory, warm", engines, in_memory, options.runs),
        compare("From Parquet, warm", engines, from_files, options.runs),
        scaling(names, paths["lineitem"], options.scale, options.runs),
        before_running(names, repeats=5),
    ]
    print(write(sections, facts, options.markdown, options.json))
    return 0


def _some_comment(path: Path) -> str:
    """A value of l_comment from the middle of the file."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    return (
        file.read_row_group(file.num_row_groups // 2, columns=["l_comment"])["l_comment"][0].as_py().replace("'", "''")
    )


if __name__ == "__main__":
    sys.exit(main())
