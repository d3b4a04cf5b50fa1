"""Progressive queries: the time to the first snapshot, and what 20 snapshots cost beside the plain query.

    python -m bench.progressive [--scale 1] [--rows 20000000] [--until-rows 100000000] [--runs 5] [--threads 2]
    [--only memory,parquet,cut,events,until] [--queries TEXT] [--no-peaks] [--json FILE] [--markdown FILE]

TPC-H in memory, from Parquet files as tpchgen makes them, and from files cut into many row groups; window queries over
ad events in memory; averages that stop at an error of 1 %. The plain query and the one with snapshots take turns in
this process, over the same tables. Before anything is timed, the last snapshot and the plain result are compared with
DuckDB's answer. Peak memory is that of fresh processes, beyond the loaded tables."""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import tsql
from bench.snapshots.cases import EVENTS, NUMBERS, UNTIL, Asked, cut_tables, tpch
from bench.snapshots.memory import Peak, peaks
from bench.temporal import comparable
from bench.temporal_data import tables as event_tables
from tsql.tpch.check import Oracle
from tsql.tpch.data import tables
from tsql.tpch.engines import DuckDB, Tsql
from tsql.tpch.measure import Times, difference, interleaved, ratios, short, taking_turns
from tsql.tpch.peers import reason
from tsql.tpch.queries import NUMBERS as TPCH_NUMBERS
from tsql.tpch.report import Row, Section, counted, machine, write

KINDS = ("memory", "parquet", "cut", "events", "until")
CLAUSE = "PROGRESSIVE EVERY 5 PERCENT"
SAMPLE_ROWS = 200_000
"""DuckDB answers window queries over so many events; some of them would take it minutes over all."""
MORSEL_ROWS = 1 << 16
"""Rows of a morsel of a table in memory: a block."""
FIRST, FIRST_MS, OVER, MEMORY, SOONER = 7.0, 15.0, 10.0, 1.3, 20.0
"""The aims: the first snapshot in % of the plain time and in ms over a morsel, 20 snapshots in % over the plain time,
times the memory, times sooner."""
LEAST_BYTES = 1 << 20
"""Less memory than this is slack of allocators: a query counts with this much at least."""
COLUMNS = [
    "plain, ms",
    "first snapshot, ms",
    "% of plain",
    "ms over a morsel",
    "with snapshots, ms",
    "% over plain",
    "snapshots",
    "memory / plain, MiB",
    "times plain",
    "note",
]


@dataclass
class Shown:
    """A query's run with snapshots. first_ms: until the first of them."""

    ms: float
    first_ms: float
    snapshots: int
    rows: int
    """The rows of the scan that makes the progress."""
    table: pa.Table
    notes: list[str]


@dataclass
class Measured:
    """A query's times. first: of the first snapshot, by run."""

    plain: Times
    whole: Times
    first: Times
    last: Shown
    memory: tuple[Peak, Peak] | None = None

    @property
    def progresses(self) -> bool:
        return self.last.snapshots > 1

    @property
    def first_share(self) -> float:
        """In % of the plain run of the same round."""
        return 100 * ratios(self.first, self.plain).median

    @property
    def over(self) -> float:
        return 100 * (ratios(self.whole, self.plain).median - 1)

    def over_morsel(self, threads: int) -> float:
        """The milliseconds of the first snapshot without those that the plain query takes for one morsel."""
        morsels = max(1.0, self.last.rows / MORSEL_ROWS)
        return self.first.median - self.plain.median * threads / morsels

    @property
    def times_memory(self) -> float | None:
        if self.memory is None:
            return None
        plain, shown = (max(peak.beyond, LEAST_BYTES) for peak in self.memory)
        return shown / plain


def shown(session: Any, sql: str, clause: str = CLAUSE) -> Shown:
    """Run a query with snapshots."""
    begun, first, count = time.perf_counter(), 0.0, 0
    relation = session.sql(f"{sql}\n{clause}")
    with relation.snapshots() as snapshots:
        for _ in snapshots:
            count += 1
            first = first or time.perf_counter() - begun
    spent, last = time.perf_counter() - begun, snapshots.last
    assert last is not None
    return Shown(1000 * spent, 1000 * first, count, last.rows_read, last.table, list(relation.notes))


def why_not(session: Any, sql: str) -> str:
    """What `explain` says where a query shows the final result only."""
    found = re.search(r"PROGRESSIVE shows the final result only: ([^\n]*)", session.sql(f"{sql}\n{CLAUSE}").explain())
    return found[1] if found else ""


def measure(session: Any, sql: str, runs: int) -> Measured:
    """Time the plain query and the one with snapshots, in turns."""
    found: list[Shown] = []

    def with_snapshots() -> float:
        found.append(shown(session, sql))
        return found[-1].ms

    def plain() -> float:
        begun = time.perf_counter()
        answer = session.sql(sql).arrow()
        spent = time.perf_counter() - begun
        del answer
        return 1000 * spent

    taken = taking_turns({"plain": plain, "snapshots": with_snapshots}, runs, warmup=3)
    timed = found[-runs:]
    return Measured(taken["plain"], taken["snapshots"], Times(tuple(one.first_ms for one in timed)), timed[-1])


@dataclass
class Source:
    """Queries over tables of one kind, and the section of the report about them. `wrong` says why a plain result or a
    last snapshot is not the answer."""

    title: str
    how: str
    paths: Mapping[str, Path]
    asked: Iterable[Asked]
    wrong: Callable[[Asked, pa.Table], str | None]
    in_memory: bool = True
    measured: list[Measured] = field(default_factory=list)
    failures: int = 0


def section(source: Source, options: argparse.Namespace) -> Section:
    """Measure the queries of a source."""
    columns = [one for one in COLUMNS if options.peaks or one not in ("memory / plain, MiB", "times plain")]
    made = Section(source.title, [one for one in columns if source.in_memory or "morsel" not in one], "median")
    with closing(Tsql(options.threads)) as engine:
        loaded: set[str] = set()
        for asked in source.asked:
            for name in asked.tables:
                if name not in loaded:
                    (engine.load if source.how == "memory" else engine.view)(name, source.paths[name])
                    loaded.add(name)
            made.rows.append(_row(asked, source, engine.session, options))
            _say(made.rows[-1])
    made.rows += _medians(source, options.threads)
    return made


def _row(asked: Asked, source: Source, session: Any, options: argparse.Namespace) -> Row:
    row = Row(asked.name)
    try:
        for which, answer in (("plain", session.sql(asked.sql).arrow()), ("final", shown(session, asked.sql).table)):
            if (why := source.wrong(asked, answer)) is not None:
                source.failures += 1
                row.measured["note"] = f"wrong answer, {which}: {why}"
                return row
        one = measure(session, asked.sql, options.runs)
    except Exception as error:  # whatever it is: the other queries are measured
        traceback.print_exc()
        source.failures += 1
        row.measured["note"] = f"fails: {reason(error)}"
        return row
    if options.peaks:
        paths = {name: source.paths[name] for name in asked.tables}
        one.memory = peaks(asked, CLAUSE, paths, source.how, options.threads)
    source.measured.append(one)
    note = "; ".join(one.last.notes) or ("" if one.progresses else why_not(session, asked.sql))
    row.measured = _cells(one, options.threads) | {"note": note if one.progresses else f"final only: {note}"}
    row.runs_ms = {"plain": one.plain.runs_ms, "snapshots": one.whole.runs_ms, "first": one.first.runs_ms}
    return row


def _cells(one: Measured, threads: int) -> dict[str, str]:
    cells = {
        "plain, ms": str(one.plain),
        "first snapshot, ms": str(one.first),
        "% of plain": f"{one.first_share:.1f}",
        "ms over a morsel": f"{one.over_morsel(threads):.1f}",
        "with snapshots, ms": str(one.whole),
        "% over plain": f"{one.over:+.1f}",
        "snapshots": str(one.last.snapshots),
    }
    if one.memory is not None:
        cells["memory / plain, MiB"] = " / ".join(short(peak.beyond / 2**20) for peak in reversed(one.memory))
        cells["times plain"] = short(one.times_memory or 0)
    return cells


def _medians(source: Source, threads: int) -> Iterator[Row]:
    """The aims, over all queries and over those that progress."""
    every = [(one, True) for one in source.measured], [(one, False) for one in source.measured if one.progresses]
    for chosen in every:
        if not chosen:
            continue
        found, is_all = [one for one, _ in chosen], chosen[0][1]
        of = counted(len(found)) if is_all else f"the {len(found)} that progress"

        def aim(what: str, value: float, limit: float, is_all: bool = is_all, of: str = of) -> Row:
            return Row(f"{what}, {of}", {}, value, f"<= {limit:g}", value <= limit if is_all else None)

        yield aim("first snapshot, % of plain", statistics.median(one.first_share for one in found), FIRST)
        if source.in_memory:
            yield aim(
                "the latest first snapshot, ms over a morsel", max(o.over_morsel(threads) for o in found), FIRST_MS
            )
        yield aim("snapshots, % over plain", statistics.median(one.over for one in found), OVER)
        memory = [one.times_memory for one in found if one.times_memory is not None]
        if memory:
            yield aim("memory, times plain", statistics.median(memory), MEMORY)


def tpch_source(kind: str, options: argparse.Namespace, oracle: Oracle) -> Source:
    """The 22 queries over the tables in memory, or over files."""
    made = tpch(TPCH_NUMBERS, options.scale)
    chosen = [one for one in made.values() if options.queries in ("", *one.name.lower().split(), one.name)]
    numbers = {one.name: number for number, one in made.items()}

    def wrong(asked: Asked, answer: pa.Table) -> str | None:
        outcome = oracle.compare("tsql", numbers[asked.name], lambda: answer)
        return None if outcome.right else str(outcome)

    paths = cut_tables(options.scale) if kind == "cut" else tables(options.scale)
    where = {
        "memory": "in memory",
        "parquet": "from Parquet, row groups as tpchgen makes them",
        "cut": "from Parquet, row groups of 10,000 rows",
    }[kind]
    how = "memory" if kind == "memory" else "parquet"
    return Source(f"TPC-H at scale {options.scale:g}, {where}", how, paths, chosen, wrong, kind == "memory")


def events_source(options: argparse.Namespace) -> Source:
    """Window queries over ad events. DuckDB answers them over a sample; over all rows, the last snapshot is compared
    with the plain result."""
    chosen = [case for case in EVENTS if options.queries.lower() in case.name.lower()]
    sample = event_tables(min(options.rows, SAMPLE_ROWS))
    failed: dict[str, str] = {}
    with closing(Tsql(options.threads)) as ours, closing(DuckDB(options.threads)) as duckdb:
        for name in sorted({name for case in chosen for name in case.tables}):
            for engine in (ours, duckdb):
                engine.load(name, sample[name])
        for case in chosen:
            assert case.duckdb is not None
            expected = comparable(duckdb.run(case.duckdb))
            for which, answer in (("plain", ours.run(case.tsql)), ("final", shown(ours.session, case.tsql).table)):
                if (why := difference(expected, comparable(answer), ordered=False)) is not None:
                    failed[case.name] = f"{which} over a sample: {why}"
    plain: dict[str, pa.Table] = {}

    def wrong(asked: Asked, answer: pa.Table) -> str | None:
        if asked.name in failed:
            return failed[asked.name]
        before = plain.pop(asked.name, None)
        if before is None:
            plain[asked.name] = answer
            return None
        return difference(comparable(before), comparable(answer), ordered=False)

    asked = [Asked(case.name, case.tsql, case.tables) for case in chosen]
    title = f"Windows over {options.rows:,} events in memory"
    return Source(title, "memory", event_tables(options.rows), asked, wrong)


def _say(row: Row) -> None:
    shown = "; ".join(f"{name} {cell}" for name, cell in row.measured.items() if cell)
    print(f"{row.case}: {shown}", file=sys.stderr, flush=True)


def until(options: argparse.Namespace) -> Section:
    """Averages that stop at an error of 1 %, against the exact ones."""
    title = f"UNTIL ERROR <= 0.01 over {options.until_rows:,} rows in memory"
    made = Section(title, ["exact, ms", "until, ms", "snapshots", "read, %", "off by, %"], "times sooner")
    with closing(Tsql(options.threads)) as engine:
        engine.execute(NUMBERS.format(rows=options.until_rows))
        for name, sql in UNTIL.items():
            if options.queries.lower() not in name:
                continue
            early = f"{sql} PROGRESSIVE UNTIL ERROR <= 0.01"
            with engine.session.sql(early).snapshots() as snapshots:
                count = sum(1 for _ in snapshots)
            last = snapshots.last
            assert last is not None
            exact, found = (table["m"].to_pylist() for table in (engine.run(sql), last.table))
            off = max(abs(a - b) / abs(a) for a, b in zip(exact, found, strict=True))
            work = {"exact": lambda sql=sql: engine.run(sql), "until": lambda sql=early: engine.run(sql)}
            times = interleaved(work, options.runs, warmup=3)
            row = Row(name, aim=f">= {SOONER:g}", runs_ms={which: t.runs_ms for which, t in times.items()})
            row.value = ratios(times["exact"], times["until"]).median
            row.met = row.value >= SOONER
            row.measured = {
                "exact, ms": str(times["exact"]),
                "until, ms": str(times["until"]),
                "snapshots": str(count),
                "read, %": f"{100 * last.progress:.2f}",
                "off by, %": f"{100 * off:.2f}",
            }
            _say(row)
            made.rows.append(row)
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark. The exit code is 1 if a query fails or has a wrong answer, and 0 if an aim is missed: a slow
    machine is not a failure."""
    parser = argparse.ArgumentParser(prog="python -m bench.progressive", description="The cost of snapshots")
    parser.add_argument("--scale", type=float, default=1, help="of TPC-H (default: 1)")
    parser.add_argument("--rows", type=int, default=20_000_000, help="ad events (default: 20 million)")
    parser.add_argument("--until-rows", type=int, default=100_000_000, help="rows to average (default: 100 million)")
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each (default: 5)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--only", default=",".join(KINDS), metavar="KINDS", help="comma-separated, of: " + ",".join(KINDS)
    )
    parser.add_argument("--queries", default="", metavar="TEXT", help="one query of TPC-H (Q3), or a part of a name")
    parser.add_argument("--no-peaks", dest="peaks", action="store_false", help="leave out peak memory")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measured times as JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables as markdown")
    options = parser.parse_args(arguments)
    kinds = options.only.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"--only takes {', '.join(KINDS)}, not {', '.join(sorted(unknown))}")
    if min(options.runs, options.threads) < 1 or options.rows < 1_000 or options.until_rows < 1:
        parser.error("--runs, --threads and --until-rows are at least 1, --rows at least 1000")
    facts = machine() | {"threads": str(options.threads), "tsql": tsql.__version__, "snapshots": CLAUSE}
    sections, failures = [], 0
    files = [kind for kind in KINDS[:3] if kind in kinds]
    if files:
        with closing(Oracle(options.scale, tables(options.scale))) as oracle:
            for kind in files:
                source = tpch_source(kind, options, oracle)
                sections.append(section(source, options))
                failures += source.failures
    if "events" in kinds:
        source = events_source(options)
        sections.append(section(source, options))
        failures += source.failures
    if "until" in kinds:
        sections.append(until(options))
    print(write(sections, facts, options.markdown, options.json), end="")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
