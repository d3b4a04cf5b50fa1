"""Windows, lifetimes and joins in time against DuckDB, Polars and Spark.

    python -m bench.temporal [--rows 20000000] [--runs 5] [--engines tsql,duckdb,polars] [--only TEXT] [--skip TEXT]
    [--json FILE] [--markdown FILE]

All engines hold the same tables in this one process (Spark in another), return their whole answer as an Arrow table,
and take turns. The answers are compared before anything is timed, first over a sample and then over all rows. A
different answer ends the benchmark. A query that our engine does not support is shown as refused, and the others are
measured. `docs/benchmarks.md` holds tables made by it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import tsql
from bench.spark_peer import Spark
from bench.temporal_cases import JOINS, KEYS, LONG_WINDOW, ORDER, WINDOWS, Case
from bench.temporal_data import tables
from tsql.tpch.engines import DuckDB, Tsql
from tsql.tpch.measure import Times, difference, interleaved
from tsql.tpch.peers import Polars, reason
from tsql.tpch.report import Row, Section, machine, write

THREADS = 2
SAMPLE_ROWS = 200_000
ENGINES: dict[str, Callable[[int], Any]] = {"tsql": Tsql, "duckdb": DuckDB, "polars": Polars, "spark": Spark}
REFUSALS = (tsql.ParseError, tsql.BindError, tsql.PlanError)
"""What our engine raises for unsupported queries. Any other error ends the benchmark."""


class Bench:
    """Some engines with the tables of one size. Tables are loaded when a case first needs them."""

    def __init__(self, names: Iterable[str], rows: int):
        self.rows = rows
        self.paths = tables(rows)
        self.engines: dict[str, Any] = {}
        self.absent: dict[str, str] = {}
        for name in names:
            try:
                self.engines[name] = ENGINES[name](THREADS)
            except ImportError as error:
                self.absent[name] = f"not installed ({reason(error)})"
        self.loaded: set[str] = set()

    def work(self, case: Case) -> dict[str, Callable[[], pa.Table]]:
        """The function that each engine runs for a case. Engines without a text for it are left out."""
        for table in case.tables:
            if table not in self.loaded:
                for engine in self.engines.values():
                    engine.load(table, self.paths[table])
                self.loaded.add(table)
        return {name: call for name, engine in self.engines.items() if (call := _call(engine, case)) is not None}

    def close(self) -> None:
        for engine in self.engines.values():
            engine.close()


@dataclass
class Checked:
    """A case whose answers agree: what can be timed, and why our engine is not part of it, if so."""

    case: Case
    work: dict[str, Callable[[], pa.Table]]
    refusal: str | None = None


def _call(engine: Any, case: Case) -> Callable[[], pa.Table] | None:
    text = getattr(case, engine.name)
    if text is None:
        return None
    if engine.name == "polars":
        return lambda: text(engine.frames).collect(engine="streaming").to_arrow()
    return partial(engine.run, text)


def check(bench: Bench, case: Case) -> Checked:
    """Check that every engine gives the same answer. SystemExit names one that does not. A refusal of ours is not an
    answer."""
    work = bench.work(case)
    checked = Checked(case, work)
    first: tuple[str, pa.Table] | None = None
    for name in list(work):
        try:
            answer = comparable(work[name]())
        except REFUSALS as error:
            if name != "tsql":
                raise
            del work[name]
            checked.refusal = reason(error)
            continue
        if first is None:
            first = (name, answer)
        elif (why := difference(first[1], answer, ordered=False)) is not None:
            sys.exit(f"{case.name}, {bench.rows:,} rows: {first[0]} and {name} give different answers: {why}")
    return checked


def comparable(answer: pa.Table) -> pa.Table:
    """The same numbers and times in the same types: engines differ in the width of sums and in time zones."""
    columns = []
    for column in answer.columns:
        if pa.types.is_integer(column.type) or (pa.types.is_decimal(column.type) and column.type.scale == 0):
            column = column.cast(pa.int64())
        elif pa.types.is_timestamp(column.type):
            column = pc.cast(column, pa.timestamp("us"))
        columns.append(column)
    return pa.table(columns, names=answer.column_names)


def compare(title: str, bench: Bench, cases: Iterable[Case], runs: int) -> Section:
    """Time the cases on all engines. The main number is the minimum of (ratio to a peer) / (target for it): 1 or more
    meets the target."""
    section = Section(title, [*(f"{name}" for name in bench.engines), "peers over tsql"], "share of the aim")
    for case in cases:
        checked = check(bench, case)
        times = interleaved(checked.work, runs, warmup=1) if checked.work else {}
        row = Row(
            case.name,
            _shown(times, bench.rows * case.rows),
            aim=", ".join(f">= {aim:g}x {peer}" for peer, aim in case.aims.items()),
        )
        row.runs_ms = {name: measured.runs_ms for name, measured in times.items()}
        if checked.refusal is not None:
            row.measured["tsql"] = f"refused: {checked.refusal}"
        if "tsql" in times:
            ratios = {
                peer: measured.median / times["tsql"].median for peer, measured in times.items() if peer != "tsql"
            }
            row.measured["peers over tsql"] = ", ".join(f"{peer} {ratio:.2f}x" for peer, ratio in ratios.items())
            shares = [ratios[peer] / aim for peer, aim in case.aims.items() if peer in ratios]
            if shares:
                row.value, row.met = min(shares), min(shares) >= 1
        section.rows.append(row)
        _say(row)
    return section


def against_itself(
    title: str, bench: Bench, pairs: Iterable[tuple[Case, Case]], runs: int, limit: float, same_answer: bool
) -> Section:
    """Each engine by itself: how many times longer the second query takes than the first. The target is for ours."""
    section = Section(title, ["first", "second"], "times longer")
    for before, after in pairs:
        one, other = check(bench, before), check(bench, after)
        for name in bench.engines:
            aim = f"<= {limit:g}" if name == "tsql" else ""
            row = Row(f"{before.name if same_answer else f'{before.name} / {after.name}'}, {name}", aim=aim)
            if name not in one.work or name not in other.work:
                if name != "tsql":
                    continue
                row.measured["first"] = f"refused: {one.refusal or other.refusal}"
            else:
                if (
                    same_answer
                    and (why := difference(comparable(one.work[name]()), comparable(other.work[name]()), ordered=False))
                    is not None
                ):
                    sys.exit(f"{name} gives different answers to {before.tables[0]} and {after.tables[0]}: {why}")
                times = interleaved({"first": one.work[name], "second": other.work[name]}, runs, warmup=1)
                row.measured = _shown(times, bench.rows)
                row.value = times["second"].median / times["first"].median
                row.met = row.value <= limit if name == "tsql" else None
                row.runs_ms = {which: measured.runs_ms for which, measured in times.items()}
            section.rows.append(row)
            _say(row)
    return section


def _shown(times: dict[str, Times], rows: float) -> dict[str, str]:
    return {
        name: f"{measured.median:.0f} ms, {rows / measured.median / 1000:.1f} M/s" for name, measured in times.items()
    }


def _say(row: Row) -> None:
    print(f"{row.case}: {'; '.join(f'{name} {shown}' for name, shown in row.measured.items())}", file=sys.stderr)


def _chosen(cases: Iterable[Case], only: str, skip: str | None = None) -> list[Case]:
    left_out = (skip or "").lower().split(",") if skip else []
    return [
        case
        for case in cases
        if only.lower() in case.name.lower() and not any(text in case.name.lower() for text in left_out)
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark. The exit code is 0 even if a target is missed, since a slow machine is not a failure."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.temporal", description="Temporal queries against DuckDB, Polars and Spark"
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=20_000_000,
        help="ad events; trades and quotes are half as many each (default: 20 million, for which the aims are stated)",
    )
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each query on each engine (default: 5)")
    parser.add_argument("--engines", default="tsql,duckdb,polars", help="comma-separated, of: " + ", ".join(ENGINES))
    parser.add_argument("--only", default="", metavar="TEXT", help="only the cases whose name has this text")
    parser.add_argument(
        "--skip", metavar="TEXT", help="not the cases whose names have this text, or one of several with commas between"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measured times as JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables as markdown")
    options = parser.parse_args(arguments)
    names = options.engines.split(",")
    if unknown := set(names) - ENGINES.keys():
        parser.error(f"unknown engines: {', '.join(sorted(unknown))}")
    if options.rows < 1_000 or options.runs < 1:
        parser.error("--rows is at least 1000 and --runs at least 1")
    facts = machine()
    chosen = partial(_chosen, only=options.only, skip=options.skip)
    groups = {
        "Windows and lifetimes": chosen(WINDOWS),
        "Joins in time": chosen(JOINS),
        "From 1 to 10 M keys": chosen(KEYS),
    }
    order = [pair for pair in ORDER if chosen(pair[:1])]
    long_window = [LONG_WINDOW] if chosen(LONG_WINDOW) else []

    if options.rows > SAMPLE_ROWS:
        sample = Bench(names, SAMPLE_ROWS)
        for case in [
            *(case for cases in groups.values() for case in cases),
            *(case for pair in (*order, *long_window) for case in pair),
        ]:
            check(sample, case)
        sample.close()
    bench = Bench(names, options.rows)
    facts |= {
        "data": f"{options.rows:,} ad events",
        "threads": str(THREADS),
        **{name: engine.version for name, engine in bench.engines.items()},
        **bench.absent,
    }
    sections = [compare(title, bench, cases, options.runs) for title, cases in groups.items() if cases]
    if order:
        sections.append(
            against_itself("Rows in the order of time, and shuffled", bench, order, options.runs, 1.5, same_answer=True)
        )
    if long_window:
        sections.append(
            against_itself(
                "The longest window against a tumbling one", bench, long_window, options.runs, 1.5, same_answer=False
            )
        )
    bench.close()
    print(write(sections, facts, options.markdown, options.json))
    return 0


if __name__ == "__main__":
    sys.exit(main())
