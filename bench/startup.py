"""The start of a process: processor time of fresh processes that run one query, beside DuckDB and Polars.

    python -m bench.startup [--repeats N] [--markdown] [--only TEXT]
    python -m bench.startup --imports "SELECT 1" [--slowest N]

Byte code and disk caches are warm: each command runs twice before it is measured. The sum of user and system time is
measured (`getrusage` of children), so other work on the machine has little effect. The commands take turns, and the
median is shown. `--imports` lists the slowest imports of one query (`python -X importtime`), alone and with what they
import."""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROWS = 100_000
FILE = "rows.parquet"
QUERY = f"SELECT g, sum(x) AS total, count(*) AS n FROM '{FILE}' WHERE s <> '7' GROUP BY g ORDER BY g"
"""A filter on strings, groups and a sort: a typical first look at a file."""


@dataclass
class Case:
    """A command, its expected output, and the seconds of each run."""

    name: str
    command: list[str]
    expected: str = ""
    aim: float | None = None
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def cases(answer: list[tuple[object, ...]]) -> list[Case]:
    """The measured commands. `answer`: the rows of the query over the file."""

    def python(text: str) -> list[str]:
        return [sys.executable, "-c", text]

    def csv(names: str, rows: Sequence[tuple[object, ...]]) -> str:
        return "\n".join([names, *(",".join(map(str, row)) for row in rows)])

    tsql = str(Path(sysconfig.get_path("scripts")) / "tsql")
    polars_query = (
        f"import polars as p; f = p.scan_parquet('{FILE}').filter(p.col('s') != '7').group_by('g')"
        ".agg(p.col('x').sum().alias('total'), p.len().alias('n')).sort('g').collect(); print(f.rows())"
    )
    return [
        Case("python -c pass", python("pass")),
        Case("import numpy", python("import numpy")),
        Case("import pyarrow", python("import pyarrow")),
        Case("import sqlglot", python("import sqlglot")),
        Case(
            "tsql run: SELECT 1, a table",
            [tsql, "run", "SELECT 1 AS one"],
            "┌─────────┐\n│   one   │\n│ integer │\n├─────────┤\n│       1 │\n└─────────┘\n 1 row",
            0.35,
        ),
        Case("tsql run: SELECT 1, csv", [tsql, "run", "SELECT 1 AS one", "-f", "csv"], csv("one", [(1,)]), 0.35),
        Case("tsql run: a Parquet file", [tsql, "run", QUERY, "-f", "csv"], csv("g,total,n", answer), 0.5),
        Case("tsql --version", [tsql, "--version"]),
        Case(
            "tsql in Python: SELECT 1",
            python("import tsql; print(tsql.connect().sql('SELECT 1').fetchall())"),
            "[(1,)]",
            0.3,
        ),
        Case(
            "tsql in Python: a Parquet file",
            python(f'import tsql; print(tsql.connect().sql("{QUERY}").fetchall())'),
            str(answer),
            0.5,
        ),
        Case(
            "duckdb in Python: SELECT 1",
            python("import duckdb; print(duckdb.connect().sql('SELECT 1').fetchall())"),
            "[(1,)]",
        ),
        Case(
            "duckdb in Python: a Parquet file",
            python(f'import duckdb; print(duckdb.connect().sql("{QUERY}").fetchall())'),
            str(answer),
        ),
        Case("polars in Python: a Parquet file", python(polars_query), str(answer)),
    ]


def make_file(folder: Path) -> list[tuple[object, ...]]:
    """Write the Parquet file and return the expected rows of the query over it, computed here."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "g": [i % 7 for i in range(ROWS)],
        "x": [i * 0.5 for i in range(ROWS)],
        "s": [str(i % 100) for i in range(ROWS)],
    }
    pq.write_table(pa.table(columns), folder / FILE)
    groups: dict[int, list[float]] = {}
    for g, x, s in zip(*columns.values(), strict=True):
        if s != "7":
            groups.setdefault(g, []).append(x)
    return [(g, sum(values), len(values)) for g, values in sorted(groups.items())]


def environment(folder: Path) -> dict[str, str]:
    """This process's environment, with its own cache folder, and with byte code, which tests may disable."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "80"}


def run(case: Case, folder: Path) -> float:
    """The processor seconds of one process. Its output is checked."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(case.command, cwd=folder, env=environment(folder), capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{case.name} failed:\n{done.stderr}")
    if case.expected and done.stdout.strip() != case.expected.strip():
        raise RuntimeError(f"{case.name} printed\n{done.stdout}\nand not\n{case.expected}")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measure(chosen: list[Case], folder: Path, repeats: int) -> None:
    """Run the cases in turn."""
    for case in chosen:
        for _ in range(2):
            run(case, folder)
    for _ in range(repeats):
        for case in chosen:
            case.seconds.append(run(case, folder))


def table(chosen: list[Case], markdown: bool) -> str:
    """The seconds of each case: median, minimum and target."""
    rows = [("process", "processor s", "least", "aim")]
    rows += [
        (case.name, f"{case.median:.3f}", f"{min(case.seconds):.3f}", "" if case.aim is None else f"{case.aim:.2f}")
        for case in chosen
    ]
    if markdown:
        rows.insert(1, ("---", "---:", "---:", "---:"))
        return "\n".join("| " + " | ".join(row) + " |" for row in rows)
    width = max(len(row[0]) for row in rows)
    return "\n".join(f"{row[0]:<{width}}  " + "  ".join(f"{cell:>11}" for cell in row[1:]) for row in rows)


_LINE = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \| (\s*)(\S+)")


def imports(sql: str, folder: Path, slowest: int) -> str:
    """The cost of one query's imports in milliseconds, in the second run, when all caches are warm."""
    code = "import sys, tsql; tsql.connect().sql(sys.argv[1]).fetchall()"
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", code, sql],
            cwd=folder,
            env=environment(folder),
            capture_output=True,
            text=True,
        )
    found = [_LINE.match(line) for line in done.stderr.splitlines()]
    rows = [(int(m[1]) / 1000, int(m[2]) / 1000, m[4]) for m in found if m]
    if done.returncode:
        raise RuntimeError(done.stderr)
    packages: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for own, _, name in rows:
        parts = name.split(".")
        package = ".".join(parts[:3]) if parts[0] == "tsql" else parts[0]
        packages[package] += own
        counts[package] += 1

    def section(title: str, lines: list[tuple[float, str]]) -> list[str]:
        return ["", title, *(f"{ms:9.1f}  {name}" for ms, name in lines)]

    def largest(key: Callable[[tuple[float, float, str]], float]) -> list[tuple[float, str]]:
        return sorted(((key(row), row[2]) for row in rows), reverse=True)[:slowest]

    return "\n".join(
        [
            f"{len(rows)} modules, {sum(own for own, _, _ in rows):.0f} ms",
            *section(
                "by package, with the number of modules",
                [(ms, f"{name} ({counts[name]})") for name, ms in packages.most_common(slowest)],
            ),
            *section("with what they import", largest(lambda row: row[1])),
            *section("by themselves", largest(lambda row: row[0])),
        ]
    )


def main() -> int:
    """Measure, or list the imports. Returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="bench.startup", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=9, metavar="N", help="runs of each command (default: 9)")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--only", default="", metavar="TEXT", help="the cases whose name contains this")
    parser.add_argument("--imports", metavar="SQL", help="list the slowest imports of a query instead")
    parser.add_argument("--slowest", type=int, default=25, metavar="N", help="how many imports (default: 25)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tsql-startup-") as name:
        folder = Path(name)
        answer = make_file(folder)
        time.sleep(1.1)  # of a file that has just changed no plan is kept
        if arguments.imports:
            print(imports(arguments.imports, folder, arguments.slowest))
            return 0
        chosen = [case for case in cases(answer) if arguments.only in case.name]
        measure(chosen, folder, arguments.repeats)
        print(table(chosen, arguments.markdown))
        return int(any(case.aim is not None and case.median > case.aim for case in chosen))


if __name__ == "__main__":
    sys.exit(main())
