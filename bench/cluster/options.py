"""What the commands of the Spark benchmarks share: options, the opened cluster, and the end with its report."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.cluster.session import MASTER, Cluster
from tsql.tpch.report import Section, machine, write


def add_options(parser: argparse.ArgumentParser, parts: Sequence[str]) -> None:
    """The options of every command. `parts` are the names for `--only`."""
    parser.add_argument("--runs", type=int, default=3, help="timed runs of each query (default: 3)")
    parser.add_argument("--only", action="append", choices=parts, help="this part (may be given several times)")
    parser.add_argument("--master", default=MASTER, help=f"the cluster (default: {MASTER})")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of generated data (default: the cache folder)")
    parser.add_argument("--adaptive", action="store_true", help="SparkSQL with its default settings only")
    parser.add_argument("--cpu", action="store_true", help="processor time of driver, JVMs and Python workers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measured times as JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables as markdown")


@contextmanager
def opened(options: argparse.Namespace, session: Any = None) -> Iterator[tuple[Cluster, dict[str, str]]]:
    """The cluster that the options ask for, or one around a session that is there, and the facts for the report."""
    if options.data is not None:
        os.environ["TSQL_DATA"] = str(options.data.resolve())
    facts = machine()
    cluster = Cluster(options.master, adaptive_only=options.adaptive, session=session)
    try:
        yield cluster, facts | cluster.facts | {"runs": str(options.runs)}
    finally:
        cluster.close()


def finish(options: argparse.Namespace, sections: list[Section], facts: dict[str, str], failures: int) -> int:
    """Print and write the report; the exit code."""
    print(write(sections, facts, options.markdown, options.json))
    if failures:
        print(f"{failures} case{'' if failures == 1 else 's'} without the right answer of tsql", file=sys.stderr)
    return 1 if failures else 0
