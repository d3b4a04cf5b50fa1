"""`python -m tsql.tpch bench` and `tsql bench tpch`: TPC-H against DuckDB, Hyper, Polars and DataFusion, as tables,
JSON and a chart.

All engines run in one process, on the same data, taking turns. Every answer is compared with DuckDB's before anything
is timed. Queries that an engine refuses, and engines that are not installed, are reported and stop nothing. A wrong
answer is not timed, and ends in exit code 1."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from tsql.tpch import fresh
from tsql.tpch import join_sizes as joins
from tsql.tpch.chart import Panel, draw
from tsql.tpch.check import Oracle, Outcome, fill, outcomes
from tsql.tpch.data import tables
from tsql.tpch.engines import Engine
from tsql.tpch.measure import Spread, Times, interleaved, ratios, short
from tsql.tpch.peers import open_engines, reason, versions
from tsql.tpch.queries import NUMBERS, query
from tsql.tpch.report import Row, Section, counted, machine, write

OURS, PEER = "tsql", "duckdb"

TITLES = {"memory": "Tables in memory, warm", "parquet": "From Parquet, warm"}
AIMS = {"memory": {"duckdb": 1.5, "hyper": 1.0}, "parquet": {"duckdb": 1.0, "polars": 1.0}}
"""The target speedup (geometric mean) over each peer, with two threads at scale 1."""
EACH = {"memory": 1 / 1.5, "parquet": None}
"""The same for each single query, against DuckDB."""

LEAST_MS = 100.0
"""Short queries are run more often, until each engine has been timed for this long."""


def bench(options: argparse.Namespace) -> int:
    """Measure what the options ask for, and print and write the report. A missed target is not a failure: the machine
    may be slow."""
    facts = (
        machine()
        | {"data": f"TPC-H scale {options.scale:g}", "threads": str(options.threads), "runs": str(options.runs)}
        | versions(options.engines)
    )
    sections: list[Section] = []
    panels: list[Panel] = []
    wrong: list[Outcome] = []
    for mode in options.modes:
        tell(f"{mode} ..")
        match mode:
            case "memory" | "parquet":
                section, panel, failed = warm(mode, options, facts)
                panels.append(panel)
                wrong += failed
                sections.append(section)
            case "cold":
                sections += fresh.cold(options.engines, options.queries, options.threads, options.repeats, tell)
            case "peak":
                sections.append(
                    fresh.peaks(options.engines, options.queries, options.scale, options.threads, options.repeats, tell)
                )
            case "threads":
                sections.append(
                    fresh.threads(options.engines, options.queries, options.scale, options.threads, options.runs, tell)
                )
            case "joins":
                sections += joins.growth(options.engines, options.join_rows, options.threads, options.runs, tell)
    print(write(sections, facts, options.markdown, options.json))
    if options.chart is not None:
        if panels:
            options.chart.write_text(draw(panels), encoding="utf-8")
        else:
            tell("no chart: it shows the modes memory and parquet")
    for outcome in wrong:
        tell(f"{outcome.engine}, query {outcome.number}: {outcome}")
    return 1 if wrong else 0


def warm(mode: str, options: argparse.Namespace, facts: dict[str, str]) -> tuple[Section, Panel, list[Outcome]]:
    """Run the queries on all engines in this process. Returns a table of times and ratios, the same data for the chart,
    and the wrong answers."""
    paths = tables(options.scale)
    oracle = Oracle(options.scale, paths)
    engines, absent = open_engines(options.engines, options.threads)
    try:
        for name in list(engines):
            try:
                fill(engines[name], paths, mode)
            except Exception as error:
                absent[name] = f"its tables could not be made: {reason(error)}"
                engines.pop(name).close()
        facts |= absent
        found = {(o.engine, o.number): o for o in outcomes(engines, options.queries, oracle)}
        times: dict[int, dict[str, Times]] = {}
        for number in options.queries:
            work = _work(engines, {name for name in engines if found[name, number].right}, number, options.scale)
            times[number] = interleaved(work, options.runs, least_ms=LEAST_MS) if work else {}
            tell(f"query {number}: " + ", ".join(f"{name} {short(t.median)} ms" for name, t in times[number].items()))
    finally:
        for engine in engines.values():
            engine.close()
        oracle.close()
    section = table(
        TITLES[mode],
        list(engines),
        times,
        {key: str(o) for key, o in found.items() if not o.right},
        AIMS[mode],
        EACH[mode],
    )
    bars = {name: {f"Q{number}": t[name].median for number, t in times.items() if name in t} for name in engines}
    return section, Panel(TITLES[mode], bars), [o for o in found.values() if o.wrong]


def table(
    title: str,
    names: list[str],
    times: dict[int, dict[str, Times]],
    failed: dict[tuple[str, int], str],
    aims: dict[str, float],
    each: float | None,
) -> Section:
    """Times and ratios per query, and their geometric means. A ratio is the peer's time over ours, within the same
    round."""
    columns = {name: f"{name}, ms" if name == OURS or OURS not in names else f"{name}, ms and ratio" for name in names}
    section = Section(title, list(columns.values()), f"times faster than {PEER}")
    compared: dict[str, list[Spread]] = {name: [] for name in names}
    for number, measured in times.items():
        row = Row(f"Q{number}", runs_ms={name: t.runs_ms for name, t in measured.items()})
        for name in names:
            if name not in measured:
                row.measured[columns[name]] = failed.get((name, number), "not run")
            elif name == OURS or OURS not in measured:
                row.measured[columns[name]] = str(measured[name].spread)
            else:
                ratio = ratios(measured[name], measured[OURS])
                compared[name].append(ratio)
                row.measured[columns[name]] = f"{short(measured[name].median)}, {ratio}"
                if name == PEER:
                    row.value = ratio.median
                    if each is not None:
                        row.aim, row.met = f">= {each:.2f}", ratio.median >= each
        section.rows.append(row)
    section.rows += _means(columns, times, compared, aims)
    return section


def _means(
    columns: dict[str, str],
    times: dict[int, dict[str, Times]],
    compared: dict[str, list[Spread]],
    aims: dict[str, float],
) -> list[Row]:
    """The rows of geometric means: times over the queries that every engine ran, then the ratio to each peer over the
    queries that both ran."""
    rows = []
    common = [measured for measured in times.values() if columns.keys() <= measured.keys()]
    if common:
        means = {
            column: str(Spread.mean([measured[name].spread for measured in common])) for name, column in columns.items()
        }
        rows.append(Row(f"geometric mean of {counted(len(common))}", means))
    for name, ratio_list in compared.items():
        if ratio_list:
            mean = Spread.mean(ratio_list)
            row = Row(
                f"geometric mean against {name}, {counted(len(ratio_list))}", {columns[name]: str(mean)}, mean.median
            )
            if name in aims:
                # The target is for all queries: a mean over some of them proves nothing.
                row.aim, row.met = (
                    f">= {aims[name]:g}",
                    mean.median >= aims[name] if len(ratio_list) == len(NUMBERS) else None,
                )
            rows.append(row)
    return rows


def _work(engines: dict[str, Engine], chosen: set[str], number: int, scale: float) -> dict[str, Callable[[], object]]:
    return {name: engines[name].tpch(number, query(number, scale), scale) for name in engines if name in chosen}


def tell(line: str) -> None:
    """Print progress, which is not part of the report."""
    print(line, file=sys.stderr, flush=True)
