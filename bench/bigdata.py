"""The big data benchmark of Quill's evaluation on generated data: scans, groupings and joins on tsql and SparkSQL.

    python -m bench.bigdata [--visits 16000000] [--pages 2000000] [--runs 3] [--only scan|aggregate|join] [--cpu]
    [--chart FILE.svg] [--master local-cluster[2,1,4096]] [--data DIR] [--adaptive] [--json FILE] [--markdown FILE]

Scans keep 5, 50 and 95 % of the pages. Groupings have few groups, thousands, hundreds of thousands, and nearly as many
as rows. Joins run by three strategies, each forced by hints, with a growing side that is moved. SparkSQL has its hints
for shuffled and broadcast joins, and its own choice. Results are summed up, so that little is returned; the answers are
compared before anything is timed. The chart shows which strategy is the fastest at which size."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.cluster import visits
from bench.cluster.compare import OURS, Agreement, Comparison, Contender
from bench.cluster.options import add_options, finish, opened
from bench.cluster.session import Cluster
from bench.cluster.strategies import Line, Panel, draw
from tsql.tpch.report import Section

PARTS = ("scan", "aggregate", "join")
SELECTIVITIES = (5, 50, 95)
AGGREGATES = {"one phase": "AGG('one_phase')", "two phases": "AGG('two_phase')"}
JOIN_DAYS = (1, 16, 128, 1_024, 4_096, 8_192)
"""How many days of visits are joined: from 0.006 % to half of them."""
STRATEGIES = {
    "redistribute both": "REDISTRIBUTE(v, destURL, scope => 'global'), REDISTRIBUTE(r, pageURL, scope => 'global')",
    "broadcast": "BROADCAST(v, scope => 'global')",
    "broadcast, redistribute locally": "BROADCAST(v, scope => 'global'), REDISTRIBUTE(r, pageURL, scope => 'local')",
}
SPARK_STRATEGIES = {"shuffle_hash": "SHUFFLE_HASH(v)", "broadcast": "BROADCAST(v)"}


def scan(percent: int) -> str:
    """Pages of a high rank. The length is there so that the address is read, as the whole result would need it."""
    bound = visits.RANKS * (100 - percent) // 100
    return (
        "SELECT count(*) AS n, sum(rank) AS rank, sum(length(url)) AS letters FROM "
        f"(SELECT pageURL AS url, pageRank AS rank FROM rankings WHERE pageRank >= {bound}) AS pages"
    )


def aggregate(prefix: int, hint: str = "") -> str:
    """The revenue of each prefix of a source address."""
    text = f"/*+ {hint} */ " if hint else ""
    return (
        "SELECT count(*) AS n, sum(revenue) AS revenue, max(revenue) AS most, min(ip) AS first, max(ip) AS last FROM "
        f"(SELECT {text}substr(sourceIP, 1, {prefix}) AS ip, sum(adRevenue) AS revenue FROM uservisits "
        f"GROUP BY substr(sourceIP, 1, {prefix})) AS groups"
    )


def join(days: int, hint: str = "") -> str:
    """The source addresses that gave the highest revenue in some days, with the ranks of their pages."""
    text = f"/*+ {hint} */ " if hint else ""
    return (
        f"SELECT {text}substr(v.sourceIP, 1, 6) AS ip, sum(v.adRevenue) AS revenue, avg(r.pageRank) AS rank "
        "FROM rankings r JOIN uservisits v ON r.pageURL = v.destURL "
        f"WHERE v.visitDate >= DATE '1990-01-01' AND v.visitDate < DATE '1990-01-01' + INTERVAL '{days}' DAY "
        "GROUP BY substr(v.sourceIP, 1, 6) ORDER BY revenue DESC, ip LIMIT 10"
    )


def scans(cluster: Cluster, pages: int, runs: int, processor: bool) -> Comparison:
    """Measure the scans."""
    table = Comparison(f"Scans of {pages:,} pages", runs, processor=processor)
    for percent in SELECTIVITIES:
        sql = scan(percent)
        table.add(f"{percent} % of the rows", [cluster.ours(sql), *cluster.theirs(sql)], Agreement())
    return table


def aggregates(cluster: Cluster, rows: int, runs: int, processor: bool) -> Comparison:
    """Measure the groupings: tsql by its own choice and with the number of phases forced."""
    table = Comparison(f"Groupings of {rows:,} visits", runs, processor=processor)
    for prefix, possible in visits.PREFIX_GROUPS.items():
        contenders = [
            cluster.ours(aggregate(prefix)),
            *(cluster.ours(aggregate(prefix, hint), f"tsql, {name}") for name, hint in AGGREGATES.items()),
            *cluster.theirs(aggregate(prefix)),
        ]
        table.add(f"{min(possible, rows):,} groups or fewer", contenders, Agreement())
    return table


def joins(cluster: Cluster, rows: int, runs: int, processor: bool) -> Comparison:
    """Measure the joins: both engines by their own choice and by each strategy."""
    table = Comparison(f"Joins of visits with pages, {rows:,} visits in all", runs, processor=processor)
    for days in JOIN_DAYS:
        contenders = [
            cluster.ours(join(days)),
            *(cluster.ours(join(days, hint), f"tsql, {name}") for name, hint in STRATEGIES.items()),
            *cluster.theirs(join(days)),
            *_hinted(cluster, days),
        ]
        table.add(f"{joined_rows(rows, days):,} visits", contenders, Agreement(ordered=True))
    return table


def _hinted(cluster: Cluster, days: int) -> list[Contender]:
    """SparkSQL with hints, in its default settings. They count as peers: a user may write them."""
    return [
        replace(cluster.theirs(join(days, hint), f", {name}")[0], default=False)
        for name, hint in SPARK_STRATEGIES.items()
    ]


def joined_rows(rows: int, days: int) -> int:
    """About how many visits are joined."""
    return rows * days // visits.DAYS


def chart(table: Comparison, rows: int) -> str:
    """The SVG of the joins: the milliseconds of each strategy by the number of joined visits."""
    sizes = [max(joined_rows(rows, days), 1) for days in JOIN_DAYS]

    def lines(names: Mapping[str, str]) -> list[Line]:
        found = []
        for title, name in names.items():
            medians = [case.found.times[name].median if name in case.found.times else None for case in table.cases]
            found.append(Line(title, [(size, ms) for size, ms in zip(sizes, medians) if ms is not None]))
        return [line for line in found if line.points]

    ours = {name: f"{OURS}, {name}" for name in STRATEGIES}
    theirs = {name: f"SparkSQL, {name}" for name in SPARK_STRATEGIES}
    return draw([Panel("tsql", lines(ours)), Panel("SparkSQL", lines(theirs))], "visits that are joined")


def main(arguments: Sequence[str] | None = None, session: Any = None) -> int:
    """Run the benchmark, on a session that is there or on one of its own. The exit code is 1 if an answer is wrong or
    tsql fails."""
    parser = argparse.ArgumentParser(prog="python -m bench.bigdata", description=__doc__.partition("\n\n")[0])
    add_options(parser, PARTS)
    parser.add_argument("--visits", type=int, default=16_000_000, help="rows of uservisits (default: 16 million)")
    parser.add_argument("--pages", type=int, help="rows of rankings (default: an eighth of the visits)")
    parser.add_argument("--chart", type=Path, metavar="FILE.svg", help="draw the times of the join strategies")
    options = parser.parse_args(arguments)
    pages = options.visits // 8 if options.pages is None else options.pages
    if min(options.visits, pages, options.runs) < 1:
        parser.error("--visits, --pages and --runs are positive numbers")
    parts = options.only or PARTS
    if options.chart is not None and "join" not in parts:
        parser.error("--chart draws the joins: --only leaves them out")
    sections: list[Section] = []
    failures = 0
    with opened(options, session) as (cluster, facts):
        for name, path in visits.tables(options.visits, pages).items():
            cluster.view(name, path)
        for part, rows, measure in (
            ("scan", pages, scans),
            ("aggregate", options.visits, aggregates),
            ("join", options.visits, joins),
        ):
            if part in parts:
                table = measure(cluster, rows, options.runs, options.cpu)
                sections.append(table.conclude())
                failures += table.failures
                if part == "join" and options.chart is not None:
                    options.chart.write_text(chart(table, rows), encoding="utf-8")
        return finish(options, sections, facts, failures)


if __name__ == "__main__":
    sys.exit(main())
