"""Live queries: rows that come in batches, beside the bounded query over the same Arrow batches in the same run.

    python -m bench.live [--only NAME] [--rows 4000000] [--runs 3] [--quick] [--json FILE] [--spark] [--flink PYTHON]

Parts (NAME, or the beginning of one): ysb, operators, jobs, latency, nexmark, union. Answers are compared before
anything is timed: the bounded query's with DuckDB's where it can say the query, the live one's with the bounded one's.
A wrong answer ends the benchmark. Ratios are by the clock and by processor time; on a machine that others use, only the
second means something. --quick: few rows, for a test."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow.compute as pc

from bench import ads, nexmark
from bench.live_cases import auctions, jobs, union
from bench.live_cases.feeding import TIMES, Feeding, answers, compare, pieces
from bench.live_cases.queries import OPERATORS, YAHOO, Case, tables

LARGE, SMALL = 65_536, 1_024
WITHIN = "10 ms"


@dataclass
class Options:
    """What a run was asked for."""

    rows: int
    runs: int
    quick: bool
    spark: bool = False
    flink: str | None = None


@dataclass
class Line:
    """A line of the report: a name, and cells by column."""

    name: str
    cells: dict[str, str]
    values: dict[str, float] = field(default_factory=dict)


def rate(per_second: float) -> str:
    return f"{per_second / 1e6:,.2f}"


def fed(case: Case, options: Options, batch_rows: int) -> Line:
    """A query in batches of some size."""
    data = tables(case, options.rows)
    feeding = Feeding(case.sql, data)
    given = pieces(data, TIMES, batch_rows)
    for why in answers(case, feeding, given):
        sys.exit(why)
    found = compare(feeding, given, options.runs)
    feeding.close()
    cells = {
        "batch": f"{batch_rows:,}",
        "M events/s": rate(found.events_per_second),
        "M events/s of processor time": rate(found.rows / found.live.cpu_seconds),
        "bounded": rate(found.rows / found.bounded.seconds),
        "ratio": f"{found.ratio:.2f}",
        "by processor time": f"{found.cpu_ratio:.2f}",
        "aim": f">= {case.aim}" if batch_rows == LARGE else "25 M events/s",
    }
    return Line(case.name, cells, {"ratio": found.ratio, "cpu_ratio": found.cpu_ratio, "rows": found.rows})


def ysb(options: Options) -> list[Line]:
    """The Yahoo streaming benchmark from memory."""
    lines = [fed(YAHOO, options, LARGE), fed(YAHOO, options, SMALL)]
    lines.append(one_row(options))
    return lines


def one_row(options: Options) -> Line:
    """A row comes with the promise that ends its window, and its result goes out."""
    data = tables(YAHOO, 2_000 if options.quick else 100_000)
    feeding = Feeding(YAHOO.sql, data)
    query = feeding.query()
    views = data["ads"].filter(pc.equal(data["ads"]["event_type"], "view"))
    row = views.slice(0, 1).combine_chunks().to_batches()[0]
    start = row["event_time"][0].value // 10_000_000 * 10_000_000
    waits = []
    for number in range(60 if options.quick else 2_000):
        moved = jobs.later(row, number * 10_000_000)
        begun = time.perf_counter()
        found = feeding.advance(query, {"ads": moved}, start + (number + 1) * 10_000_000)
        waits.append((time.perf_counter() - begun) * 1_000)
        if sum(batch.num_rows for batch in found) != 1:
            sys.exit(f"YSB: {sum(batch.num_rows for batch in found)} results of one row")
    query.close()
    feeding.close()
    settled = sorted(waits[20:])
    median, p99 = statistics.median(settled), settled[len(settled) * 99 // 100]
    cells = {"batch": "1, result out", "M events/s": f"median {median:.2f} ms, p99 {p99:.2f} ms", "aim": "< 1 ms"}
    return Line("YSB", cells, {"median_ms": median, "p99_ms": p99})


def operators(options: Options) -> list[Line]:
    """Every operator in batches of 64 k rows."""
    return [fed(case, options, LARGE) for case in OPERATORS]


def whole_jobs(options: Options) -> list[Line]:
    """YSB as a job, with and without checkpoints."""
    table, cycles = ads.events(min(options.rows, 1_000_000)), 2 if options.quick else 300
    source, campaigns = jobs.Cycle(table, LARGE, cycles), ads.campaigns()
    expected, best = jobs.expected_views(source), {}
    for _ in range(options.runs):
        for checkpoint in (False, True):
            ran = jobs.run(source, campaigns, checkpoint)
            if ran.views != expected:
                sys.exit(f"YSB as a job: {ran.views:,} views, and {expected:,} came")
            if checkpoint not in best or ran.seconds < best[checkpoint].seconds:
                best[checkpoint] = ran
    cost = best[True].seconds / best[False].seconds - 1
    cpu_cost = best[True].cpu_seconds / best[False].cpu_seconds - 1
    lines = []
    for checkpoint, ran in best.items():
        cells = {
            "M events/s": rate(ran.rows / ran.seconds),
            "M events/s of processor time": rate(ran.rows / ran.cpu_seconds),
            "epochs": f"{ran.epochs}",
            "cost": f"{cost:.1%}" if checkpoint else "",
            "by processor time": f"{cpu_cost:.1%}" if checkpoint else "",
            "aim": "< 5 %" if checkpoint else "",
        }
        name = "job, checkpoints every second" if checkpoint else "job"
        lines.append(Line(f"YSB, {name}", cells, {"events_per_second": ran.rows / ran.seconds, "cost": cost}))
    return lines


def latency(options: Options) -> list[Line]:
    """Results of a paced stream."""
    lines = []
    for per_second in (10_000,) if options.quick else (100_000, 1_000_000):
        found = jobs.latency(per_second, 1.0 if options.quick else 10.0)
        if found.why is not None:
            sys.exit(f"latency: {found.why}")
        cells = {
            "events/s asked": f"{per_second:,}",
            "came": f"{found.per_second:,.0f}",
            "windows": f"{found.windows}",
            "median": f"{found.median_ms:.1f} ms",
            "p99": f"{found.p99_ms:.1f} ms",
            "aim": "p99 < 20 ms",
        }
        lines.append(Line(f"tumble 100 ms, within {WITHIN}", cells, asdict(found) | {"why": 0}))
    return lines


def auction_site(options: Options) -> list[Line]:
    """Nexmark, query by query."""
    events = 5_000 if options.quick else max(options.rows // 2, 100_000)
    data, lines, rates = nexmark.tables(events), [], []
    for query in nexmark.queries():
        found = auctions.measure(query, data, 512 if options.quick else LARGE, 1 if options.quick else 2)
        if found.why is not None:
            sys.exit(f"Nexmark {query.name}: {found.why}")
        rates.append(found.per_core)
        cells = {
            "M events/s": rate(found.events_per_second),
            "M events/s of processor time": rate(found.per_core),
            "by processor time": f"{found.ratio:.2f}",
        }
        lines.append(Line(f"Nexmark {query.name}", cells, {"per_core": found.per_core}))
    mean = auctions.mean(rates)
    aim = {"aim": ">= 3 M events/s of a core"}
    lines.append(
        Line("Nexmark, geometric mean", {"M events/s of processor time": rate(mean)} | aim, {"per_core": mean})
    )
    if options.spark or options.flink:
        from bench.live_cases import peers

        lines += [Line(name, cells) for name, cells in peers.compare(data, options.quick, options.spark, options.flink)]
    return lines


def late_unions(options: Options) -> list[Line]:
    """A union of two streams, of which one is late."""
    lines = []
    for skew_s in (1, 5) if options.quick else (1, 10, 20, 30, 40):
        ours, ordered, why = union.compare(skew_s, 12 if options.quick else 90)
        if why is not None:
            sys.exit(f"union, {skew_s} s skew: {why}")
        cells = {
            "ours, rows": f"{ours.rows:,}",
            "ours, MB": f"{ours.bytes / 1e6:.1f}",
            "ours, ms to a result": f"{ours.result_ms:.1f}",
            "ordering, rows": f"{ordered.rows:,}",
            "ordering, MB": f"{ordered.bytes / 1e6:.1f}",
            "ordering, ms to a result": f"{ordered.result_ms:.1f}",
            "memory": f"{ours.bytes / max(ordered.bytes, 1):.2f}",
            "aim": "<= 0.33" if skew_s == 40 else "",
        }
        lines.append(Line(f"union, {skew_s} s skew", cells, {"ours": ours.bytes, "ordering": ordered.bytes}))
    return lines


PARTS: dict[str, Callable[[Options], list[Line]]] = {
    "ysb": ysb,
    "operators": operators,
    "jobs": whole_jobs,
    "latency": latency,
    "nexmark": auction_site,
    "union": late_unions,
}


def shown(lines: list[Line]) -> str:
    """A Markdown table."""
    columns = list(dict.fromkeys(column for line in lines for column in line.cells))
    head = [f"| {' | '.join(['case', *columns])} |", f"|---|{'---|' * len(columns)}"]
    return "\n".join(
        head + [f"| {' | '.join([line.name, *(line.cells.get(column, '') for column in columns)])} |" for line in lines]
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.live", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="NAME", help=f"one of {', '.join(PARTS)}")
    parser.add_argument("--rows", type=int, default=4_000_000, help="events (default: 4 million)")
    parser.add_argument("--runs", type=int, default=3, help="the best of so many runs is shown")
    parser.add_argument("--quick", action="store_true", help="few rows, to see that it works")
    parser.add_argument("--spark", action="store_true", help="run some queries of Nexmark on Spark, too")
    parser.add_argument("--flink", metavar="PYTHON", help="and on Flink, by a Python that has apache-flink")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers")
    chosen = parser.parse_args(arguments)
    if chosen.rows < 1 or chosen.runs < 1:
        parser.error("--rows and --runs are positive numbers")
    wanted = [name for name in PARTS if name.startswith(chosen.only)]
    if not wanted:
        parser.error(f"--only is one of {', '.join(PARTS)}")
    options = Options(
        min(chosen.rows, 20_000) if chosen.quick else chosen.rows,
        1 if chosen.quick else chosen.runs,
        chosen.quick,
        chosen.spark,
        chosen.flink,
    )
    print(f"cores: {os.cpu_count()}; load before: {os.getloadavg()[0]:.2f}; rows: {options.rows:,}\n")
    report = {}
    for name in wanted:
        lines = PARTS[name](options)
        report[name] = [{"name": line.name, **line.cells, **line.values} for line in lines]
        print(f"### {name}\n\n{shown(lines)}\n", flush=True)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
